"""Where buffers lie in a memory: two heaps, one filled in the order of the schedule, one with the largest blocks first.

The first is that of HBM: each block goes, when it is first needed, into the lowest hole that it fits in, without
looking ahead. That is what the TPU compiler's own buffer assignments show (``--xla_dump_to``): their heaps are met to
the byte. The second is XLA's GlobalDecreasingSizeBestFitHeap (xla/service/heap_simulator), for memories that the
compiler plans as a whole.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

Interval = tuple[int, int]
"""First and last position, inclusive."""
_Laid = tuple[int, int, int, int]
"""What has its place: begin and end of its memory, first and last position."""

_STRETCH = 64
"""Positions that are looked up together: short beside a program, long beside most lives."""


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
    taken: list[tuple[int, int, int]] = []
    for number in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        block = blocks[number]
        taken = [held for held in taken if held[2] >= block.first]
        # The first hole that it fits in, or else the free end.
        for begin, end, _ in taken:
            if begin - offsets[number] >= block.n_bytes:
                break
            offsets[number] = end
        # Whole units of the alignment, so that every hole begins at one.
        insort(taken, (offsets[number], offsets[number] + aligned(block.n_bytes, alignment_bytes), block.last))
    return offsets


def place_largest_first(blocks: Sequence[Block], alignment_bytes: int) -> list[int]:
    """Return the offset of every block if the largest choose first, each the smallest hole during its whole life."""
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].n_bytes, blocks[i].first - blocks[i].last, i))
    offsets = [0] * len(blocks)
    # What is placed there, by stretches of the schedule: a block is compared with its neighbours alone.
    placed: dict[int, list[_Laid]] = defaultdict(list)
    for number in order:
        parts = ((0, blocks[number]), *blocks[number].pieces)
        offsets[number] = _best_offset(sorted(_barred(parts, placed, alignment_bytes)))
        for within, part in parts:
            begin = offsets[number] + within
            laid = (begin, aligned(begin + part.n_bytes, alignment_bytes), part.first, part.last)
            for stretch in _stretches(part):
                placed[stretch].append(laid)
    return offsets


def _stretches(block: Block) -> range:
    """Return the stretches of the schedule over which a block lives."""
    return range(block.first // _STRETCH, block.last // _STRETCH + 1)


def _barred(
    parts: Iterable[tuple[int, Block]], placed: Mapping[int, Iterable[_Laid]], alignment_bytes: int
) -> Iterator[Interval]:
    """Yield between which offsets (exclusive) a part would lie over something that is there in its time."""
    for within, part in parts:
        # What is placed ends at a multiple: rounding up what is left of it is rounding down what goes off.
        before = within // alignment_bytes * alignment_bytes
        near = {laid for stretch in _stretches(part) for laid in placed.get(stretch, ())}
        for begin, end, first, last in near:
            if first <= part.last and last >= part.first:
                yield begin - within - part.n_bytes, end - before


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
