"""Element-wise kernels on integers, where NumPy alone does not follow XLA's rules: division, power, bits.

They take arrays of whole-byte integers that broadcast, of one dimension or more, and wrap like the machine. Kernels
that ask for ``bits`` get numbers of that many bits in arrays that may be wider.

Source: XLA, Operation Semantics, element-wise functions; division by zero as every backend of XLA has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def divide(left: Array, right: Array) -> Array:
    """Divide towards zero; anything by zero is all ones, and the lowest number by -1 is itself."""
    # What the remainder leaves divides evenly, so that rounding down or towards zero is the same.
    quotient = np.floor_divide(left - np.fmod(left, right), right)
    return np.where(right == 0, ~np.zeros_like(quotient), quotient)


def remainder(left: Array, right: Array) -> Array:
    """Return the remainder with the sign of the dividend; by zero it is the dividend."""
    return np.where(right == 0, left, np.fmod(left, right))


def power(base: Array, exponent: Array) -> Array:
    """Raise to a power, wrapping; with a negative exponent only 1 and -1 do not become 0."""
    result = np.ones(np.broadcast_shapes(base.shape, exponent.shape), base.dtype)
    # One turn per bit of the largest exponent, for all elements at once.
    squared, left = base, np.maximum(exponent, 0)
    while left.any():
        result = result * np.where(left & 1, squared, 1)
        squared, left = squared * squared, left >> 1
    reciprocal = np.where(np.abs(base) == 1, np.where((exponent & 1).astype(bool), base, 1), 0)
    return np.where(exponent < 0, reciprocal, result).astype(base.dtype, copy=False)


def multiply_high(left: Array, right: Array, bits: int) -> Array:
    """Return the upper half of the product of two numbers of ``bits`` bits, signed or unsigned by their type."""
    if bits < 64:
        wide = np.int64 if left.dtype.kind == "i" else np.uint64
        return np.asarray((left.astype(wide) * right.astype(wide)) >> bits)
    # From the products of their halves, as unsigned numbers.
    one, two, half, low = left.view(np.uint64), right.view(np.uint64), np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (one >> half) * (two & low) + (((one & low) * (two & low)) >> half)
    other = (one & low) * (two >> half) + (middle & low)
    high = (one >> half) * (two >> half) + (middle >> half) + (other >> half)
    if left.dtype.kind == "u":
        return high
    # A negative factor counts 2 ** 64 too much as an unsigned one.
    return high.view(np.int64) - np.where(left < 0, right, 0) - np.where(right < 0, left, 0)


def count_leading_zeros(value: Array, bits: int) -> Array:
    """Return how many zeros stand above the highest one; of zero that is ``bits``."""
    smeared = value.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            smeared |= smeared >> shift
    return np.asarray(bits - np.bitwise_count(smeared))
