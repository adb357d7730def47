"""What an array asks its memory for, line by line: a line is what it asks for in one cycle, if nothing stalls.

The operands are cut as in ``closed_form``. One that streams enters skewed: column ``c`` of a fold asks for step ``t``
in line ``t + c``. One that stays is asked for row by row, last row first. Order and addresses are those of SCALE-Sim v3
(``systolic_compute_*.py``, ``operand_matrix.py``): a pixel that lies in several windows has one address.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.systolic.memory.pixels import Pixels, list_pixels

Values = np.ndarray[Any, Any]


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

    @property
    def words(self) -> int:
        """Elements of the operand, those beyond the edge of an image as well."""
        return (self.layer.m if self.is_left else self.layer.n) * self.layer.inner

    @property
    def distinct_words(self) -> int:
        """Addresses of the operand."""
        return _left_words(self.layer) if self.is_left else self.words

    @property
    def is_matrix(self) -> bool:
        """Whether each element has an address of its own, so that none need be known."""
        return self.distinct_words == self.words

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns as the array sees them."""
        along, inner = (self.layer.m if self.is_left else self.layer.n), self.layer.inner
        return (inner, along) if self.turned == self.is_left else (along, inner)

    def pixels(self) -> Pixels:
        """Return where the elements of an image lie."""
        assert self.layer.convolution
        return list_pixels(self.layer.convolution, np.arange(self.layer.m), _kept_rows(self.layer), self.turned)

    def last_line(self, fold_lines: int) -> int:
        """Return the line in which it asks for something last; beyond the edge of an image there is nothing."""
        pixels = None if self.is_matrix else self.pixels()
        for fold in range(len(self.blocks) - 1, -1, -1):
            row, rows, column, columns = self.blocks[fold]
            for line in range(rows + columns - 2 if self.skewed else rows - 1, -1, -1):
                down, along = self._asked(line, rows, columns)
                if not pixels or pixels.any(row + down, column + along):
                    first = self.before if self.skewed else self.before - rows + 1
                    return fold * fold_lines + first + line
        return 0

    def _asked(self, line: int, rows: int, columns: int) -> tuple[Values, Values]:
        """Return the rows and columns of a fold that it asks for in a line, counted from its first one."""
        if not self.skewed:
            return np.full(columns, rows - 1 - line), np.arange(columns)
        down = np.arange(max(0, line - columns + 1), min(rows, line + 1))
        return down, line - down


class Demands(NamedTuple):
    """What an array asks for of a product."""

    ifmap: Demand
    filter: Demand
    writes: Values
    """(line): results that leave the array."""
    fold_lines: int


def list_demands(layer: Layer, array: Array) -> Demands:
    """Return what an array whose folds run one after the other asks for of a product."""
    rows, columns = array.rows, array.columns
    height, width, stream = array.extent(layer.m, layer.n, layer.inner)
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
    left_moves = array.dataflow == "ws"
    moves = Demand(layer, left_moves, not left_moves, streamed, rows, True, rows)
    stays = Demand(layer, not left_moves, not left_moves, held, columns, False, rows - 1)
    return Demands(*((moves, stays) if left_moves else (stays, moves)), writes, rows + across)


def _trapezes(lengths: Values, widths: Values, firsts: Values, lines: int) -> Values:
    """Return how many columns are at work in each line of each fold; each begins a line after the one before."""
    line = np.arange(lines)[None, :] - firsts[:, None]
    begun, ended = np.clip(line + 1, 0, widths[:, None]), np.clip(line + 1 - lengths[:, None], 0, widths[:, None])
    return (begun - ended).ravel()


def _kept_rows(layer: Layer) -> Values:
    """Return the rows of the right operand that are kept."""
    rows = np.arange(layer.k)
    return rows[rows % layer.kept[1] < layer.kept[0]]


def _left_words(layer: Layer) -> int:
    """Return how many words the left operand is made of, as far as they meet a kept row."""
    shape = layer.convolution
    if not shape:
        return layer.m * layer.inner
    if layer.inner == layer.k:
        high, wide = shape.positions
        rows = _seen(high, shape.stride, shape.filter_height, shape.height)
        return rows * _seen(wide, shape.stride, shape.filter_width, shape.width) * shape.channels
    found = list_pixels(shape, np.arange(layer.m), _kept_rows(layer), turned=False).addresses()
    return len(np.unique(found[found >= 0]))


def _seen(positions: int, stride: int, window: int, size: int) -> int:
    """Return the places along an axis that some window covers."""
    seen = np.arange(positions)[:, None] * stride + np.arange(window)
    return len(np.unique(seen[seen < size]))
