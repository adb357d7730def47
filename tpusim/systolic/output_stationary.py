"""The array in which the result stays: output-stationary.

Per element: the sum, an operand that moves right, one that moves down, and a spare register in which a sum that is
ready moves down and out while the next one grows. A token that runs along with the first operands clears the sums, one
with the last operands hands them over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tpusim.systolic.registers import SETTLE_CYCLES, Values, count, multiply, settle, shift_down, shift_right


class Registers(NamedTuple):
    """The registers of an array; operands once for every step that streams in per cycle (lane)."""

    sums: Values
    leaving: Values
    """(column, row): sums on their way out, a column's side by side."""
    lines: Values
    """(lane, row, place): the left operand on its way right, column 0 at the moving ``head``."""
    line_valid: Values
    """1 where ``lines`` holds an operand, 0 where it holds a bubble."""
    falls: Values
    """(lane, place, column): the right operand on its way down, row 0 at the moving ``top``."""
    fall_valid: Values
    """1 where ``falls`` holds an operand."""
    recent: Values
    """Multiply-accumulates of each element that are not in the totals yet."""


@njit(cache=True)
def run_output_stationary(
    lhs: Values, rhs: Values, out: Values, folds: Values, sizes: Values, macs: Values, active: Values
) -> int:
    """Compute ``out += lhs @ rhs`` fold by fold and return the cycles.

    ``folds``: a row for each, as ``count`` makes them; ``sizes``: rows, columns, steps per cycle, and whether
    folds overlap. Counts multiply-accumulates by element in ``macs`` and by cycle in ``active``.
    """
    rows, columns, lanes, overlaps = sizes[0], sizes[1], sizes[2], sizes[3] == 1
    steps = (lhs.shape[1] + lanes - 1) // lanes
    registers = _registers(out, rows, columns, lanes)
    total, settle_cycles = folds.shape[0], SETTLE_CYCLES // lanes
    starts = np.zeros(total, np.int64)
    oldest, streaming = 0, 0
    cycle, last_out, head, top = 0, 0, 0, 0
    while oldest < total:
        if streaming < total and _may_stream(folds, starts, streaming, cycle, steps, overlaps, oldest):
            starts[streaming] = cycle
            streaming += 1
        shift_right(registers.line_valid, head, columns)
        head = shift_right(registers.lines, head, columns)
        shift_down(registers.fall_valid, top, rows)
        top = shift_down(registers.falls, top, rows)
        for fold in range(oldest, streaming):
            _feed(registers, lhs, rhs, folds[fold], head, top, cycle - starts[fold], steps)
        active[cycle] = _compute(registers, head, top)
        # Oldest first: what it leaves behind is where the next one's sums move to, or are put, in this very cycle.
        for fold in range(oldest, streaming):
            if overlaps and _move_out(registers.leaving, out, folds[fold], cycle - starts[fold] - steps + 1):
                last_out = cycle + 1
        for fold in range(oldest, streaming):
            _hand_over(registers, out, folds[fold], cycle - starts[fold] - steps + 1, overlaps)
        cycle += 1
        if cycle % settle_cycles == 0:
            settle(macs, registers.recent)
        drain = rows + folds[oldest, 1] if overlaps else 0
        if oldest < streaming and cycle >= starts[oldest] + steps + rows + columns - 2 + drain:
            oldest += 1
    settle(macs, registers.recent)
    return last_out if overlaps else cycle


@njit(cache=True)
def _registers(out: Values, rows: int, columns: int, lanes: int) -> Registers:
    """Return an array's registers, empty, for values of the type of ``out``."""
    sums = np.zeros((rows, columns), out.dtype)
    leaving = np.zeros((columns, rows), out.dtype)
    lines = np.zeros((lanes, rows, 3 * columns), out.dtype)
    line_valid = np.zeros((lanes, rows, 3 * columns), np.uint8)
    falls = np.zeros((lanes, 3 * rows, columns), out.dtype)
    fall_valid = np.zeros((lanes, 3 * rows, columns), np.uint8)
    recent = np.zeros((rows, columns), np.uint8)
    return Registers(sums, leaving, lines, line_valid, falls, fall_valid, recent)


@njit(cache=True)
def _may_stream(folds: Values, starts: Values, fold: int, cycle: int, steps: int, overlaps: bool, oldest: int) -> bool:
    """Return whether the stream before is over, and the spare registers free when this fold's sums will be ready."""
    if not overlaps:
        return fold == oldest
    return fold == 0 or cycle >= starts[fold - 1] + max(steps, folds[fold - 1, 1])


@njit(cache=True)
def _feed(
    registers: Registers, lhs: Values, rhs: Values, fold: Values, head: int, top: int, age: int, steps: int
) -> None:
    """Put a fold's next operands in at the left and on top, each row and column one cycle after the one before.

    ``age`` cycles after its first token came in, new sums begin where that token is.
    """
    lanes, (rows, columns) = registers.lines.shape[0], registers.sums.shape
    for i in range(max(0, age - columns + 1), min(rows, age + 1)):
        registers.sums[i, age - i] = 0
    oldest_step = max(0, age - steps + 1)
    for lane in range(lanes):
        for i in range(oldest_step, min(fold[1], age + 1)):
            step = (age - i) * lanes + lane
            if step < lhs.shape[1]:
                registers.lines[lane, i, head] = lhs[fold[0] + i, step] if fold[4] == 0 else 0
                registers.line_valid[lane, i, head] = 1
        for j in range(oldest_step, min(fold[3], age + 1)):
            step = (age - j) * lanes + lane
            if step < lhs.shape[1]:
                registers.falls[lane, top, j] = rhs[step, fold[2] + j]
                registers.fall_valid[lane, top, j] = 1


@njit(cache=True)
def _compute(registers: Registers, head: int, top: int) -> int:
    """Let every element add the product of its operands; return how many products were of real ones."""
    active = 0
    for lane in range(registers.lines.shape[0]):
        multiply(registers.sums, 0, registers.lines[lane], head, registers.falls[lane], top)
        active += count(registers.line_valid[lane], head, registers.fall_valid[lane], top, registers.recent)
    return active


@njit(cache=True)
def _hand_over(registers: Registers, out: Values, fold: Values, age: int, overlaps: bool) -> None:
    """Take sums that are ready where the last token is, ``age`` cycles after it came in.

    They go into the spare registers or, without overlap, into the result, as if every element had a way out.
    """
    for i in range(max(0, age - fold[3] + 1), min(fold[1], age + 1)):
        if overlaps:
            registers.leaving[age - i, i] = registers.sums[i, age - i]
        else:
            out[fold[0] + i, fold[2] + age - i] += registers.sums[i, age - i]


@njit(cache=True)
def _move_out(leaving: Values, out: Values, fold: Values, age: int) -> bool:
    """Move a fold's sums one row down in those columns where all are ready; return whether any left the array."""
    rows, height = leaving.shape[1], fold[1]
    left = False
    for j in range(max(0, age - height - rows + 1), min(fold[3], age - height + 1)):
        moved = age - height - j
        last = min(rows, moved + height) - 1
        if last == rows - 1:
            out[fold[0] + rows - 1 - moved, fold[2] + j] += leaving[j, rows - 1]
            left = True
            last -= 1
        for i in range(last, moved - 1, -1):
            leaving[j, i + 1] = leaving[j, i]
    return left
