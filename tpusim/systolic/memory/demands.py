"""What an array asks its memory for, line by line: a line is what it asks for in one cycle, if nothing stalls.

The operands are cut as in ``closed_form``. One that streams enters skewed: column ``c`` of a fold asks for step ``t``
in line ``t + c``. One that stays is asked for row by row, last row first. Order and addresses are those of SCALE-Sim v3
(``systolic_compute_*.py``, ``operand_matrix.py``): a pixel that lies in several windows has one address.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.hardware.array import Array
from tpusim.limits import Limit
from tpusim.program.layers import Layer
from tpusim.systolic.memory.pixels import Pixels, Requests, list_elements, list_kept, list_pixels

Values = np.ndarray[Any, Any]

_LINES = Limit("lines of requests", 2**25, least=0)
"""Each takes some fifty bytes; the layers of networks have a million or so on arrays of their size."""


class Demand(NamedTuple):
    """What an array asks for of one operand."""

    layer: Layer
    is_left: bool
    turned: bool
    """Whether the array sees the operand turned."""
    blocks: Values
    """(fold, 4): first row, rows, first column and columns of what a fold asks for."""
    width: int
    """Columns of a fold that is not ragged."""
    skewed: bool
    before: int
    """Lines of a fold before it asks for its first row; of an operand that stays, for its row 0."""
    group: int = 1
    """Columns that each slot of a skewed fold asks for; half as many slots side by side ask for the same ones."""

    @property
    def words(self) -> int:
        """Elements of the operand, those beyond the edge of an image as well."""
        rows, columns = self.shape
        return rows * columns

    @property
    def distinct_words(self) -> int:
        """Addresses of the operand."""
        return _left_words(self.layer) if self.is_left else self.layer.kept_words

    @property
    def is_matrix(self) -> bool:
        """Whether each element has an address of its own, so that none need be known."""
        return self.distinct_words == self.words and self.group == 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns as the array sees them."""
        along = self.layer.m if self.is_left else self.layer.n
        inner = len(kept_rows(self.layer)) if self.is_left else self.layer.inner
        return (inner, along) if self.turned == self.is_left else (along, inner)

    def requests(self, fold_lines: int) -> Requests:
        """Return how folds of so many lines ask for it."""
        return Requests(self.skewed, self.before, fold_lines, self.width, self.group)

    def pixels(self) -> Pixels:
        """Return where its elements lie."""
        layer, (rows, columns) = self.layer, self.shape
        if not self.is_left:
            assert layer.rowwise
            return list_kept(layer.rowwise.group, layer.k, np.array(layer.rowwise.kept(columns)), rows)
        if layer.convolution:
            return list_pixels(layer.convolution, np.arange(layer.m), kept_rows(layer), self.turned)
        return list_elements(rows, columns)

    def first_line(self) -> int:
        """Return the line in which it asks for something first."""
        row, rows, column, columns = self.blocks[0]
        first = self.before if self.skewed else self.before - int(rows) + 1
        if self.is_matrix:
            return first
        pixels = self.pixels()
        return first + next(
            line
            for line in range(self.lines(rows, columns))
            if pixels.any(*self._asked(line, row, rows, column, columns))
        )

    def last_line(self, fold_lines: int) -> int:
        """Return the line in which it asks for something last; beyond the edge of an image there is nothing."""
        pixels = None if self.is_matrix else self.pixels()
        for fold in range(len(self.blocks) - 1, -1, -1):
            row, rows, column, columns = self.blocks[fold]
            for line in range(self.lines(rows, columns) - 1, -1, -1):
                if not pixels or pixels.any(*self._asked(line, row, rows, column, columns)):
                    first = self.before if self.skewed else self.before - rows + 1
                    return fold * fold_lines + first + line
        return 0

    def lines(self, rows: int, columns: int) -> int:
        """Return in how many lines a fold asks for something."""
        if not self.skewed:
            return rows
        return rows + (columns if self.group == 1 else self.width) - 1

    def _asked(self, line: int, row: int, rows: int, column: int, columns: int) -> tuple[Values, Values]:
        """Return the rows and columns of the operand that a fold asks for in a line, counted from its first one."""
        if not self.skewed:
            return np.full(columns, row + rows - 1 - line), column + np.arange(columns)
        slots = np.arange(max(0, line - rows + 1), min(columns if self.group == 1 else self.width, line + 1))
        if self.group == 1:
            return row + line - slots, column + slots
        along = (slots // (self.group // 2) * self.group)[:, None] + np.arange(self.group)
        down = np.broadcast_to((row + line - slots)[:, None], along.shape)
        return down[along < columns], column + along[along < columns]


class Demands(NamedTuple):
    """What an array asks for of a product."""

    ifmap: Demand
    filter: Demand
    writes: Values
    """(line): results that leave the array."""
    fold_lines: int


def list_demands(layer: Layer, array: Array) -> Demands:
    """Return what an array whose folds run one after the other asks for of a product.

    Raises UnsupportedError for what takes too many lines.
    """
    rows, columns = array.rows, array.columns
    height, width, stream = array.extent(layer.m, layer.n, layer.inner)
    folds = -(-height // rows) * -(-width // columns)
    if fault := _LINES.fault(folds * (2 * rows + columns + stream)):
        raise UnsupportedError(f"{layer.name}: {fault}: requests are followed one by one")
    high, wide = np.arange(-(-height // rows)), np.arange(-(-width // columns))
    # Folds are numbered with the height inside.
    high, wide = np.tile(high, len(wide)), np.repeat(wide, len(high))
    heights, widths = np.minimum(rows, height - high * rows), np.minimum(columns, width - wide * columns)
    zeros, steps = np.zeros_like(high), np.full_like(high, stream)
    streamed = np.stack([zeros, steps, high * rows, heights], 1)
    across = rows + columns + stream - 2
    if array.dataflow == "os":
        falling = np.stack([zeros, steps, wide * columns, widths], 1)
        # Sums leave from the bottom: a ragged tile has nothing there.
        writes = _trapezes(heights, widths, stream - 1 + rows - heights, across)
        left = Demand(layer, True, True, streamed, rows, True, 0)
        return Demands(left, Demand(layer, False, False, falling, columns, True, 0), writes, across)
    held = np.stack([high * rows, heights, wide * columns, widths], 1)
    writes = _trapezes(steps, widths, np.full_like(high, 2 * rows - 1), rows + across)
    if layer.rowwise:
        return _rowwise(layer, layer.rowwise.group, array, streamed, held, writes)
    left_moves = array.dataflow == "ws"
    moves = Demand(layer, left_moves, not left_moves, streamed, rows, True, rows)
    stays = Demand(layer, not left_moves, not left_moves, held, columns, False, rows - 1)
    return Demands(*((moves, stays) if left_moves else (stays, moves)), writes, rows + across)


def _rowwise(layer: Layer, group: int, array: Array, streamed: Values, held: Values, writes: Values) -> Demands:
    """Return what an array asks for that has room for half of each group of rows, and is fed all of it."""
    first = 2 * streamed[:, 2]
    blocks = np.stack([streamed[:, 0], streamed[:, 1], first, np.clip(layer.k - first, 0, 2 * array.rows)], 1)
    moves = Demand(layer, True, False, blocks, array.rows, True, array.rows, group)
    stays = Demand(layer, False, False, held, array.columns, False, array.rows - 1)
    return Demands(moves, stays, writes, len(writes) // len(held))


def _trapezes(lengths: Values, widths: Values, firsts: Values, lines: int) -> Values:
    """Return how many columns are at work in each line of each fold; each begins a line after the one before."""
    line = np.arange(lines)[None, :] - firsts[:, None]
    begun, ended = np.clip(line + 1, 0, widths[:, None]), np.clip(line + 1 - lengths[:, None], 0, widths[:, None])
    return (begun - ended).ravel()


def kept_rows(layer: Layer) -> Values:
    """Return the rows of the right operand that are kept."""
    rows = np.arange(layer.k)
    if layer.rowwise:
        return rows
    return rows[rows % layer.kept[1] < layer.kept[0]]


def _left_words(layer: Layer) -> int:
    """Return how many words the left operand is made of, as far as they meet a kept row."""
    shape = layer.convolution
    if not shape:
        return layer.m * len(kept_rows(layer))
    if layer.rowwise or layer.inner == layer.k:
        high, wide = shape.positions
        rows = _seen(high, shape.stride, shape.filter_height, shape.height)
        return rows * _seen(wide, shape.stride, shape.filter_width, shape.width) * shape.channels
    found = list_pixels(shape, np.arange(layer.m), kept_rows(layer), turned=False).addresses()
    return len(np.unique(found[found >= 0]))


def _seen(positions: int, stride: int, window: int, size: int) -> int:
    """Return the places along an axis that some window covers."""
    seen = np.arange(positions)[:, None] * stride + np.arange(window)
    return len(np.unique(seen[seen < size]))
