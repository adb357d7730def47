"""Builder methods for element-wise functions of one array.

Source: XLA, Operation Semantics, Element-wise unary functions.
"""

from __future__ import annotations

from tpusim.build.base import Op
from tpusim.build.data import DataMethods


# Methods are called as in XlaBuilder (clz, expm1), opcodes as in HLO text: the two lists differ.
class UnaryMethods(DataMethods):
    """Functions of one array, element by element; the result has its dimensions."""

    def abs(self, operand: Op) -> Op:
        """Return |x|; of complex numbers the length, as a real number."""
        return self.emit("abs", [operand])

    def acos(self, operand: Op) -> Op:
        """Return the arc cosine."""
        return self.emit("acos", [operand])

    def acosh(self, operand: Op) -> Op:
        """Return the inverse hyperbolic cosine."""
        return self.emit("acosh", [operand])

    def asin(self, operand: Op) -> Op:
        """Return the arc sine."""
        return self.emit("asin", [operand])

    def asinh(self, operand: Op) -> Op:
        """Return the inverse hyperbolic sine."""
        return self.emit("asinh", [operand])

    def atanh(self, operand: Op) -> Op:
        """Return the inverse hyperbolic tangent."""
        return self.emit("atanh", [operand])

    def cbrt(self, operand: Op) -> Op:
        """Return the cube root."""
        return self.emit("cbrt", [operand])

    def ceil(self, operand: Op) -> Op:
        """Return the least integer not below."""
        return self.emit("ceil", [operand])

    def clz(self, operand: Op) -> Op:
        """Return how many zero bits stand before the first one."""
        return self.emit("count-leading-zeros", [operand])

    def cos(self, operand: Op) -> Op:
        """Return the cosine of radians."""
        return self.emit("cosine", [operand])

    def cosh(self, operand: Op) -> Op:
        """Return the hyperbolic cosine."""
        return self.emit("cosh", [operand])

    def erf(self, operand: Op) -> Op:
        """Return the error function."""
        return self.emit("erf", [operand])

    def exp(self, operand: Op) -> Op:
        """Return e to the power of x."""
        return self.emit("exponential", [operand])

    def expm1(self, operand: Op) -> Op:
        """Return e to the power of x, minus 1, exact near 0."""
        return self.emit("exponential-minus-one", [operand])

    def floor(self, operand: Op) -> Op:
        """Return the greatest integer not above."""
        return self.emit("floor", [operand])

    def imag(self, operand: Op) -> Op:
        """Return the imaginary part; 0 of real numbers."""
        return self.emit("imag", [operand])

    def is_finite(self, operand: Op) -> Op:
        """Return ``pred``: whether neither infinite nor NaN."""
        return self.emit("is-finite", [operand])

    def log(self, operand: Op) -> Op:
        """Return the natural logarithm."""
        return self.emit("log", [operand])

    def log1p(self, operand: Op) -> Op:
        """Return the natural logarithm of 1 + x, exact near 0."""
        return self.emit("log-plus-one", [operand])

    # XlaBuilder says Not, a word that Python keeps for itself.
    def logical_not(self, operand: Op) -> Op:
        """Return the negation of truth values, of integers bit by bit."""
        return self.emit("not", [operand])

    def logistic(self, operand: Op) -> Op:
        """Return 1 / (1 + e^-x)."""
        return self.emit("logistic", [operand])

    def neg(self, operand: Op) -> Op:
        """Return -x."""
        return self.emit("negate", [operand])

    def population_count(self, operand: Op) -> Op:
        """Return how many bits are one."""
        return self.emit("popcnt", [operand])

    def real(self, operand: Op) -> Op:
        """Return the real part; real numbers as they are."""
        return self.emit("real", [operand])

    def round(self, operand: Op) -> Op:
        """Return the nearest integer, halves away from zero."""
        return self.emit("round-nearest-afz", [operand])

    def round_nearest_even(self, operand: Op) -> Op:
        """Return the nearest integer, halves to the even one."""
        return self.emit("round-nearest-even", [operand])

    def rsqrt(self, operand: Op) -> Op:
        """Return 1 / the square root."""
        return self.emit("rsqrt", [operand])

    def sign(self, operand: Op) -> Op:
        """Return -1, -0, +0, 1 or NaN, as the sign is."""
        return self.emit("sign", [operand])

    def sin(self, operand: Op) -> Op:
        """Return the sine of radians."""
        return self.emit("sine", [operand])

    def sinh(self, operand: Op) -> Op:
        """Return the hyperbolic sine."""
        return self.emit("sinh", [operand])

    def sqrt(self, operand: Op) -> Op:
        """Return the square root."""
        return self.emit("sqrt", [operand])

    def tan(self, operand: Op) -> Op:
        """Return the tangent of radians."""
        return self.emit("tan", [operand])

    def tanh(self, operand: Op) -> Op:
        """Return the hyperbolic tangent."""
        return self.emit("tanh", [operand])

    def reduce_precision(self, operand: Op, exponent_bits: int, mantissa_bits: int) -> Op:
        """Return every number rounded as if its type had only these bits for exponent and mantissa."""
        attributes = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
        # The element type stays: the operation imitates a format and stores nothing narrower.
        return self.emit("reduce-precision", [operand], attributes)

    def copy(self, operand: Op) -> Op:
        """Return the same value in a buffer of its own."""
        return self.emit("copy", [operand])
