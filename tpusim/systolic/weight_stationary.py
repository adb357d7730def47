"""The array in which a tile of one operand stays: weight-stationary, and input-stationary on the turned product.

Per element: the weight in use, the spare one, the activation that moves right, the partial sum that moves down. Tiles
shift in through the spare registers from above, column ``j`` ``j`` cycles after the first, so that they follow the
wavefront of the tile before. A token that runs along with the first activations makes spare weights those in use.
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

# Rows that sums go through between two visits to memory.
_GROUP: Final = 16


class Registers(NamedTuple):
    """The registers of an array; activations once for every row that streams in per cycle (lane)."""

    spare: Values
    """(column, row)."""
    in_use: Values
    """(column, row)."""
    lines: Values
    """(lane, row, place): the activations on their way right; column 0 at a moving place."""
    sums: Values
    """(wavefront): the partial sums of one column on their way down."""


@njit(cache=True)
def run_weight_stationary(operands: Operands, tiles: Values, sizes: Values, macs: Values, active: Values) -> int:
    """Add the operands' product to ``out``, fold by fold, and return the cycles.

    ``tiles``: the folds as ``count`` writes them down; ``sizes``: rows, columns, and whether folds overlap. Counts
    multiply-accumulates by element in ``macs`` and by cycle in ``active``.
    """
    rows, columns, overlaps = sizes[0], sizes[1], sizes[2] == 1
    registers = _registers(operands.out, rows, columns)
    counters = no_counts(rows, columns, active.shape[0])
    folds = begin(tiles, overlaps)
    wave, last_out, place = 0, 0, columns
    while folds.reached[0] < tiles.shape[0]:
        oldest, coming, streaming = folds.reached
        end = block_end(folds, wave, overlaps)
        place = _make_room(registers.lines, place, columns)
        block = Block(wave, end - wave, place)
        if streaming:
            _feed(registers.lines, operands, tiles[streaming - 1], block, folds.starts[streaming - 1])
        for column in range(columns):
            for fold in range(oldest, coming):
                height = tiles[fold, at.HEIGHT] if overlaps else rows
                first, last = steps_seen(wave - folds.loads[fold] - column, block.span, height)
                if first < last:
                    rows_in = height - last, height - first
                    _shift_tile(registers.spare[column], operands.other, tiles[fold], column, rows_in)
                age = wave - folds.starts[fold] - column
                if fold < streaming and -block.span < age < operands.steps[0] and column < tiles[fold, at.WIDTH]:
                    last_wave = _stream(registers, operands, counters, tiles[fold], column, block, age)
                    last_out = max(last_out, last_wave + rows)
        place += block.span
        wave = end
    settle(counters, macs, active)
    return last_out if overlaps else wave


@njit(cache=True)
def _registers(out: Values, rows: int, columns: int) -> Registers:
    """Return an array's registers, empty, for values of the type of ``out``."""
    spare = np.zeros((columns, rows), out.dtype)
    in_use = np.zeros((columns, rows), out.dtype)
    lines = np.zeros((out.shape[1], rows, columns + 4 * BLOCK), out.dtype)
    return Registers(spare, in_use, lines, np.zeros(BLOCK, out.dtype))


@njit(cache=True)
def _make_room(lines: Values, place: int, columns: int) -> int:
    """Return where the next block goes; what the columns still have to see is moved to the front."""
    if place + BLOCK <= lines.shape[2]:
        return place
    for lane in range(lines.shape[0]):
        for i in range(lines.shape[1]):
            take(lines[lane, i, :columns], lines[lane, i, place - columns : place])
    return columns


@njit(cache=True)
def _feed(lines: Values, operands: Operands, tile: Values, block: Block, start: int) -> None:
    """Put a fold's next activations in at the left; those of later passes are zeros."""
    age = block.wave - start
    for lane in range(lines.shape[0]):
        first, last = steps_seen(age, block.span, operands.steps[lane])
        if first < last:
            place = block.place + first - age
            for i in range(tile[at.HEIGHT]):
                line = lines[lane, i, place : place + last - first]
                take(line, operands.stream[tile[at.ROW] + i, lane, first:last])
                if tile[at.PASS] > 0:
                    clear(line)


@njit(cache=True)
def _shift_tile(spare: Values, weights: Values, tile: Values, column: int, rows: tuple[int, int]) -> None:
    """Let rows of a fold's tile come into a column, last one first; each goes down as far as the one before lets it."""
    first, last = rows
    edge = max(first, min(last, tile[at.HEIGHT])) if column < tile[at.WIDTH] else first
    if first < edge:
        take(spare[first:edge], weights[tile[at.COLUMN] + column, tile[at.ROW] + first : tile[at.ROW] + edge])
    # Beyond a ragged edge.
    clear(spare[edge:last])


@njit(cache=True)
def _stream(
    registers: Registers, operands: Operands, counters: Counters, tile: Values, column: int, block: Block, age: int
) -> int:
    """Let what a block has of a fold's stream pass a column, ``age`` steps on; return the last wavefront, or 0."""
    height, in_use = tile[at.HEIGHT], registers.in_use[column]
    if -block.span < age <= 0:
        # The token comes by.
        take(in_use, registers.spare[column])
    seen = 0
    for lane in range(operands.steps.shape[0]):
        first, last = steps_seen(age, block.span, operands.steps[lane])
        if first < last:
            sums = registers.sums[: last - first]
            _sum_up(sums, registers.lines[lane], in_use, height, block.place + first - age - column)
            add(operands.out[tile[at.COLUMN] + column, lane, first:last], sums)
            count(counters, column, height, block.wave + first - age, block.wave + last - age)
            seen = max(seen, block.wave + last - age - 1)
    return seen


@njit(cache=True)
def _sum_up(sums: Values, lines: Values, in_use: Values, height: int, place: int) -> None:
    """Let the sums of some wavefronts go down a column; each element adds its product to what comes from above."""
    span, whole = sums.shape[0], height - height % _GROUP
    clear(sums)
    for i in range(0, whole, _GROUP):
        for wave in range(span):
            value = sums[wave]
            for below in range(_GROUP):
                # Unsigned, as an index that may be negative keeps Numba from using vector registers.
                row = np.uint64(i + below)
                value += lines[row, np.uint64(place + wave)] * in_use[row]
            sums[wave] = value
    for i in range(whole, height):
        for wave in range(span):
            sums[wave] += lines[np.uint64(i), np.uint64(place + wave)] * in_use[i]
