"""Element-wise kernels on floats and complex numbers, where NumPy alone does not follow XLA's rules.

They take arrays of f32, f64 or complex numbers that broadcast, of one dimension or more, and may keep temporaries:
``blocks.compute`` calls them on one block at a time.

Source: XLA, Operation Semantics, element-wise functions; erf on f32 after the rational function of Eigen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.compiled import njit

Array = NDArray[Any]

# Between these, erf is x * P(x * x) / Q(x * x), beyond them it is 1 to within half a unit. Highest power first.
_ERF_END = np.float32(3.832506856900711)
_P = tuple(map(np.float32, (2.2905065861350646e-4, 3.4082910107109506e-3, 5.0955695062380861e-2)))
_P += tuple(map(np.float32, (1.8520832239976145e-1, 1.128379143519084)))
_Q = tuple(map(np.float32, (-1.1791602954361697e-7, 2.3547966471313185e-5, 1.0179625278914885e-3)))
_Q += tuple(map(np.float32, (1.4070470171167667e-2, 1.1098505178285362e-1, 4.9746925110067538e-1, 1.0)))


def power(base: Array, exponent: Array) -> Array:
    """Return the power of floats; that to one half is the root, but for -inf and -0, whose powers are positive."""
    # NumPy takes the root as well, and forgets these two, but only of an exponent that lies in memory once.
    result, half = np.power(base, exponent), exponent == np.float32(0.5)
    if half.any():
        # Adding +0 makes -0 one, too.
        roots = np.where(np.isneginf(base), -base, np.sqrt(base + np.zeros((), base.dtype)))
        np.copyto(result, roots, where=half)
    return result


def complex_power(base: Array, exponent: Array) -> Array:
    """Return the power of complex numbers; 1 to whatever power is 1."""
    # In c128, where what is too large for c64 still has a direction.
    wide = np.power(base.astype(np.complex128), exponent.astype(np.complex128)).astype(base.dtype)
    return np.where(base == 1, base, wide)


def complex_divide(left: Array, right: Array) -> Array:
    """Return the quotient; what is divided by zero or infinity keeps its direction (C99, Annex G.5.1)."""
    result = np.asarray(np.divide(left, right))
    a, b, c, d = np.broadcast_arrays(left.real, left.imag, right.real, right.imag)
    is_nan = np.isnan(result.real) & np.isnan(result.imag)
    by_zero = (c == 0) & (d == 0) & ~(np.isnan(a) & np.isnan(b))
    infinite = is_nan & (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    by_infinity = is_nan & (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    a1, b1 = _boxed(a, b)
    c1, d1 = _boxed(c, d)
    inf = result.real.dtype.type(np.inf)
    for where, real, imaginary in (
        (by_zero, np.copysign(inf, c) * a, np.copysign(inf, c) * b),
        (infinite & ~by_zero, inf * (a1 * c + b1 * d), inf * (b1 * c - a1 * d)),
        (by_infinity, 0 * (a * c1 + b * d1), 0 * (b * c1 - a * d1)),
    ):
        np.copyto(result.real, real, where=where)
        np.copyto(result.imag, imaginary, where=where)
    return result


def _boxed(real: Array, imaginary: Array) -> tuple[Array, Array]:
    """Return the direction of infinite numbers: 1 where they are infinite and 0 where not, with their signs."""
    parts = (np.copysign(np.isinf(part).astype(part.dtype), part) for part in (real, imaginary))
    return next(parts), next(parts)


def complex_exponential_minus_one(value: Array) -> Array:
    """Return ``exp(z) - 1``; a real number stays one, however large it becomes, and NaN as well."""
    result = np.asarray(np.expm1(value))
    # NumPy makes NaN beside an infinity and beside NaN.
    return _complex(result.real, np.where(value.imag == 0, value.imag, result.imag))


def complex_log_plus_one(value: Array) -> Array:
    """Return ``log(1 + z)``, exact near 0, where ``1 + z`` has lost all digits of ``z``."""
    wide = value.astype(np.complex128)
    x, y = wide.real, wide.imag
    near = np.log1p(x * (2 + x) + y * y) / 2
    real = np.where(np.maximum(np.abs(x), np.abs(y)) < 0.5, near, np.log(np.hypot(1 + x, y)))
    return _complex(real, np.arctan2(y, 1 + x)).astype(value.dtype)


def complex_logistic(value: Array) -> Array:
    """Return ``1 / (1 + exp(-z))``, through the exponential that does not overflow."""
    is_left = value.real < 0
    small = np.exp(np.where(is_left, value, -value))
    return np.asarray(np.where(is_left, small, 1) / (1 + small)).astype(value.dtype)


def _complex(real: Array, imaginary: Array) -> Array:
    """Return complex numbers of their parts; a sum would make NaN of an infinity in one of them."""
    result = np.empty(real.shape, np.result_type(real, np.complex64))
    result.real, result.imag = real, imaginary
    return result


def maximum(left: Array, right: Array) -> Array:
    """Return the larger; NaN wins, and +0 is larger than -0."""
    return _of_pairs(write_larger, left, right)


def minimum(left: Array, right: Array) -> Array:
    """Return the smaller; NaN wins, and -0 is smaller than +0."""
    return _of_pairs(write_smaller, left, right)


def _of_pairs(kernel: Callable[[Array, Array, Array], None], left: Array, right: Array) -> Array:
    dimensions = left.shape if left.shape == right.shape else np.broadcast_shapes(left.shape, right.shape)
    result = np.empty(dimensions, left.dtype)
    one, two = (np.ascontiguousarray(np.broadcast_to(side, dimensions)).reshape(-1) for side in (left, right))
    kernel(one, two, result.reshape(-1))
    return result


# To NumPy zeros that differ in sign are equal. Without jumps, so that the loops run in the vector registers.
@njit(cache=True, nogil=True)
def write_larger(left: Array, right: Array, result: Array) -> None:
    """Write the larger of each pair."""
    for i in range(result.size):
        x, y = left[i], right[i]
        larger = x if x >= y or x != x else y
        # The sum of two zeros is -0 only if both are.
        result[i] = x + y if x == 0 and y == 0 else larger


@njit(cache=True, nogil=True)
def write_smaller(left: Array, right: Array, result: Array) -> None:
    """Write the smaller of each pair."""
    for i in range(result.size):
        x, y = left[i], right[i]
        smaller = x if x <= y or x != x else y
        result[i] = -(-x - y) if x == 0 and y == 0 else smaller


def clamp(low: Array, value: Array, high: Array) -> Array:
    """Return ``minimum(maximum(low, value), high)``: NaN in any of them is NaN, and ``high`` wins over ``low``."""
    return minimum(maximum(low, value), high)


def sign(value: Array) -> Array:
    """Return -1, 1, or the zero or NaN that is there."""
    result = np.sign(value)
    return np.copysign(result, value, out=result)


def complex_sign(value: Array) -> Array:
    """Return the number over its size, each part by itself: nothing of one that is too large for its size; zeros stay.

    Source: XLA, EmitComplexSign.
    """
    size = np.abs(value)
    size[size == 0] = 1
    result = np.empty_like(value)
    np.divide(value.real, size, out=result.real)
    np.divide(value.imag, size, out=result.imag)
    return result


def round_away(value: Array) -> Array:
    """Round to the nearest integer, a half away from zero; zeros keep their sign."""
    # The number below a half: with the half itself, what lies just below one would be rounded up to it by the sum.
    below_half = np.nextafter(value.dtype.type(0.5), value.dtype.type(0))
    result = np.copysign(below_half, value)
    result += value
    return np.trunc(result, out=result)


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


def complex_rsqrt(value: Array) -> Array:
    """Return one over the square root; zero of what is infinite in a part, with the signs of the conjugate."""
    root = np.sqrt(value)
    result = np.divide(1, root)
    infinite = np.isinf(value.real) | np.isinf(value.imag)
    result.real[infinite] = 0
    result.imag[infinite] = np.copysign(0, -root.imag[infinite])
    return result


def complex_atan2(left: Array, right: Array) -> Array:
    """Return ``-i log((x + i y) / sqrt(x x + y y))`` of ``y = left`` and ``x = right``."""
    return np.asarray(-1j * np.log((right + 1j * left) / np.sqrt(right * right + left * left)))


def erf(value: Array) -> Array:
    """Return the error function of f32, to about 2 units in the last place, or of f64."""
    result = np.empty(value.shape, value.dtype)
    kernel = _erf64 if value.dtype == np.float64 else _erf32
    kernel(np.ascontiguousarray(value).reshape(-1), result.reshape(-1))
    return result


# Python's check for division by zero would keep the loop out of the vector registers.
@njit(cache=True, error_model="numpy", nogil=True)
def _erf32(values: Array, results: Array) -> None:
    for i in range(values.size):
        x = values[i]
        # Comparisons written so that NaN passes through.
        x = _ERF_END if x > _ERF_END else x
        x = -_ERF_END if x < -_ERF_END else x
        y = x * x
        p = (((_P[0] * y + _P[1]) * y + _P[2]) * y + _P[3]) * y + _P[4]
        q = (((((_Q[0] * y + _Q[1]) * y + _Q[2]) * y + _Q[3]) * y + _Q[4]) * y + _Q[5]) * y + _Q[6]
        r = x * p / q
        # Where it is nearly 1 the quotient comes out above: nothing has such a value, and 1 - erf(x) a square root.
        r = np.float32(1) if r > 1 else r
        results[i] = np.float32(-1) if r < -1 else r


@njit(cache=True, nogil=True)
def _erf64(values: Array, results: Array) -> None:
    for i in range(values.size):
        results[i] = math.erf(values[i])
