"""The matrix unit: how many cycles a core's arrays need for a product that is cut into weight tiles.

An array holds one tile of one operand while the rows of the other one stream past it. The next tile loads under the
current one, so that a tile costs the longer of the two; the core's arrays share the tiles. ``models/arrays.py`` has the
arrays that a chip's file can name, this one and others.
"""

from __future__ import annotations

from math import ceil

from tpusim.cost.models.protocols import TileProduct
from tpusim.hardware.chip import Chip, Mxu
from tpusim.program.work import Matmul


def array_cycles(matmul: Matmul, mxu: Mxu) -> float:
    """Return the cycles that one array takes for one pass of ``matmul``: the longer of loading and streaming."""
    # Their maximum, not their sum: arrays load the next weights while they multiply (US 10635740 and related).
    stream_cycles = matmul.streamed_rows / (mxu.lhs_rows_per_cycle * mxu.rate_by_type.get(matmul.operand_type, 1.0))
    return max(stream_cycles, matmul.weight_rows / mxu.weight_load_rows_per_cycle)


def pass_cycles(matmul: Matmul, mxu: Mxu) -> float:
    """Return the cycles of all arrays together for one pass of ``matmul``, however many there are."""
    return array_cycles(matmul, mxu) / mxu.efficiency + matmul.weight_tiles * mxu.tile_switch_cycles


def matmul_cycles(matmul: Matmul, mxu: Mxu) -> float:
    """Return the cycles of one core for ``matmul``, its arrays and the way of its results out of them."""
    busy_cycles = pass_cycles(matmul, mxu) / mxu.count
    # What leaves the arrays has to be popped and put away, whatever streams in.
    result_cycles = matmul.results / mxu.result_registers_per_cycle
    # Parts of a sum are added to what waits in VMEM behind the product.
    parked_cycles = matmul.parked * mxu.parked_register_cycles
    # Each pass has other pieces of both operands, so it loads its weights again.
    return matmul.passes * max(busy_cycles, result_cycles) + parked_cycles


def operand_held(tile: TileProduct, rows: float, columns: float, chip: Chip) -> Matmul:
    """Return one tile's work where ``columns`` stay in the array and ``rows`` stream past them."""
    mxu, (sublanes, lanes) = chip.mxu, chip.vpu.register_shape
    depth_tiles = packed_depth_tiles(tile.depth, tile.taps, chip)
    weight_tiles = depth_tiles * ceil(columns / mxu.columns)
    # Streamed rows come by the register, so in multiples of its sublanes (JAX, Pallas TPU).
    streamed = round_up(ceil(rows), sublanes) * weight_tiles
    # Weights come in by whole registers too: a narrow or shallow tile of a large array loads as fast as it is small.
    weights = tile.taps * round_up(tile.depth, sublanes) * round_up(ceil(columns), lanes) / mxu.columns
    whole = Matmul(weights, streamed, weight_tiles, operand_type=tile.operand_type, passes=tile.passes)
    return whole * tile.separate


def packed_depth_tiles(depth: int, taps: float, chip: Chip) -> float:
    """Return how many times the array's rows are filled to cover ``taps`` kernel positions of ``depth`` features.

    The array's depth may take several shallow kernel positions at once, so that 9 taps of 64 features fill 4.5 tiles of
    128 rather than 9.
    """
    # A tap that fills the array by itself shares its last, ragged tile with no other.
    if depth >= chip.mxu.rows:
        return taps * ceil(depth / chip.mxu.rows)
    return ceil(taps * round_up(depth, chip.vpu.sublanes) / chip.mxu.rows)


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is at least a value."""
    return -(-value // multiple) * multiple
