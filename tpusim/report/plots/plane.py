"""An array as a plane of rows and columns that can be drawn: positions, tiles, padding of every cell.

The plane is what the first tile of a layout sees: the dimensions in physical order, those that ``*`` joins joined, of
which the last two are rows and columns and the others stand at 0. Nothing here draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from tpusim.errors import ProgramError
from tpusim.shapes.address import (
    element_bits,
    multi_index,
    padded_element_count,
    physical_dimensions,
    physical_order_sizes,
    positions,
    split,
    tile_steps,
)
from tpusim.shapes.layout import COMBINE, Layout
from tpusim.shapes.shape import ArrayShape, Shape

# Lanes of a vector register; long one-dimensional arrays are drawn in lines of as many.
LANES = 128
_SHORT_LINE = 16
_WORD_BITS = 32
# Along an axis of a page: cells in which five figures can be read.
_MOST_CELLS = 24


@dataclass(frozen=True)
class Plane:
    """The drawn plane of an array: ``sizes`` are all dimensions that the first tile sees, major to minor.

    ``tile`` is the first tile without stars, aligned with the last of ``sizes``; ``fold`` is the length of the lines in
    which a one-dimensional array is drawn, 0 for any other. ``rows`` and ``columns`` of the plane have elements in
    them, ``tile_rows`` and ``tile_columns`` of it a tile covers.
    """

    shape: ArrayShape
    sizes: tuple[int, ...]
    tile: tuple[int, ...]
    fold: int
    rows: int
    columns: int
    tile_rows: int
    tile_columns: int

    @property
    def padded_rows(self) -> int:
        """Rows up to the end of the last tile."""
        return -(-self.rows // self.tile_rows) * self.tile_rows

    @property
    def padded_columns(self) -> int:
        """Columns up to the end of the last tile."""
        return -(-self.columns // self.tile_columns) * self.tile_columns

    @property
    def is_small(self) -> bool:
        """Whether there is room for the position of every element in its cell."""
        return max(self.padded_rows, self.padded_columns) <= _MOST_CELLS

    @property
    def planes(self) -> int:
        """How many planes the array has; the first one is drawn."""
        return 1 if self.fold else prod(self.sizes[:-2])

    @property
    def tile_elements(self) -> int:
        """Elements in one tile, padding included."""
        return prod(self.tile)

    @property
    def bits(self) -> int:
        """Bits of an element in memory."""
        return element_bits(self.shape)

    @property
    def per_word(self) -> int:
        """Elements in a 32-bit word, 1 for wide ones."""
        return max(1, _WORD_BITS // self.bits)

    @property
    def packs(self) -> bool:
        """Whether a tile is whole words, in each of which several elements lie."""
        return self.per_word > 1 and self.tile_elements % self.per_word == 0 and bool(self.shape.actual_layout.tiles)

    @property
    def count(self) -> int:
        """Positions in memory, padding included."""
        return padded_element_count(self.shape)

    @cached_property
    def _plain(self) -> ArrayShape:
        """The array as the first tile sees it: the same positions, without stars and permutations."""
        rest = self.shape.actual_layout.tiles[1:]
        order = tuple(range(len(self.sizes) - 1, -1, -1))
        return ArrayShape(self.shape.dtype, self.sizes, (), Layout(order, tiles=(self.tile, *rest)))

    def position(self, row: int, column: int) -> int:
        """Return the linear index of a cell, of one in the padding too."""
        place = (row * self.fold + column,) if self.fold else (row, column)[-len(self.sizes) :]
        return int(positions(self._plain, (*(0,) * (len(self.sizes) - len(place)), *place)))

    def is_padding(self, position: int) -> bool:
        """Whether no element is at a position."""
        return multi_index(self.shape, position) is None

    @property
    def is_named_by_index(self) -> bool:
        """Whether elements are called by their logical index: longer ones than of two numbers find no room."""
        return self.shape.rank in (1, 2)

    def name_at(self, position: int) -> str:
        """Return what the element at a position is called, an empty text in the padding."""
        index = multi_index(self.shape, position)
        if index is not None and not self.is_named_by_index:
            # By row and column in its plane.
            place = multi_index(self._plain, position) or ()
            index = divmod(place[-1], self.fold) if self.fold else (0, *place)[-2:]
        return ",".join(map(str, index or ()))

    @property
    def name_words(self) -> str:
        """What the names of elements consist of."""
        return "index" if self.is_named_by_index else "row, column"

    def tile_at(self, number: int) -> tuple[int, int]:
        """Return row and column, within its plane, of a tile by its number in memory."""
        counts = [-(-size // tile) for size, tile in zip(self.sizes[-len(self.tile) :], self.tile, strict=True)]
        place = [*self.sizes[: -len(self.tile)], *counts]
        row, column = (0, *split(number, place))[-2:]
        return (column, row) if self.fold else (row, column)

    @property
    def tiles(self) -> int:
        """Tiles in the array, those of all planes."""
        return max(1, prod(physical_dimensions(self.shape)) // self.tile_elements)

    @cached_property
    def sub_tile(self) -> tuple[int, int] | None:
        """Rows and columns of the second tile where it cuts the first one evenly, else ``None``."""
        later = [tile for tile in self.shape.actual_layout.tiles[1:] if len(tile) == 2 and COMBINE not in tile]
        if not later or self.tile_rows % later[-1][0] or self.tile_columns % later[-1][1]:
            return None
        return later[-1][0], later[-1][1]

    def padded_share(self, tile_row: int, tile_column: int) -> float:
        """Return how much of a tile of the plane is padding, 0 to 1."""
        if self.fold:
            first = tile_row * self.tile[-1]
            return 1 - max(0, min(self.sizes[-1] - first, self.tile[-1])) / self.tile[-1]
        rows = min(self.rows - tile_row * self.tile_rows, self.tile_rows)
        columns = min(self.columns - tile_column * self.tile_columns, self.tile_columns)
        return 1 - rows * columns / (self.tile_rows * self.tile_columns)


def plane_of(shape: Shape) -> Plane:
    """Return the plane of an array shape.

    Raises ``ProgramError`` for tuples, tokens, sparse and empty arrays: there is nothing of them to lay out.
    """
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array_type:
        raise ProgramError(f"expected an array shape to draw, found {str(shape)[:80]!r}; give one of its arrays")
    tiles = [tile for tile in shape.actual_layout.tiles if len(tile) == 2 and COMBINE not in tile]
    if any(size > outer for tile in tiles[1:] for size, outer in zip(tile, tiles[0], strict=True)):
        raise ProgramError(f"expected tiles that lie within the first one, found {str(shape)!r}: such are not drawn")
    if shape.actual_layout.physical_shape is not None:
        raise ProgramError(f"expected an array that lies in memory as it is, found {str(shape)!r}; draw its P(...)")
    if not shape.element_count:
        raise ProgramError(f"expected an array with elements to draw, found {str(shape)!r}")
    steps = tile_steps(shape)
    sizes = (steps[0].combined if steps else physical_order_sizes(shape)) or (1,)
    tile = steps[0].sizes if steps else sizes
    fold = 0
    # One line is enough for a short array of one dimension.
    if prod(sizes[:-1]) == 1 and len(tile) == 1 and -(-sizes[-1] // tile[-1]) * tile[-1] > _SHORT_LINE:
        fold = next((line for line in (LANES, _SHORT_LINE) if tile[-1] % line == 0), 0)
    rows, columns = (-(-sizes[-1] // fold), fold) if fold else (1, *sizes)[-2:]
    tile_rows, tile_columns = (max(1, tile[-1] // fold), fold) if fold else (1, *tile)[-2:]
    return Plane(shape, sizes, tile, fold, rows, columns, tile_rows, tile_columns)
