"""Where buffers lie in a memory: a heap in the order of the schedule, and two that look at the program as a whole.

The first is that of HBM: each block goes, when it is first needed, into the smallest hole that it fits in, without
looking ahead. That is what the TPU compiler's own buffer assignments show (``--xla_dump_to``): their heaps are met to
the byte. The others are XLA's GlobalDecreasingSizeBestFitHeap (xla/service/heap_simulator), with the largest or the
longest-lived blocks first. The largest come first in memories that the compiler plans as a whole, and in HBM where the
first heap leaves too little free: so do the buffer assignments of libtpu 0.0.52, met to the byte as well. XLA's
BufferAssigner takes the lower of the two (xla/service/buffer_assignment.cc).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from operator import add

import msgspec

from tpusim.hardware.units import HBM, MemorySpace
from tpusim.program.buffers import peak_bytes

Interval = tuple[int, int]
"""First and last position, inclusive; of memory: begin and end, exclusive."""
Bounds = list[int]
"""Stretches of memory in order, none of which touch: where the first begins and ends, then the second, and so on."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """What needs a place: bytes, from one position of the schedule to another (inclusive).

    ``pieces`` lie at offsets in it, each in its own time: what is brought in piece by piece, and then is one. Of blocks
    that are needed at once the one whose first value ends first has the first choice.
    """

    n_bytes: int
    first: int
    last: int
    pieces: tuple[tuple[int, Block], ...] = ()
    first_value_last: int = 0


SPARE_BYTES = 5 * 2**29
"""HBM that has to be left free by a heap that is filled in the order of the schedule.

Found by growing programs until libtpu 0.0.52 places their buffers in the other order: it is 2.47 to 2.53 GiB on v5e,
with little and with much in arguments, 2.3 to 2.6 on v6e, 1.7 to 3.6 on v5p.
"""


def alignment_bytes(space: MemorySpace) -> int:
    """Return what the offsets of buffers in a memory are multiples of."""
    # In HBM as in the compiler's buffer assignments of every chip; elsewhere one register of (8,128) words, the
    # smallest piece that tiled layouts leave.
    return 16384 if space == HBM else 4096


def aligned(n_bytes: int, alignment_bytes: int) -> int:
    """Return a number of bytes rounded up to the next multiple of an alignment."""
    return -(-n_bytes // alignment_bytes) * alignment_bytes


def place_in_order(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if they are placed when they are first needed, in the smallest hole."""
    offsets = [0] * len(blocks)
    holes = _Holes(alignment_bytes, sum(aligned(block.n_bytes, alignment_bytes) for block in blocks))
    # What is held, by when it ends.
    held: list[tuple[int, int, int]] = []
    for number in sorted(range(len(blocks)), key=lambda i: (blocks[i].first, blocks[i].first_value_last)):
        block = blocks[number]
        while held and held[0][0] < block.first:
            holes.give(*heappop(held)[1:])
        begin = offsets[number] = holes.take(block.n_bytes)
        heappush(held, (block.last, begin, begin + block.n_bytes))
    return offsets


class _Holes:
    """The free stretches of a memory without an end, in which no more than ``most_bytes`` are ever taken.

    Each begins at a multiple of the alignment and ends with the last byte that a block had there: the padding behind is
    used again only where the next stretch is free as well. So a hole that a scalar left is for scalars.
    """

    def __init__(self, alignment_bytes: int, most_bytes: int) -> None:
        self._alignment_bytes = alignment_bytes
        self._ends: dict[int, int] = {}
        # By the multiple of the alignment that follows its end.
        self._begins: dict[int, int] = {}
        # In order; of equals the lowest is taken.
        self._sizes: list[Interval] = []
        # So that what is left is larger than any hole below it.
        self._add(0, 2 * most_bytes + 1)

    def take(self, n_bytes: int) -> int:
        """Return where the smallest hole begins that has room for some bytes, which are no longer free."""
        begin = self._sizes[bisect_left(self._sizes, (n_bytes, 0))][1]
        end, after = self._remove(begin), aligned(begin + n_bytes, self._alignment_bytes)
        if after < end:
            self._add(after, end)
        return begin

    def give(self, begin: int, end: int) -> None:
        """Free a stretch that was taken; those that it touches become one with it."""
        after = aligned(end, self._alignment_bytes)
        if after in self._ends:
            end = self._remove(after)
        if begin in self._begins:
            begin = self._begins[begin]
            self._remove(begin)
        self._add(begin, end)

    def _add(self, begin: int, end: int) -> None:
        self._ends[begin] = end
        self._begins[aligned(end, self._alignment_bytes)] = begin
        insort(self._sizes, (end - begin, begin))

    def _remove(self, begin: int) -> int:
        end = self._ends.pop(begin)
        del self._begins[aligned(end, self._alignment_bytes)]
        del self._sizes[bisect_left(self._sizes, (end - begin, begin))]
        return end


def _unite(bounds: Bounds, begin: int, end: int) -> None:
    """Add a stretch of memory to others; those that touch or overlap become one."""
    first, last = bisect_left(bounds, begin), bisect_right(bounds, end)
    # An odd place lies within a stretch, which then goes on instead of beginning or ending here.
    bounds[first:last] = (begin, end)[first % 2 : 2 - last % 2]


def place_to_fit(blocks: Sequence[Block], alignment_bytes: int, room_bytes: Callable[[], int]) -> list[int]:
    """Return the offset of every block: as first needed, or, if that takes more than there is room, the lowest heap.

    What there is room for is asked only where holes make the heap higher than the blocks that are alive together.
    """
    sizes = [aligned(block.n_bytes, alignment_bytes) for block in blocks]

    def height(offsets: list[int]) -> int:
        return max(map(add, offsets, sizes), default=0)

    in_order = place_in_order(blocks, alignment_bytes)
    least_bytes = peak_bytes((block.first, block.last, size) for block, size in zip(blocks, sizes, strict=True))
    if height(in_order) == least_bytes or height(in_order) <= room_bytes():
        return in_order
    others = (place(blocks, alignment_bytes) for place in (place_largest_first, place_longest_first))
    return min((in_order, *others), key=height)


def place_largest_first(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if the largest choose first, each the smallest hole during its whole life."""
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].n_bytes, blocks[i].first - blocks[i].last, i))
    return _place_best_fit(blocks, order, alignment_bytes)


def place_longest_first(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if those choose first that live longest, of equals the largest."""
    order = sorted(range(len(blocks)), key=lambda i: (blocks[i].first - blocks[i].last, -blocks[i].n_bytes, i))
    return _place_best_fit(blocks, order, alignment_bytes)


def _place_best_fit(blocks: Sequence[Block], order: Iterable[int], alignment_bytes: int) -> list[int]:
    offsets = [0] * len(blocks)
    taken = _Taken({part.first for block in blocks for part in (block, *(piece for _, piece in block.pieces))})
    for number in order:
        block = blocks[number]
        parts = [(within, part, taken.times(part)) for within, part in ((0, block), *block.pieces)]
        # Between which offsets (exclusive) a part would lie over something that is there in its time. What is placed
        # ends at a multiple: rounding up what is left of it is rounding down what goes off.
        barred = [
            (begin - within - part.n_bytes, end - within // alignment_bytes * alignment_bytes)
            for within, part, times in parts
            for begin, end in taken.during(times)
        ]
        offsets[number] = _best_offset(sorted(barred))
        for within, part, times in parts:
            begin = offsets[number] + within
            taken.add(times, begin, aligned(begin + part.n_bytes, alignment_bytes))
    return offsets


class _Times(msgspec.Struct, frozen=True):
    """A life: the fewest stretches of the schedule that it is made of, and those that its two ends are in."""

    whole: list[int]
    around: set[int]


class _Taken:
    """Which memory is taken at some time of each stretch of the schedule.

    Stretches are numbered as in a heap: ``n`` has the eight parts from ``8 * n`` on, down to single positions. What
    lies side by side is one, so that little is looked at however many blocks there are.
    """

    def __init__(self, firsts: Iterable[int]) -> None:
        # What is alive together is so where one of them begins: no other position counts.
        self._positions = sorted(firsts)
        # A power of eight: the number of the first position.
        self._begin = 8 ** (len(self._positions).bit_length() // 3 + 1)
        self._throughout: dict[int, Bounds] = defaultdict(list)
        self._somewhen: dict[int, Bounds] = defaultdict(list)

    def times(self, life: Block) -> _Times:
        """Return the times at which a block is alive."""
        whole: list[int] = []
        around: set[int] = set()
        begin = self._begin + bisect_left(self._positions, life.first)
        end = self._begin + bisect_right(self._positions, life.last)
        first, last = begin, end - 1
        while begin < end:
            while begin < end and begin % 8:
                whole.append(begin)
                begin += 1
            while begin < end and end % 8:
                end -= 1
                whole.append(end)
            begin, end = begin >> 3, end >> 3
        while first > 1:
            first, last = first >> 3, last >> 3
            around |= {first, last}
        return _Times(whole, around)

    def add(self, times: _Times, begin: int, end: int) -> None:
        """Note that memory is taken at some times."""
        for stretch in times.around.union(times.whole):
            _unite(self._somewhen[stretch], begin, end)
        for stretch in times.whole:
            # A position has no parts that would ask.
            if stretch < self._begin:
                _unite(self._throughout[stretch], begin, end)

    def during(self, times: _Times) -> Iterator[Interval]:
        """Yield what is taken at some of some times: begins and ends, which may overlap."""
        found = [self._somewhen[stretch] for stretch in times.whole if stretch in self._somewhen]
        found += [self._throughout[stretch] for stretch in times.around if stretch in self._throughout]
        return chain.from_iterable([zip(bounds[::2], bounds[1::2], strict=True) for bounds in found])


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
