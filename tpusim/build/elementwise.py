"""Builder methods for element-wise functions of one, two or three arrays, with the broadcasting that XlaBuilder adds.

In HLO all operands have the same dimensions. Here one may be a scalar, or have dimensions of size 1 that stretch, or
have a lower rank and say with ``broadcast_dimensions`` which dimensions of the other its own are.

Source: XLA, Operation Semantics (Element-wise functions) and Broadcasting semantics.
"""

from __future__ import annotations

from collections.abc import Callable

from tpusim.build.base import BuilderBase, Op, Sizes, array_of, as_dtype, choice
from tpusim.build.data import DataMethods
from tpusim.errors import ProgramError
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, TupleShape

_TOTAL = "where -NaN < -Inf < -0 < +0 < +Inf < +NaN."


def _of_one(opcode: str, doc: str) -> Callable[[BuilderBase, Op], Op]:
    """Return the method that makes an opcode of one operand, under its docstring."""

    def method(self: BuilderBase, operand: Op) -> Op:
        return self.emit(opcode, [operand])

    method.__doc__ = doc
    return method


def _of_two(opcode: str, doc: str) -> Callable[..., Op]:
    """Return the method that makes an opcode of two operands, ``(lhs, rhs, broadcast_dimensions=())``."""

    def method(self: ElementwiseMethods, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        return self.emit(opcode, self._aligned(lhs, rhs, broadcast_dimensions))

    method.__doc__ = doc
    return method


def _comparison(direction: str, doc: str, compare_type: str | None = None) -> Callable[..., Op]:
    """Return the method that compares in one direction, ``(lhs, rhs, broadcast_dimensions=())``."""

    def method(self: ElementwiseMethods, lhs: Op, rhs: Op, broadcast_dimensions: Sizes = ()) -> Op:
        return self.compare(lhs, rhs, direction, broadcast_dimensions, compare_type)

    method.__doc__ = doc
    return method


# Methods are called as in XlaBuilder (clz, expm1), opcodes as in HLO text: the two lists differ.
class ElementwiseMethods(DataMethods):
    """Functions of arrays, element by element."""

    abs = _of_one("abs", "Return |x|; of complex numbers the length, as a real number.")
    acos = _of_one("acos", "Return the arc cosine.")
    acosh = _of_one("acosh", "Return the inverse hyperbolic cosine.")
    asin = _of_one("asin", "Return the arc sine.")
    asinh = _of_one("asinh", "Return the inverse hyperbolic sine.")
    atanh = _of_one("atanh", "Return the inverse hyperbolic tangent.")
    cbrt = _of_one("cbrt", "Return the cube root.")
    ceil = _of_one("ceil", "Return the least integer not below.")
    clz = _of_one("count-leading-zeros", "Return how many zero bits stand before the first one.")
    cos = _of_one("cosine", "Return the cosine of radians.")
    cosh = _of_one("cosh", "Return the hyperbolic cosine.")
    erf = _of_one("erf", "Return the error function.")
    exp = _of_one("exponential", "Return e to the power of x.")
    expm1 = _of_one("exponential-minus-one", "Return e to the power of x, minus 1, exact near 0.")
    floor = _of_one("floor", "Return the greatest integer not above.")
    imag = _of_one("imag", "Return the imaginary part; 0 of real numbers.")
    is_finite = _of_one("is-finite", "Return ``pred``: whether neither infinite nor NaN.")
    log = _of_one("log", "Return the natural logarithm.")
    log1p = _of_one("log-plus-one", "Return the natural logarithm of 1 + x, exact near 0.")
    # XlaBuilder says Not, a word that Python keeps for itself.
    logical_not = _of_one("not", "Return the negation of truth values, of integers bit by bit.")
    logistic = _of_one("logistic", "Return 1 / (1 + e^-x).")
    neg = _of_one("negate", "Return -x.")
    population_count = _of_one("popcnt", "Return how many bits are one.")
    real = _of_one("real", "Return the real part; real numbers as they are.")
    round = _of_one("round-nearest-afz", "Return the nearest integer, halves away from zero.")
    round_nearest_even = _of_one("round-nearest-even", "Return the nearest integer, halves to the even one.")
    rsqrt = _of_one("rsqrt", "Return 1 / the square root.")
    sign = _of_one("sign", "Return -1, -0, +0, 1 or NaN, as the sign is.")
    sin = _of_one("sine", "Return the sine of radians.")
    sinh = _of_one("sinh", "Return the hyperbolic sine.")
    sqrt = _of_one("sqrt", "Return the square root.")
    tan = _of_one("tan", "Return the tangent of radians.")
    tanh = _of_one("tanh", "Return the hyperbolic tangent.")
    copy = _of_one("copy", "Return the same value in a buffer of its own.")

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

    def reduce_precision(self, operand: Op, exponent_bits: int, mantissa_bits: int) -> Op:
        """Return every number rounded as if its type had only these bits for exponent and mantissa."""
        # The element type stays: the operation imitates a format and stores nothing narrower.
        return self.emit(
            "reduce-precision", [operand], {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
        )

    def compare(
        self, lhs: Op, rhs: Op, direction: str, broadcast_dimensions: Sizes = (), compare_type: str | None = None
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

        A scalar chooses between whole values; of tuples each element is chosen, since HLO's select takes arrays only.
        """
        if isinstance(on_true.shape, TupleShape):
            numbers = range(len(on_true.shape.elements))
            pairs = [[self.get_tuple_element(op, i) for op in (on_true, on_false)] for i in numbers]
            # Nested tuples come back to this method.
            return self.tuple([self.select(pred, *pair) for pair in pairs])
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
            lhs = self._raised(lhs, array_of(rhs).dimensions, broadcast_dimensions)
        elif ranks[0] > ranks[1]:
            rhs = self._raised(rhs, array_of(lhs).dimensions, broadcast_dimensions)
        elif broadcast_dimensions and tuple(broadcast_dimensions) != tuple(range(ranks[0])):
            raise ProgramError(f"expected no broadcast_dimensions between equal ranks, found {broadcast_dimensions}")
        pairs = zip(array_of(lhs).dimensions, array_of(rhs).dimensions, strict=True)
        # A dimension of size 1 gives way to any size, 0 too.
        sizes = tuple(one if other == 1 else other for one, other in pairs)
        return [self._grown(lhs, sizes, rhs), self._grown(rhs, sizes, lhs)]

    def _grown(self, operand: Op, sizes: tuple[int, ...], other: Op) -> Op:
        """Return the operand with its dimensions of size 1 stretched; no other may differ."""
        # The wider of two sizes was chosen blindly; here it shows whether the other could give way.
        own = array_of(operand).dimensions
        if any(size not in (1, wanted) for size, wanted in zip(own, sizes, strict=True)):
            raise ProgramError(f"expected dimensions that are equal or 1, found {operand.shape} and {other.shape}")
        return self._stretched(operand, sizes)
