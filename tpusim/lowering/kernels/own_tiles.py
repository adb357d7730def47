"""Tiles of our own choosing, for kernels whose tiling the compiler does not state.

Chosen for what a tiler wants: blocks small enough that two of each operand fit into VMEM, large enough that the
bandwidth and not the loop decides, and as little fetched twice as possible.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from tpusim.lowering.kernels.stated_tiles import LHS, OUT, RHS, Loop, Nest
from tpusim.semantics.products import COLUMNS, DEPTH, ROWS

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip

# The first block in and the last one out overlap nothing: with eight tiles that is an eighth of the traffic.
_WANTED_TILES = 8
# Powers of two divide the sizes that programs have; twelve for each of three loops are few enough to try all.
_CUTS = tuple(2**power for power in range(12))


def streaming_tiles(moved_bytes: float, chip: Chip) -> int:
    """Return into how many tiles a kernel that goes once through ``moved_bytes`` of slow memory is cut."""
    largest = chip.vmem.capacity_bytes * chip.vmem.tile_share
    wanted = max(chip.dma.smallest_block_bytes, min(largest, moved_bytes / _WANTED_TILES))
    return max(1, ceil(moved_bytes / wanted))


def product_tiles(n_bytes: dict[str, float], chip: Chip) -> Nest:
    """Return the nest for a product whose ``lhs``, ``rhs``, ``out`` hold these bytes: least traffic that fits."""
    room_bytes = chip.vmem.capacity_bytes * chip.vmem.tile_share
    costs = _Costs(room_bytes, chip.dma.transfer_cost_bytes, chip.dma.smallest_block_bytes)
    return _product_tiles(n_bytes[LHS], n_bytes[RHS], n_bytes[OUT], costs)


class _Costs(msgspec.Struct, frozen=True):
    """What limits tiles: room for the blocks of one, what a transfer costs beside its bytes, and the least block."""

    room_bytes: float
    transfer_bytes: float
    smallest_bytes: int


@lru_cache(maxsize=1024)
def _product_tiles(lhs_bytes: float, rhs_bytes: float, out_bytes: float, costs: _Costs) -> Nest:
    """Try all cuts by powers of two."""
    n_bytes = {LHS: lhs_bytes, RHS: rhs_bytes, OUT: out_bytes}
    fitting = [
        _nest(columns, rows, depth)
        for columns, rows, depth in product(_CUTS, repeat=3)
        if lhs_bytes / (rows * depth) + rhs_bytes / (columns * depth) + out_bytes / (columns * rows) <= costs.room_bytes
    ]
    # None fits only if arrays are millions of times as large as VMEM: the finest cut must do.
    wanted = min(fitting, key=lambda nest: _tile_preference(nest, n_bytes, costs), default=None)
    return wanted or _nest(_CUTS[-1], _CUTS[-1], _CUTS[-1])


def _tile_preference(nest: Nest, n_bytes: dict[str, float], costs: _Costs) -> tuple[float, int]:
    """Return what to minimise: what the whole nest moves, in bytes, then the distance from the wanted tiles."""
    shares = nest.block_share.items()
    moved = sum((n_bytes[array] * share + costs.transfer_bytes) * nest.fetches(array) for array, share in shares)
    # What is small is not worth cutting: its blocks would only wait for each other's latency.
    wanted = max(1, min(_WANTED_TILES, int(sum(n_bytes.values()) / costs.smallest_bytes)))
    # Traffic first: a tile more costs a few cycles, a fetch more a whole block.
    return moved, abs(nest.tiles - wanted)


def _nest(columns: int, rows: int, depth: int) -> Nest:
    """Return the nest that cuts columns outermost, then rows, then the contracted dimension."""
    # Depth is innermost, so that partial sums stay in one place until they are complete.
    loops = (Loop(columns, COLUMNS), Loop(rows, ROWS), Loop(depth, DEPTH))
    return Nest(loops, {LHS: 1 / (rows * depth), RHS: 1 / (columns * depth), OUT: 1 / (columns * rows)})
