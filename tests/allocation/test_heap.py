"""Heaps against their definitions: blocks alive together never overlap, and each lies as low as its rule says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.allocation.heap import Block, place_in_order, place_largest_first, place_longest_first, place_to_fit

UNIT = 4
BLOCKS = st.lists(
    st.builds(
        lambda size, first, life: Block(size, first, first + life),
        *(st.integers(*r) for r in ((1, 30), (0, 9), (0, 5))),
    ),
    max_size=12,
)


def together(one: Block, other: Block) -> bool:
    """Whether two blocks are alive at some position, ends included."""
    return one.first <= other.last and other.first <= one.last


def overlap(one: Block, at: int, other: Block, there: int) -> bool:
    """Whether two blocks share a byte."""
    return at < there + other.n_bytes and there < at + one.n_bytes


class Units:
    """A memory unit by unit: which are taken, and how many bytes of each can be used if the next is taken."""

    def __init__(self) -> None:
        self.taken = [False] * 300
        self.room = [UNIT] * 300

    def smallest_hole(self, n_bytes: int) -> int:
        """Where the smallest run of free units begins that some bytes fit in, of equals the lowest."""
        runs = [list(run) for taken, run in groupby(range(300), key=self.taken.__getitem__) if not taken]
        sizes = [(UNIT * (len(run) - 1) + self.room[run[-1]], run[0]) for run in runs]
        return UNIT * min(size for size in sizes if size[0] >= n_bytes)[1]

    def take(self, block: Block, at: int) -> None:
        """What is behind a block in its last unit is padding."""
        for byte in range(at, at + block.n_bytes):
            self.taken[byte // UNIT], self.room[byte // UNIT] = True, byte % UNIT + 1

    def give(self, block: Block, at: int) -> None:
        """Padding that has something free behind it is free as well."""
        for byte in range(at, at + block.n_bytes):
            self.taken[byte // UNIT] = False
        for unit in range(299):
            if not (self.taken[unit] or self.taken[unit + 1]):
                self.room[unit] = UNIT


@given(BLOCKS)
def test_in_order_each_takes_the_smallest_hole_of_its_time(blocks):
    """The definition, unit by unit: those that came before and still live are in the way, nobody else."""
    offsets = place_in_order(blocks, UNIT)
    units = Units()
    held: list[int] = []
    for number in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        for ended in [other for other in held if blocks[other].last < blocks[number].first]:
            units.give(blocks[ended], offsets[ended])
            held.remove(ended)
        assert offsets[number] == units.smallest_hole(blocks[number].n_bytes)
        units.take(blocks[number], offsets[number])
        held.append(number)


def test_in_order_there_is_no_end_to_the_memory():
    """Arrays may be larger than any memory: who asks for their size is told what does not fit."""
    blocks = [Block(2**80, 0, 2), Block(UNIT, 0, 0), Block(2**80, 1, 2)]
    assert place_in_order(blocks, UNIT) == [0, 2**80, 2**80]


def test_in_order_holes_of_scalars_are_for_scalars():
    """A loop's counter, an array and the next loop's condition, as libtpu 0.0.52 places them (its own dump).

    The counter's 16 KiB are free, and 512 bytes of them are taken again, while 4096 go into a hole of 128 MiB.
    """
    rows = (
        (134217728, 12, 52, 0),
        (512, 13, 165, 134217728),
        (512, 14, 52, 134234112),
        (2147483648, 23, 165, 134250496),
        (512, 76, 77, 134234112),
        (4096, 82, 163, 0),
        (4194304, 110, 129, 16384),
    )
    assert place_in_order([Block(*row[:3]) for row in rows], 16384) == [row[3] for row in rows]


def test_in_order_of_one_instruction_what_ends_first_is_first():
    """Results of fusions in a training step, as libtpu 0.0.52 places them (its own dump).

    The hole of the first fusion's later result has room for the second's large one, had that come first.
    """
    rows = (
        (67108864, 39, 62, 0),
        (67108864, 42, 62, 134217728),
        (67108864, 42, 47, 67108864),
        (67108864, 56, 83, 201326592),
        (8192, 56, 70, 67108864),
    )
    blocks = [Block(*row[:3], first_value_last=row[2]) for row in rows]
    assert place_in_order(blocks, 16384) == [row[3] for row in rows]


def height(blocks: list[Block], offsets: list[int]) -> int:
    """Where the highest block ends, in whole units."""
    return max((at - -block.n_bytes // UNIT * UNIT for block, at in zip(blocks, offsets, strict=True)), default=0)


def to_fit(room_bytes: int) -> Callable[[list[Block], int], list[int]]:
    """The heap of a memory with so many bytes."""
    return lambda blocks, unit: place_to_fit(blocks, unit, lambda: room_bytes)


@pytest.mark.parametrize("place", [place_largest_first, place_longest_first, to_fit(0), to_fit(40)])
@given(blocks=BLOCKS)
def test_blocks_overlap_nobody(place, blocks):
    """Those alive together have bytes of their own and begin at multiples of the unit: no heap is lower than they."""
    offsets = place(blocks, UNIT)
    assert all(at % UNIT == 0 for at in offsets)
    pairs = [(i, j) for i in range(len(blocks)) for j in range(i)]
    clashes = [p for p in pairs if together(blocks[p[0]], blocks[p[1]])]
    assert not any(overlap(blocks[i], offsets[i], blocks[j], offsets[j]) for i, j in clashes)
    alive = [[block for block in blocks if block.first <= now <= block.last] for now in range(15)]
    assert height(blocks, offsets) >= max(sum(-(-b.n_bytes // UNIT) * UNIT for b in now) for now in alive)


@given(BLOCKS, st.integers(0, 200))
def test_blocks_keep_their_order_where_they_fit(blocks, room_bytes):
    """Where they do not, no other heap is lower."""
    offsets = place_to_fit(blocks, UNIT, lambda: room_bytes)
    in_order, *others = (place(blocks, UNIT) for place in (place_in_order, place_largest_first, place_longest_first))
    if height(blocks, in_order) <= room_bytes:
        assert offsets == in_order
    else:
        assert height(blocks, offsets) == min(height(blocks, found) for found in (in_order, *others))


def test_without_holes_room_is_not_asked_for():
    """No other heap could be lower, so that nothing depends on the memory's size."""
    assert place_to_fit([Block(8, 0, 1), Block(8, 1, 2)], UNIT, lambda: pytest.fail("asked")) == [0, 8]


def test_what_does_not_fit_lies_as_the_compiler_lays_it():
    """The temporaries of a training step at batch 12,600, as libtpu 0.0.52 places them in 15.75 GiB (its own dump).

    In the order of the schedule they would take 14.79 GiB, with the arguments 15.75: a few MiB too many.
    """
    rows = (
        (3293706240, 9, 50, 6587416576),
        (6587412480, 12, 15, 0),
        (2898745344, 15, 43, 9881124864),
        (2898745344, 19, 37, 0),
        (3446784, 33, 44, 3098673152),
        (199913472, 37, 47, 2898755584),
        (199913472, 43, 47, 0),
        (2898745344, 47, 54, 9881124864),
        (6587412480, 50, 62, 0),
        (3293706240, 57, 62, 6587416576),
    )
    blocks = [Block(*row[:3]) for row in rows]
    assert place_to_fit(blocks, 16384, lambda: 16128 * 2**20 - 1032383488 - 1337344) == [row[3] for row in rows]


def best_hole(block: Block, placed: list[tuple[Block, int]]) -> int:
    """Where the shortest run of free units begins that a block fits in, or else what is free above all."""
    taken = {
        unit
        for other, at in placed
        if together(block, other)
        for unit in range(at // UNIT, at // UNIT - (-other.n_bytes // UNIT))
    }
    top = max(taken, default=-1) + 1
    starts = [unit for unit in range(top) if unit not in taken and (not unit or unit - 1 in taken)]
    runs = [(next(end for end in range(start, top) if end in taken) - start, start) for start in starts]
    fitting = [(length, start) for length, start in runs if length * UNIT >= block.n_bytes]
    return UNIT * (min(fitting)[1] if fitting else top)


LONG = st.lists(
    st.builds(
        lambda size, first, life: Block(size, first, first + life),
        *(st.integers(*r) for r in ((1, 16), (0, 200), (0, 150))),
    ),
    max_size=12,
)


@pytest.mark.parametrize(("place", "is_longest"), [(place_largest_first, False), (place_longest_first, True)])
@given(blocks=st.one_of(BLOCKS, LONG))
def test_each_takes_the_smallest_hole_of_its_life(place, is_longest, blocks):
    """XLA's orders: the largest first, of equals the one that lives longest, or the other way round; then as listed."""
    offsets = place(blocks, UNIT)
    placed: list[tuple[Block, int]] = []
    ranks = [(block.n_bytes, block.last - block.first) for block in blocks]
    for number in sorted(range(len(blocks)), key=lambda i: ranks[i][::-1] if is_longest else ranks[i], reverse=True):
        assert offsets[number] == best_hole(blocks[number], placed)
        placed.append((blocks[number], offsets[number]))


def test_largest_first_takes_the_smallest_hole():
    """Of a hole of 8 and one of 4 the block of 4 takes the second, though the first lies lower."""
    # Holes at 16 (8 bytes) and at 40 (4 bytes), made by blocks of another time.
    blocks = [Block(16, 0, 9), Block(8, 0, 1), Block(16, 0, 9), Block(4, 0, 1), Block(4, 5, 6)]
    offsets = place_largest_first(blocks, UNIT)
    assert offsets[:3] == [0, 32, 16]
    assert place_largest_first([*blocks, Block(12, 0, 9)], UNIT)[4] >= 32


# A block of two pieces that were there before it, one after the other and the second longer.
PIECEWISE = st.builds(
    lambda sizes, first, life: Block(
        sum(sizes),
        first + 4,
        first + 4 + life,
        ((0, Block(sizes[0], first, first + 3)), (sizes[0], Block(sizes[1], first + 2, first + 3))),
    ),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 9),
    st.integers(0, 5),
)


def parts(block: Block, at: int) -> list[tuple[Block, int]]:
    """A block and its pieces, each with its offset."""
    return [(block, at), *((piece, at + within) for within, piece in block.pieces)]


@given(st.lists(st.one_of(PIECEWISE, BLOCKS.filter(bool).map(lambda blocks: blocks[0])), max_size=9))
def test_pieces_overlap_nobody_in_their_own_time(blocks):
    """Neither does what they are pieces of in its own."""
    placed = [parts(block, at) for block, at in zip(blocks, place_largest_first(blocks, UNIT), strict=True)]
    pairs = [(one, other) for i, own in enumerate(placed) for one in own for others in placed[:i] for other in others]
    assert not any(together(one[0], other[0]) and overlap(*one, *other) for one, other in pairs)


def test_before_a_piece_comes_its_memory_is_free():
    """A block of 4 lies where the second piece will, since it is dead by then; one that lives on lies above."""
    joined = Block(16, 8, 9, ((0, Block(8, 0, 7)), (8, Block(8, 4, 7))))
    assert place_largest_first([joined, Block(4, 0, 3), Block(4, 0, 4)], UNIT) == [0, 8, 16]


def test_pieces_fit_where_one_block_would_not():
    """Above the first piece lies what ends before the second comes: the joined block needs no place above it."""
    early = Block(20, 0, 3)
    joined = Block(16, 8, 9, ((0, Block(8, 4, 7)), (8, Block(8, 5, 7))))
    assert place_largest_first([early, joined], UNIT) == [0, 0]


def test_no_blocks_need_no_heap():
    """An empty list has no offsets."""
    assert place_in_order([], UNIT) == place_largest_first([], UNIT) == []
