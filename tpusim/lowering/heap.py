"""Where buffers lie: a best-fit heap over the whole schedule, as XLA's GlobalDecreasingSizeBestFitHeap.

Buffers are placed one after another, the largest first or the longest-lived first, each into the smallest hole that is
free for as long as it lives. XLA tries both orders and keeps the lower heap (xla/service/heap_simulator).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

Interval = tuple[int, int]
"""First and last position, inclusive."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """What needs a place: bytes, and the stretches of the schedule during which they are in use."""

    n_bytes: int
    intervals: tuple[Interval, ...]


def place(blocks: Sequence[Block], alignment_bytes: int) -> tuple[list[int], int]:
    """Return the offset of every block and the size of the heap in bytes."""
    found = [_placed(blocks, order, alignment_bytes) for order in (_by_size(blocks), _by_life(blocks))]
    return min(found, key=_heap_size)


def _heap_size(found: tuple[list[int], int]) -> int:
    """Return the size of a heap that was tried."""
    return found[1]


def _life(block: Block) -> int:
    """Return how many positions a block lives."""
    return sum(last - first for first, last in block.intervals)


def _by_size(blocks: Sequence[Block]) -> list[int]:
    """Return the order with the largest first."""
    return sorted(range(len(blocks)), key=lambda i: (-blocks[i].n_bytes, -_life(blocks[i]), i))


def _by_life(blocks: Sequence[Block]) -> list[int]:
    """Return the order with the longest-lived first."""
    return sorted(range(len(blocks)), key=lambda i: (-_life(blocks[i]), -blocks[i].n_bytes, i))


class _Placed:
    """The stretches that have a place, as growing arrays: whoever comes next asks which of them it meets."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        total = sum(len(block.intervals) for block in blocks)
        self.count = 0
        self.first, self.last, self.begin, self.end = (np.zeros(total, np.int64) for _ in range(4))

    def met_by(self, intervals: Iterable[Interval]) -> list[tuple[int, int]]:
        """Return the bytes, as (begin, end), that are taken at some time in ``intervals``, in their order."""
        n = self.count
        meets = np.zeros(n, np.bool_)
        for first, last in intervals:
            meets |= (self.first[:n] <= last) & (self.last[:n] >= first)
        return sorted(zip(self.begin[:n][meets].tolist(), self.end[:n][meets].tolist(), strict=True))

    def add(self, block: Block, offset: int) -> None:
        """Note a block's place."""
        for first, last in block.intervals:
            at = self.count
            self.first[at], self.last[at], self.begin[at], self.end[at] = first, last, offset, offset + block.n_bytes
            self.count += 1


def _placed(blocks: Sequence[Block], order: Iterable[int], alignment_bytes: int) -> tuple[list[int], int]:
    """Return offsets and heap size if blocks are placed in ``order``."""
    placed, offsets, size = _Placed(blocks), [0] * len(blocks), 0
    for number in order:
        block = blocks[number]
        offsets[number] = _best_hole(placed.met_by(block.intervals), block.n_bytes, alignment_bytes)
        placed.add(block, offsets[number])
        size = max(size, offsets[number] + block.n_bytes)
    return offsets, size


def _best_hole(taken: Iterable[tuple[int, int]], n_bytes: int, alignment_bytes: int) -> int:
    """Return where the smallest hole between ``taken`` begins that ``n_bytes`` fit in, or the end of all of them."""
    best, best_size, free_from = None, 0, 0
    for begin, end in taken:
        hole = begin - free_from
        if hole >= n_bytes and (best is None or hole < best_size):
            best, best_size = free_from, hole
        free_from = max(free_from, -(-end // alignment_bytes) * alignment_bytes)
    return free_from if best is None else best


def fits_in_time(taken: Iterable[Interval], wanted: Iterable[Interval]) -> bool:
    """Tell whether no stretch of ``wanted`` meets one of ``taken``."""
    busy = list(taken)
    return not any(first <= end and last >= begin for first, last in wanted for begin, end in busy)
