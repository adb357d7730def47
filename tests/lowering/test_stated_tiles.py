"""Loop nests and blocks as the compiler's bounds say them, against counting."""

from __future__ import annotations

from itertools import product
from math import ceil, inf, lcm, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tpusim.ir.attributes import ConvolutionLabels, Window, WindowConfig, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.lowering.kernels.tiles import (
    LHS,
    OUT,
    RHS,
    TAPS,
    TOUCHES,
    Loop,
    Nest,
    StatedTiling,
    blocks,
    cut_alike,
    run_bytes,
)
from tpusim.semantics.products import COLUMNS, DEPTH
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

BLOCK = (8, 128)
SHAPES = {
    LHS: parse_shape("bf16[32,12,12,192]{3,0,2,1:T(8,128)(2,1)}"),
    RHS: parse_shape("f32[3,3,192,384]{3,2,1,0:T(8,128)}"),
    OUT: parse_shape("f32[32,12,12,384]{3,0,2,1:T(8,128)}"),
}
LABELS = ConvolutionLabels("b01f", "01io", "b01f")
CONVOLUTION = Instruction(
    "c",
    SHAPES[OUT],
    "convolution",
    ("x", "w"),
    {
        "dim_labels": LABELS,
        "window": Window((WindowDimension(3, pad_low=1, pad_high=1), WindowDimension(3, pad_low=1, pad_high=1))),
    },
)


def nest(kernel, out):
    """Return the nest of a 3x3 convolution under these bounds."""
    config = WindowConfig(kernel_window_bounds=kernel, output_window_bounds=out)
    return StatedTiling(config, SHAPES, CONVOLUTION, LABELS, ("window", "window"), BLOCK).nest()


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 24), st.integers(1, 3)),
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4)),
)
def test_tiles_are_the_product_of_the_cuts(kernel, positions):
    """Output positions, batch, output features, kernel positions and input features, each rounded up."""
    found = nest(kernel, (*positions, kernel[3]))
    cuts = [ceil(size / bound) for size, bound in zip((12, 12, 4, 3), (*positions, kernel[3]), strict=True)]
    cuts += [ceil(size / bound) for size, bound in zip((3, 3, 24), kernel, strict=False)]
    assert found.tiles == prod(cuts)


def naive_fetches(found, array):
    """Walk the nest and count how often the block of an array changes from one tile to the next."""
    last, count = None, 0
    for index in product(*(range(loop.trips) for loop in found.loops)):
        block = tuple(i for i, loop in zip(index, found.loops, strict=True) if array in TOUCHES[loop.role])
        count += block != last
        last = block
    return count


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(8, 24), st.integers(1, 3)),
    st.tuples(st.integers(4, 12), st.integers(4, 12), st.integers(1, 4)),
)
def test_operands_are_fetched_when_their_block_changes(kernel, positions):
    """As counted tile by tile."""
    found = nest(kernel, (*positions, kernel[3]))
    for array in (LHS, RHS):
        assert found.fetches(array) == naive_fetches(found, array)


def test_a_tile_of_the_input_has_a_halo():
    """Six of twelve rows of output under three rows of kernel read eight of twelve rows of input."""
    assert nest((3, 3, 24, 3), (6, 12, 4, 3)).block_share[LHS] == pytest.approx(8 / 12)


def test_a_ragged_tile_computes_as_a_full_one():
    """Two of three kernel positions: the second tile has one, and both compute two."""
    assert nest((2, 3, 24, 3), (12, 12, 4, 3)).extents[TAPS] == 6


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ("f32[100,300]{1,0:T(8,128)}", (13, 3)),
        ("f32[4,100,300]{1,2,0:T(8,128)}", (4, 38, 1)),
        ("f32[8192]{0:T(1024)}", (8,)),
        ("f32[]", ()),
    ],
)
def test_blocks_are_registers_of_the_two_minor_dimensions(shape, sizes):
    """Rows by eight and lanes by 128 in physical order; vectors by whole registers."""
    assert blocks(parse_shape(shape), BLOCK) == sizes


@pytest.mark.parametrize(
    ("bounds", "n_bytes"), [((4, 3), 0), ((2, 3), 2 * 3 * 4096), ((4, 2), 2 * 4096), ((1, 1), 4096)]
)
def test_a_run_ends_where_a_dimension_is_cut(bounds, n_bytes):
    """Whole rows of blocks lie together, parts of them do not; the whole array is one run."""
    assert run_bytes(parse_shape("f32[32,384]{1,0:T(8,128)}"), bounds, BLOCK) == n_bytes


COMPILED = {
    "heads of the weights stand behind the output features": (
        ("fb0_0oi->0fb", "bf16[768,768,1]{1,0,2:T(8,128)}", "bf16[8,1024,768]{1,2,0:T(8,128)}"),
        ("f32[8,1024,768]{1,2,0:T(8,128)}", "8", "pad=7_7 rhs_reversal=1", ("columns",)),
        ((4, 3, 1, 1, 1), (1, 96, 6), (3, 96, 2), (3, 96, 2)),
        (4 * 3, 1, 4 * 3),
    ),
    "heads of a batch behind the rows": (
        ("0b1f_0o1i->01bf", "bf16[8,1024,12,64]{1,3,2,0:T(8,128)}", "bf16[8,1024,12,64]{1,3,2,0:T(8,128)}"),
        ("f32[8,12,1024,1024]{2,3,1,0:T(8,128)}", "8x12", "stride=7x11 lhs_dilate=8x12", ("batch", "batch")),
        ((1, 1, 8, 12, 1, 1, 1), (1, 1, 128, 8), (1, 1, 1, 8), (1, 1, 128, 8)),
        (96, 96, 96),
    ),
}


def compiled_tiling(sides, result, bounds, groups=1, grouped="feature_group_count"):
    """Return the tiling of a convolution as a compiler states it: the bounds of its loops, input, kernel and output."""
    (labels, lhs, rhs), (out, size, window, kinds), (loops, *blocks) = sides, result, bounds
    config = WindowConfig(blocks[1], blocks[2], blocks[0], loops)
    text = f"%c = {out} convolution(%x, %w), window={{size={size} {window}}}, dim_labels={labels}"
    text += f", {grouped}={groups}"
    module = parse_module(
        SourceText("m", f"HloModule m\nENTRY %e {{\n%x = {lhs} parameter(0)\n%w = {rhs} parameter(1)\nROOT {text}\n}}")
    )
    shapes = {array: module.entry[name].shape for array, name in ((LHS, "x"), (RHS, "w"), (OUT, "c"))}
    root = module.entry.root
    return StatedTiling(config, shapes, root, root.attributes["dim_labels"], kinds, BLOCK, groups)


@pytest.mark.parametrize(("sides", "result", "bounds", "distinct"), COMPILED.values(), ids=COMPILED)
def test_loops_of_compiled_attention_cut_what_carries_them(sides, result, bounds, distinct):
    """Bounds as libtpu states them for GPT-2 on v5p and v5e: blocks of the two sides and of the result."""
    found = compiled_tiling(sides, result, bounds).nest()
    assert (found.distinct(RHS), found.distinct(LHS), found.distinct(OUT)) == distinct
    assert found.block_share[LHS] == pytest.approx(1 / distinct[1])


DEPTHWISE = {
    "images": (
        ("b01f_01io->b01f", "bf16[16,28,28,512]{3,0,2,1}", "bf16[3,3,1,512]{3,2,1,0}"),
        ("bf16[16,28,28,512]{3,0,2,1}", "3x3", "pad=1_1x1_1", ("window", "window")),
        ((4, 2, 2, 1, 1, 1, 1), (16, 30, 1, 1), (3, 3, 1, 1), (14, 28, 1, 1)),
        16 / 28 / 2 / 4,
    ),
    "texts": (
        ("b0f_0io->b0f", "bf16[8,2048,1024]{2,0,1}", "bf16[4,1,1024]{2,1,0}"),
        ("bf16[8,2048,1024]{2,0,1}", "4", "pad=1_2", ("window",)),
        ((2, 1, 9, 1, 1), (231, 1, 4), (4, 1, 4), (228, 1, 4)),
        231 / 2048 / 2,
    ),
    "gradients of the weights": (
        ("f01b_i01o->01bf", "bf16[16,28,28,256]{3,0,2,1}", "bf16[16,28,28,256]{3,0,2,1}"),
        ("bf16[3,3,1,256]{3,2,1,0}", "28x28", "pad=1_1x1_1", ("window", "window")),
        ((1, 1, 1, 1, 7, 7, 2), (6, 6, 1, 2), (4, 4, 1, 2), (3, 3, 1, 2)),
        (6 / 28) ** 2 / 2,
    ),
}


@pytest.mark.parametrize(("sides", "result", "bounds", "share"), DEPTHWISE.values(), ids=DEPTHWISE)
def test_each_group_of_features_reads_an_input_of_its_own(sides, result, bounds, share):
    """Bounds as libtpu states them for depthwise convolutions on v5e: no tile reads the input of other features."""
    # Of the weights' gradient the batch is what has groups.
    grouped = "batch_group_count" if result[0].startswith("bf16[3,3") else "feature_group_count"
    tiling = compiled_tiling(sides, result, bounds, parse_shape(sides[2]).dimensions[-1], grouped)
    loops, read, *others = bounds
    for stated in (tiling, structs.replace(tiling, config=WindowConfig(*others))):
        found = stated.nest()
        assert found.fetches(LHS) == found.tiles == prod(loops)
        assert found.block_share[LHS] == pytest.approx(share)
    # What the input's block is follows from the other two.
    assert found.bounds[LHS] == read


def test_of_a_contracted_position_the_input_is_cut_as_the_kernel_is():
    """Twelve heads summed over as a window as large as the input: of each block of three both sides have three."""
    sides = {LHS: "f32[12,64,128]{2,1,0}", RHS: "f32[12,128,256]{2,1,0}", OUT: "f32[1,64,256]{2,1,0}"}
    shapes = {array: parse_shape(text) for array, text in sides.items()}
    attributes = {"dim_labels": ConvolutionLabels("0bf", "0io", "0bf"), "window": Window((WindowDimension(12),))}
    instruction = Instruction("c", shapes[OUT], "convolution", ("x", "w"), attributes)
    config = WindowConfig(kernel_window_bounds=(3, 16, 2), output_window_bounds=(1, 8, 2))
    found = StatedTiling(config, shapes, instruction, attributes["dim_labels"], ("depth",), BLOCK).nest()
    assert found.bounds[LHS] == (3, 8, 1)
    assert (found.trips(TAPS), found.tiles) == (4, 4)


def naive_fetches_of_cores(found, array):
    """Walk each core's share of the split loop and count how often the block of an array changes there."""
    ranges = [range(loop.trips) for loop in found.loops]
    half = ceil(found.loops[found.split].trips / found.cores)
    count = 0
    for core in range(found.cores):
        ranges[found.split] = range(core * half, min((core + 1) * half, found.loops[found.split].trips))
        last = None
        for index in product(*ranges):
            block = tuple(i for i, loop in zip(index, found.loops, strict=True) if array in TOUCHES[loop.role])
            count += block != last
            last = block
    return count


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from(sorted(TOUCHES))), min_size=1, max_size=5),
    st.integers(0, 4),
    st.sampled_from([LHS, RHS]),
)
def test_each_core_fetches_what_its_own_memory_lacks(loops, split, array):
    """As counted core by core: what the split loop does not cut comes to every core."""
    split %= len(loops)
    # The compiler splits loops that fall into halves.
    made = tuple(Loop(2 * trips if at == split else trips, role) for at, (trips, role) in enumerate(loops))
    found = Nest(made, {}, cores=2, split=split)
    assert found.fetches(array) == naive_fetches_of_cores(found, array)


@pytest.mark.parametrize(("trips", "elements"), [(1, 384), (2, 256), (3, 128), (4, 96), (5, 77)])
def test_where_bounds_and_loops_disagree_the_loops_decide(trips, elements):
    """Bounds of 256 of 384 columns make two tiles; any other number of them shares the columns out evenly."""
    config = WindowConfig((3, 3, 24, 2), (12, 12, 4, 2), (12, 12, 4, 2), (trips, 1, 1, 1, 1, 1, 1))
    tiling = StatedTiling(config, SHAPES, CONVOLUTION, LABELS, ("window", "window"), BLOCK)
    found = tiling.nest()
    assert found.trips(COLUMNS) == trips
    assert found.extents[COLUMNS] == elements
    assert (found.extents[TAPS], found.extents[DEPTH]) == (9, 192)


def laid_out(dimensions, order):
    """Return an array of f32 whose dimensions lie in this physical order, major to minor."""
    minor_to_major = ",".join(str(d) for d in reversed(order))
    return parse_shape(f"f32[{','.join(map(str, dimensions))}]{{{minor_to_major}}}")


def touched_elements(size, extent, unit):
    """Return by tile how many elements the blocks have, along one dimension, in which the tile has any."""
    tiles = (range(start, min(start + extent, size)) for start in range(0, size, extent))
    return [len({element // unit for element in tile}) * unit for tile in tiles]


ORDERS = st.permutations(range(3))
THREE = st.tuples(*[st.integers(1, 5)] * 3)
SMALL_BLOCK = (2, 4)


@given(ORDERS, ORDERS, THREE, st.tuples(*[st.integers(1, 2)] * 3))
def test_an_array_of_another_layout_moves_the_blocks_that_tiles_touch(tiled_order, order, bounds, repeats):
    """Counted tile by tile, block by block, over sizes that have all places where a tile can begin in a block."""
    units, own_units = dict.fromkeys(range(3), 1), dict.fromkeys(range(3), 1)
    units |= zip(tiled_order[1:], SMALL_BLOCK, strict=True)
    own_units |= zip(order[1:], SMALL_BLOCK, strict=True)
    extents = {d: bound * units[d] for d, bound in zip(tiled_order, bounds, strict=True)}
    sizes = [lcm(extents[d], own_units[d]) * repeats[d] for d in range(3)]
    touched = (touched_elements(sizes[d], extents[d], own_units[d]) for d in range(3))
    moved = sum(prod(tile) for tile in product(*touched))
    own, factor = cut_alike(laid_out(sizes, tiled_order), bounds, laid_out(sizes, order), SMALL_BLOCK)
    assert factor == pytest.approx(moved / prod(sizes))
    assert own == tuple(ceil(extents[d] / own_units[d]) for d in order)


@pytest.mark.parametrize(
    ("bound", "own", "factor"), [(1, 1, 8), (2, 1, 4), (4, 1, 2), (8, 1, 1), (16, 2, 1), (12, 2, 16 / 12), (64, 8, 1)]
)
def test_rows_of_a_tile_come_in_whole_blocks_of_eight(bound, own, factor):
    """Two of eight rows move all eight, four times over; tiles of whole blocks, and one tile of all, nothing twice."""
    tiled, array = laid_out((64, 32, 128), (0, 1, 2)), laid_out((64, 32, 128), (1, 0, 2))
    assert cut_alike(tiled, (bound, 4, 1), array, BLOCK) == ((32, own, 1), pytest.approx(factor))


def test_an_array_of_the_same_layout_is_cut_the_same():
    """Block by block, at most all of it."""
    tiled = laid_out((64, 32, 256), (0, 1, 2))
    assert cut_alike(tiled, (3, 2, 1), tiled, BLOCK) == ((3, 2, 1), 1.0)
    assert cut_alike(tiled, (3, 9, 9), tiled, BLOCK) == ((3, 4, 2), 1.0)


def test_all_of_a_ragged_dimension_is_moved_once():
    """Twelve rows are a block and a half, and every tile has all of them: nothing begins inside a block."""
    tiled, array = laid_out((12, 32, 128), (1, 0, 2)), laid_out((12, 32, 128), (1, 2, 0))
    assert cut_alike(tiled, (4, 2, 1), array, BLOCK) == ((4, 16, 1), 1.0)


MISFITS = {
    "as many tiles as the loops say": (((3, 3, 24, 3), (12, 12, 4, 3), (12, 12, 4, 2), (1,) * 7), 0.0),
    "twice as many loops over columns": (((3, 3, 24, 3), (12, 12, 4, 3), (12, 12, 4, 2), (2, *(1,) * 6)), 2.0),
    "without loops": (((3, 3, 24, 3), (12, 12, 4, 3), (), ()), 0.0),
    "a bound too few": (((3, 3, 24), (12, 12, 4, 3), (), ()), inf),
    "a bound of nothing": (((3, 3, 24, 0), (12, 12, 4, 3), (), ()), inf),
    "loops and no bounds of the input": (((3, 3, 24, 3), (12, 12, 4, 3), (), (1,) * 7), inf),
}


@pytest.mark.parametrize(("bounds", "misfit"), MISFITS.values(), ids=MISFITS)
def test_the_misfit_is_the_relative_error_of_the_tiles(bounds, misfit):
    """Of each array the tiles of the loops against those of its bounds; bounds of other ranks fit in no way."""
    tiling = StatedTiling(WindowConfig(*bounds), SHAPES, CONVOLUTION, LABELS, ("window", "window"), BLOCK)
    assert tiling.misfit == misfit
