"""How long an array waits for its memory: line by line, as SCALE-Sim v3 counts it (its quirks included).

Reads: what moves the window of an SRAM on waits for the fetch under way to end. SCALE-Sim adds what is missing twice,
and takes back from later waits of the same line what a fetch was early (``read_buffer.py``, ``service_reads``). Writes:
when as much is in the SRAM as half of it holds, half is drained; the array waits when all is full
(``write_buffer.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit

Values = np.ndarray[Any, Any]

HIT_CYCLES = 1
"""From the request of a word that the SRAM holds to the word."""
DRAM_CYCLES = 1
"""From the request of a fetch to its words."""


class Waits(NamedTuple):
    """When each line was served, in cycles, and what DRAM did."""

    stalls: Values
    """(line): cycles stalled before it."""
    events: Values
    """Lines for which something may have been late; the first one is before them all."""
    late: Values
    """(3, event): by how many cycles, for both operands and the results."""
    last_fetch: Values
    """(2): when the last fetch of either operand was over."""
    drains: Values
    """(3): first and last cycle of a drain, and words drained."""
    total_stalls: int

    def served(self, sram: int, line: int) -> int:
        """Return when a line had what it reads of an operand (0 or 1), or what it writes was taken (2)."""
        event = int(np.searchsorted(self.events, line))
        late = self.late[sram, event] if event < len(self.events) and self.events[event] == line else 0
        return line + int(self.stalls[line]) + int(late) + (HIT_CYCLES if sram < 2 else 0)


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
    moving, written = np.append(np.flatnonzero(ifmap + filters), lines), np.append(0, np.cumsum(writes))
    stalls, events, late = np.zeros(lines, np.int64), [-1], [(0, 0, 0)]
    last_fetch, stalled, line, move = np.full(2, -1), 0, 0, 0
    drain = _Drain(np.zeros(8, np.int64), [-1], [0])
    drain.state[_FREE], drain.state[_FIRST] = sram[0], -1
    while line < lines:
        if moving[move] < line:
            move += 1
        event = _take_lines(drain, written, np.array([line, moving[move], stalled]), sram)
        stalls[line : event + 1] = stalled
        if event < lines:
            cycle, left, right = event + stalled, ifmap[event], filters[event]
            left_late = _fetch(last_fetch, 0, left, fetch_cycles[0], cycle) if left else 0
            right_late = _fetch(last_fetch, 1, right, fetch_cycles[1], cycle) if right else 0
            taken = _write(drain, writes[event], cycle, sram) - cycle if writes[event] else 0
            events.append(event)
            late.append((left_late, right_late, taken))
            stalled += max(left_late, right_late, taken)
        line = event + 1
    _empty(drain, lines - 1 + stalls[-1] + (late[-1][2] if events[-1] == lines - 1 else 0), sram)
    drains = np.array([drain.state[_FIRST], drain.state[_LAST], drain.state[_WORDS]])
    return Waits(stalls, np.array(events), np.array(late).T, last_fetch, drains, stalled)


@njit(cache=True)
def _take_lines(drain: _Drain, written: Values, shape: Values, sram: Values) -> int:
    """Take in the results of lines for which nothing is late; return the first one of which that is not sure.

    ``written``: words before each line; ``shape``: the first line, one before which to end, and the cycles stalled.
    """
    state, (line, end, stalled) = drain.state, shape
    draining = line + stalled < state[_END]
    if draining:
        end = min(end, state[_END] - stalled)
    # One word less than what lets a drain begin, or fills the SRAM.
    room = state[_FREE] - 1 if draining else state[_FREE] - (sram[0] + 1) // 2
    most = written[line] + max(0, room)
    if written[end] > most:
        end = line + np.searchsorted(written[line : end + 1], most, side="right") - 1
    words = written[end] - written[line]
    state[_FREE] -= words
    state[_LINES] += (state[_FILLED] + words) // sram[1]
    state[_FILLED] = (state[_FILLED] + words) % sram[1]
    return int(end)


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
