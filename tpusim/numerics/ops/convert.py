"""Values in other element types: convert, bitcast-convert, reduce-precision, stochastic-convert, into and out of f32.

Floats narrower than 32 bits compute in f32 and are rounded once, to nearest even. bf16 is the upper half of f32, so
that both ways are integer operations; the tiny types go through a table of their 256 values.

Source: XLA, Operation Semantics, ConvertElementType, BitcastConvertType, ReducePrecision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from tpusim.compiled import njit
from tpusim.ir.module import Instruction
from tpusim.numerics.registry import FLOAT_KERNELS, Array, array_shape, compute_type, computes, element_type
from tpusim.numerics.site import Site
from tpusim.numerics.values.relayout import word_type
from tpusim.shapes.dtype import DType, numpy_dtype, rounded_to_odd

Type = np.dtype[Any]

BFLOAT16: Type = np.dtype(ml_dtypes.bfloat16)
FLOAT4: Type = np.dtype(ml_dtypes.float4_e2m1fn)
FLOAT16: Type = np.dtype(np.float16)
FLOAT32: Type = np.dtype(np.float32)
POWERS: Type = np.dtype(ml_dtypes.float8_e8m0fnu)

_MANTISSA_BITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def to_float32(array: Array) -> Array:
    """Return an array of floats of at most 32 bits as f32, exactly; f32 itself comes back as it is."""
    if array.dtype == FLOAT32:
        return array
    if array.dtype == BFLOAT16:
        wide, halves = np.empty(array.shape, FLOAT32), array.view(np.uint16)
        if _is_tile(halves):
            _widen_rows(*_rows_of(halves), wide.view(np.uint32))
        else:
            widen(flat(halves), wide.reshape(-1).view(np.uint32))
        return wide
    if array.dtype.itemsize == 1:
        # Three times as fast as the conversion of ml_dtypes.
        return np.asarray(_values_of_bytes(array.dtype)[array.view(np.uint8)])
    return array.astype(FLOAT32)


def from_float32(array: Array, dtype: Type, out: Array | None = None) -> Array:
    """Return f32 numbers rounded once, to nearest even, to a float type of at most 32 bits.

    ``out``, if given, is a contiguous array of ``dtype`` that the dimensions of ``array`` broadcast to; it takes the
    result.
    """
    if dtype == FLOAT32 and out is None:
        return array
    target = np.empty(array.shape, dtype) if out is None else out
    if dtype == BFLOAT16:
        whole = array if array.shape == target.shape else np.broadcast_to(array, target.shape)
        round_words(flat(whole).view(np.uint32), target.reshape(-1).view(np.uint16))
    else:
        with np.errstate(over="ignore"):
            target[...] = array.astype(dtype, copy=False)
        if dtype == FLOAT4:
            # A type without NaN: XLA makes each -0, whatever its sign.
            target[np.broadcast_to(np.isnan(array), target.shape)] = -np.zeros((), dtype)
    return target


def flat(array: Array) -> Array:
    """Return the elements in one contiguous row; no copy if they lie so."""
    return np.ascontiguousarray(array).reshape(-1)


def convert_values(array: Array, dtype: Type) -> Array:
    """Return an array converted to an element type by XLA's rules.

    Floats to integers are cut towards zero, saturate, and NaN becomes 0; integers among each other keep the low bits;
    anything but zero is true. Floats round once, to nearest even; only from f64 to f16 and bf16 XLA rounds to f32 on
    the way, and so does this.
    """
    if array.dtype == dtype:
        return array
    wide = widened(array)
    kinds = (wide.dtype.kind, compute_type(dtype).kind)
    with np.errstate(all="ignore"):
        return _CONVERSIONS.get(kinds, _cast)(wide, dtype)


computes("convert")(lambda site, instruction, operands: convert_values(operands[0], element_type(instruction)))


def unchanged(values: Array) -> Array:
    """Return the values: among floats a conversion is only the rounding to the result's type."""
    return values


FLOAT_KERNELS["convert"] = unchanged


@computes("bitcast-convert")
def bitcast_convert(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand's bits as another element type."""
    types = [array_shape(shape).dtype for shape in (site.operand(instruction, 0).shape, instruction.shape)]
    return as_bits_of(operands[0], *types)


def as_bits_of(operand: Array, source: DType, target: DType) -> Array:
    """Return the bits of an array of the element type ``source`` as elements of ``target``.

    A narrower type adds a last dimension, low bits first; a wider one takes the last dimension away.
    """
    dtype, source_bits, target_bits = numpy_dtype(target), source.bits, target.bits
    if source_bits == target_bits:
        return operand.view(dtype)
    ratio = max(source_bits, target_bits) // min(source_bits, target_bits)
    data: Array = flat(operand).view(np.uint8)
    # Elements narrower than a byte lie in one each, and follow one another in wider ones from the low bits up.
    if source_bits < 8:
        per_byte = 8 // source_bits
        # The last byte need not be full.
        parts = np.pad(data, (0, -data.size % per_byte)).reshape(-1, per_byte) & ((1 << source_bits) - 1)
        data = np.bitwise_or.reduce(parts << np.arange(0, 8, source_bits, dtype=np.uint8), axis=1)
    if target_bits < 8:
        data = (data[:, None] >> np.arange(0, 8, target_bits, dtype=np.uint8)) & ((1 << target_bits) - 1)
    dimensions = (*operand.shape, ratio) if target_bits < source_bits else operand.shape[:-1]
    return data.view(dtype).reshape(-1)[: prod(dimensions)].reshape(dimensions)


@computes("reduce-precision")
def reduce_precision(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand rounded to fewer exponent and mantissa bits, in its own type.

    Nearest even with a carry into the exponent; too large is infinite, below the smallest normal number is zero. A tiny
    float is one of f16, as in XLA: where as many exponent bits as f16 has are asked for, what is subnormal stays.
    """
    operand, dtype = operands[0], operands[0].dtype
    if dtype.name in _MANTISSA_BITS:
        return _reduced(operand, instruction)
    # The powers of two of a byte are too many for f16.
    wide = to_float32(operand) if dtype == POWERS else to_float32(operand).astype(FLOAT16)
    return from_float32(to_float32(_reduced(wide, instruction)), dtype)


@computes("stochastic-convert")
def stochastic_convert(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand rounded away from zero where the random number is below the part that is cut off.

    Random numbers count as fractions of 2 to the power of their width, so that the mean result is the operand.
    """
    dtype = element_type(instruction)
    values, random = operands
    if compute_type(dtype).kind == "f":
        return stochastic_float(to_float32(values), random, dtype)
    return _stochastic_integer(widened(values), random, dtype)


def widened(array: Array) -> Array:
    """Return the array in the type in which its elements are computed."""
    wanted = compute_type(array.dtype)
    return to_float32(array) if wanted == FLOAT32 else array.astype(wanted, copy=False)


@lru_cache(maxsize=32)
def _values_of_bytes(dtype: Type) -> Array:
    """Return what each of the 256 bytes means in a float type of one byte, as f32."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(FLOAT32)


def _cast(wide: Array, dtype: Type) -> Array:
    """Convert what has no trap: keep low bits, or round to f32 or wider and once more to a narrow float."""
    if wide.dtype == np.float64 and dtype.itemsize == 1 and compute_type(dtype) == FLOAT32:
        wide = rounded_to_odd(wide)
    if compute_type(dtype) == FLOAT32:
        return from_float32(wide.astype(FLOAT32, copy=False), dtype)
    return wide.astype(dtype)


def _to_integer(wide: Array, dtype: Type) -> Array:
    """Cut towards zero, saturate at the ends of the type, and make NaN zero."""
    stored, limits = compute_type(dtype), ml_dtypes.iinfo(dtype)
    whole = np.empty(wide.shape, stored)
    low, high = int(limits.min), int(limits.max)
    # One above the highest is a power of two and therefore a float, which the highest itself need not be.
    bounds = (wide.dtype.type(low), wide.dtype.type(high + 1))
    _saturate(flat(wide), whole.reshape(-1), bounds, (stored.type(low), stored.type(high)))
    return whole.astype(dtype, copy=False)


_CONVERSIONS: dict[tuple[str, str], Callable[[Array, Type], Array]] = {
    # NaN is not zero, and so true.
    **{(kind, "b"): lambda wide, dtype: np.asarray(wide != 0) for kind in "iufc"},
    **{("f", kind): _to_integer for kind in "iu"},
    **{("c", kind): lambda wide, dtype: convert_values(wide.real, dtype) for kind in "iuf"},
}


def _reduced(array: Array, instruction: Instruction) -> Array:
    """Run ``reduce-precision`` on the bits of f16, bf16, f32 or f64 numbers."""
    exponent_bits, mantissa_bits = (instruction.attributes[name] for name in ("exponent_bits", "mantissa_bits"))
    word, kept = word_type(array.dtype), _MANTISSA_BITS[array.dtype.name]
    width = 8 * word.itemsize - 1
    # More bits than the type has change nothing, however many more.
    exponent_bits = min(exponent_bits, width)
    bias, reduced_bias = (1 << (width - kept - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    infinite = ((1 << width) - 1) >> kept << kept
    # With as many exponent bits as the type has, nothing overflows and subnormal numbers stay.
    largest, smallest = infinite, 0
    if reduced_bias < bias:
        largest, smallest = (bias + reduced_bias) << kept | ((1 << kept) - 1), (bias - reduced_bias + 1) << kept
    numbers = np.array([max(0, kept - mantissa_bits), infinite, largest, smallest, 1 << width], word)
    reduced = np.empty(array.shape, array.dtype)
    _reduce(flat(array).view(word), reduced.reshape(-1).view(word), numbers)
    return reduced


def _stochastic_integer(values: Array, random: Array, dtype: Type) -> Array:
    """Round floats to integers by chance; what is too large saturates and NaN becomes 0."""
    with np.errstate(all="ignore"):
        whole = np.trunc(values)
        # As a whole number, like the one by chance that it is compared with.
        share = np.floor(np.ldexp(np.abs(values - whole).astype(np.float64), 8 * random.dtype.itemsize))
        # A share of nothing at all, or of an infinity, rounds nowhere.
        up = random < np.where(np.isfinite(share), share, 0.0)
        return convert_values(np.where(up, whole + np.copysign(values.dtype.type(1), values), whole), dtype)


def stochastic_float(values: Array, random: Array, dtype: Type) -> Array:
    """Round f32 to a narrow float by chance, up or down from the mantissa bits that the type has."""
    cut = _MANTISSA_BITS["float32"] - int(ml_dtypes.finfo(dtype).nmant)
    bits = values.view(np.uint32)
    below = bits >> cut << cut
    up = np.ldexp(random.astype(np.float64), cut - 8 * random.dtype.itemsize) < bits - below
    chosen = np.where(up, below + (1 << cut), below).view(FLOAT32)
    return from_float32(np.where(np.isfinite(values), chosen, values), dtype)


@njit(cache=True, nogil=True)
def widen(halves: Array, words: Array) -> None:
    """Make f32 of bf16, both as bits."""
    for i in range(halves.size):
        words[i] = np.uint32(halves[i]) << np.uint32(16)


def _is_tile(halves: Array) -> bool:
    """Return whether a matrix has rows in one piece each, with something between them."""
    if halves.ndim != 2 or not halves.size:
        return False
    apart, step = halves.strides
    return step == halves.itemsize and apart > step * halves.shape[1] and apart % step == 0


def _rows_of(halves: Array) -> tuple[Array, int]:
    """Return the row of all elements from the first to the last of a tile, and after how many of them rows begin."""
    apart = halves.strides[0] // halves.itemsize
    count = (halves.shape[0] - 1) * apart + halves.shape[1]
    return np.lib.stride_tricks.as_strided(halves, (count,), halves.strides[1:]), apart


@njit(cache=True, nogil=True)
def _widen_rows(halves: Array, apart: int, words: Array) -> None:
    """Make f32 of rows of bf16 that begin so many elements apart, both as bits: a tile is not copied first."""
    for row in range(len(words)):
        widen(halves[row * apart : row * apart + words.shape[1]], words[row])


@njit(cache=True)
def round_word(word: np.uint32) -> np.uint32:
    """Return the bits of an f32 with those of the nearest bf16 in their upper half: to even, NaN stays NaN."""
    if (word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000):
        # The quiet bit: a NaN whose payload lies in the lower half would be cut down to an infinity.
        return word | np.uint32(0x400000)
    # Half a unit less one, plus the last bit that stays: ties go to even, and a carry may reach the exponent.
    return word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))


@njit(cache=True, nogil=True)
def round_words(words: Array, halves: Array) -> None:
    """Make bf16 of f32, both as bits."""
    for i in range(words.size):
        halves[i] = round_word(words[i]) >> np.uint32(16)


def as_rounded(array: Array, dtype: Type) -> Array:
    """Return f32 or f64 numbers as floats of a type are read: rounded to it once, in the type that they compute in."""
    if array.dtype != FLOAT32 or dtype != BFLOAT16:
        return widened(convert_values(array, dtype))
    rounded = np.empty_like(array, order="C")
    _round_wide(flat(array).view(np.uint32), rounded.reshape(-1).view(np.uint32))
    return rounded


@njit(cache=True, nogil=True)
def _round_wide(words: Array, rounded: Array) -> None:
    """Round f32 to the nearest bf16, both as the bits of f32; as ``round_words`` and ``widen`` after it."""
    for i in range(words.size):
        rounded[i] = round_word(words[i]) & np.uint32(0xFFFF0000)


@njit(cache=True, nogil=True)
def _saturate(values: Array, whole: Array, bounds: tuple[Any, Any], limits: tuple[Any, Any]) -> None:
    """Make integers of floats. ``bounds`` are the lowest value and the first one that is too high, as floats."""
    for i in range(values.size):
        value = values[i]
        # NaN first: every comparison below would be false for it.
        if value != value:
            whole[i] = 0
        elif value >= bounds[1]:
            whole[i] = limits[1]
        elif value <= bounds[0]:
            whole[i] = limits[0]
        else:
            whole[i] = value


@njit(cache=True, nogil=True)
def _reduce(words: Array, reduced: Array, numbers: Array) -> None:
    """Round the bits of floats. ``numbers`` are how many bits go, and the bits of what bounds the result."""
    cut, infinite, largest, smallest, sign = numbers
    # A one of the words' own type: with a Python int Numba would widen 16-bit words and make floats of 64-bit ones.
    one = numbers[1] // numbers[1]
    for i in range(words.size):
        magnitude = words[i] & (sign - one)
        if magnitude > infinite:
            reduced[i] = words[i]
            continue
        # Half a unit, less one where the last kept bit is even: a tie goes to the even neighbour.
        last = (magnitude >> cut) & one
        bias = ((one << cut) >> one) - one + last if cut else cut
        magnitude = (magnitude + bias) >> cut << cut
        if magnitude > largest:
            magnitude = infinite
        elif magnitude < smallest:
            magnitude = cut - cut
        reduced[i] = magnitude | (words[i] & sign)
