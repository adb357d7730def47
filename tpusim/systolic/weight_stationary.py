"""The array in which a tile of one operand stays: weight-stationary, and input-stationary on the turned product.

Per element: the weight in use, the spare one, the activation that moves right, the partial sum that moves down. Tiles
shift in through the spare registers from above, column ``j`` ``j`` cycles after the first, so that they follow the
wavefront of the tile before. A token that runs along with the first activations makes spare weights those in use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tpusim.systolic.registers import SETTLE_CYCLES, Values, count, multiply, settle, shift_down, shift_right


class Registers(NamedTuple):
    """The registers of an array; activations and sums once for every row that streams in per cycle (lane)."""

    spare: Values
    in_use: Values
    enabled: Values
    """1 where the weight in use is part of its tile, 0 beyond a ragged edge."""
    lines: Values
    """(lane, row, place): the activations on their way right, column 0 at the moving ``head``."""
    valid: Values
    """1 where ``lines`` holds an activation, 0 where it holds a bubble."""
    sums: Values
    """(lane, place, column): the partial sums on their way down, row 0 at the moving ``top``."""
    recent: Values
    """Multiply-accumulates of each element that are not in the totals yet."""


@njit(cache=True)
def run_weight_stationary(  # noqa: C901 - one cycle of the array, whose parts follow each other
    stream: Values, weights: Values, out: Values, folds: Values, sizes: Values, macs: Values, active: Values
) -> int:
    """Compute ``out += stream @ weights`` fold by fold and return the cycles.

    ``folds``: a row for each, as ``count`` makes them; ``sizes``: rows, columns, rows per cycle, and whether
    folds overlap. Counts multiply-accumulates by element in ``macs`` and by cycle in ``active``.
    """
    rows, columns, lanes, overlaps = sizes[0], sizes[1], sizes[2], sizes[3] == 1
    steps = (stream.shape[0] + lanes - 1) // lanes
    registers = _registers(out, rows, columns, lanes)
    total, settle_cycles = folds.shape[0], SETTLE_CYCLES // lanes
    # When each fold's tile began to shift in, and when its stream began.
    loads, starts = np.zeros(total, np.int64), np.zeros(total, np.int64)
    oldest, loading, streaming = 0, 1, 0
    cycle, last_out, head, top = 0, 0, 0, 0
    while oldest < total:
        if streaming < loading and _may_stream(folds, sizes, loads, starts, streaming, cycle, steps):
            starts[streaming] = cycle
            streaming += 1
            if overlaps and loading < total:
                loads[loading] = cycle
                loading += 1
        shift_right(registers.valid, head, columns)
        head = shift_right(registers.lines, head, columns)
        top = shift_down(registers.sums, top, rows)
        for fold in range(oldest, streaming):
            _switch(registers, folds[fold], cycle - starts[fold])
            _feed(registers, stream, folds[fold], head, cycle - starts[fold], steps)
        for fold in range(oldest, loading):
            height = folds[fold, 1] if overlaps else rows
            _shift_tile(registers.spare, weights, folds[fold], height, cycle - loads[fold])
        active[cycle] = _compute(registers, head, top)
        bottom = registers.sums[:, top + rows - 1]
        for fold in range(oldest, streaming):
            if _collect(bottom, out, folds[fold], cycle - starts[fold] - rows + 1, steps):
                last_out = cycle + 1
        cycle += 1
        if cycle % settle_cycles == 0:
            settle(macs, registers.recent)
        if oldest < streaming and cycle >= starts[oldest] + steps + rows + columns - 2:
            oldest += 1
            if not overlaps and loading < total:
                loads[loading] = cycle
                loading += 1
    settle(macs, registers.recent)
    return last_out if overlaps else cycle


@njit(cache=True)
def _registers(out: Values, rows: int, columns: int, lanes: int) -> Registers:
    """Return an array's registers, empty, for values of the type of ``out``."""
    spare = np.zeros((rows, columns), out.dtype)
    in_use = np.zeros((rows, columns), out.dtype)
    enabled = np.zeros((rows, columns), np.uint8)
    lines = np.zeros((lanes, rows, 3 * columns), out.dtype)
    valid = np.zeros((lanes, rows, 3 * columns), np.uint8)
    sums = np.zeros((lanes, 3 * rows, columns), out.dtype)
    return Registers(spare, in_use, enabled, lines, valid, sums, np.zeros((rows, columns), np.uint8))


@njit(cache=True)
def _may_stream(folds: Values, sizes: Values, loads: Values, starts: Values, fold: int, cycle: int, steps: int) -> bool:
    """Return whether a fold's tile is in and the stream before it is over."""
    load_cycles = folds[fold, 1] if sizes[3] else sizes[0]
    return cycle >= loads[fold] + load_cycles and (fold == 0 or cycle >= starts[fold - 1] + steps)


@njit(cache=True)
def _switch(registers: Registers, fold: Values, age: int) -> None:
    """Take the spare weights into use where a fold's token is, ``age`` cycles after it came in."""
    rows, columns = registers.in_use.shape
    for i in range(max(0, age - columns + 1), min(rows, age + 1)):
        j = age - i
        inside = i < fold[1] and j < fold[3]
        # Below a ragged tile stands what the tile before left there.
        registers.in_use[i, j] = registers.spare[i, j] if inside else 0
        registers.enabled[i, j] = inside


@njit(cache=True)
def _feed(registers: Registers, stream: Values, fold: Values, head: int, age: int, steps: int) -> None:
    """Put a fold's next activations in at the left, each row one cycle after the row above."""
    lines, valid = registers.lines, registers.valid
    for lane in range(lines.shape[0]):
        for i in range(max(0, age - steps + 1), min(fold[1], age + 1)):
            step = (age - i) * lines.shape[0] + lane
            if step < stream.shape[0]:
                lines[lane, i, head] = stream[step, fold[0] + i] if fold[4] == 0 else 0
                valid[lane, i, head] = 1


@njit(cache=True)
def _shift_tile(spare: Values, weights: Values, fold: Values, height: int, age: int) -> None:
    """Shift a fold's tile one row further down, in those columns that it is coming into, last row first."""
    rows, columns = spare.shape
    low, high = max(0, age - height + 1), min(columns, age + 1)
    for i in range(min(rows - 1, age - low), 0, -1):
        # Rows that the tile has not reached yet still hold the tile before, which they may not have taken into use.
        for j in range(low, min(high, age - i + 1)):
            spare[i, j] = spare[i - 1, j]
    for j in range(low, high):
        row = height - 1 - (age - j)
        inside = row < fold[1] and j < fold[3]
        spare[0, j] = weights[fold[0] + row, fold[2] + j] if inside else 0


@njit(cache=True)
def _compute(registers: Registers, head: int, top: int) -> int:
    """Let every element add its product to the sum from above; return how many products were of real operands."""
    active = 0
    for lane in range(registers.lines.shape[0]):
        multiply(registers.sums[lane], top, registers.lines[lane], head, registers.in_use, 0)
        active += count(registers.valid[lane], head, registers.enabled, 0, registers.recent)
    return active


@njit(cache=True)
def _collect(bottom: Values, out: Values, fold: Values, age: int, steps: int) -> bool:
    """Add what leaves the bottom row ``age`` cycles after its first sum to the result; return whether anything did."""
    lanes = bottom.shape[0]
    low, high = max(0, age - steps + 1), min(fold[3], age + 1)
    for lane in range(lanes):
        for j in range(low, high):
            step = (age - j) * lanes + lane
            if step < out.shape[0]:
                out[step, fold[2] + j] += bottom[lane, j]
    return low < high
