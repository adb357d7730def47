"""Tiles of our own choosing, against trying all cuts by the definition of what a nest moves."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from tpusim.hardware.load import load_chip
from tpusim.lowering.kernels.tiles import product_tiles, streaming_tiles

CHIP = load_chip("v5e")
ROOM_BYTES = CHIP.vmem.capacity_bytes * CHIP.vmem.tile_share
MIB = 2**20
ISSUE_BYTES = CHIP.dma.issue_cycles / CHIP.clock_hz * CHIP.hbm.bandwidth_bytes_per_second
SIZES = [(8, 8, 8), (0.01, 0.5, 0.01), (512, 2, 512), (2, 512, 512), (512, 512, 2), (4096, 4096, 4096), (1, 300, 7)]


def moved_bytes(sizes, cuts):
    """Return what a nest moves: a block comes anew when a loop that it depends on, or one inside, has advanced.

    The order is columns, rows, depth, outermost first; a result goes out once for each of its blocks. Each block counts
    what could have moved while its transfer is issued.
    """
    left, right, out = sizes
    columns, rows, depth = cuts
    left_fetches = prod(cuts) if depth > 1 else columns * rows if rows > 1 else 1
    right_fetches = prod(cuts) if depth > 1 else columns if columns > 1 else 1
    blocks = ((left / rows / depth, left_fetches), (right / columns / depth, right_fetches))
    found = (*blocks, (out / columns / rows, columns * rows))
    return sum((block + ISSUE_BYTES) * count for block, count in found)


def room_bytes(sizes, cuts):
    """Return what one tile's blocks take."""
    left, right, out = sizes
    columns, rows, depth = cuts
    return left / rows / depth + right / columns / depth + out / columns / rows


@pytest.mark.parametrize("mib", SIZES)
def test_the_tiles_of_a_product_fit_and_move_the_least(mib):
    """Of all cuts by powers of two none that fits moves less."""
    sizes = [size * MIB for size in mib]
    nest = product_tiles(dict(zip(("lhs", "rhs", "out"), sizes, strict=True)), CHIP)
    chosen = tuple(loop.trips for loop in nest.loops)
    assert room_bytes(sizes, chosen) <= ROOM_BYTES
    fitting = (c for c in product([2**n for n in range(12)], repeat=3) if room_bytes(sizes, c) <= ROOM_BYTES)
    assert moved_bytes(sizes, chosen) == pytest.approx(min(moved_bytes(sizes, cuts) for cuts in fitting))


@pytest.mark.parametrize("mib", SIZES)
def test_blocks_of_a_product_are_its_arrays_cut(mib):
    """Each array by the loops that go through it."""
    nest = product_tiles({name: size * MIB for name, size in zip(("lhs", "rhs", "out"), mib, strict=True)}, CHIP)
    columns, rows, depth = (loop.trips for loop in nest.loops)
    assert [1 / nest.block_share[name] for name in ("lhs", "rhs", "out")] == [
        rows * depth,
        columns * depth,
        columns * rows,
    ]


def test_what_fits_no_vmem_is_cut_as_finely_as_may_be():
    """Petabytes: 2,048 pieces of each dimension."""
    nest = product_tiles(dict.fromkeys(("lhs", "rhs", "out"), 2.0**60), CHIP)
    assert [loop.trips for loop in nest.loops] == [2048] * 3


def test_a_stream_is_cut_in_eight_within_bounds():
    """Not below what a transfer is worth, and not above what VMEM has room for."""
    least = CHIP.dma.smallest_block_bytes
    assert [streaming_tiles(n_bytes, CHIP) for n_bytes in (0, least, 3 * least, 8 * least, 100 * least)] == [
        1,
        1,
        3,
        8,
        8,
    ]
    assert streaming_tiles(100 * ROOM_BYTES, CHIP) == 100
