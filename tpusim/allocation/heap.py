"""Where buffers lie in a memory: two heaps, one filled in the order of the schedule, one with the largest blocks first.

The first is that of HBM: each block goes, when it is first needed, into the lowest hole that it fits in, without
looking ahead. That is what the TPU compiler's own buffer assignments show (``--xla_dump_to``): their heaps are met to
the byte. The second is XLA's GlobalDecreasingSizeBestFitHeap (xla/service/heap_simulator), for memories that the
compiler plans as a whole.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

Interval = tuple[int, int]
"""First and last position, inclusive."""

_STRETCH = 64
"""Positions that are looked up together: short beside a program, long beside most lives."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """What needs a place: bytes, from one position of the schedule to another (inclusive)."""

    n_bytes: int
    first: int
    last: int


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
    placed: dict[int, list[int]] = defaultdict(list)
    for number in order:
        block = blocks[number]
        stretches = range(block.first // _STRETCH, block.last // _STRETCH + 1)
        near = {other for stretch in stretches for other in placed[stretch]}
        met = (i for i in near if blocks[i].first <= block.last and blocks[i].last >= block.first)
        taken = sorted((offsets[i], offsets[i] + aligned(blocks[i].n_bytes, alignment_bytes)) for i in met)
        offsets[number] = _best_hole(taken, block.n_bytes)
        for stretch in stretches:
            placed[stretch].append(number)
    return offsets


def _best_hole(taken: Iterable[Interval], n_bytes: int) -> int:
    """Return where the smallest hole begins that ``n_bytes`` fit in, or where the free end does."""
    best, best_bytes, free_from = None, 0, 0
    for begin, end in taken:
        hole = begin - free_from
        if hole >= n_bytes and (best is None or hole < best_bytes):
            best, best_bytes = free_from, hole
        # Blocks that are never alive together may overlap.
        free_from = max(free_from, end)
    return free_from if best is None else best
