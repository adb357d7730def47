"""Builder methods for element-wise functions of two or three arrays, with the broadcasting that XlaBuilder adds.

In HLO all operands have the same dimensions. Here one may be a scalar, or have dimensions of size 1 that stretch, or
have a lower rank and say with ``broadcast_dimensions`` which dimensions of the other its own are.

Source: XLA, Operation Semantics and Broadcasting semantics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.build.base import Op, Sizes, array_of, as_dtype, choice, elements_of
from tpusim.build.unary import UnaryMethods
from tpusim.errors import ProgramError
from tpusim.shapes.shape import ArrayShape, TupleShape

if TYPE_CHECKING:
    from tpusim.shapes.dtype import DType


class BinaryMethods(UnaryMethods):
    """Functions of several arrays, element by element."""

    def add(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs + rhs; of truth values whether either holds."""
        return self.emit("add", self._aligned(lhs, rhs, broadcast_dimensions))

    def sub(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs - rhs."""
        return self.emit("subtract", self._aligned(lhs, rhs, broadcast_dimensions))

    def mul(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs * rhs; of truth values whether both hold."""
        return self.emit("multiply", self._aligned(lhs, rhs, broadcast_dimensions))

    def div(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs / rhs, of integers cut off towards zero."""
        return self.emit("divide", self._aligned(lhs, rhs, broadcast_dimensions))

    def rem(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return what the division leaves, with the sign of lhs."""
        return self.emit("remainder", self._aligned(lhs, rhs, broadcast_dimensions))

    def max(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the larger one; NaN if either is."""
        return self.emit("maximum", self._aligned(lhs, rhs, broadcast_dimensions))

    def min(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the smaller one; NaN if either is."""
        return self.emit("minimum", self._aligned(lhs, rhs, broadcast_dimensions))

    def pow(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs to the power of rhs."""
        return self.emit("power", self._aligned(lhs, rhs, broadcast_dimensions))

    def atan2(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the angle of the point (rhs, lhs)."""
        return self.emit("atan2", self._aligned(lhs, rhs, broadcast_dimensions))

    def complex(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return complex numbers from their real and imaginary parts."""
        return self.emit("complex", self._aligned(lhs, rhs, broadcast_dimensions))

    def logical_and(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the conjunction, of integers bit by bit."""
        return self.emit("and", self._aligned(lhs, rhs, broadcast_dimensions))

    def logical_or(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the disjunction, of integers bit by bit."""
        return self.emit("or", self._aligned(lhs, rhs, broadcast_dimensions))

    def xor(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the exclusive disjunction, of integers bit by bit."""
        return self.emit("xor", self._aligned(lhs, rhs, broadcast_dimensions))

    def mulhi(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return the upper half of the product of integers."""
        return self.emit("mulhi", self._aligned(lhs, rhs, broadcast_dimensions))

    def shift_left(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs with its bits moved up by rhs."""
        return self.emit("shift-left", self._aligned(lhs, rhs, broadcast_dimensions))

    def shift_right_arithmetic(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs with its bits moved down by rhs, the sign following."""
        return self.emit("shift-right-arithmetic", self._aligned(lhs, rhs, broadcast_dimensions))

    def shift_right_logical(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return lhs with its bits moved down by rhs, zeros following."""
        return self.emit("shift-right-logical", self._aligned(lhs, rhs, broadcast_dimensions))

    def eq(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs = rhs, as ``pred``; a NaN is no such thing to anything."""
        return self.compare(lhs, rhs, "EQ", broadcast_dimensions)

    def ne(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs != rhs, as ``pred``; a NaN is unequal to anything."""
        return self.compare(lhs, rhs, "NE", broadcast_dimensions)

    def ge(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs >= rhs, as ``pred``; a NaN is no such thing to anything."""
        return self.compare(lhs, rhs, "GE", broadcast_dimensions)

    def gt(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs > rhs, as ``pred``; a NaN is no such thing to anything."""
        return self.compare(lhs, rhs, "GT", broadcast_dimensions)

    def le(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs <= rhs, as ``pred``; a NaN is no such thing to anything."""
        return self.compare(lhs, rhs, "LE", broadcast_dimensions)

    def lt(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs < rhs, as ``pred``; a NaN is no such thing to anything."""
        return self.compare(lhs, rhs, "LT", broadcast_dimensions)

    def eq_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs = rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "EQ", broadcast_dimensions, "TOTALORDER")

    def ne_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs != rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "NE", broadcast_dimensions, "TOTALORDER")

    def ge_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs >= rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "GE", broadcast_dimensions, "TOTALORDER")

    def gt_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs > rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "GT", broadcast_dimensions, "TOTALORDER")

    def le_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs <= rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "LE", broadcast_dimensions, "TOTALORDER")

    def lt_total_order(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        """Return whether lhs < rhs where -NaN < -Inf < -0 < +0 < +Inf < +NaN."""
        return self.compare(lhs, rhs, "LT", broadcast_dimensions, "TOTALORDER")

    def compare(
        self,
        lhs: Op,
        rhs: Op,
        direction: str,
        broadcast_dimensions: Sizes = (),
        compare_type: str | None = None,
    ) -> Op:
        """Return ``pred``: ``direction`` is EQ, NE, GE, GT, LE or LT.

        ``compare_type`` is FLOAT, TOTALORDER, SIGNED or UNSIGNED; what the element type implies if it is None.
        """
        attributes = {
            "direction": choice(direction, "EQ NE GE GT LE LT"),
            "type": None if compare_type is None else choice(compare_type, "FLOAT TOTALORDER SIGNED UNSIGNED"),
        }
        return self.emit("compare", self._aligned(lhs, rhs, broadcast_dimensions), attributes)

    def clamp(self, min: Op, operand: Op, max: Op) -> Op:
        """Return the operand kept between ``min`` and ``max``, each an array like it or a scalar."""
        return self.emit("clamp", self._scalars_stretched([min, operand, max]))

    def select(self, pred: Op, on_true: Op, on_false: Op) -> Op:
        """Return elements of ``on_true`` where ``pred`` holds, of ``on_false`` elsewhere.

        A scalar chooses between whole values. Between tuples that is a choice of each element: HLO had an instruction
        for it and has it no more.
        """
        if isinstance(on_true.shape, TupleShape):
            return self._select_tuple(pred, on_true, on_false)
        return self.emit("select", self._scalars_stretched([pred, on_true, on_false]))

    def stochastic_convert_type(self, operand: Op, random: Op, new_element_type: DType | str) -> Op:
        """Return numbers rounded to a type up or down as the random bits decide."""
        shape = ArrayShape(as_dtype(new_element_type), array_of(operand).dimensions)
        return self.emit("stochastic-convert", [operand, random], shape=shape)

    def _aligned(self, lhs: Op, rhs: Op, broadcast_dimensions: Sizes) -> list[Op]:
        """Return both operands copied to the dimensions of the result."""
        # First the ranks, then the sizes: a raised operand may still have dimensions of size 1.
        ranks = array_of(lhs).rank, array_of(rhs).rank
        if ranks[0] < ranks[1]:
            lhs = self._raised(lhs, array_of(rhs), broadcast_dimensions)
        elif ranks[0] > ranks[1]:
            rhs = self._raised(rhs, array_of(lhs), broadcast_dimensions)
        elif broadcast_dimensions and tuple(broadcast_dimensions) != tuple(range(ranks[0])):
            raise ProgramError(f"expected no broadcast_dimensions between equal ranks, found {broadcast_dimensions}")
        pairs = zip(array_of(lhs).dimensions, array_of(rhs).dimensions, strict=True)
        # A dimension of size 1 gives way to any size, 0 too.
        sizes = tuple(one if other == 1 else other for one, other in pairs)
        return [self._grown(lhs, sizes, rhs), self._grown(rhs, sizes, lhs)]

    def _raised(self, operand: Op, larger: ArrayShape, broadcast_dimensions: Sizes) -> Op:
        """Return the operand with the rank of the other one; its own sizes stay as they are."""
        self._check_broadcast_dimensions(array_of(operand), larger.rank, broadcast_dimensions)
        # Its own sizes, for what is 1 is stretched only after the other operand has had its say.
        sizes = list(larger.dimensions)
        for size, number in zip(array_of(operand).dimensions, broadcast_dimensions, strict=True):
            sizes[number] = size
        return self._in_dim(operand, sizes, broadcast_dimensions)

    def _grown(self, operand: Op, sizes: tuple[int, ...], other: Op) -> Op:
        """Return the operand with its dimensions of size 1 stretched; no other may differ."""
        # The wider of two sizes was chosen blindly; here it shows whether the other could give way.
        own = array_of(operand).dimensions
        if any(size not in (1, wanted) for size, wanted in zip(own, sizes, strict=True)):
            raise ProgramError(f"expected dimensions that are equal or 1, found {operand.shape} and {other.shape}")
        return self._stretched(operand, sizes)

    def _scalars_stretched(self, operands: list[Op]) -> list[Op]:
        """Return the operands, scalars among them copied to the dimensions of the arrays."""
        # Only scalars give way here: XLA stretches no dimensions of size 1 of three operands.
        sizes = next((array_of(op).dimensions for op in operands if array_of(op).rank), ())
        return [op if array_of(op).rank else self._stretched(op, sizes) for op in operands]

    def _select_tuple(self, pred: Op, on_true: Op, on_false: Op) -> Op:
        """Return a tuple of choices between the elements of two."""
        # Nested tuples come back to this method through ``select``.
        count = len(elements_of(on_true))
        parts = [
            [self.emit("get-tuple-element", [op], {"index": i}) for op in (on_true, on_false)] for i in range(count)
        ]
        return self.emit("tuple", [self.select(pred, *pair) for pair in parts])
