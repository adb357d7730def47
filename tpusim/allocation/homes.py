"""The memory of places that others may lie in as well: which of them is free at some time.

Thousands of places may ask, and most of those they ask are taken. A tree over them knows when all below a node are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from tpusim.allocation.heap import Interval

_ALWAYS: Interval = (-(1 << 62), 1 << 62)


class Homes:
    """Places in order, by their numbers, and when each is taken: at first in given intervals, which are in order."""

    def __init__(self, taken: Sequence[Iterable[Interval]]) -> None:
        self._places = len(taken)
        self._count = 1 << (len(taken) - 1).bit_length()
        # Node n has the nodes 2n and 2n + 1 below it, the last half are the places; there is none at 0.
        ends: list[list[Interval]] = [list(intervals) for intervals in taken]
        ends += [[_ALWAYS] for _ in range(self._count - len(taken))]
        self._taken: list[list[Interval]] = [[] for _ in range(self._count)] + ends
        for node in range(self._count - 1, 0, -1):
            self._taken[node] = _common(self._taken[2 * node], self._taken[2 * node + 1])

    def first_free(self, intervals: Sequence[Interval], least: int) -> int | None:
        """Return the first place from ``least`` on that is free in all of some intervals."""
        taken, waiting = self._taken, [(1, 0, self._count)] if least < self._places else []
        while waiting:
            node, begin, end = waiting.pop()
            if not _is_free(intervals, taken[node]):
                continue
            if end - begin == 1:
                return begin
            middle = (begin + end) // 2
            waiting.append((2 * node + 1, middle, end))
            # The half before the first is not looked at.
            if middle > least:
                waiting.append((2 * node, begin, middle))
        return None

    def take(self, number: int, intervals: Iterable[Interval]) -> None:
        """Let a place be taken in some more intervals, in which it was free."""
        node, new = self._count + number, list(intervals)
        while node and new:
            for interval in new:
                insort(self._taken[node], interval)
            # What is new above is taken in the other half already.
            new = _common(new, self._taken[node ^ 1])
            node //= 2


def _common(intervals: Iterable[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """Return what intervals have in common with others; each are disjoint and in order."""
    found: list[Interval] = []
    for first, last in intervals:
        number = bisect_left(taken, (first, first))
        # One that begins before may still be there.
        number -= number > 0 and taken[number - 1][1] >= first
        while number < len(taken) and taken[number][0] <= last:
            other, until = taken[number]
            found.append((max(first, other), min(last, until)))
            number += 1
    return found


def _is_free(intervals: Iterable[Interval], taken: Sequence[Interval]) -> bool:
    # Of hundreds of thousands of questions, so that no generator is made for each.
    for interval in intervals:  # noqa: SIM110
        if overlaps_any(interval, taken):
            return False
    return True


def overlaps_any(interval: Interval, taken: Sequence[Interval]) -> bool:
    """Return whether an interval overlaps one of ``taken``, which are in order and disjoint."""
    first, last = interval
    before = bisect_right(taken, (last, last)) - 1
    # The latest that begins by the end of the interval also ends latest.
    return (before >= 0 and taken[before][1] >= first) or (before + 1 < len(taken) and taken[before + 1][0] <= last)
