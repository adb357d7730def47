"""Where buffers lie: a first-fit heap, filled and emptied in the order of the schedule.

Each block goes, when it is first needed, into the lowest hole that it fits in, without looking ahead. That is what the
TPU compiler's own buffer assignments show of HBM (``--xla_dump_to``): its heaps are met to the byte.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Interval = tuple[int, int]
"""First and last position, inclusive."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """What needs a place: bytes, from one position of the schedule to another (inclusive)."""

    n_bytes: int
    first: int
    last: int


def aligned(n_bytes: int, alignment_bytes: int) -> int:
    """Return a number of bytes rounded up to the next multiple of an alignment."""
    return -(-n_bytes // alignment_bytes) * alignment_bytes


def place_blocks(blocks: Sequence[Block], alignment_bytes: int) -> tuple[list[int], int]:
    """Return the offset of every block and the size of the heap, a multiple of ``alignment_bytes``."""
    offsets, size = [0] * len(blocks), 0
    taken: list[tuple[int, int, int]] = []
    for number in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        block = blocks[number]
        taken = [held for held in taken if held[2] >= block.first]
        offset = _first_hole(taken, block.n_bytes)
        # Whole units of the alignment, so that every hole begins at one.
        end = offset + aligned(block.n_bytes, alignment_bytes)
        insort(taken, (offset, end, block.last))
        offsets[number], size = offset, max(size, end)
    return offsets, size


def _first_hole(taken: Iterable[tuple[int, int, int]], n_bytes: int) -> int:
    """Return where the first hole begins that ``n_bytes`` fit in, or where the free end does."""
    free_from = 0
    for begin, end, _ in taken:
        if begin - free_from >= n_bytes:
            break
        free_from = end
    return free_from
