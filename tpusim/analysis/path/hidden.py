"""What ran beside the core behind which of its ops."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, islice
from typing import Final, NamedTuple

import msgspec

from tpusim.timeline.records import CORE, WAITING_FOR, Record

MOST_PAIRS: Final = 65_536
"""What is told apart: transfers that are all under way while thousands of ops run come to millions of pairs."""

Pairs = dict[tuple[str, str, str], int]


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """How long something beside the core, ``name``, ran behind an op of the core, in all executions."""

    name: str
    source: str
    behind: str
    time_ps: int


class HiddenRest(msgspec.Struct, frozen=True, kw_only=True):
    """How long something beside the core ran behind ``ops`` executions of ops that are not told apart."""

    name: str
    source: str
    ops: int
    time_ps: int


class _Transfer(NamedTuple):
    """Something beside the core, and the stretch of the core's ops, from ``first`` to before ``end``, beside it."""

    record: Record
    first: int
    end: int


class _Ops:
    """A stretch of the core's ops with the time of each: sums of a part of it, and the longest in a part."""

    def __init__(self, times_ps: Sequence[int], offset: int) -> None:
        self.times_ps = times_ps
        self._offset = offset
        self._sums = [0, *accumulate(times_ps)]
        self._counts = [0, *accumulate(map(bool, times_ps))]
        # The longest of each stretch of 1, 2, 4, ... ops, by where it begins.
        self._longest = [list(range(len(times_ps)))]
        for power in range(len(times_ps).bit_length() - 1):
            one = self._longest[-1]
            self._longest.append(list(map(self._longer, one, one[1 << power :])))

    def _longer(self, one: int, other: int) -> int:
        return other if self.times_ps[other] > self.times_ps[one] else one

    def longest(self, first: int, end: int) -> tuple[int, int]:
        """Return the longest op of a part, the first of equal ones, and its time."""
        first, end = first - self._offset, end - self._offset
        power = (end - first).bit_length() - 1
        found = self._longer(self._longest[power][first], self._longest[power][end - (1 << power)])
        return found + self._offset, self.times_ps[found]

    def total(self, first: int, end: int) -> tuple[int, int]:
        """Return how many ops of a part take any time, and their sum."""
        first, end = first - self._offset, end - self._offset
        return self._counts[end] - self._counts[first], self._sums[end] - self._sums[first]


def hidden_behind(
    records: Sequence[Record], most: int = MOST_PAIRS
) -> tuple[tuple[Hidden, ...], tuple[HiddenRest, ...]]:
    """Return what ran beside the core behind which of its ops, the longest first; waits hide nothing.

    Beyond ``most`` pairs of executions those behind the longest ones are summed for each transfer.
    """
    core = sorted(
        (r for r in records if r.row == CORE and not r.bound_by.startswith(WAITING_FOR)), key=lambda r: r.start_ps
    )
    transfers = _transfers(core, sorted((r for r in records if r.row != CORE), key=lambda r: r.start_ps))
    found: Pairs = defaultdict(int)
    rest: dict[tuple[str, str], HiddenRest] = {}
    if sum(one.end - one.first for one in transfers) <= most:
        for beside, first, end in transfers:
            for op in core[first:end]:
                found[beside.name, beside.source, op.name] += _shared_ps(op, beside)
    else:
        rest = _longest_pairs(core, transfers, most, found)
    pairs = (
        Hidden(name=name, source=source, behind=behind, time_ps=time_ps)
        for (name, source, behind), time_ps in found.items()
        if time_ps
    )
    return tuple(sorted(pairs, key=lambda pair: -pair.time_ps)), tuple(one for one in rest.values() if one.ops)


def _transfers(core: Sequence[Record], beside: Sequence[Record]) -> list[_Transfer]:
    """Return with what is beside the core the ops that overlap it; the core's follow each other."""
    starts_ps, ends_ps = [op.start_ps for op in core], [op.end_ps for op in core]
    places = ((r, bisect_right(ends_ps, r.start_ps), bisect_left(starts_ps, r.end_ps)) for r in beside)
    return [_Transfer(*place) for place in places if place[1] < place[2]]


def _shared_ps(op: Record, beside: Record) -> int:
    shared_ps = min(op.end_ps, beside.end_ps) - max(op.start_ps, beside.start_ps)
    # What of a loop was played stands for its trips: of neither more often than of the other.
    return max(0, shared_ps) * min(op.count, beside.count)


def _longest_pairs(
    core: Sequence[Record], transfers: Sequence[_Transfer], most: int, found: Pairs
) -> dict[tuple[str, str], HiddenRest]:
    """Add the longest pairs to those ``found``, and return what is left of each transfer."""
    seen = _seen(core, transfers)
    left: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for beside, first, end in transfers:
        sums = left[beside.name, beside.source]
        inside = seen[beside.count].total(first + 1, end - 1) if end - first > 2 else (0, 0)
        edges = [_shared_ps(core[place], beside) for place in {first, end - 1}]
        sums[0] += inside[0] + sum(map(bool, edges))
        sums[1] += inside[1] + sum(edges)
    for number, place, time_ps in islice(_by_length(core, transfers, seen), most):
        beside = transfers[number].record
        found[beside.name, beside.source, core[place].name] += time_ps
        left[beside.name, beside.source][0] -= 1
        left[beside.name, beside.source][1] -= time_ps
    return {
        (name, source): HiddenRest(name=name, source=source, ops=ops, time_ps=time_ps)
        for (name, source), (ops, time_ps) in left.items()
    }


def _seen(core: Sequence[Record], transfers: Sequence[_Transfer]) -> dict[int, _Ops]:
    """Return what transfers that run so many times have beside them: ops, with the time that they can share."""
    counts: dict[int, list[_Transfer]] = defaultdict(list)
    for one in transfers:
        counts[one.record.count].append(one)
    found = {}
    for count, some in counts.items():
        # Transfers of a loop lie beside its ops alone.
        first, end = min(one.first for one in some), max(one.end for one in some)
        times_ps = [(op.end_ps - op.start_ps) * min(op.count, count) for op in core[first:end]]
        found[count] = _Ops(times_ps, first)
    return found


def _by_length(
    core: Sequence[Record], transfers: Sequence[_Transfer], seen: dict[int, _Ops]
) -> Iterator[tuple[int, int, int]]:
    """Yield transfers by number, with an op behind which each ran and the time of both, the longest first."""
    waiting = []
    for number, (beside, first, end) in enumerate(transfers):
        waiting += [(-_shared_ps(core[place], beside), number, place, place, place + 1) for place in {first, end - 1}]
        if end - first > 2:
            place, time_ps = seen[beside.count].longest(first + 1, end - 1)
            waiting.append((-time_ps, number, place, first + 1, end - 1))
    heapify(waiting)
    while waiting and waiting[0][0]:
        time_ps, number, place, first, end = heappop(waiting)
        yield number, place, -time_ps
        for part in (first, place), (place + 1, end):
            if part[0] < part[1]:
                longest, other_ps = seen[transfers[number].record.count].longest(*part)
                heappush(waiting, (-other_ps, number, longest, *part))
