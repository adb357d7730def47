"""Values of what only moves elements: reshape, transpose, slices, padding, concatenation, and physical bitcasts.

Results may be views of their operands, since no rule writes into a value.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tpusim.ir.module import Instruction
from tpusim.numerics.ops.dynamic import at_bounds, reshaped_sizes, resized, sizes_of_slice
from tpusim.numerics.registry import Array, array_shape, computes
from tpusim.numerics.site import Site
from tpusim.numerics.values.relayout import pack, unpack
from tpusim.shapes.address import element_bits, is_separable, physical_bytes, physical_order_sizes
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape

computes("transpose")(lambda site, instruction, operands: operands[0].transpose(instruction.attributes["dimensions"]))
computes("reverse")(lambda site, instruction, operands: np.flip(operands[0], instruction.attributes["dimensions"]))
computes("concatenate")(
    lambda site, instruction, operands: np.concatenate(operands, instruction.attributes["dimensions"][0])
)


@computes("slice")
def static_slice(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return ``[start:limit:stride]`` of every dimension, as a view."""
    return operands[0][tuple(slice(d.start, d.limit, d.stride) for d in instruction.attributes["slice"])]


@computes("reshape")
def reshape(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the elements, in row-major order, under other dimensions."""
    source, target = array_shape(site.operand(instruction, 0).shape), array_shape(instruction.shape)
    sizes = reshaped_sizes(operands[0].shape, source, target) if target.dynamic else target.dimensions
    return operands[0].reshape(sizes)


@computes("pad")
def pad(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand with a value between its elements and, negative counts dropping elements, at its edges."""
    paddings = [(p.low, p.high, p.interior) for p in instruction.attributes["padding"]]
    return padded(operands[0], operands[1], paddings)


def padded(array: Array, value: Any, paddings: Sequence[tuple[int, int, int]]) -> Array:
    """Return ``array`` with, per dimension, ``(low, high, interior)`` elements of ``value`` added.

    The interior comes first; negative ``low`` and ``high`` then drop elements, those of ``value`` among them.
    """
    if not any(map(any, paddings)):
        return array
    spans = [_span(size, *padding) for size, padding in zip(array.shape, paddings, strict=True)]
    result = np.full([size for size, _, _ in spans], value, array.dtype)
    result[tuple(place for _, _, place in spans)] = array[tuple(kept for _, kept, _ in spans)]
    return result


def _span(size: int, low: int, high: int, interior: int) -> tuple[int, slice, slice]:
    """Return one padded dimension: its size, which elements stay in it, and where they go."""
    total = max(0, low + high + size + max(0, size - 1) * interior)
    return total, *inside(size, low, interior + 1, total)


def inside(count: int, begin: int, step: int, size: int) -> tuple[slice, slice]:
    """Return which of ``count`` positions, ``step`` apart from ``begin`` on, lie in 0..size-1, and where these are."""
    first = max(0, -(begin // step))
    end = max(first, min(count, -((begin - size) // step)))
    at = begin + first * step
    return slice(first, end), slice(at, at + (end - first) * step, step)


@computes("dynamic-slice")
def dynamic_slice(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return, as a view, the part of given sizes that begins at the start operands, moved to lie inside."""
    sizes = instruction.attributes["dynamic_slice_sizes"]
    whole = at_bounds(operands[0], site.operand(instruction, 0).shape)
    part = whole[window_at(whole.shape, sizes, operands[1:])]
    return resized(part, sizes_of_slice(sizes, whole.shape, operands[0].shape))


@computes("dynamic-update-slice")
def dynamic_update_slice(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the first operand with a part, moved to lie inside, replaced by the second operand."""
    # The operand may be a view of what others still read.
    result = at_bounds(operands[0], site.operand(instruction, 0).shape).copy()
    result[window_at(result.shape, operands[1].shape, operands[2:])] = operands[1]
    return resized(result, operands[0].shape)


def window_at(dimensions: Sequence[int], sizes: Sequence[int], starts: list[Any]) -> tuple[slice, ...]:
    """Return where a window lies whose starts, one scalar each or (an old form) one vector, are clamped."""
    entries = starts[0] if len(starts) == 1 and starts[0].ndim == 1 else starts
    # int() first: a huge unsigned start would wrap if it were subtracted from.
    clamped = [max(0, min(int(s), n - size)) for s, n, size in zip(entries, dimensions, sizes, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(clamped, sizes, strict=True))


@computes("bitcast")
def bitcast(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what the operand's buffer, its bytes under the operand's layout, holds under the result's layout.

    Most bitcasts of compiled programs only rename dimensions; these move nothing.
    """
    source, target = array_shape(site.operand(instruction, 0).shape), array_shape(instruction.shape)
    if not same_order(source, target) and not _is_without_buffer(source, target):
        return unpack(pack(operands[0], source), target)
    # No byte moves: only the names of dimensions do, which is what nearly all bitcasts are for.
    back = np.argsort(target.actual_layout.minor_to_major[::-1])
    in_order = operands[0].transpose(source.actual_layout.minor_to_major[::-1])
    moved = in_order.reshape(physical_order_sizes(target)).transpose(back)
    wanted = numpy_dtype(target.dtype)
    return moved if moved.dtype == wanted else np.ascontiguousarray(moved).view(wanted).reshape(target.dimensions)


def _is_without_buffer(source: ArrayShape, target: ArrayShape) -> bool:
    """Return whether a bitcast inside a fusion is between a tiled array and one that never lies in memory."""
    # The compiler has given that one an order but no tiles, so that the buffers would not even be equally large.
    are_tiled = [bool(shape.actual_layout.tiles) for shape in (source, target)]
    is_same_size = element_bits(source) == element_bits(target) and source.element_count == target.element_count
    return are_tiled[0] != are_tiled[1] and is_same_size and physical_bytes(source) != physical_bytes(target)


@lru_cache(maxsize=4096)
def same_order(source: ArrayShape, target: ArrayShape) -> bool:
    """Return whether element k, counted in physical order without padding, has the same position in both buffers.

    A sufficient condition: where it fails the bytes decide.
    """
    return element_bits(source) == element_bits(target) and None is not _order(source) == _order(target)


def _order(shape: ArrayShape) -> tuple[Any, ...] | None:
    """Return sizes and tiles that fix the positions of all elements, with all that does not matter left out.

    None for the rare layouts whose positions depend on more than sizes and tiles.
    """
    layout = shape.actual_layout
    if layout.padded_dimensions or layout.metadata_prefix_bytes or layout.physical_shape or not is_separable(shape):
        return None
    sizes, tiles = physical_order_sizes(shape), layout.tiles
    while tiles:
        sizes = _joined(sizes, tiles[0])
        # Rows as wide as a tile lie one after the other, as if there were no tile.
        if sizes[1:] != tiles[0][1:]:
            return sizes, tiles
        for later in tiles[1:]:
            # Only a later tile that cuts the inside of this one, and evenly, leaves the rows as they are.
            if len(later) > len(tiles[0]) or (len(later) == len(tiles[0]) and tiles[0][0] % later[0]):
                return sizes, tiles
        tiles = tiles[1:]
    return (prod(sizes),), ()


def _joined(sizes: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that a tile cuts, with all that are more major joined into one.

    That one joins the tile's own most major size if no padding comes between.
    """
    sizes = (1,) * (len(tile) - len(sizes)) + sizes
    outer, inner = prod(sizes[: len(sizes) - len(tile)]), sizes[len(sizes) - len(tile) :]
    is_even = outer == 1 or inner[0] % tile[0] == 0
    return (outer * inner[0], *inner[1:]) if is_even else (outer, *inner)
