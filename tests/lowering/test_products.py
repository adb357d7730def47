"""Sizes of dots and convolutions, against counting every pair, and the work that the arrays make of them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from tpusim.cost.mxu import matmul_cycles
from tpusim.hardware.load import load_chip
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.lowering.kernels.products import (
    convolution_product,
    dot_product,
    meeting_pairs,
    packed_depth_tiles,
    product_work,
)
from tpusim.lowering.kernels.stated_tiles import Nest
from tpusim.shapes.notation import parse_shape


def naive_pairs(window: WindowDimension, input_size: int, output_size: int) -> int:
    """Count the pairs one by one, from the definition of a padded and dilated window."""
    dilated = {i * window.lhs_dilate for i in range(input_size)}
    at = (
        o * window.stride - window.pad_low + k * window.rhs_dilate
        for o in range(output_size)
        for k in range(window.size)
    )
    return sum(position in dilated for position in at)


@given(
    st.builds(
        WindowDimension,
        size=st.integers(1, 6),
        stride=st.integers(1, 5),
        pad_low=st.integers(-3, 6),
        lhs_dilate=st.integers(1, 6),
        rhs_dilate=st.integers(1, 4),
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_pairs_agree_with_counting(window, input_size, output_size):
    """The closed form counts what the definition counts."""
    assert meeting_pairs(window, input_size, output_size) == naive_pairs(window, input_size, output_size)


def convolution(labels: str, lhs: str, rhs: str, out: str, *dims: WindowDimension, **attributes):
    """Return the size of a convolution given in HLO's notation."""
    left, rest = labels.split("_")
    kernel, output = rest.split("->")
    values = {"dim_labels": ConvolutionLabels(left, kernel, output), "window": Window(dims), **attributes}
    made = Instruction("c", parse_shape(out), "convolution", ("x", "w"), values)
    return convolution_product(made, parse_shape(lhs), parse_shape(rhs))


def test_a_dot_as_convolution_has_the_flops_of_the_dot():
    """1024 x 4096 times 4096 x 16384 is 2 m n k."""
    size = convolution("bf_io->bf", "bf16[1024,4096]", "bf16[4096,16384]", "bf16[1024,16384]")
    assert size.flops == 2 * 1024 * 4096 * 16384


def test_a_batch_dimension_as_window_counts_once():
    """A window of 2048 positions with stride 2047 over a dilated input is a batch of 2048 products."""
    batch = WindowDimension(size=2048, stride=2047, lhs_dilate=2048)
    size = convolution("0bf_0oi->0bf", "bf16[2048,27,128]", "bf16[2048,27,128]", "bf16[2048,27,27]", batch)
    assert size.flops == 2 * 2048 * 27 * 27 * 128
    assert size.reach == 1


def test_a_kernel_dimension_that_meets_one_input_position_counts_once():
    """A window of 8 that is padded by 7 on both sides and reversed gives each output one kernel position."""
    window = WindowDimension(size=8, pad_low=7, pad_high=7, reversal=True)
    size = convolution("bf0_0oi->b0f", "bf16[16,2048,1]", "bf16[8,64,2048]", "bf16[16,8,64]", window)
    assert size.flops == 2 * 16 * 8 * 64 * 2048
    assert size.reach == 1


def test_grouped_convolution_divides_the_work():
    """With 4 feature groups the kernel has a quarter of the input's features."""
    size = convolution(
        "b0f_0io->b0f", "f32[2,9,16]", "f32[1,4,8]", "f32[2,9,8]", WindowDimension(1), feature_group_count=4
    )
    assert size.flops == 2 * 2 * 9 * 4 * 8


def test_dot_with_batch_dimensions():
    """A dot of [8,64,32] with [8,32,16] over the last and middle dimension."""
    dims = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,), "lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,)}
    made = Instruction("d", parse_shape("f32[8,64,16]"), "dot", ("x", "w"), dims)
    size = dot_product(made, parse_shape("f32[8,64,32]"), parse_shape("f32[8,32,16]"))
    assert size.flops == 2 * 8 * 64 * 32 * 16


@pytest.mark.parametrize(
    ("precision", "passes"), [((), 1), (("default", "default"), 1), (("high", "high"), 3), (("highest", "highest"), 6)]
)
def test_precision_costs_passes(precision, passes):
    """f32 products are emulated by three or six passes of bf16."""
    made = Instruction("d", parse_shape("f32[8,8]"), "dot", ("x", "w"), {"operand_precision": precision})
    assert dot_product(made, parse_shape("f32[8,8]"), parse_shape("f32[8,8]")).passes == passes
    assert dot_product(made, parse_shape("bf16[8,8]"), parse_shape("bf16[8,8]")).passes == 1


def test_ragged_dot_meets_one_matrix_per_row():
    """64 rows of 32 against 4 matrices [32,16]: each row is multiplied with one of them."""
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,), "rhs_group_dims": (0,)}
    made = Instruction("d", parse_shape("f32[64,16]"), "ragged-dot", ("x", "w", "g"), dims)
    assert dot_product(made, parse_shape("f32[64,32]"), parse_shape("f32[4,32,16]")).flops == 2 * 64 * 32 * 16


def test_mixed_operands_run_at_the_rate_of_the_wider():
    """bf16 by s8 is a bf16 product."""
    made = Instruction("d", parse_shape("f32[8,8]"), "dot", ("x", "w"), {})
    assert dot_product(made, parse_shape("bf16[8,8]"), parse_shape("s8[8,8]")).operand_type == "bf16"


@pytest.mark.parametrize(("depth", "taps", "tiles"), [(128, 1, 1), (129, 1, 2), (256, 9, 18), (64, 9, 5), (3, 49, 4)])
def test_shallow_taps_share_the_array(depth, taps, tiles):
    """Nine taps of 64 features fill 4.5 tiles of 128 rows; features are padded to 8."""
    assert packed_depth_tiles(depth, taps, 128) == tiles


@pytest.mark.parametrize(("chip_name", "size"), list(product(["v3", "v5e", "v6e", "v7x"], [2048, 8192])))
def test_a_large_product_runs_near_peak(chip_name, size):
    """A product that fills the arrays takes peak time, their sustained share and switches of tiles: within 1 %."""
    chip = load_chip(chip_name)
    made = Instruction("d", parse_shape(f"bf16[{size},{size}]"), "dot", ("x", "w"), {"lhs_contracting_dims": (1,)})
    shape = parse_shape(f"bf16[{size},{size}]")
    (matmul,) = product_work(dot_product(made, shape, shape), size * size, Nest((), {}), chip).matmuls
    seconds = matmul_cycles(matmul, chip.mxu) / chip.clock_hz
    share = seconds * chip.peak_flops_per_second / chip.cores_per_device / (2 * size**3)
    assert share == pytest.approx(
        1 / chip.mxu.efficiency + chip.mxu.tile_switch_cycles * chip.mxu.lhs_rows_per_cycle / size, rel=0.01
    )


@pytest.mark.parametrize(
    ("dtype", "word", "passes"),
    [
        ("f32", "default", 1),
        ("f32", "high", 3),
        ("f32", "highest", 6),
        ("f16", "default", 1),
        ("f16", "highest", 3),
        ("bf16", "highest", 1),
    ],
)
def test_passes_are_those_of_the_pieces(dtype, word, passes):
    """f32 is cut into up to three pieces of bf16, f16 into two, bf16 into none."""
    shape = parse_shape(f"{dtype}[256,256]")
    values = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,), "operand_precision": (word, word)}
    assert dot_product(Instruction("d", shape, "dot", ("x", "w"), values), shape, shape).passes == passes
