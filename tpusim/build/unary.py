"""Builder methods for element-wise functions of one array.

Source: XLA, Operation Semantics, Element-wise unary functions.
"""

from __future__ import annotations

from collections.abc import Callable

from tpusim.build.base import BuilderBase, Op
from tpusim.build.data import DataMethods


def _of_one(opcode: str, doc: str) -> Callable[[BuilderBase, Op], Op]:
    """Return the method that makes an opcode of one operand, under its docstring."""

    def method(self: BuilderBase, operand: Op) -> Op:
        return self.emit(opcode, [operand])

    method.__doc__ = doc
    return method


# Methods are called as in XlaBuilder (clz, expm1), opcodes as in HLO text: the two lists differ.
class UnaryMethods(DataMethods):
    """Functions of one array, element by element; the result has its dimensions."""

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

    def reduce_precision(self, operand: Op, exponent_bits: int, mantissa_bits: int) -> Op:
        """Return every number rounded as if its type had only these bits for exponent and mantissa."""
        attributes = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
        # The element type stays: the operation imitates a format and stores nothing narrower.
        return self.emit("reduce-precision", [operand], attributes)

    copy = _of_one("copy", "Return the same value in a buffer of its own.")
