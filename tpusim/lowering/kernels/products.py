"""Dots and convolutions as the matrix units see them: rows streamed past weight tiles.

On this compiler both are ``convolution``. A batch dimension of a dot appears as a spatial dimension in which every
output position meets exactly one kernel position; counting the pairs that really meet covers that, padding and dilation
alike.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd, prod
from typing import TYPE_CHECKING

import msgspec

from tpusim.hardware.units import LOAD, STORE, VECTOR
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.program.work import Matmul, Work
from tpusim.semantics.precision import product_passes
from tpusim.shapes.dtype import DTYPES

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip, Mxu
    from tpusim.ir.module import Instruction
    from tpusim.lowering.kernels.stated_tiles import Nest
    from tpusim.shapes.shape import ArrayShape

_LANES = 128
_SUBLANES = 8
"""Rows come in registers of this many sublanes."""


class Product(msgspec.Struct, frozen=True, gc=False):
    """The size of a product: ``depth`` is contracted, ``columns`` come from the weights.

    Over all spatial dimensions together there are ``positions`` of the output and ``taps`` of the kernel; ``pairs`` of
    them meet, and ``reach`` taps add up in one output position. ``shared`` are the letters of spatial dimensions that
    are really batch dimensions, of ``shared_size`` positions: each of them meets one tap of its own.
    """

    batch: int
    positions: int
    pairs: int
    taps: int
    reach: float
    depth: int
    columns: int
    groups: int
    operand_type: str
    passes: int
    shared: frozenset[str] = frozenset()
    shared_size: int = 1

    @property
    def phases(self) -> float:
        """Products that a position of the output chooses one of, by where the holes of a dilated input lie."""
        return self.taps / self.reach / self.shared_size

    @property
    def flops(self) -> float:
        """Two per multiply-add that the program asks for."""
        return 2.0 * self.batch * self.pairs * self.depth * self.columns


def convolution_product(instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape) -> Product:
    """Return the size of a ``convolution`` of ``lhs`` with the kernel ``rhs``."""
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    window = instruction.attributes.get("window", Window())
    output: ArrayShape = instruction.shape  # type: ignore[assignment]
    sizes = [
        (lhs.dimensions[labels.lhs.index(str(d))], output.dimensions[labels.output.index(str(d))])
        for d in range(len(window.dimensions))
    ]
    pairs = [meeting_pairs(w, *size) for w, size in zip(window.dimensions, sizes, strict=True)]
    reach = [_reach(w.size, p, o) for w, p, (_, o) in zip(window.dimensions, pairs, sizes, strict=True)]
    shared = [d for d, w in enumerate(window.dimensions) if 1 < w.size == pairs[d] == sizes[d][1]]
    # Feature groups split the input features, batch groups the batch: either way products of equal size.
    groups = instruction.attributes.get("feature_group_count", 1) * instruction.attributes.get("batch_group_count", 1)
    return Product(
        batch=output.dimensions[labels.output.index("b")],
        positions=prod(o for _, o in sizes),
        pairs=prod(pairs),
        taps=prod(w.size for w in window.dimensions),
        reach=prod(reach),
        # The kernel's input features, not the input's: with groups it has those of one (XLA, Conv).
        depth=rhs.dimensions[labels.rhs.index("i")],
        columns=rhs.dimensions[labels.rhs.index("o")],
        groups=groups,
        operand_type=_wider(lhs, rhs).dtype.name,
        passes=len(product_passes(instruction, lhs.dtype, rhs.dtype)),
        shared=frozenset(map(str, shared)),
        shared_size=prod(sizes[d][1] for d in shared),
    )


def _reach(taps: int, pairs: int, positions: int) -> float:
    """Return how many taps add up in one output position: all of them, but for those that only padding would meet."""
    # Edges meet padding, so the mean is a little below all taps; a batch dimension meets exactly one.
    met = pairs / max(1, positions)
    return taps if 2 * met > taps else max(1.0, met)


def dot_product(instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape) -> Product:
    """Return the size of a ``dot``: batch dimensions are taps that each meet one output position."""
    batch_dims = instruction.attributes.get("lhs_batch_dims", ())
    contracting = instruction.attributes.get("lhs_contracting_dims", ())
    batches = prod(lhs.dimensions[d] for d in batch_dims)
    depth = prod(lhs.dimensions[d] for d in contracting)
    # An empty dimension makes an empty product here, not a division by zero.
    rows = lhs.element_count // max(1, batches * depth)
    # Of a ragged dot's right-hand matrices each row meets only the one of its group.
    choices = prod(rhs.dimensions[d] for d in instruction.attributes.get("rhs_group_dims", ()))
    columns = rhs.element_count // max(1, batches * depth * choices)
    return Product(
        batch=rows,
        positions=batches,
        pairs=batches,
        taps=batches,
        reach=1.0,
        depth=depth,
        columns=columns,
        groups=1,
        operand_type=_wider(lhs, rhs).dtype.name,
        passes=len(product_passes(instruction, lhs.dtype, rhs.dtype)),
    )


def _wider(lhs: ArrayShape, rhs: ArrayShape) -> ArrayShape:
    """Return the operand of more bits: the array works at its rate."""
    return lhs if lhs.dtype.bits > rhs.dtype.bits else rhs


@lru_cache(maxsize=4096)
def meeting_pairs(window: WindowDimension, input_size: int, output_size: int) -> int:
    """Count the (output, kernel) position pairs of one spatial dimension that meet a real input element.

    Kernel position k meets output position o at ``o * stride - pad_low + k * rhs_dilate`` of the input dilated by
    ``lhs_dilate``; holes and padding hold nothing (XLA, operation semantics, Conv).
    """
    last = (input_size - 1) * window.lhs_dilate
    # Reversal changes which tap meets which element, but not how many meet: it is left out.
    taps = range(-window.pad_low, -window.pad_low + window.size * window.rhs_dilate, window.rhs_dilate)
    return sum(_hits(window.stride, offset, window.lhs_dilate, last, output_size) for offset in taps)


def _hits(stride: int, offset: int, modulus: int, last: int, count: int) -> int:
    """Count o in [0, count) for which ``o * stride + offset`` is a multiple of ``modulus`` within [0, last]."""
    low = max(0, ceil(-offset / stride))
    high = min(count - 1, (last - offset) // stride)
    # o * stride = -offset (modulo the dilation) has solutions only if their divisor divides the offset.
    common = gcd(stride, modulus)
    if high < low or offset % common:
        return 0
    period = modulus // common
    # The modular inverse gives one solution; the others lie a period apart.
    first = (-offset // common) * pow(stride // common, -1, period) % period if period > 1 else 0
    begin = low + (first - low) % period
    return 0 if begin > high else (high - begin) // period + 1


def product_work(product: Product, output_elements: int, nest: Nest, chip: Chip) -> Work:
    """Return the whole work of a product that is cut into the tiles of ``nest``: each tile loads its own weights.

    Many small groups (depthwise convolutions) would leave the array nearly empty; the vector unit does those, one
    multiplication and one addition per register, where that is faster.
    """
    on_array = _array_work(product, output_elements, nest, chip)
    if product.groups == 1:
        return on_array
    steps = product.flops / _register_elements(chip)
    array_cycles = sum(_array_cycles(matmul, chip.mxu) for matmul in on_array.matmuls)
    vector_cycles = steps / (chip.vpu.alu_slots * chip.vpu.slot_efficiency)
    return Work(ops={VECTOR: steps}) if vector_cycles < array_cycles / chip.mxu.count else on_array


def _array_work(product: Product, output_elements: int, nest: Nest, chip: Chip) -> Work:
    """Return the work of a product on the matrix units.

    Either operand can be the one that stays in the array while the other streams; the compiler is taken to choose the
    faster. Where partial sums are not added in the array, the vector unit adds one register per popped one.
    """
    mxu = chip.mxu
    tile = _tile_of(product, nest)
    ways = (_matmul(tile, tile.rows, tile.columns, mxu), _matmul(tile, tile.columns, tile.rows, mxu))
    matmul = min(ways, key=lambda way: _array_cycles(way, mxu))
    out = output_elements / _register_elements(chip)
    # A sum over depth is cut by the array, and once more by loops that bring its parts in one after another.
    cuts = nest.trips("kernel_spatial", "input_feature")
    depth_tiles = packed_depth_tiles(tile.depth, tile.taps, mxu.rows) * cuts
    # The first result of a sum is popped, each further one popped and added.
    sums = 0.0 if mxu.accumulates_in_array else out * max(0.0, depth_tiles - 1)
    # Rows wait in VMEM as packed words: a register holds twice as many of bf16 as of f32.
    packed = _register_elements(chip) * operands_per_lane(product.operand_type)
    loads = matmul.streamed_rows * mxu.rows / packed * nest.tiles
    # Between two parts of a sum the tile of the result waits in VMEM as f32.
    parked = out * (cuts - 1)
    popped = out * (cuts if mxu.accumulates_in_array else depth_tiles)
    whole = msgspec.structs.replace(matmul, results=popped / nest.tiles) * nest.tiles
    return Work((whole,), {VECTOR: sums, LOAD: loads + parked, STORE: parked})


def _array_cycles(matmul: Matmul, mxu: Mxu) -> float:
    """Return what a compiler weighs two ways by: the cycles of one array, the longer of loading and streaming."""
    streaming = matmul.streamed_rows / (mxu.lhs_rows_per_cycle * mxu.rate_by_type.get(matmul.operand_type, 1.0))
    return matmul.passes * max(matmul.weight_rows / mxu.weight_load_rows_per_cycle, streaming)


class _Tile(msgspec.Struct, frozen=True, gc=False):
    """The product of one tile: ``separate`` products of ``rows`` by ``columns`` over ``taps`` times ``depth``."""

    rows: float
    columns: float
    taps: float
    depth: int
    separate: float
    operand_type: str
    passes: int


def _tile_of(product: Product, nest: Nest) -> _Tile:
    """Return the product of one tile of a nest: as the compiler states it, or else the mean of all tiles."""
    # Taps that never meet in one output position are separate products, each with its share of the rows.
    separate = product.groups * product.taps / product.reach
    rows = product.batch * product.positions * product.groups / separate
    tile = _Tile(
        rows=rows / nest.trips("batch", "output_spatial"),
        columns=product.columns / product.groups / nest.trips("output_feature"),
        taps=max(1.0, product.reach / nest.trips("kernel_spatial")),
        depth=ceil(product.depth / nest.trips("input_feature")),
        separate=max(1.0, separate / nest.trips("shared")),
        operand_type=product.operand_type,
        passes=product.passes,
    )
    # A group has only a part of what the bounds of its tile say.
    return _stated(tile, product, nest.extents) if nest.extents and product.groups == 1 else tile


def _stated(tile: _Tile, product: Product, extents: dict[str, int]) -> _Tile:
    """Return the product of one full tile: the last one of a dimension computes as much as the others."""
    return msgspec.structs.replace(
        tile,
        rows=extents["batch"] * extents["output_spatial"] / product.phases,
        columns=extents["output_feature"],
        taps=max(1.0, extents["kernel_spatial"] / product.phases),
        depth=extents["input_feature"],
        separate=extents["shared"] * product.phases,
    )


def _matmul(tile: _Tile, rows: float, columns: float, mxu: Mxu) -> Matmul:
    """Return one tile's work where ``columns`` stay in the array and ``rows`` stream past them.

    The array's depth may take several shallow kernel positions at once, so that 9 taps of 64 features fill 4.5 tiles of
    128 rather than 9. A tile that is not as deep as the array loads only the rows that it has.
    """
    depth_tiles = packed_depth_tiles(tile.depth, tile.taps, mxu.rows)
    weight_tiles = depth_tiles * ceil(columns / mxu.columns)
    depth = min(depth_tiles * mxu.rows, tile.taps * _round_up(tile.depth, _SUBLANES))
    # Streamed rows come by the register, so in multiples of its sublanes (JAX, Pallas TPU).
    streamed = _round_up(ceil(rows), _SUBLANES) * weight_tiles
    # They come in by whole registers of lanes: a narrow tile of a wide array loads as fast as it is narrow.
    weights = depth * ceil(columns / _LANES) * _LANES / mxu.columns
    whole = Matmul(weights, streamed, weight_tiles, operand_type=tile.operand_type, passes=tile.passes)
    return whole * tile.separate


def packed_depth_tiles(depth: int, taps: float, array_rows: int) -> float:
    """Return how many times the array's rows are filled to cover ``taps`` kernel positions of ``depth`` features."""
    # A tap that fills the array by itself shares its last, ragged tile with no other.
    if depth >= array_rows:
        return taps * ceil(depth / array_rows)
    return ceil(taps * _round_up(depth, _SUBLANES) / array_rows)


def operands_per_lane(operand_type: str) -> int:
    """Return how many operands of a type share a 32-bit lane."""
    return max(1, 32 // DTYPES[operand_type].bits)


def _register_elements(chip: Chip) -> int:
    """Return the 32-bit elements of one vector register."""
    return chip.vpu.sublanes * chip.vpu.lanes


def _round_up(value: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-value // multiple) * multiple
