"""The work of dots and convolutions: what each tile of their loop nest gives the matrix units and the vector unit."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import msgspec

from tpusim.cost.mxu import TileProduct, matmul_cycles, packed_depth_tiles, tile_matmul
from tpusim.hardware.units import LOAD, STORE, VECTOR, WORD_BITS
from tpusim.lowering.kernels.tiles import TAPS
from tpusim.program.work import Work
from tpusim.semantics.products import BATCH, COLUMNS, DEPTH, ROWS
from tpusim.shapes.dtype import DTYPES

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.lowering.kernels.tiles import Nest
    from tpusim.semantics.products import Product


def product_work(product: Product, output_elements: int, nest: Nest, chip: Chip) -> Work:
    """Return the whole work of a product that is cut into the tiles of ``nest``: each tile loads its own weights.

    Many small groups (depthwise convolutions) would leave the array nearly empty; the vector unit does those, one
    multiplication and one addition per register, where that is faster.
    """
    on_array = _array_work(product, output_elements, nest, chip)
    if product.groups == 1:
        return on_array
    steps = product.flops / chip.vpu.register_elements
    array_cycles = sum(matmul_cycles(matmul, chip.mxu) for matmul in on_array.matmuls)
    vector_cycles = steps / (chip.vpu.alu_slots * chip.vpu.slot_efficiency)
    return Work(ops={VECTOR: steps}) if vector_cycles < array_cycles else on_array


def _array_work(product: Product, output_elements: int, nest: Nest, chip: Chip) -> Work:
    """Return the work of a product on the matrix units.

    Where partial sums are not added in the array, the vector unit adds one register per popped one.
    """
    mxu, register_elements = chip.mxu, chip.vpu.register_elements
    tile = _tile_of(product, nest)
    matmul = tile_matmul(tile, chip)
    out = output_elements / register_elements
    # A sum over depth is cut by the array, and once more by loops that bring its parts in one after another.
    cuts = nest.trips(TAPS, DEPTH)
    depth_tiles = packed_depth_tiles(tile.depth, tile.taps, chip) * cuts
    # The first result of a sum is popped, each further one popped and added.
    sums = 0.0 if mxu.accumulates_in_array else out * max(0.0, depth_tiles - 1)
    # Rows wait in VMEM as packed words: a register holds twice as many of bf16 as of f32.
    packed = register_elements * operands_per_lane(product.operand_type)
    loads = matmul.streamed_rows * mxu.rows / packed * nest.tiles
    # Between two parts of a sum the tile of the result waits in VMEM as f32.
    parked = out * (cuts - 1)
    popped = out * (cuts if mxu.accumulates_in_array else depth_tiles)
    whole = msgspec.structs.replace(matmul, results=popped / nest.tiles) * nest.tiles
    return Work((whole,), {VECTOR: sums, LOAD: loads + parked, STORE: parked})


def _tile_of(product: Product, nest: Nest) -> TileProduct:
    """Return the product of one tile of a nest: as the compiler states it, or else the mean of all tiles."""
    # Kernels that never meet in one row are separate products, each with its share of the rows.
    separate = product.batch * product.groups * product.phases
    tile = TileProduct(
        rows=product.rows / product.phases / nest.trips(ROWS),
        columns=product.columns / nest.trips(COLUMNS),
        taps=max(1.0, product.reach / nest.trips(TAPS)),
        depth=ceil(product.depth / nest.trips(DEPTH)),
        separate=max(1.0, separate / nest.trips(BATCH)),
        operand_type=product.operand_type,
        passes=product.passes,
    )
    # A group has only a part of what the bounds of its tile say.
    return _stated(tile, product, nest.extents) if nest.extents and product.groups == 1 else tile


def _stated(tile: TileProduct, product: Product, extents: dict[str, int]) -> TileProduct:
    """Return the product of one full tile: the last one of a dimension computes as much as the others."""
    return msgspec.structs.replace(
        tile,
        rows=extents[ROWS] / product.phases,
        columns=extents[COLUMNS],
        taps=max(1.0, extents[TAPS] / product.phases),
        depth=extents[DEPTH],
        separate=extents[BATCH] * product.phases,
    )


def operands_per_lane(operand_type: str) -> int:
    """Return how many operands of a type share a lane."""
    return max(1, WORD_BITS // DTYPES[operand_type].bits)
