"""The work that the arrays make of canonical products."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.cost.mxu import array_cycles, matmul_cycles, packed_depth_tiles
from tpusim.cost.operations.table import cost_of_type
from tpusim.hardware.load import load_chip
from tpusim.lowering.kernels.products import product_work
from tpusim.lowering.kernels.tiles import Loop, Nest
from tpusim.semantics.products import BATCH, COLUMNS, DEPTH, ROWS, Product

WHOLE = Nest((), {})
SIZES = st.integers(1, 700)
# A sum of a single term may not be the arrays' work at all.
DEPTHS = st.integers(2, 700)
PACKED = "EmitInputFeaturePackedInputBatchInLanes"


def product_of(rows, depth, columns, **rest):
    """Return a plain product of bf16."""
    flops = 2.0 * rows * depth * columns
    return Product(batch=1, rows=rows, columns=columns, depth=depth, flops=flops, operand_type="bf16", passes=1, **rest)


@pytest.mark.parametrize(("depth", "taps", "tiles"), [(128, 1, 1), (129, 1, 2), (256, 9, 18), (64, 9, 5), (3, 49, 4)])
def test_shallow_taps_share_the_array(depth, taps, tiles):
    """Nine taps of 64 features fill 4.5 tiles of 128 rows; features are padded to 8."""
    assert packed_depth_tiles(depth, taps, load_chip("v5e")) == tiles


@pytest.mark.parametrize(("chip_name", "size"), list(product(["v3", "v5e", "v6e", "v7x"], [2048, 8192])))
def test_a_large_product_runs_near_peak(chip_name, size):
    """A product that fills the arrays takes peak time, their sustained share and switches of tiles: within 1 %."""
    chip = load_chip(chip_name)
    (matmul,) = product_work(product_of(size, size, size), size * size, WHOLE, chip).matmuls
    seconds = matmul_cycles(matmul, chip.mxu) / chip.clock_hz
    share = seconds * chip.peak_flops_per_second / chip.cores_per_device / (2 * size**3)
    assert share == pytest.approx(
        1 / chip.mxu.efficiency + chip.mxu.tile_switch_cycles * chip.mxu.lhs_rows_per_cycle / size, rel=0.01
    )


@given(SIZES, DEPTHS, SIZES, st.sampled_from([8, 16, 32]))
def test_more_sublanes_never_stream_fewer_rows(rows, depth, columns, sublanes):
    """Rows come by the register: registers of more sublanes leave more of them empty."""
    chip = load_chip("v5e")
    wider = msgspec.structs.replace(chip, vpu=msgspec.structs.replace(chip.vpu, sublanes=2 * sublanes))
    narrow = msgspec.structs.replace(chip, vpu=msgspec.structs.replace(chip.vpu, sublanes=sublanes))
    (few,), (many,) = (
        product_work(product_of(rows, depth, columns), rows * columns, WHOLE, each).matmuls for each in (narrow, wider)
    )
    assert matmul_cycles(many, chip.mxu) >= matmul_cycles(few, chip.mxu)


def test_rows_come_in_registers_of_the_chips_sublanes():
    """Four rows past four tiles stream 32 rows by registers of 8 sublanes, and 64 by registers of 16."""
    streamed = []
    for sublanes in (8, 16):
        chip = load_chip("v5e", {"vpu.sublanes": sublanes})
        (matmul,) = product_work(product_of(4, 128, 512), 4 * 512, WHOLE, chip).matmuls
        streamed.append(min(matmul.streamed_rows, matmul.weight_rows))
    assert streamed == [32, 64]


@given(SIZES, DEPTHS, SIZES, st.integers(1, 40))
def test_a_batch_is_as_many_products(rows, depth, columns, batch):
    """Each has weights of its own; what they take is the sum."""
    chip, one = load_chip("v5p"), product_of(rows, depth, columns)
    many = msgspec.structs.replace(one, batch=batch)
    (single,), (all_,) = (product_work(size, rows * columns, WHOLE, chip).matmuls for size in (one, many))
    assert array_cycles(all_, chip.mxu) == pytest.approx(batch * array_cycles(single, chip.mxu))


def test_a_shallow_depthwise_product_is_left_to_the_vector_unit():
    """512 groups of one column and nine taps would leave the arrays empty."""
    size = product_of(4096, 1, 1, groups=512, reach=9.0)
    assert product_work(size, 4096 * 512, WHOLE, load_chip("v5e")).matmuls == ()


@pytest.mark.parametrize("padding", [1.0, 2.0])
def test_an_outer_product_is_left_to_the_vector_unit(padding):
    """Nothing is added: one multiplication for each register of the result, those that padding adds included."""
    work = product_work(product_of(512, 1, 1024), 512 * 1024, WHOLE, load_chip("v5e"), padding=padding)
    assert (work.matmuls, work.ops) == ((), {"vector": 512 * padding})


def test_an_outer_product_of_doubles_takes_what_their_multiplications_do():
    """The vector unit has no doubles either."""
    chip, size = load_chip("v5e"), msgspec.structs.replace(product_of(1024, 1, 1024), operand_type="f64", passes=600)
    work = product_work(size, 1024 * 1024, WHOLE, chip)
    assert (work.matmuls, work.ops) == ((), {"vector": 1024 * cost_of_type(chip, "multiply", "f64")["vector"]})


def test_an_outer_product_of_nothing_asks_for_nothing():
    """An array without elements, as a filter that kept none leaves it."""
    work = product_work(product_of(0, 1, 0), 0, WHOLE, load_chip("v5e"))
    assert sum(work.ops.values()) == sum(matmul.streamed_rows for matmul in work.matmuls) == 0


def test_few_features_with_the_batch_in_lanes_are_left_to_the_vector_unit():
    """Four features for each of 1,536 registers of the result: each is spread to all sublanes, multiplied, added.

    The arrays would take six passes, as in the Fourier transforms that this is of.
    """
    chip, size = load_chip("v6e"), msgspec.structs.replace(product_of(4 * 768 * 128, 4, 4), passes=6)
    work = product_work(size, 4 * 768 * 128 * 4, WHOLE, chip, emitter=PACKED)
    costs = chip.vector_ops.ops["multiply"], chip.vector_ops.ops["add"], chip.vector_ops.moves["sublane_broadcast"]
    assert (work.matmuls, work.ops) == ((), {"vector": 4 * 1536 * sum(cost["vector"] for cost in costs)})


FIRST = msgspec.structs.replace(product_of(256 * 112**2, 3, 64, reach=49.0), flops=2.0 * 256 * 112**2 * 147 * 64)


@pytest.mark.parametrize(
    ("size", "emitter"),
    [
        (product_of(4 * 768 * 128, 4, 4), ""),
        (product_of(4 * 768 * 128, 4, 4), "EmitAllBatchInSublanes"),
        # The first convolution of a ResNet goes by the same name.
        (FIRST, PACKED),
    ],
)
def test_other_shallow_products_are_the_arrays_own(size, emitter):
    """Where the compiler says nothing else, or where they fill the arrays better."""
    assert product_work(size, size.rows * size.columns, WHOLE, load_chip("v6e"), emitter=emitter).matmuls != ()


@pytest.mark.parametrize(("chip_name", "parts"), [("v5e", 1), ("v5e", 4), ("v6e", 1), ("v6e", 4)])
def test_sums_wait_in_vmem_between_the_tiles_of_their_depth(chip_name, parts):
    """The 256 registers of the result are added to what waits behind each of four parts of a sum but the first.

    What an addition there costs is a figure of the chip, loads and stores included.
    """
    chip, size = load_chip(chip_name), product_of(512, 4096, 512)
    nest = Nest((Loop(parts, DEPTH),), dict.fromkeys(("lhs", "rhs", "out"), 1.0))
    whole, cut = (product_work(size, 512 * 512, each, chip) for each in (WHOLE, nest))
    assert (whole.matmuls[0].parked, cut.matmuls[0].parked) == (0, 256 * (parts - 1))
    assert cut.ops == whole.ops


@pytest.mark.parametrize(("operand_type", "rows_per_load"), [("f32", 8), ("bf16", 16), ("s8", 32)])
def test_rows_of_an_operand_wait_as_packed_words(operand_type, rows_per_load):
    """A load brings the 8 rows of a register of f32, twice as many of 16 bits, four times of 8."""
    size = msgspec.structs.replace(product_of(512, 128, 128), operand_type=operand_type)
    work = product_work(size, 512 * 128, WHOLE, load_chip("v5e"))
    assert work.ops["load"] == work.matmuls[0].streamed_rows / rows_per_load


def test_loops_over_rows_and_columns_park_nothing():
    """Each of their tiles has results of its own."""
    nest = Nest((Loop(4, COLUMNS), Loop(4, ROWS)), dict.fromkeys(("lhs", "rhs", "out"), 1.0))
    (matmul,) = product_work(product_of(512, 4096, 512), 512 * 512, nest, load_chip("v5e")).matmuls
    assert matmul.parked == 0


@pytest.mark.parametrize(("chip_name", "popped", "added"), [("v5e", 32, 31), ("v6e", 16, 15), ("v7x", 1, 0)])
def test_results_are_popped_for_each_depth_of_the_array_unless_it_adds_them(chip_name, popped, added):
    """4,096 deep on arrays 128 or 256 deep: 32 or 16 results a register; the vector unit adds all but the first."""
    chip = load_chip(chip_name)
    work = product_work(product_of(512, 4096, 512), 512 * 512, WHOLE, chip)
    assert work.matmuls[0].results == popped * 256
    assert work.ops.get("vector", 0.0) == added * 256


def test_rows_are_loaded_as_packed_words():
    """512 x 4,096 of bf16, two to a word: 1,024 registers for each of four tiles of 128 columns."""
    assert product_work(product_of(512, 4096, 512), 512 * 512, WHOLE, load_chip("v5e")).ops["load"] == 1024 * 4


@pytest.mark.parametrize("role", [BATCH, ROWS, COLUMNS, DEPTH])
def test_whole_tiles_multiply_as_much_as_the_uncut_product(role):
    """Eight products of 1,024 cubed in four parts that fill the array: the same rows past the same tiles."""
    chip, size = load_chip("v5e"), msgspec.structs.replace(product_of(1024, 1024, 1024), batch=8)
    nest = Nest((Loop(4, role),), dict.fromkeys(("lhs", "rhs", "out"), 1.0))
    (whole,), (cut,) = (product_work(size, 8 * 1024**2, each, chip).matmuls for each in (WHOLE, nest))
    assert cut.streamed_rows == whole.streamed_rows
