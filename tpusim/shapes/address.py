"""Where the elements of an array lie: logical index to physical position and back, padding, bytes.

Source: XLA, "Tiled layout" and "Shapes and layout". The dimensions, put in physical order from major to minor, are
rewritten by one tile after the other: the last ``len(tile)`` of them, sizes ``d``, become ``(ceil(d/t), t)``, all
counts first, and indices ``e`` become ``(e // t, e % t)``. After the last tile the position is the row-major index.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import msgspec

from tpusim.errors import ProgramError
from tpusim.shapes.layout import COMBINE, validate_layout
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, leaves


class TileStep(msgspec.Struct, frozen=True):
    """What one tile does to the physical sizes, major to minor.

    ``before`` are the sizes it meets, with ``added`` leading 1s if the tile is longer than they are; ``combined`` the
    same after its ``*`` entries have joined dimensions; ``sizes`` the tile without these entries; ``after`` the sizes
    it leaves.
    """

    tile: tuple[int, ...]
    added: int
    before: tuple[int, ...]
    combined: tuple[int, ...]
    sizes: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def first_combined(self) -> int:
        """Where in ``before`` the dimensions that the tile touches begin."""
        return len(self.before) - len(self.tile)

    @property
    def first_tiled(self) -> int:
        """Where in ``combined`` they begin."""
        return len(self.combined) - len(self.sizes)


def _tile_step(sizes: tuple[int, ...], tile: tuple[int, ...]) -> TileStep:
    # XLA treats f32[8] under (2,2) as [1,8].
    added = max(0, len(tile) - len(sizes))
    before = (1,) * added + sizes
    first = len(before) - len(tile)
    combined = list(before[:first])
    # Sizes gather until an entry that is not a star closes the group.
    carried = 1
    for size, tile_size in zip(before[first:], tile, strict=True):
        carried *= size
        if tile_size != COMBINE:
            combined.append(carried)
            carried = 1
    tile_sizes = tuple(size for size in tile if size != COMBINE)
    untouched = tuple(combined[: -len(tile_sizes)])
    counts = tuple(-(-size // t) for size, t in zip(combined[-len(tile_sizes) :], tile_sizes, strict=True))
    return TileStep(tile, added, before, tuple(combined), tile_sizes, (*untouched, *counts, *tile_sizes))


# Lowering asks for the sizes of the same few thousand shapes tens of thousands of times: all of these are cached.
@lru_cache(maxsize=1 << 14)
def physical_order_sizes(shape: ArrayShape) -> tuple[int, ...]:
    """Return the sizes (``padded_dimensions``, if the layout has them), major to minor, before any tile.

    Raises ``ProgramError`` for an array with an unbounded dimension: where its elements lie cannot be known.
    """
    if UNBOUNDED in shape.dimensions:
        raise ProgramError(f"expected a size or a bound for every dimension, found '?' in {shape}; give bounds, <=n")
    layout = shape.actual_layout
    validate_layout(layout, shape.rank)
    # Padding of dimensions comes before tiles, whose sizes then count from the padded ones.
    sizes = layout.padded_dimensions or shape.dimensions
    if any(width < size for width, size in zip(sizes, shape.dimensions, strict=True)):
        raise ProgramError(f"expected padded_dimensions to be at least {shape.dimensions}, found {sizes}")
    return tuple(sizes[number] for number in reversed(layout.minor_to_major))


@lru_cache(maxsize=1 << 14)
def tile_steps(shape: ArrayShape) -> tuple[TileStep, ...]:
    """Return what each tile of the layout does in turn; empty for an array that is not tiled."""
    sizes = physical_order_sizes(shape)
    steps = []
    for tile in shape.actual_layout.tiles:
        steps.append(_tile_step(sizes, tile))
        sizes = steps[-1].after
    return tuple(steps)


@lru_cache(maxsize=1 << 14)
def physical_dimensions(shape: ArrayShape) -> tuple[int, ...]:
    """Return the sizes after all tiles, major to minor, padding included."""
    steps = tile_steps(shape)
    return steps[-1].after if steps else physical_order_sizes(shape)


@lru_cache(maxsize=1 << 14)
def padded_element_count(shape: ArrayShape) -> int:
    """Return how many elements, padding included, the buffer has room for."""
    alignment = shape.actual_layout.tail_padding_alignment
    return -(-prod(physical_dimensions(shape)) // alignment) * alignment


def physical_coordinates(shape: ArrayShape, index: Sequence[Any]) -> tuple[Any, ...]:
    """Return the coordinates of an element in ``physical_dimensions``.

    The mixed-radix digits of its position. ``index`` is in the order of dimension numbers and is not checked; its
    entries are integers, or integer arrays that broadcast against each other, in which case so are the coordinates.
    """
    coordinates = [index[number] for number in reversed(shape.actual_layout.minor_to_major)]
    for step in tile_steps(shape):
        coordinates = through_tile(step, coordinates)
    return tuple(coordinates)


def through_tile(step: TileStep, coordinates: list[Any]) -> list[Any]:
    """Return the coordinates in ``step.after`` of an element with those in the sizes before it."""
    # Only //, %, * and + below, so that integers and whole arrays of them go through alike.
    coordinates = [0] * step.added + coordinates
    combined = coordinates[: step.first_combined]
    carried: Any = 0
    for place, tile_size in enumerate(step.tile, step.first_combined):
        carried = carried * step.before[place] + coordinates[place]
        if tile_size != COMBINE:
            combined.append(carried)
            carried = 0
    untouched, tiled = combined[: step.first_tiled], combined[step.first_tiled :]
    counts = [e // t for e, t in zip(tiled, step.sizes, strict=True)]
    return untouched + counts + [e % t for e, t in zip(tiled, step.sizes, strict=True)]


def positions(shape: ArrayShape, index: Sequence[Any]) -> Any:
    """Return the linear index of an element, or an array of them: ``index`` is as in ``physical_coordinates``."""
    position: Any = 0
    # Horner's rule over the mixed radix: strides need not be computed.
    for size, coordinate in zip(physical_dimensions(shape), physical_coordinates(shape, index), strict=True):
        position = position * size + coordinate
    return position


def is_separable(shape: ArrayShape) -> bool:
    """Return whether ``positions`` is a sum of one term per logical dimension, so that a table for each gives them all.

    It is unless a tile combines dimensions: otherwise no digit of the position depends on two of them.
    """
    return not any(COMBINE in tile for tile in shape.actual_layout.tiles)


def check_index(shape: ArrayShape, index: Sequence[int]) -> tuple[int, ...]:
    """Return a logical index with its negative entries counted from the end.

    Raises ``ProgramError`` unless there is one entry per dimension and each lies in it.
    """
    if len(index) != shape.rank:
        raise ProgramError(f"expected an index of {shape.rank} numbers for {shape}, found {len(index)}: {tuple(index)}")
    for number, (entry, size) in enumerate(zip(index, shape.dimensions, strict=True)):
        if not -size <= entry < size:
            raise ProgramError(f"expected an index from {-size} to {size - 1} in dimension {number}, found {entry}")
    return tuple(entry % size for entry, size in zip(index, shape.dimensions, strict=True))


def linear_index(shape: ArrayShape, index: Sequence[int]) -> int:
    """Return the position, in elements from the start of the buffer, of the element at a logical index.

    ``index`` has one entry per dimension, in the order of dimension numbers; negative ones count from the end.
    Raises ``ProgramError`` if it lies outside the array.
    """
    return int(positions(shape, check_index(shape, index)))


def multi_index(shape: ArrayShape, linear: int) -> tuple[int, ...] | None:
    """Return the logical index of the element at a position, or ``None`` if padding is there.

    Raises ``ProgramError`` if the buffer has no such position.
    """
    count = padded_element_count(shape)
    if not 0 <= linear < count:
        raise ProgramError(f"expected a position from 0 to {count - 1} in {shape}, found {linear}")
    sizes = physical_dimensions(shape)
    # The tail that L(n) adds lies behind all tiles.
    if linear >= prod(sizes):
        return None
    coordinates = split(linear, sizes)
    for step in reversed(tile_steps(shape)):
        before = _back_through_tile(step, coordinates)
        if before is None:
            return None
        coordinates = before
    by_number = dict(zip(reversed(shape.actual_layout.minor_to_major), coordinates, strict=True))
    index = tuple(by_number[number] for number in range(shape.rank))
    # A dimension that padded_dimensions widened has room for more than the array fills.
    inside = all(e < size for e, size in zip(index, shape.dimensions, strict=True))
    return index if inside else None


def split(linear: int, sizes: Sequence[int]) -> list[int]:
    """Return the row-major coordinates in ``sizes`` of a linear index."""
    coordinates = []
    for size in reversed(sizes):
        linear, coordinate = divmod(linear, size)
        coordinates.append(coordinate)
    return coordinates[::-1]


def _back_through_tile(step: TileStep, coordinates: list[int]) -> list[int] | None:
    """Return the coordinates in ``step.before`` of those in ``step.after``, or ``None`` in the tile's padding."""
    n_tiled, first = len(step.sizes), step.first_tiled
    counts, inside = coordinates[first : first + n_tiled], coordinates[first + n_tiled :]
    # Padding shows at the step that added it: later steps only move it.
    tiled = [count * t + e for count, t, e in zip(counts, step.sizes, inside, strict=True)]
    if any(e >= size for e, size in zip(tiled, step.combined[first:], strict=True)):
        return None
    # A star joined several dimensions into one coordinate: each group of sizes takes its own apart.
    back = coordinates[:first]
    groups = iter(tiled)
    group: list[int] = []
    for size, tile_size in zip(step.before[step.first_combined :], step.tile, strict=True):
        group.append(size)
        if tile_size != COMBINE:
            back += split(next(groups), group)
            group = []
    return back[step.added :]


def element_bits(shape: ArrayShape) -> int:
    """Return the bits that an element takes: ``E(bits)`` of the layout, else the type's width in whole bytes.

    The TPU compiler writes ``E(4)`` and ``E(2)`` for the types that it packs, and charges that many bits.
    """
    return shape.actual_layout.element_size_bits or shape.dtype.storage_bits


@lru_cache(maxsize=1 << 16)
def physical_bytes(shape: Shape) -> int:
    """Return the bytes that a shape's arrays occupy, padding and metadata prefix included; tokens take none.

    A tuple counts the sum of its arrays, not the table of pointers to them.
    """
    if not isinstance(shape, ArrayShape):
        return sum(map(physical_bytes, leaves(shape)))
    layout = shape.actual_layout
    # A sparse array is stored as the arrays of its physical shape.
    if layout.physical_shape is not None:
        return physical_bytes(layout.physical_shape)
    # A token orders instructions; nothing of it is in memory.
    if not shape.dtype.is_array_type:
        return 0
    return -(-padded_element_count(shape) * element_bits(shape) // 8) + layout.metadata_prefix_bytes


@lru_cache(maxsize=1 << 16)
def logical_bytes(shape: Shape) -> int:
    """Return the bytes of a shape's elements alone, at the widths of its layouts, without padding."""
    if not isinstance(shape, ArrayShape):
        return sum(map(logical_bytes, leaves(shape)))
    if not shape.dtype.is_array_type:
        return 0
    return -(-shape.element_count * element_bits(shape) // 8)
