"""What there is to know about the layout of a shape, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tpusim.errors import ProgramError
from tpusim.limits import ELEMENTS
from tpusim.shapes.address import (
    check_index,
    element_bits,
    logical_bytes,
    padded_element_count,
    physical_bytes,
    physical_coordinates,
    physical_dimensions,
    physical_order_sizes,
    positions,
    through_tile,
    tile_steps,
)
from tpusim.shapes.layout import memory_space_name, tile_text
from tpusim.shapes.shape import ArrayShape, Shape, leaves


class TileFacts(msgspec.Struct, frozen=True):
    """What a tile does to the sizes, major to minor."""

    tile: str
    before: tuple[int, ...]
    combined: tuple[int, ...]
    after: tuple[int, ...]


class TilePlace(msgspec.Struct, frozen=True):
    """Which tile an element is in, and where inside it."""

    tile: str
    tile_index: tuple[int, ...]
    in_tile_index: tuple[int, ...]


class ElementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where an element lies: position, byte and bit in the buffer, and its place in each tile of the layout."""

    index: tuple[int, ...]
    linear_index: int
    byte_offset: int
    bit_offset: int
    physical_coordinates: tuple[int, ...]
    tiles: tuple[TilePlace, ...]


_OF_ARRAY = ("dimensions", "dynamic", "rank", "true_rank")
_OF_LAYOUT = ("metadata_prefix_bytes", "memory_space", "minor_to_major", "padded_dimensions", "tail_padding_alignment")
"""Facts of an array that are fields of its shape and of its layout."""


class ArrayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one array; ``wasted_share`` is of the physical bytes, ``element`` None if none was asked for."""

    shape: str
    dtype: str
    dimensions: tuple[int, ...]
    dynamic: tuple[bool, ...]
    rank: int
    true_rank: int
    element_bits: int
    logical_elements: int
    padded_elements: int
    logical_bytes: int
    physical_bytes: int
    wasted_share: float
    metadata_prefix_bytes: int
    memory_space: int
    memory_space_name: str
    minor_to_major: tuple[int, ...]
    physical_order: tuple[int, ...]
    padded_dimensions: tuple[int, ...]
    sizes_in_physical_order: tuple[int, ...]
    tiles: tuple[TileFacts, ...]
    physical_dimensions: tuple[int, ...]
    tail_padding_alignment: int
    element: ElementFacts | None


class LayoutFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes, order, tiles, padding and bytes of a shape, array by array; ``shape`` is XLA's notation."""

    shape: str
    logical_bytes: int
    physical_bytes: int
    wasted_share: float
    arrays: tuple[ArrayFacts, ...]


def layout_facts(shape: Shape, at: Sequence[int] | None = None) -> LayoutFacts:
    """Return the facts of a shape; ``at`` is a logical index, in which negative numbers count from the end.

    Raises ``ProgramError`` for an index outside the array, or for one into a tuple, and for more elements than can be
    printed.
    """
    if fault := ELEMENTS.fault(max([padded_element_count(leaf) for leaf in leaves(shape)], default=0)):
        raise ProgramError(fault)
    if at is not None and not isinstance(shape, ArrayShape):
        raise ProgramError(f"expected an array shape for the index {tuple(at)}, found {shape}; give one of its arrays")
    # A leaf is an array, so the index belongs to the only one there is.
    arrays = tuple(_array_facts(array, at) for array in leaves(shape))
    return LayoutFacts(shape=str(shape), arrays=arrays, **_bytes_facts(shape))


def _bytes_facts(shape: Shape) -> dict[str, Any]:
    """Return the bytes of a shape, and which share of them holds no element."""
    logical, physical = logical_bytes(shape), physical_bytes(shape)
    return {
        "logical_bytes": logical,
        "physical_bytes": physical,
        # An empty array wastes nothing, nor does one of which only a pointer is stored (``P``).
        "wasted_share": max(0.0, 1 - logical / physical) if physical else 0.0,
    }


def _array_facts(array: ArrayShape, at: Sequence[int] | None) -> ArrayFacts:
    layout = array.actual_layout
    return ArrayFacts(
        shape=str(array),
        dtype=array.dtype.name,
        **{name: getattr(array, name) for name in _OF_ARRAY},
        **{name: getattr(layout, name) for name in _OF_LAYOUT},
        element_bits=element_bits(array),
        logical_elements=array.element_count,
        padded_elements=padded_element_count(array),
        **_bytes_facts(array),
        memory_space_name=memory_space_name(layout.memory_space),
        physical_order=layout.minor_to_major[::-1],
        sizes_in_physical_order=physical_order_sizes(array),
        tiles=tuple(TileFacts(tile_text(s.tile), s.before, s.combined, s.after) for s in tile_steps(array)),
        physical_dimensions=physical_dimensions(array),
        element=None if at is None else _element_facts(array, check_index(array, at)),
    )


def _element_facts(array: ArrayShape, index: Sequence[int]) -> ElementFacts:
    linear = positions(array, index)
    byte, bit = divmod(linear * element_bits(array), 8)
    coordinates = [index[number] for number in reversed(array.actual_layout.minor_to_major)]
    places = []
    for step in tile_steps(array):
        coordinates = through_tile(step, coordinates)
        # Counts come first, in-tile coordinates last; what the tile did not touch belongs to the counts.
        cut = len(coordinates) - len(step.sizes)
        places.append(TilePlace(tile_text(step.tile), tuple(coordinates[:cut]), tuple(coordinates[cut:])))
    return ElementFacts(
        index=tuple(index),
        linear_index=linear,
        byte_offset=byte + array.actual_layout.metadata_prefix_bytes,
        bit_offset=bit,
        physical_coordinates=physical_coordinates(array, index),
        tiles=tuple(places),
    )
