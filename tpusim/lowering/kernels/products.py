"""The work of dots and convolutions: what each tile of their loop nest gives the matrix units and the vector unit.

That of a Fourier transform whose products have no instructions of their own; and what narrow element types cost where
they enter and leave a kernel.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tpusim.cost.models.arrays import array_of
from tpusim.cost.models.protocols import TileProduct
from tpusim.cost.operations.table import cost_of_type
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import LOAD, VECTOR, WORD_BITS
from tpusim.lowering.kernels.roles import Moved
from tpusim.lowering.kernels.tiles import LHS, RHS, TAPS, Nest
from tpusim.program.work import Work, scaled, sum_work
from tpusim.semantics.precision import passes_of
from tpusim.semantics.products import BATCH, COLUMNS, DEPTH, ROWS, Product
from tpusim.shapes.dtype import DTYPES

LANE_EMITTERS = frozenset({"EmitInputFeaturePackedInputBatchInLanes"})
"""What the compiler calls convolutions whose batch lies in lanes, small ones of which need no array."""


def product_work(
    product: Product, output_elements: int, nest: Nest, chip: Chip, *, padding: float = 1.0, emitter: str = ""
) -> Work:
    """Return the whole work of a product that is cut into the tiles of ``nest``: each tile loads its own weights.

    ``padding`` is how many elements of its result are computed for each one that is asked for.
    Many small groups (depthwise convolutions), a sum of one term (outer products) and few features with the batch in
    lanes would leave the array nearly empty; the vector unit does those where that is faster.
    """
    on_array = _array_work(product, output_elements, nest, chip)
    is_outer = product.depth * product.reach == 1
    if product.groups == 1 and not is_outer and emitter not in LANE_EMITTERS:
        return on_array
    # Of one term there is no sum. A feature that is not alone in its register goes to all sublanes first.
    sums = 0 if is_outer else 1
    spread = 1 if product.groups == 1 and not is_outer else 0
    kind = product.operand_type
    multiply, add = cost_of_type(chip, "multiply", kind), cost_of_type(chip, "add", kind)
    each = [(1, multiply), (sums, add), (spread, chip.vector_ops.moves["sublane_broadcast"])]
    terms = product.done_flops / 2 * padding / chip.vpu.register_elements
    on_vector_unit = sum_work(Work(ops=scaled(cost, count * terms)) for count, cost in each)
    array_cycles = sum(array_of(chip).cycles(matmul, chip) for matmul in on_array.matmuls)
    # Arrays without elements ask for nothing.
    vector_cycles = on_vector_unit.ops.get(VECTOR, 0.0) / chip.vpu.alu_slots
    return on_vector_unit if vector_cycles < array_cycles else on_array


def _array_work(product: Product, output_elements: int, nest: Nest, chip: Chip) -> Work:
    """Return the work of a product on the matrix units."""
    # Where partial sums are not added in the array, the vector unit adds one register per popped one.
    mxu, register_elements = chip.mxu, chip.vpu.register_elements
    tile = _tile_of(product, nest)
    work = array_of(chip).work(tile, chip)
    out = output_elements / register_elements
    # A sum over depth is cut by the array, and once more by loops that bring its parts in one after another.
    cuts = nest.trips(TAPS, DEPTH)
    depth_tiles = work.parts * cuts
    # The first result of a sum is popped, each further one popped and added.
    sums = 0.0 if mxu.accumulates_in_array else out * max(0.0, depth_tiles - 1)
    # Rows wait in VMEM as packed words: a register holds twice as many of bf16 as of f32, and half as many of f64.
    packed = register_elements * WORD_BITS / DTYPES[product.operand_type].bits
    loads = work.loaded_elements / packed * nest.tiles
    # Between two parts of a sum the tile of the result waits in VMEM as f32.
    parked = out * (cuts - 1)
    popped = out * (cuts if mxu.accumulates_in_array else depth_tiles)
    whole = msgspec.structs.replace(work.matmul * nest.tiles, results=popped, parked=parked)
    return Work((whole,), {VECTOR: sums, LOAD: loads})


def _tile_of(product: Product, nest: Nest) -> TileProduct:
    """Return the product of one tile of a nest: as the compiler states it, or else the mean of all tiles."""
    extents, columns = nest.extents, product.columns / nest.trips(COLUMNS)
    # A group has only a part of what the bounds of its tile say.
    if extents and product.groups == 1:
        # A full one: the last one of a dimension computes as much as the others.
        rows, columns, depth = extents[ROWS] / product.phases, extents[COLUMNS], extents[DEPTH]
        taps, separate = extents[TAPS] / product.phases, extents[BATCH] * product.phases
    else:
        rows, depth = product.rows / product.phases / nest.trips(ROWS), ceil(product.depth / nest.trips(DEPTH))
        taps = product.reach / nest.trips(TAPS)
        # Kernels that never meet in one row are separate products, each with its share of the rows.
        separate = max(1.0, product.batch * product.groups * product.phases / nest.trips(BATCH))
    return TileProduct(rows, columns, max(1.0, taps), depth, separate, product.operand_type, product.passes)


_NEVER_PACKED = frozenset(
    {"f16", "f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"}
)
"""Types that no register holds as they are: even a copy widens and packs them (a copy of f16 is measured to cost what a
maximum costs)."""


def conversion_work(touched: list[Moved], nest: Nest | None, chip: Chip, *, computes: bool) -> Work:
    """Return the work of widening and packing all that a kernel touches, in each role that it has.

    The vector unit computes in 32 bits (and in bf16 where the generation has it); memory holds narrower elements packed
    (JAX documentation, Pallas TPU details). Inside a kernel values stay wide, so that the price is paid once for each
    element that is loaded or stored. A kernel that ``computes`` nothing moves packed elements as they are.
    """
    found = []
    for access in touched:
        side = access.side
        is_moved = not computes and access.shape.dtype.name not in _NEVER_PACKED
        if is_moved or not _is_converted(access, chip):
            continue
        # A tile of a product's operand is widened each time that it is used, fetched anew or not.
        uses = nest.tiles * nest.block_share[side] if nest and side in (LHS, RHS) else 1.0
        elements = access.n_bytes * 8 / access.shape.dtype.bits
        table = chip.vector_ops.pack if access.is_output else chip.vector_ops.unpack
        # The matrix unit wants bf16 of what it cannot take as it is.
        also = [chip.vector_ops.pack.get("bf16", {})] if side in (LHS, RHS) else []
        for cost in (table.get(access.shape.dtype.name, {}), *also):
            found.append(Work(ops=scaled(cost, uses * elements / chip.vpu.register_elements)))
    return sum_work(found)


def _is_converted(access: Moved, chip: Chip) -> bool:
    """Return whether the elements of an operand or result have another width in registers than in memory."""
    dtype = access.shape.dtype
    if dtype.bits >= WORD_BITS or (dtype.name == "bf16" and chip.vpu.native_bf16):
        return False
    # What the matrix unit takes as it is goes past the vector unit.
    return not (access.side in (LHS, RHS) and dtype.name in chip.mxu.rate_by_type)


_COSINES = {"iota": 2, "multiply": 2, "remainder": 1, "convert": 1, "cosine": 1}
_WITH_SINES = (_COSINES, _COSINES | {"sine": 1, "add": 1}, _COSINES | {"sine": 1, "subtract": 1})
"""How often each operation is done for a root, by product: each makes all of them anew."""


def roots_work(chip: Chip, length: int, rows: float) -> Work:
    """Return the work of ``rows`` transforms by the matrix of roots of unity: three products and all of the matrix."""
    ops, vpu = chip.vector_ops.ops, chip.vpu
    registers = ceil(length / vpu.lanes) * ceil(length / vpu.sublanes)
    each = [Work(ops=scaled(ops[name], count)) for made in _WITH_SINES for name, count in made.items()]
    if rows > 1:
        tile = TileProduct(rows, length, 1.0, length, 1.0, "f32", passes_of("highest", DTYPES["f32"]))
        return sum_work(each) * registers + Work((array_of(chip).work(tile, chip).matmul * len(_WITH_SINES),))
    # A row by itself is multiplied and added up.
    each += [Work(ops=ops["multiply"]), Work(ops=ops["add"])] * len(_WITH_SINES)
    return sum_work(each) * registers
