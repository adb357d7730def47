"""What there is to know about the layout of a shape, as plain data for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.errors import ProgramError
from tpusim.shapes.address import (
    TileStep,
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

if TYPE_CHECKING:
    from collections.abc import Sequence


def layout_facts(shape: Shape, at: Sequence[int] | None = None) -> dict[str, Any]:
    """Return sizes, order, tiles, padding and bytes of a shape as data that ``json`` can write.

    Keys: ``shape`` (XLA's notation), ``logical_bytes``, ``physical_bytes``, ``wasted_share`` (of the physical bytes,
    0 to 1), and ``arrays``, one object per array of the shape, in order. With ``at``, a logical index in which negative
    numbers count from the end, the array has an ``element``: where that element lies; else ``element`` is null.
    Raises ``ProgramError`` for an index outside the array, or for one into a tuple.
    """
    if at is not None and not isinstance(shape, ArrayShape):
        raise ProgramError(f"expected an array shape for the index {tuple(at)}, found {shape}; give one of its arrays")
    # A leaf is an array, so the index belongs to the only one there is.
    arrays = [_array_facts(array, at) for array in leaves(shape)]
    return {"shape": str(shape), **_bytes_facts(shape), "arrays": arrays}


def _bytes_facts(shape: Shape) -> dict[str, Any]:
    """Return the bytes of a shape, and which share of them holds no element."""
    logical, physical = logical_bytes(shape), physical_bytes(shape)
    return {
        "logical_bytes": logical,
        "physical_bytes": physical,
        # An empty array wastes nothing.
        # Where only a pointer is stored (``P``), it is smaller than the data, and nothing is wasted.
        "wasted_share": max(0.0, 1 - logical / physical) if physical else 0.0,
    }


def _array_facts(array: ArrayShape, at: Sequence[int] | None) -> dict[str, Any]:
    """Return the facts of one array."""
    layout = array.actual_layout
    return {
        "shape": str(array),
        "dtype": array.dtype.name,
        "dimensions": list(array.dimensions),
        "dynamic": list(array.dynamic),
        "rank": array.rank,
        "true_rank": array.true_rank,
        "element_bits": element_bits(array),
        "logical_elements": array.element_count,
        "padded_elements": padded_element_count(array),
        **_bytes_facts(array),
        "metadata_prefix_bytes": layout.metadata_prefix_bytes,
        "memory_space": layout.memory_space,
        "memory_space_name": memory_space_name(layout.memory_space),
        "minor_to_major": list(layout.minor_to_major),
        "physical_order": list(reversed(layout.minor_to_major)),
        "padded_dimensions": list(layout.padded_dimensions),
        "sizes_in_physical_order": list(physical_order_sizes(array)),
        "tiles": [_tile_facts(step) for step in tile_steps(array)],
        "physical_dimensions": list(physical_dimensions(array)),
        "tail_padding_alignment": layout.tail_padding_alignment,
        "element": None if at is None else _element_facts(array, check_index(array, at)),
    }


def _tile_facts(step: TileStep) -> dict[str, Any]:
    """Return what a tile does to the sizes, major to minor."""
    return {
        "tile": tile_text(step.tile),
        "before": list(step.before),
        "combined": list(step.combined),
        "after": list(step.after),
    }


def _element_facts(array: ArrayShape, index: Sequence[int]) -> dict[str, Any]:
    """Return where an element lies: position, byte and bit in the buffer, and its place in each tile."""
    linear = positions(array, index)
    byte, bit = divmod(linear * element_bits(array), 8)
    return {
        "index": list(index),
        "linear_index": linear,
        "byte_offset": byte + array.actual_layout.metadata_prefix_bytes,
        "bit_offset": bit,
        "physical_coordinates": list(physical_coordinates(array, index)),
        "tiles": _tile_places(array, index),
    }


def _tile_places(array: ArrayShape, index: Sequence[int]) -> list[dict[str, Any]]:
    """Return, per tile of the layout, which tile the element is in and where inside it."""
    coordinates = [index[number] for number in reversed(array.actual_layout.minor_to_major)]
    places = []
    for step in tile_steps(array):
        coordinates = through_tile(step, coordinates)
        # Counts come first, in-tile coordinates last; what the tile did not touch belongs to the counts.
        cut = len(coordinates) - len(step.sizes)
        places.append(
            {"tile": tile_text(step.tile), "tile_index": coordinates[:cut], "in_tile_index": coordinates[cut:]}
        )
    return places
