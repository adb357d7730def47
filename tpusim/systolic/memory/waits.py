"""How long an array waits for its memory: line by line, as SCALE-Sim v3 counts it (its quirks included).

Reads: what moves the window of an SRAM on waits for the fetch under way to end. SCALE-Sim adds what is missing twice,
and takes back from later waits of the same line what a fetch was early (``read_buffer.py``, ``service_reads``). Writes:
when as much is in the SRAM as half of it holds, half is drained; the array waits when all is full
(``write_buffer.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

Values = np.ndarray[Any, Any]

HIT_CYCLES = 1
"""From the request of a word that the SRAM holds to the word."""
DRAM_CYCLES = 1
"""From the request of a fetch to its words."""


class Waits(NamedTuple):
    """When each line was served, in cycles, and what DRAM did."""

    stalls: Values
    """(line): cycles stalled before it."""
    ifmap: Values
    """(line): when what it reads of the left operand was there."""
    filter: Values
    """(line): the same of the right one."""
    ofmap: Values
    """(line): when what it writes was taken."""
    last_fetch: Values
    """(2): when the last fetch of either operand was over."""
    drains: Values
    """(3): first and last cycle of a drain, and words drained."""
    total_stalls: int


class _Drain(NamedTuple):
    """The SRAM of results. A DRAM line may go partly empty, when half of the SRAM is drained before it is full."""

    state: Values
    """Free words; words in the line being filled; lines; lines drained; when this drain ends; when the first one began
    and the last one ended; words drained."""
    partial: list[int]
    """Lines that went partly empty."""
    missing: list[int]
    """Words that each of them lacks."""


_FREE, _FILLED, _LINES, _DRAINED, _END, _FIRST, _LAST, _WORDS = range(8)


@njit(cache=True)
def wait(ifmap: Values, filters: Values, writes: Values, fetch_cycles: Values, sram: Values) -> Waits:
    """Return when every line is served.

    ``ifmap``, ``filters``: how often each line moves a window on; ``writes``: words that it writes; ``fetch_cycles``:
    that a fetch of half an SRAM takes of either; ``sram``: words of the results' SRAM, and words per cycle to DRAM.
    """
    lines = len(writes)
    stalls, served = np.zeros(lines, np.int64), np.zeros((3, lines), np.int64)
    last_fetch, stalled = np.full(2, -1), 0
    drain = _Drain(np.zeros(8, np.int64), [-1], [0])
    drain.state[_FREE], drain.state[_FIRST] = sram[0], -1
    for line in range(lines):
        cycle = line + stalled
        stalls[line] = stalled
        left, right = ifmap[line], filters[line]
        left_late = _fetch(last_fetch, 0, left, fetch_cycles[0], cycle) if left else 0
        right_late = _fetch(last_fetch, 1, right, fetch_cycles[1], cycle) if right else 0
        taken = _write(drain, writes[line], cycle, sram) if writes[line] else cycle
        served[0, line], served[1, line] = cycle + HIT_CYCLES + left_late, cycle + HIT_CYCLES + right_late
        served[2, line] = taken
        stalled += max(left_late, right_late, taken - cycle)
    _empty(drain, served[2, -1], sram)
    drains = np.array([drain.state[_FIRST], drain.state[_LAST], drain.state[_WORDS]])
    return Waits(stalls, served[0], served[1], served[2], last_fetch, drains, stalled)


@njit(cache=True)
def _fetch(last_fetch: Values, operand: int, moves: int, cycles: int, cycle: int) -> int:
    """Let a window move on so many times; return how many cycles later than at a hit its words are there."""
    offset = HIT_CYCLES
    for _ in range(moves):
        last_fetch[operand] += cycles + DRAM_CYCLES
        missing = last_fetch[operand] - (cycle + offset)
        offset += missing + max(0, missing)
    return offset - HIT_CYCLES


@njit(cache=True)
def _write(drain: _Drain, words: int, cycle: int, sram: Values) -> int:
    """Take a line's results in; return when that is done."""
    state, size = drain.state, sram[0]
    least_free = (size + 1) // 2
    while words > 0:
        draining = cycle < state[_END]
        # As many as go in until something happens: no room, or half full.
        until = state[_FREE] if draining else state[_FREE] - least_free + 1
        taken = min(words, max(1, until))
        words -= taken
        state[_FREE] -= taken
        state[_FILLED] += taken
        # A division would take longer.
        while state[_FILLED] >= sram[1]:
            state[_FILLED] -= sram[1]
            state[_LINES] += 1
        if draining and state[_FREE] <= 0:
            cycle = state[_END]
        elif not draining and state[_FREE] < least_free:
            _end_line(drain, sram[1])
            _drain_half(drain, cycle, sram)
    return cycle


@njit(cache=True)
def _end_line(drain: _Drain, rate: int) -> None:
    """Let the line being filled go as it is."""
    if drain.state[_FILLED] > 0:
        drain.partial.append(drain.state[_LINES])
        drain.missing.append(rate - drain.state[_FILLED])
        drain.state[_LINES] += 1
        drain.state[_FILLED] = 0


@njit(cache=True)
def _drain_half(drain: _Drain, cycle: int, sram: Values) -> None:
    """Begin to drain as many lines as half of the SRAM has, of those that are there."""
    state, half = drain.state, sram[0] - (sram[0] + 1) // 2
    end = min(state[_DRAINED] + (half + sram[1] - 1) // sram[1], state[_LINES])
    lines = end - state[_DRAINED]
    words = lines * sram[1]
    # Only the last one's gaps are seen.
    at = len(drain.partial) - 1
    while drain.partial[at] > end - 1:
        at -= 1
    if drain.partial[at] == end - 1:
        words -= drain.missing[at]
    if state[_FIRST] < 0:
        state[_FIRST] = cycle
    state[_DRAINED], state[_END] = end, cycle + lines - 1
    state[_LAST] = max(state[_LAST], state[_END])
    state[_FREE] += words
    state[_WORDS] += words


@njit(cache=True)
def _empty(drain: _Drain, cycle: int, sram: Values) -> None:
    """Drain what is left."""
    _end_line(drain, sram[1])
    while drain.state[_DRAINED] < drain.state[_LINES]:
        _drain_half(drain, cycle, sram)
        cycle = drain.state[_END] + 1
