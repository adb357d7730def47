"""The array in which the result stays: output-stationary.

Per element: the sum, an operand that moves right, one that moves down, and a spare register in which a sum that is
ready moves down and out while the next one grows. A token that runs along with the first operands clears the sums, one
with the last operands hands them over.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.systolic import registers as at
from tpusim.systolic.registers import (
    BLOCK,
    Block,
    Counters,
    Operands,
    Values,
    add,
    begin,
    block_end,
    clear,
    count,
    no_counts,
    settle,
    steps_seen,
    take,
)

# Wavefronts that pass a sum between two visits to memory.
_GROUP: Final = 4


class Registers(NamedTuple):
    """The registers of an array; operands once for every step that streams in per cycle (lane)."""

    sums: Values
    """(column, row)."""
    leaving: Values
    """(column, row): sums on their way out."""
    lines: Values
    """(lane, place, row): the left operand on its way right; column 0 at a moving place."""


@njit(cache=True)
def run_output_stationary(operands: Operands, tiles: Values, sizes: Values, macs: Values, active: Values) -> int:
    """Add the operands' product to ``out``, fold by fold, and return the cycles.

    ``tiles``: the folds as ``count`` writes them down; ``sizes``: rows, columns, and whether folds overlap. Counts
    multiply-accumulates by element in ``macs`` and by cycle in ``active``.
    """
    rows, columns, overlaps = sizes[0], sizes[1], sizes[2] == 1
    registers = _registers(operands, rows, columns)
    counters = no_counts(rows, columns, active.shape[0])
    folds = begin(tiles, overlaps)
    wave, last_out, place = 0, 0, columns
    while folds.reached[0] < tiles.shape[0]:
        oldest, _, streaming = folds.reached
        end = block_end(folds, wave, overlaps)
        place = _make_room(registers.lines, place, columns)
        block = Block(wave, end - wave, place)
        if streaming:
            _feed(registers.lines, operands, tiles[streaming - 1], block, folds.starts[streaming - 1])
        for column in range(columns):
            for fold in range(oldest, streaming):
                age = wave - folds.starts[fold] - column
                stay = operands.steps[0] + tiles[fold, at.HEIGHT]
                if -block.span < age <= stay and column < tiles[fold, at.WIDTH]:
                    _stream(registers, operands, counters, tiles[fold], column, block, age)
                    last = _leave(registers, operands, tiles[fold], column, block, age, overlaps)
                    last_out = max(last_out, last + rows)
        place += block.span
        wave = end
    settle(counters, macs, active)
    return last_out if overlaps else wave


@njit(cache=True)
def _registers(operands: Operands, rows: int, columns: int) -> Registers:
    """Return an array's registers, empty, for values of the type of the operands."""
    kind = operands.out.dtype
    lines = np.zeros((operands.steps.shape[0], columns + 4 * BLOCK, rows), kind)
    return Registers(np.zeros((columns, rows), kind), np.zeros((columns, rows), kind), lines)


@njit(cache=True)
def _make_room(lines: Values, place: int, columns: int) -> int:
    """Return where the next block goes; what the columns still have to see is moved to the front."""
    if place + BLOCK <= lines.shape[1]:
        return place
    for lane in range(lines.shape[0]):
        for j in range(columns):
            take(lines[lane, j], lines[lane, place - columns + j])
    return columns


@njit(cache=True)
def _feed(lines: Values, operands: Operands, tile: Values, block: Block, start: int) -> None:
    """Put a fold's next left operands in; those of later passes are zeros."""
    age, row, height = block.wave - start, tile[at.ROW], tile[at.HEIGHT]
    for lane in range(lines.shape[0]):
        first, last = steps_seen(age, block.span, operands.steps[lane])
        for step in range(first, last):
            line = lines[lane, block.place + step - age, :height]
            take(line, operands.stream[lane, step, row : row + height])
            if tile[at.PASS] > 0:
                clear(line)


@njit(cache=True)
def _stream(
    registers: Registers, operands: Operands, counters: Counters, tile: Values, column: int, block: Block, age: int
) -> None:
    """Let what a block has of a fold's operands meet in a column, ``age`` steps on."""
    height = tile[at.HEIGHT]
    sums = registers.sums[column, :height]
    if -block.span < age <= 0:
        # The token of the first operands comes by.
        clear(sums)
    for lane in range(operands.steps.shape[0]):
        first, last = steps_seen(age, block.span, operands.steps[lane])
        if first < last:
            place = block.place + first - age - column
            falling = operands.other[tile[at.COLUMN] + column, lane, first:last]
            _add_up(sums, registers.lines[lane, place : place + last - first], falling)
            count(counters, column, height, block.wave + first - age, block.wave + last - age)


@njit(cache=True)
def _add_up(sums: Values, lines: Values, falling: Values) -> None:
    """Let some wavefronts go down a column; each element adds the product of the operands that meet in it."""
    span = falling.shape[0]
    whole = span - span % _GROUP
    for wave in range(0, whole, _GROUP):
        for i in range(sums.shape[0]):
            value = sums[i]
            for later in range(_GROUP):
                # Unsigned, as an index that may be negative keeps Numba from using vector registers.
                value += lines[np.uint64(wave + later), i] * falling[np.uint64(wave + later)]
            sums[i] = value
    for wave in range(whole, span):
        for i in range(sums.shape[0]):
            sums[i] += lines[wave, i] * falling[wave]


@njit(cache=True)
def _leave(
    registers: Registers, operands: Operands, tile: Values, column: int, block: Block, age: int, overlaps: bool
) -> int:
    """Let a column's sums that are ready go, last row first; return the last wavefront with which one did, or 0.

    Without overlap they go into the result where they are, as if every element had a way out.
    """
    height, row = tile[at.HEIGHT], tile[at.ROW]
    ready = age - operands.steps[0]
    out = operands.out[tile[at.COLUMN] + column, row : row + height]
    if ready < 0 <= ready + block.span:
        # The token of the last operands comes by.
        if not overlaps:
            add(out, registers.sums[column])
        take(registers.leaving[column], registers.sums[column])
    first, last = steps_seen(ready, block.span, height)
    if first >= last or not overlaps:
        return 0
    add(out[height - last : height - first], registers.leaving[column, height - last : height - first])
    return block.wave + last - 1 - ready
