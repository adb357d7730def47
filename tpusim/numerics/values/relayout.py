"""Between a logical array and the bytes of its buffer under a layout: order, tiles, padding, packed narrow types.

An element's position is a sum of one term per dimension (unless a tile combines dimensions), so one table for the
leading and one for the trailing dimensions give all positions: a kernel adds their entries and moves the elements.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.compiled import njit
from tpusim.errors import ProgramError, UnsupportedError
from tpusim.shapes.address import element_bits, is_separable, padded_element_count, physical_bytes, positions
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Table = NDArray[np.int64]


def word_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integers of the same storage; 16-byte complex numbers, which have none, stay as they are."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.itemsize <= 8 else dtype


def pack(array: Array, shape: ArrayShape, *, fill: Any = 0) -> Bytes:
    """Return the bytes of a buffer that holds ``array`` under the layout of ``shape``.

    ``array`` has the sizes and, see ``numpy_dtype``, the element type of the shape. Elements narrower than a byte
    follow one another from its low bits up. The padding of ``padded_dimensions`` holds the layout's ``padding_value``,
    that of tiles, which XLA leaves unspecified, the element ``fill``. A metadata prefix is zero.
    """
    wanted = numpy_dtype(shape.dtype)
    if array.shape != shape.dimensions or array.dtype != wanted:
        found = f"{array.dtype}{list(array.shape)}"
        raise ProgramError(f"expected an array {wanted}{list(shape.dimensions)} for {shape}, found {found}")
    bits = _stored_bits(shape)
    outer, inner = _position_tables(shape)
    # The tables cut the dimensions in two, so the array becomes a matrix of rows and columns.
    source = np.ascontiguousarray(_padded(array, shape)).view(word_type(wanted)).reshape(outer.size, inner.size)
    element = np.asarray(fill).astype(wanted).reshape(1).view(word_type(wanted))[0]
    # Fill first and scatter over it: where padding lies need not be known.
    if bits < 8:
        repeated = sum((int(element) & ((1 << bits) - 1)) << shift for shift in range(0, 8, bits))
        data = np.full(-(-padded_element_count(shape) * bits // 8), repeated, np.uint8)
        _scatter_bits(data, source, outer, inner, bits)
    else:
        words = np.full(padded_element_count(shape), element, word_type(wanted))
        put_at(words, source, outer, inner)
        data = words.view(np.uint8)
    n_prefix = shape.actual_layout.metadata_prefix_bytes
    return np.concatenate([np.zeros(n_prefix, np.uint8), data]) if n_prefix else data


def unpack(buffer: Bytes, shape: ArrayShape) -> Array:
    """Return the logical array that the bytes of a buffer hold under the layout of ``shape``, without any padding.

    The array has the sizes and, see ``numpy_dtype``, the element type of the shape.
    """
    wanted = numpy_dtype(shape.dtype)
    bits = _stored_bits(shape)
    if buffer.dtype != np.uint8 or buffer.shape != (physical_bytes(shape),):
        found = f"{buffer.dtype}{list(buffer.shape)}"
        raise ProgramError(f"expected a buffer uint8[{physical_bytes(shape)}] for {shape}, found {found}")
    outer, inner = _position_tables(shape)
    data = np.ascontiguousarray(buffer[shape.actual_layout.metadata_prefix_bytes :])
    values = np.empty((outer.size, inner.size), word_type(wanted))
    if bits < 8:
        _gather_bits(data, values, outer, inner, bits)
    else:
        # A slice of someone's larger buffer may begin at any byte; kernels want aligned words.
        take_at(np.require(data.view(word_type(wanted)), requirements=["A"]), values, outer, inner)
    array = values.reshape(shape.actual_layout.padded_dimensions or shape.dimensions).view(wanted)
    return np.ascontiguousarray(array[tuple(map(slice, shape.dimensions))]).reshape(shape.dimensions)


def _stored_bits(shape: ArrayShape) -> int:
    """Return the bits per element, which must be the type's whole bytes or pack its values into part of a byte."""
    bits = element_bits(shape)
    # A truth value keeps its meaning in one bit.
    needed = 1 if shape.dtype.is_pred else shape.dtype.bits
    is_known = bits == shape.dtype.storage_bits or (bits in (1, 2, 4) and bits >= needed)
    if not is_known or shape.actual_layout.physical_shape is not None:
        raise UnsupportedError(f"expected elements stored whole or packed into 1, 2 or 4 bits, found {shape}")
    return bits


def _padded(array: Array, shape: ArrayShape) -> Array:
    """Return the array widened to ``padded_dimensions`` with the layout's padding value."""
    layout = shape.actual_layout
    if not layout.padded_dimensions:
        return array
    wide = np.full(layout.padded_dimensions, np.asarray(layout.padding_value).astype(array.dtype))
    wide[tuple(map(slice, array.shape))] = array
    return wide


# Loops pack the same few buffers again and again; the bound keeps the tables of large ones from piling up.
@lru_cache(maxsize=16)
def _position_tables(shape: ArrayShape) -> tuple[Table, Table]:
    """Return tables, of the leading and of the trailing dimensions, whose entries add up to the elements' positions."""
    sizes = shape.actual_layout.padded_dimensions or shape.dimensions
    index = np.ix_(*map(np.arange, sizes))
    # A digit that depends on two dimensions has no table of its own: one table of everything.
    if not is_separable(shape):
        return _table(shape, index, sizes), np.zeros(1, np.int64)
    # The most even cut makes the tables about as long as the root of the element count.
    cut = min(range(len(sizes) + 1), key=lambda place: prod(sizes[:place]) + prod(sizes[place:]))
    zeros = (np.int64(0),) * len(sizes)
    leading = _table(shape, index[:cut] + zeros[cut:], sizes[:cut])
    return leading, _table(shape, zeros[:cut] + index[cut:], sizes[cut:])


def _table(shape: ArrayShape, index: Any, sizes: tuple[int, ...]) -> Table:
    """Return the positions of all index entries as one flat table, ``prod(sizes)`` long."""
    found = np.asarray(positions(shape, index), np.int64)
    # An axis of the index that no digit depends on (a size of 1) may be missing from what was found.
    n_missing = len(shape.dimensions) - found.ndim
    whole = found.reshape((1,) * n_missing + found.shape)
    return np.ascontiguousarray(whole).reshape(prod(sizes))


@njit(cache=True)
def put_at(words: Array, source: Array, outer: Table, inner: Table) -> None:
    """Put ``source[i, j]`` at position ``outer[i] + inner[j]``."""
    for i in range(outer.size):
        for j in range(inner.size):
            words[outer[i] + inner[j]] = source[i, j]


@njit(cache=True)
def take_at(words: Array, values: Array, outer: Table, inner: Table) -> None:
    """Fetch ``values[i, j]`` from position ``outer[i] + inner[j]``."""
    for i in range(outer.size):
        for j in range(inner.size):
            values[i, j] = words[outer[i] + inner[j]]


@njit(cache=True)
def _scatter_bits(data: Bytes, source: Bytes, outer: Table, inner: Table, bits: int) -> None:
    """Put the low bits of ``source[i, j]`` at position ``outer[i] + inner[j]``, low end of a byte first."""
    mask = (1 << bits) - 1
    for i in range(outer.size):
        for j in range(inner.size):
            place = (outer[i] + inner[j]) * bits
            shift = place % 8
            # A byte holds several elements: the others stay.
            kept = data[place // 8] & (255 - (mask << shift))
            data[place // 8] = kept | ((source[i, j] & mask) << shift)


@njit(cache=True)
def _gather_bits(data: Bytes, values: Bytes, outer: Table, inner: Table, bits: int) -> None:
    """Fetch the low bits of ``values[i, j]`` from position ``outer[i] + inner[j]``; the others become 0."""
    mask = (1 << bits) - 1
    for i in range(outer.size):
        for j in range(inner.size):
            place = (outer[i] + inner[j]) * bits
            values[i, j] = (data[place // 8] >> (place % 8)) & mask
