"""What both models of an array are made of: when folds come and go, and counters.

Time is that of the first row. A row's operands enter one cycle after those of the row above, and what moves down does
so by one row per cycle: they meet all the way. All that meets is one *wavefront*; wavefront ``u`` is in row ``i`` in
cycle ``u + i``. So a column is gone through wavefront by wavefront, and no register has to be moved for what it holds
to move. Column ``j`` sees what column 0 saw ``j`` wavefronts before.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tpusim.compiled import njit

Values = np.ndarray[Any, Any]

BLOCK: Final = 512
"""Wavefronts that a column goes through before the next column does: so that what they read stays in the cache."""

NEVER: Final = 1 << 62

ROW, HEIGHT, COLUMN, WIDTH, PASS, LEAD, BUSY, STAY = range(8)
"""A fold as ``count`` writes it down: its tile, its pass, and its cycles.

``LEAD``: from when it may come in to when it may stream; ``BUSY``: from there to when the next one may; ``STAY``: from
there to when it has left the array.
"""


class Folds(NamedTuple):
    """An array's folds, and how far they are."""

    tiles: Values
    """(fold, what ``count`` writes down)."""
    loads: Values
    """When its tile began to come in."""
    starts: Values
    """When its stream began."""
    reached: Values
    """(3): the oldest fold in the array, the first that did not come in, the first that did not stream yet."""


class Operands(NamedTuple):
    """A product as an array reads it, each row or column by itself: what streams, by lane and step.

    Where several steps stream in per cycle, each has a lane of its own.
    """

    stream: Values
    """The one that moves right: (row, lane, step) or, if results stay, (lane, step, row)."""
    other: Values
    """The one that comes from above: (column, row) or, if results stay, (column, lane, step)."""
    out: Values
    """(column, lane, step) or, if results stay, (column, row)."""
    steps: Values
    """(lane): the steps of a stream."""


class Block(NamedTuple):
    """Wavefronts that a column goes through at once."""

    wave: int
    """The first one."""
    span: int
    place: int
    """Where the first one's operands lie in what holds those that move right."""


class Counters(NamedTuple):
    """What was at work: multiply-accumulates by place, and how they changed by time."""

    by_height: Values
    """(column, height): wavefronts that found so many elements of a column at work, from the top."""
    changes: Values
    """(cycle): elements that set in, less those that cease."""


@njit(cache=True)
def begin(tiles: Values, overlaps: bool) -> Folds:
    """Return folds of which the first comes in in cycle 0."""
    total = tiles.shape[0]
    folds = Folds(tiles, np.zeros(total, np.int64), np.zeros(total, np.int64), np.array([0, 1, 0]))
    _tick(folds, 0, overlaps)
    return folds


@njit(cache=True)
def block_end(folds: Folds, cycle: int, overlaps: bool) -> int:
    """Go on from ``cycle`` to the next one in which a fold comes or goes, but no further than a block."""
    end = min(cycle + BLOCK, max(cycle + 1, min(_next_gone(folds), _next_start(folds))))
    _tick(folds, end, overlaps)
    return end


@njit(cache=True)
def _tick(folds: Folds, cycle: int, overlaps: bool) -> None:
    """Let folds come and go in this cycle: one each, if it is time."""
    gone = cycle >= _next_gone(folds)
    if gone:
        folds.reached[0] += 1
        if not overlaps:
            _come_in(folds, cycle)
    if cycle >= _next_start(folds):
        folds.starts[folds.reached[2]] = cycle
        folds.reached[2] += 1
        if overlaps:
            _come_in(folds, cycle)


@njit(cache=True)
def _next_gone(folds: Folds) -> int:
    """Return when the oldest fold will have left the array, if it streams yet."""
    oldest = folds.reached[0]
    return folds.starts[oldest] + folds.tiles[oldest, STAY] if oldest < folds.reached[2] else NEVER


@njit(cache=True)
def _next_start(folds: Folds) -> int:
    """Return when the next fold may stream, if it comes in yet: when its tile is in and the array free for it."""
    fold = folds.reached[2]
    if fold == folds.reached[1]:
        return NEVER
    ready = folds.loads[fold] + folds.tiles[fold, LEAD]
    return max(ready, folds.starts[fold - 1] + folds.tiles[fold - 1, BUSY]) if fold else ready


@njit(cache=True)
def _come_in(folds: Folds, cycle: int) -> None:
    """Let the next fold come in, if there is one."""
    coming = folds.reached[1]
    if coming < folds.tiles.shape[0]:
        folds.loads[coming] = cycle
        folds.reached[1] += 1


@njit(cache=True)
def steps_seen(age: int, span: int, steps: int) -> tuple[int, int]:
    """Return which steps of a stream come by in ``span`` wavefronts of which the first one sees step ``age``."""
    return max(0, age), min(steps, age + span)


@njit(cache=True)
def take(values: Values, source: Values) -> None:
    """Let registers take other values."""
    # Slices of one length, and no index that may be negative: else Numba would go element by element.
    for i in range(values.shape[0]):
        values[i] = source[i]


@njit(cache=True)
def clear(values: Values) -> None:
    """Let registers hold zeros."""
    for i in range(values.shape[0]):
        values[i] = 0


@njit(cache=True)
def add(values: Values, source: Values) -> None:
    """Let registers, or memory, add other values to theirs."""
    for i in range(values.shape[0]):
        values[i] += source[i]


@njit(cache=True)
def no_counts(rows: int, columns: int, cycles: int) -> Counters:
    """Return counters at zero."""
    return Counters(np.zeros((columns, rows + 1), np.int64), np.zeros(cycles + 1, np.int64))


@njit(cache=True)
def count(counters: Counters, column: int, height: int, first: int, last: int) -> None:
    """Count what wavefronts ``first`` to ``last`` - 1 find at work: the upper ``height`` elements of a column."""
    rises, falls = counters.changes[first:last], counters.changes[first + height : last + height]
    for wave in range(last - first):
        rises[wave] += 1
    for wave in range(last - first):
        falls[wave] -= 1
    counters.by_height[column, height] += last - first


@njit(cache=True)
def settle(counters: Counters, macs: Values, active: Values) -> None:
    """Add up what was counted: by element, and by cycle."""
    rows, columns = macs.shape
    for j in range(columns):
        at_work = 0
        for i in range(rows - 1, -1, -1):
            at_work += counters.by_height[j, i + 1]
            macs[i, j] = at_work
    at_work = 0
    for cycle in range(active.shape[0]):
        at_work += counters.changes[cycle]
        active[cycle] = at_work
