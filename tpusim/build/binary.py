"""Builder methods for element-wise functions of two or three arrays, with the broadcasting that XlaBuilder adds.

In HLO all operands have the same dimensions. Here one may be a scalar, or have dimensions of size 1 that stretch, or
have a lower rank and say with ``broadcast_dimensions`` which dimensions of the other its own are.

Source: XLA, Operation Semantics and Broadcasting semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tpusim.build.base import Op, Sizes, array_of, as_dtype, choice, elements_of
from tpusim.build.data import DataMethods
from tpusim.errors import ProgramError
from tpusim.shapes.shape import ArrayShape, TupleShape

if TYPE_CHECKING:
    from tpusim.shapes.dtype import DType


_TOTAL = "where -NaN < -Inf < -0 < +0 < +Inf < +NaN."


def _of_two(opcode: str, doc: str) -> Callable[..., Op]:
    """Return the method that makes an opcode of two operands, ``(lhs, rhs, broadcast_dimensions=())``."""

    def method(self: BinaryMethods, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        return self.emit(opcode, self._aligned(lhs, rhs, broadcast_dimensions))

    method.__doc__ = doc
    return method


def _comparison(direction: str, doc: str, compare_type: str | None = None) -> Callable[..., Op]:
    """Return the method that compares in one direction, ``(lhs, rhs, broadcast_dimensions=())``."""

    def method(self: BinaryMethods, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        return self.compare(lhs, rhs, direction, broadcast_dimensions, compare_type)

    method.__doc__ = doc
    return method


class BinaryMethods(DataMethods):
    """Functions of several arrays, element by element."""

    add = _of_two("add", "Return lhs + rhs; of truth values whether either holds.")
    sub = _of_two("subtract", "Return lhs - rhs.")
    mul = _of_two("multiply", "Return lhs * rhs; of truth values whether both hold.")
    div = _of_two("divide", "Return lhs / rhs, of integers cut off towards zero.")
    rem = _of_two("remainder", "Return what the division leaves, with the sign of lhs.")
    max = _of_two("maximum", "Return the larger one; NaN if either is.")
    min = _of_two("minimum", "Return the smaller one; NaN if either is.")
    pow = _of_two("power", "Return lhs to the power of rhs.")
    atan2 = _of_two("atan2", "Return the angle of the point (rhs, lhs).")
    complex = _of_two("complex", "Return complex numbers from their real and imaginary parts.")
    logical_and = _of_two("and", "Return the conjunction, of integers bit by bit.")
    logical_or = _of_two("or", "Return the disjunction, of integers bit by bit.")
    xor = _of_two("xor", "Return the exclusive disjunction, of integers bit by bit.")
    mulhi = _of_two("mulhi", "Return the upper half of the product of integers.")
    shift_left = _of_two("shift-left", "Return lhs moved up by rhs bits.")
    shift_right_arithmetic = _of_two("shift-right-arithmetic", "Return lhs moved down by rhs bits, the sign following.")
    shift_right_logical = _of_two("shift-right-logical", "Return lhs moved down by rhs bits, zeros following.")
    eq = _comparison("EQ", "Return whether lhs = rhs, as ``pred``; false beside a NaN.")
    ne = _comparison("NE", "Return whether lhs != rhs, as ``pred``; true beside a NaN.")
    ge = _comparison("GE", "Return whether lhs >= rhs, as ``pred``; false beside a NaN.")
    gt = _comparison("GT", "Return whether lhs > rhs, as ``pred``; false beside a NaN.")
    le = _comparison("LE", "Return whether lhs <= rhs, as ``pred``; false beside a NaN.")
    lt = _comparison("LT", "Return whether lhs < rhs, as ``pred``; false beside a NaN.")
    eq_total_order = _comparison("EQ", f"Return whether lhs = rhs {_TOTAL}", "TOTALORDER")
    ne_total_order = _comparison("NE", f"Return whether lhs != rhs {_TOTAL}", "TOTALORDER")
    ge_total_order = _comparison("GE", f"Return whether lhs >= rhs {_TOTAL}", "TOTALORDER")
    gt_total_order = _comparison("GT", f"Return whether lhs > rhs {_TOTAL}", "TOTALORDER")
    le_total_order = _comparison("LE", f"Return whether lhs <= rhs {_TOTAL}", "TOTALORDER")
    lt_total_order = _comparison("LT", f"Return whether lhs < rhs {_TOTAL}", "TOTALORDER")

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

    def _select_tuple(self, pred: Op, on_true: Op, on_false: Op) -> Op:
        """Return a tuple of choices between the elements of two."""
        # Nested tuples come back to this method through ``select``.
        count = len(elements_of(on_true))
        parts = [
            [self.emit("get-tuple-element", [op], {"index": i}) for op in (on_true, on_false)] for i in range(count)
        ]
        return self.emit("tuple", [self.select(pred, *pair) for pair in parts])
