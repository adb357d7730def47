"""Element-wise kernels on floats and complex numbers, where NumPy alone does not follow XLA's rules.

They take arrays of f32, f64 or complex numbers that broadcast, of one dimension or more, and may keep temporaries:
``blocks.compute`` calls them on one block at a time.

Source: XLA, Operation Semantics, element-wise functions; erf on f32 after the rational function of Eigen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

# Between these, erf is x * P(x * x) / Q(x * x), beyond them it is 1 to within half a unit. Highest power first.
_ERF_END = 3.832506856900711
_ERF_NUMERATOR = (2.2905065861350646e-4, 3.4082910107109506e-3, 5.0955695062380861e-2, 1.8520832239976145e-1)
_ERF_NUMERATOR = (*_ERF_NUMERATOR, 1.128379143519084)
_ERF_DENOMINATOR = (-1.1791602954361697e-7, 2.3547966471313185e-5, 1.0179625278914885e-3, 1.4070470171167667e-2)
_ERF_DENOMINATOR = (*_ERF_DENOMINATOR, 1.1098505178285362e-1, 4.9746925110067538e-1, 1.0)


def maximum(left: Array, right: Array) -> Array:
    """Return the larger; NaN wins, and +0 is larger than -0."""
    result = np.maximum(left, right)
    # Zeros that differ in sign are equal to NumPy: their sum is -0 only if both are.
    ties = (left == 0) & (right == 0)
    if ties.any():
        np.add(left, right, out=result, where=ties)
    return result


def minimum(left: Array, right: Array) -> Array:
    """Return the smaller; NaN wins, and -0 is smaller than +0."""
    result = np.minimum(left, right)
    ties = (left == 0) & (right == 0)
    if ties.any():
        np.negative(-left - right, out=result, where=ties)
    return result


def clamp(low: Array, value: Array, high: Array) -> Array:
    """Return ``minimum(maximum(low, value), high)``: NaN in any of them is NaN, and ``high`` wins over ``low``."""
    return minimum(maximum(low, value), high)


def sign(value: Array) -> Array:
    """Return -1, 1, or the zero or NaN that is there."""
    result = np.sign(value)
    return np.copysign(result, value, out=result)


def round_away(value: Array) -> Array:
    """Round to the nearest integer, a half away from zero; zeros keep their sign."""
    whole = np.trunc(value)
    # The difference is exact, which value + 0.5 is not just below a half.
    whole += np.copysign(np.abs(value - whole) >= 0.5, value)
    return np.copysign(whole, value, out=whole)


def logistic(value: Array) -> Array:
    """Return ``1 / (1 + exp(-x))``."""
    result = np.negative(value)
    np.exp(result, out=result)
    result += 1
    return np.divide(1, result, out=result)


def rsqrt(value: Array) -> Array:
    """Return one over the square root; of -0 that is minus infinity."""
    root = np.sqrt(value)
    return np.divide(1, root, out=root)


def complex_atan2(left: Array, right: Array) -> Array:
    """Return ``-i log((x + i y) / sqrt(x x + y y))`` of ``y = left`` and ``x = right``."""
    return np.asarray(-1j * np.log((right + 1j * left) / np.sqrt(right * right + left * left)))


def erf(value: Array) -> Array:
    """Return the error function of f32, to about 2 units in the last place, or of f64."""
    if value.dtype == np.float64:
        result = np.empty(value.shape, np.float64)
        _erf64(np.ascontiguousarray(value).reshape(-1), result.reshape(-1))
        return result
    result = np.clip(value, -_ERF_END, _ERF_END)
    square = result * result
    result *= _polynomial(square, _ERF_NUMERATOR)
    result /= _polynomial(square, _ERF_DENOMINATOR)
    return result


def _polynomial(value: Array, coefficients: tuple[float, ...]) -> Array:
    """Evaluate a polynomial, highest power first, by Horner's rule."""
    total = np.full_like(value, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= value
        total += value.dtype.type(coefficient)
    return total


@njit(cache=True)
def _erf64(values: Array, results: Array) -> None:
    """Fill in the error function of f64 numbers."""
    for i in range(values.size):
        results[i] = math.erf(values[i])
