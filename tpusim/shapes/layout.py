"""Layouts: in which order, tiles, width and memory the elements of an array lie."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from tpusim.errors import ProgramError
from tpusim.limits import TILES

if TYPE_CHECKING:
    from tpusim.shapes.shape import Shape
    from tpusim.source import Span

COMBINE = -1
"""The tile entry written ``*``: its dimension is combined with the next more minor one."""

MEMORY_SPACES = {0: "HBM", 1: "VMEM", 2: "sync flags", 3: "CMEM", 5: "host", 6: "SMEM"}
"""What the numbers of ``S(n)`` mean on a TPU; no suffix is 0."""
HOST_SPACE: Final = 5
"""The number of the host's memory."""
SYNC_FLAG_SPACE: Final = 2
"""The number of what asynchronous operations signal their end in."""
SCALAR_SPACE: Final = 6
"""The number of the scalar core's memory."""


class SplitConfig(msgspec.Struct, frozen=True, cache_hash=True):
    """``SC(dimension:i,j)``: the physical dimension is cut before these indices, one piece per core's memory."""

    dimension: int
    split_indices: tuple[int, ...]

    def __str__(self) -> str:
        return f"({self.dimension}:{_commas(self.split_indices)})"


class Layout(msgspec.Struct, frozen=True, cache_hash=True):
    """How an array lies in memory; ``str(layout)`` is XLA's notation, e.g. ``{1,0:T(8,128)(2,1)S(1)}``.

    - ``minor_to_major``: dimension numbers, that which varies fastest first.
    - ``tiles``: each cuts the most minor physical dimensions that the tile before it left; ``COMBINE`` is ``*``.
    - ``element_size_bits``: ``E(bits)`` per element; 0 is the element type's own width in whole bytes.
    - ``memory_space``: ``S(n)``, see ``MEMORY_SPACES``.
    - ``dim_level_types``: ``D(...)`` of a sparse array as written, e.g. ``"D,C+~"``; empty is dense.
    - ``tail_padding_alignment``: ``L(n)``, the padded element count is a multiple of it.
    - ``index_primitive_type``, ``pointer_primitive_type``: ``#(u32)``, ``*(u32)`` of a sparse array, by type name.
    - ``split_configs``: ``SC(...)``.
    - ``physical_shape``: ``P(...)``, the shape that is really stored.
    - ``metadata_prefix_bytes``: ``M(bytes)`` of dynamic sizes in front of the data.
    - ``padded_dimensions``, ``padding_value``: the padding of XLA's document "Shapes and layout": one width per
      dimension, in the order of dimension numbers, and the scalar that fills it. Tiles replaced both in XLA long ago,
      so they have no text form and ``str`` leaves them out.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    element_size_bits: int = 0
    memory_space: int = 0
    dim_level_types: str = ""
    tail_padding_alignment: int = 1
    index_primitive_type: str = ""
    pointer_primitive_type: str = ""
    split_configs: tuple[SplitConfig, ...] = ()
    physical_shape: Shape | None = None
    metadata_prefix_bytes: int = 0
    padded_dimensions: tuple[int, ...] = ()
    padding_value: bool | int | float | complex = 0

    # Ranks are few; one object per rank makes comparing layouts a comparison of addresses.
    @classmethod
    @lru_cache(maxsize=64)
    def default(cls, rank: int) -> Layout:
        """Return the layout of a new shape: dimension 0 is the most major one, nothing is tiled."""
        return cls(tuple(range(rank - 1, -1, -1)))

    def __str__(self) -> str:
        return _text(self)


def memory_space_name(number: int) -> str:
    """Return the name of a memory space, or ``memory space n`` for a number without one."""
    return MEMORY_SPACES.get(number, f"memory space {number}")


def tile_text(tile: tuple[int, ...]) -> str:
    """Return a tile as XLA writes it, e.g. ``(8,128)`` or ``(*,2)``."""
    return f"({','.join('*' if size == COMBINE else str(size) for size in tile)})"


# A program prints each of its few layouts thousands of times.
@lru_cache(maxsize=4096)
def _text(layout: Layout) -> str:
    """Return XLA's notation, with the parts in the one order that its parser takes."""
    parts = (
        layout.dim_level_types and f"D({layout.dim_level_types})",
        layout.tiles and "T" + "".join(map(tile_text, layout.tiles)),
        layout.tail_padding_alignment != 1 and f"L({layout.tail_padding_alignment})",
        layout.index_primitive_type and f"#({layout.index_primitive_type})",
        layout.pointer_primitive_type and f"*({layout.pointer_primitive_type})",
        layout.element_size_bits and f"E({layout.element_size_bits})",
        layout.memory_space and f"S({layout.memory_space})",
        layout.split_configs and "SC" + "".join(map(str, layout.split_configs)),
        layout.physical_shape is not None and f"P({layout.physical_shape})",
        layout.metadata_prefix_bytes and f"M({layout.metadata_prefix_bytes})",
    )
    tail = "".join(str(part) for part in parts if part)
    return f"{{{_commas(layout.minor_to_major)}{':' if tail else ''}{tail}}}"


def _commas(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def validate_layout(layout: Layout, rank: int, span: Span | None = None) -> None:
    """Raise ``ProgramError``, at ``span`` if given, unless ``layout`` can be one of an array of that rank."""
    problem = _problem(layout, rank)
    if problem:
        raise ProgramError(problem, span)


# Errors are not cached by lru_cache, their texts are: a wrong layout costs no more than a right one.
@lru_cache(maxsize=4096)
def _problem(layout: Layout, rank: int) -> str:
    """Return what is wrong with a layout, or an empty string."""
    order = layout.minor_to_major
    if len(order) != rank:
        return f"expected a layout of {rank} dimensions, one per dimension of the shape, found {len(order)}"
    if sorted(order) != list(range(rank)):
        return f"expected minor_to_major to be a permutation of 0..{rank - 1}, found {_commas(order[:20])!r}"
    # None at all is allowed, since the field is optional.
    if len(layout.padded_dimensions) not in (0, rank):
        found = len(layout.padded_dimensions)
        return f"expected padded_dimensions to have one width per dimension, {rank}, found {found}"
    if layout.tail_padding_alignment < 1:
        return f"expected the tail padding alignment L(n) to be at least 1, found {layout.tail_padding_alignment}"
    if min(layout.element_size_bits, layout.memory_space, layout.metadata_prefix_bytes) < 0:
        return "expected E(n), S(n) and M(n) not to be negative"
    if fault := TILES.fault(len(layout.tiles)):
        return fault
    return next(filter(None, map(_tile_problem, layout.tiles)), "")


def _tile_problem(tile: tuple[int, ...]) -> str:
    """Return what is wrong with a tile, or an empty string."""
    if not tile:
        return "expected a tile of at least one size, found ()"
    if any(size < 1 and size != COMBINE for size in tile):
        return f"expected tile sizes above 0, or '*', found {tile_text(tile[:20])!r}"
    # There is no dimension more minor than the last that it could join.
    if tile[-1] == COMBINE:
        return (
            f"expected the last tile entry to be a size, since '*' joins the next one, found {tile_text(tile[:20])!r}"
        )
    return ""
