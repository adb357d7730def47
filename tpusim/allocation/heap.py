"""Where buffers lie in a memory: two heaps, one filled in the order of the schedule, one with the largest blocks first.

The first is that of HBM: each block goes, when it is first needed, into the lowest hole that it fits in, without
looking ahead. That is what the TPU compiler's own buffer assignments show (``--xla_dump_to``): their heaps are met to
the byte. The second is XLA's GlobalDecreasingSizeBestFitHeap (xla/service/heap_simulator), for memories that the
compiler plans as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge

import msgspec

Interval = tuple[int, int]
"""First and last position, inclusive; of memory: begin and end, exclusive."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """What needs a place: bytes, from one position of the schedule to another (inclusive).

    ``pieces`` lie at offsets in it, each in its own time: what is brought in piece by piece, and then is one.
    """

    n_bytes: int
    first: int
    last: int
    pieces: tuple[tuple[int, Block], ...] = ()


def aligned(n_bytes: int, alignment_bytes: int) -> int:
    """Return a number of bytes rounded up to the next multiple of an alignment."""
    return -(-n_bytes // alignment_bytes) * alignment_bytes


def place_in_order(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if they are placed when they are first needed, in the lowest hole."""
    offsets = [0] * len(blocks)
    # Holes from the lowest on, the last with room for all; and what is held, by when it ends.
    holes: list[Interval] = [(0, sum(aligned(block.n_bytes, alignment_bytes) for block in blocks))]
    held: list[tuple[int, Interval]] = []
    for number in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        block = blocks[number]
        while held and held[0][0] < block.first:
            _unite(holes, heappop(held)[1])
        place = next(place for place, (begin, end) in enumerate(holes) if end - begin >= block.n_bytes)
        begin, end = holes[place]
        # Whole units of the alignment, so that every hole begins and ends at one.
        after = begin + aligned(block.n_bytes, alignment_bytes)
        holes[place : place + 1] = [(after, end)] if after < end else []
        heappush(held, (block.last, (begin, after)))
        offsets[number] = begin
    return offsets


def _unite(intervals: list[Interval], added: Interval) -> None:
    """Add a stretch of memory to others, which are in order; those that touch or overlap become one."""
    begin, end = added
    # From the first that ends at or after its begin, to the last that begins at or before its end.
    first = bisect_left(intervals, begin, key=lambda one: one[1])
    last = bisect_right(intervals, end, key=lambda one: one[0])
    if first < last:
        begin, end = min(begin, intervals[first][0]), max(end, intervals[last - 1][1])
    intervals[first:last] = [(begin, end)]


def place_largest_first(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if the largest choose first, each the smallest hole during its whole life."""
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].n_bytes, blocks[i].first - blocks[i].last, i))
    offsets = [0] * len(blocks)
    taken = _Taken(max((block.last for block in blocks), default=0) + 1)
    for number in order:
        parts = ((0, blocks[number]), *blocks[number].pieces)
        offsets[number] = _best_offset(_barred(parts, taken, alignment_bytes))
        for within, part in parts:
            begin = offsets[number] + within
            taken.add(part, (begin, aligned(begin + part.n_bytes, alignment_bytes)))
    return offsets


class _Taken:
    """Which memory is taken at some time of a stretch of the schedule: a tree of stretches, each of two halves.

    What lies side by side is one interval, so that few are looked at however many blocks there are.
    """

    def __init__(self, length: int) -> None:
        self._size = 1 << (length - 1).bit_length()
        # Numbered as in a heap: stretch n has the halves 2n and 2n + 1.
        self._throughout: dict[int, list[Interval]] = defaultdict(list)
        self._somewhen: dict[int, list[Interval]] = defaultdict(list)

    def add(self, life: Block, memory: Interval) -> None:
        """Note that memory is taken during the life of a block."""
        whole = set(self._stretches(life))
        for stretch in whole:
            _unite(self._throughout[stretch], memory)
        for stretch in whole | _around(whole):
            _unite(self._somewhen[stretch], memory)

    def during(self, life: Block) -> Iterator[Interval]:
        """Yield what is taken at some time in the life of a block, in order; intervals may overlap."""
        whole = set(self._stretches(life))
        found = [self._somewhen[stretch] for stretch in whole if stretch in self._somewhen]
        found += [self._throughout[stretch] for stretch in _around(whole) if stretch in self._throughout]
        return merge(*found)

    def _stretches(self, life: Block) -> Iterator[int]:
        """Yield the fewest stretches that a block's life is made of."""
        begin, end = life.first + self._size, life.last + 1 + self._size
        while begin < end:
            if begin & 1:
                yield begin
                begin += 1
            if end & 1:
                end -= 1
                yield end
            begin, end = begin >> 1, end >> 1


def _around(stretches: Iterable[int]) -> set[int]:
    """Return the stretches that some lie in, those that all of them lie in included."""
    found: set[int] = set()
    for stretch in stretches:
        while (stretch := stretch >> 1) and stretch not in found:
            found.add(stretch)
    return found


def _barred(parts: Iterable[tuple[int, Block]], taken: _Taken, alignment_bytes: int) -> Iterator[Interval]:
    """Yield between which offsets (exclusive) a part would lie over something that is there in its time, in order."""

    def barred(within: int, part: Block) -> Iterator[Interval]:
        # What is placed ends at a multiple: rounding up what is left of it is rounding down what goes off.
        before = within // alignment_bytes * alignment_bytes
        return ((begin - within - part.n_bytes, end - before) for begin, end in taken.during(part))

    return merge(*(barred(within, part) for within, part in parts))


def _best_offset(barred: Iterable[Interval]) -> int:
    """Return where the smallest hole begins between barred offsets, which are in order, or where the free end does."""
    best, best_room, free_from = None, 0, 0
    for begin, end in barred:
        room = begin - free_from
        if room >= 0 and (best is None or room < best_room):
            best, best_room = free_from, room
        # Blocks that are never alive together may overlap.
        if end > free_from:
            free_from = end
    return free_from if best is None else best
