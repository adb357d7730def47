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
        return self.layer.left_words if self.is_left else self.words

    @property
    def asks_once(self) -> bool:
        """Whether no address is asked for twice."""
        return not self.skewed and not (self.is_left and self.layer.convolution)

    def addresses(self) -> Values:
        """Return (row, column): where each element lies, from 0; -1 beyond the edge of an image."""
        layer = self.layer
        inner = layer.kept_rows()
        if self.is_left:
            found = layer.addresses(np.arange(layer.m)[:, None], inner[None, :])
        else:
            found = inner[:, None] * layer.n + np.arange(layer.n)
        return np.ascontiguousarray(found.T if self.turned else found)

    def last_line(self) -> int:
        """Return the line of the last fold in which it asks for something last."""
        if not self.skewed:
            return self.before
        _, rows, column, columns = self.blocks[-1]
        inner = self.layer.kept_rows()
        for line in range(rows + columns - 2, -1, -1):
            down = np.arange(max(0, line - columns + 1), min(rows, line + 1))
            along = column + line - down
            m, k = (along, down) if self.turned else (down, along)
            if not self.is_left or (self.layer.addresses(m, inner[k]) >= 0).any():
                return self.before + line
        return self.before


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
