"""Products of rows in groups: tiles in which no row is of the tile's group are left out.

The compiler writes a ragged product as one of all rows with every group's matrix, of which a mask keeps the right one,
and says beside it that the loops skip what is masked (``iteration_skipper_mode``). How many tiles that leaves depends
on the sizes of the groups: tiles of all rows once, and one more for each group that ends within a tile.

Of a ``ragged-dot`` that states no tiles they are those that the compiler would take.

Source: programs compiled ahead of time for v5e, v5p, v6e and v7x (libtpu 0.0.52), 77 of ``lax.ragged_dot`` and its
derivatives for v5e, 35 for v6e and 23 for v5p among them. Where it copies small matrices to VMEM first
it takes smaller tiles by no rule that was found.
"""

from __future__ import annotations

from math import ceil

import msgspec
from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.ir.module import Instruction
from tpusim.lowering.kernels.tiles import GROUPED, LHS, OUT, RHS, TAPS, Loop, Nest, physical_order
from tpusim.program.steps import Kernel, TileLoop
from tpusim.program.work import Stream, Work, sum_work
from tpusim.semantics.products import BATCH, COLUMNS, DEPTH, ROWS, Product
from tpusim.shapes.shape import ArrayShape

# Of a matrix whose rows are what is summed over, a tile has so much of a row at most if it cannot have all of it.
_TURNED_DEPTH, _TURNED_COLUMNS = 1024, 2048

# As parts of the VMEM that kernels have: the bytes of a block of a matrix, and of all blocks of a tile. What a block of
# results counts there.
_MATRIX_PART, _ALL_PART, _RESULT_WEIGHT = 1 / 8, 0.1915, 3 / 4

# Where rows are summed: the results of a tile and the columns among them, as elements for each byte of that VMEM, and
# the bytes of both sides as a part of it.
_RESULTS_PER_BYTE, _COLUMNS_PER_BYTE, _SIDES_PART = 1 / 2**4, 1 / 2**14, 1 / 2**4

_LEAST_ROWS = 128

# Elements of a row, of a matrix and of results in a tile at most where two cores share a kernel.
_MOST_SUMMED, _MOST_MATRIX, _MOST_RESULTS = 7936, 1280 * 1024, 512 * 1024


class Grouped(msgspec.Struct, frozen=True):
    """A product of rows in groups as the compiler makes it: ``product`` is of all rows with the matrix of each group.

    ``results`` are those of all groups. Rows in groups are of the kind ``rows_role``: what is summed over, or not.
    ``is_turned`` says that matrices lie with what is summed over in their rows, as for the derivative of ``lhs``.
    """

    product: Product
    results: int
    rows_role: str
    is_turned: bool
    element_bytes: int

    @property
    def rows(self) -> int:
        """How many rows all groups have together."""
        return self.product.depth if self.rows_role == DEPTH else self.product.rows

    @property
    def shared(self) -> tuple[str, ...]:
        """The sides that all groups go through."""
        return _SHARED_SIDES[self.rows_role]


_SHARED_SIDES = {DEPTH: (LHS, RHS), ROWS: (LHS,)}
"""Each group has a product over its own stretch of both sides, or a matrix of its own."""


def shared_sides(loops: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the sides of a product that all groups go through, by which loops are those of groups and of rows."""
    if loops is None:
        return ()
    return _SHARED_SIDES[DEPTH if loops[1] == GROUPED.index(DEPTH) else ROWS]


def grouped(instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape, product: Product) -> Grouped | None:
    """Return what the compiler makes of a ``ragged-dot`` of matrices; None for other products."""
    if instruction.opcode != "ragged-dot" or not product.flops:
        return None
    named = instruction.attributes
    # One dimension of rows, and one that is summed over; with batches nobody has seen it.
    if lhs.rank != 2 or named.get("lhs_batch_dims") or len(named.get("rhs_contracting_dims", ())) != 1:
        return None
    (ragged,), (summed,) = named["lhs_ragged_dims"], named["rhs_contracting_dims"]
    is_summed = ragged in named["lhs_contracting_dims"]
    groups, depth = (product.batch, lhs.dimensions[ragged]) if is_summed else (round(product.phases), product.depth)
    whole = structs.replace(product, batch=groups, depth=depth, phases=1.0)
    return Grouped(
        product=whole,
        results=groups * whole.rows * whole.columns,
        rows_role=DEPTH if is_summed else ROWS,
        is_turned=not is_summed and physical_order(rhs)[-1] == summed,
        element_bytes=ceil(max(lhs.dtype.bits, rhs.dtype.bits) / 8),
    )


def grouped_nest(made: Grouped, chip: Chip) -> Nest:
    """Return the loops that the compiler has for a product of rows in groups."""
    size = made.product
    whole = {BATCH: size.batch, ROWS: size.rows, COLUMNS: size.columns, TAPS: 1, DEPTH: size.depth}
    extents = {BATCH: 1, TAPS: 1} | _tile_of(made, chip)
    nest = Nest(tuple(Loop(ceil(whole[role] / extents[role]), role) for role in GROUPED), {}, shared=made.shared)
    shares = {side: 1 / nest.distinct(side) for side in (LHS, RHS, OUT)}
    return structs.replace(nest, block_share=shares, extents=extents)


def _tile_of(made: Grouped, chip: Chip) -> dict[str, int]:
    """Return the elements of a tile by the kind of dimension."""
    if chip.cores_per_device > 1:
        return _shared_tile(made)
    if made.rows_role == DEPTH:
        return _summed_tile(made, chip)
    if made.is_turned and made.product.depth > made.product.columns:
        # The compiler finds no tiles (it states 2^63 - 1 cycles) and takes the smallest.
        return {ROWS: min(made.rows, _LEAST_ROWS), COLUMNS: chip.vpu.lanes, DEPTH: chip.vpu.lanes}
    return _row_tile(made, chip)


def _row_tile(made: Grouped, chip: Chip) -> dict[str, int]:
    """Return the tile of a product in which each group has a matrix of its own."""
    size, lanes, each = made.product, chip.vpu.lanes, made.element_bytes
    matrix = int(chip.vmem.kernel_bytes * _MATRIX_PART) // each
    is_cut = made.is_turned and size.depth > _TURNED_DEPTH
    columns = _piece(size.columns, _TURNED_COLUMNS if is_cut else matrix // size.depth, lanes)
    depth = _piece(size.depth, matrix // columns, lanes) if is_cut else size.depth
    left_bytes = chip.vmem.kernel_bytes * _ALL_PART - columns * depth * each
    rows = int(left_bytes / ((columns * _RESULT_WEIGHT + depth) * each))
    return {ROWS: _rows_of(made, rows, _LEAST_ROWS, chip.vpu.sublanes), COLUMNS: columns, DEPTH: depth}


def _summed_tile(made: Grouped, chip: Chip) -> dict[str, int]:
    """Return the tile of a product that sums over the rows of each group."""
    size, room_bytes = made.product, chip.vmem.kernel_bytes
    columns = _piece(size.columns, int(room_bytes * _COLUMNS_PER_BYTE), chip.vpu.lanes)
    rows = _piece(size.rows, int(room_bytes * _RESULTS_PER_BYTE) // columns, chip.vpu.lanes)
    depth = int(room_bytes * _SIDES_PART) // ((rows + columns) * made.element_bytes)
    # A large array is filled.
    unit = chip.mxu.rows if chip.mxu.rows > _LEAST_ROWS else chip.vpu.sublanes
    return {ROWS: rows, COLUMNS: columns, DEPTH: _rows_of(made, depth, chip.mxu.rows, unit)}


def _rows_of(made: Grouped, most: int, least: int, unit: int) -> int:
    """Return how many rows in groups a tile has: rather two tiles for a group than one with much of the next."""
    half = ceil(made.rows / made.product.batch / 2)
    return _piece(made.rows, max(least, min(most, half)), unit)


def _shared_tile(made: Grouped) -> dict[str, int]:
    """Return the tile of the hand-written kernel that two cores have."""
    size, is_summed = made.product, made.rows_role == DEPTH
    whole, most = (size.rows, _MOST_RESULTS) if is_summed else (size.depth, _MOST_MATRIX)
    high = min(whole, _MOST_SUMMED // 2 if is_summed else _MOST_SUMMED)
    columns = min(size.columns, max(1, most // high // _LEAST_ROWS) * _LEAST_ROWS)
    return {ROWS: high if is_summed else _LEAST_ROWS, COLUMNS: columns, DEPTH: _LEAST_ROWS if is_summed else high}


def _piece(size: int, most: int, unit: int) -> int:
    """Return the size of the pieces, in whole units, that are as even as can be and no larger than ``most``."""
    units, most = ceil(size / unit), max(1, most // unit)
    return min(size, ceil(units / ceil(units / most)) * unit)


def masking(made: Grouped, nest: Nest, chip: Chip) -> Work:
    """Return the work of the mask: of what is summed both sides are made zero, else results, which are then added."""
    ops, vpu = chip.vector_ops, chip.vpu
    size, kind = made.product, made.product.operand_type
    if made.rows_role == ROWS:
        each = Work(ops=ops.ops["select"]) + Work(ops=ops.ops["add"])
        return each * (made.results / vpu.register_elements)
    conversions = [] if vpu.native_bf16 else [ops.unpack.get(kind, {}), ops.pack.get(kind, {})]
    each = sum_work([Work(ops=ops.ops["select"]), *(Work(ops=cost) for cost in conversions)])
    moved = size.rows * nest.trips(COLUMNS) + size.columns * nest.trips(ROWS)
    return each * (size.batch * size.depth * moved / vpu.register_elements)


def without_skipped(kernel: Kernel, nest: Nest) -> Kernel:
    """Return a kernel around a product of rows in groups with the tiles that run.

    Whoever writes ``ragged-dot`` asks for no operations on rows of other groups.
    """
    groups, rows = nest.trips(BATCH), nest.trips(DEPTH if RHS in nest.shared else ROWS)
    tiles = max(1, kernel.tiles * (groups + rows - 1) // (groups * rows))
    done = 1.0 if kernel.opcode == "ragged-dot" else tiles / kernel.tiles
    return structs.replace(
        kernel,
        tiles=tiles,
        loops=(TileLoop("rows", tiles),),
        flops=kernel.flops * done,
        product_flops=kernel.product_flops * done,
        streams=tuple(_without_skipped(stream, tiles) for stream in kernel.streams),
    )


def _without_skipped(stream: Stream, tiles: int) -> Stream:
    """Return what is fetched with fewer tiles, or written: of a result each row is written once all the same."""
    fetches = min(stream.fetches, tiles)
    block_bytes = stream.block_bytes * (stream.fetches / fetches if stream.is_output else 1)
    return structs.replace(stream, fetches=fetches, block_bytes=block_bytes)
