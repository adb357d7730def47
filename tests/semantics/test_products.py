"""Canonical products against enumerating what a convolution multiplies, and against the dots that they stand for."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.windows import BATCHES, DEPTHS, DIMENSIONS, OUTER, ROWS, naive_meetings
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.semantics.products import canonical_product, dimension_kind, product_sides, transform_parts
from tpusim.semantics.windows import output_size
from tpusim.shapes.notation import parse_shape

ANY = st.one_of(DIMENSIONS, DEPTHS, ROWS)


def several(dimension):
    """Return whether a dimension has more than one element."""
    return dimension[1].size > 1


def naive_kind(window, input_size, size):
    """Return the kind of a dimension by which of the three indices the triples that meet tell apart."""
    met = naive_meetings(window, input_size, size)
    outputs, taps, inputs = (len({triple[i] for triple in met}) for i in range(3))
    if len(met) > 1 and outputs == taps == len(met):
        return {len(met): "batch", 1: "columns"}.get(inputs, "window")
    return "rows" if window.size == 1 else "depth" if size == 1 else "window"


@given(ANY)
def test_kinds_are_those_of_the_triples_that_meet(dimension):
    """Carried by all three arrays, by the result and one side, or by both sides alone."""
    input_size, window = dimension
    size = output_size(window, input_size)
    assert dimension_kind(window, input_size, size) == naive_kind(window, input_size, size)


@pytest.mark.parametrize(
    ("kinds", "carried"),
    [
        (BATCHES.filter(several), (True, True, True)),
        (OUTER.filter(several), (False, True, True)),
        (DEPTHS, (True, True, False)),
    ],
)
def test_a_kind_says_which_arrays_carry_it(kinds, carried):
    """Left side, kernel and result: more than one element where the kind says so."""

    @given(kinds)
    def check(dimension):
        input_size, window = dimension
        sizes = (input_size, window.size, output_size(window, input_size))
        assert tuple(size > 1 for size in sizes) == carried

    check()


def convolution(labels, lhs, rhs, out, *windows, **attributes):
    """Return the canonical form of a convolution given in HLO's notation."""
    left, rest = labels.split("_")
    kernel, output = rest.split("->")
    values = {"dim_labels": ConvolutionLabels(left, kernel, output), "window": Window(windows), **attributes}
    made = Instruction("c", parse_shape(out), "convolution", ("x", "w"), values)
    return canonical_product(made, [parse_shape(lhs), parse_shape(rhs)])


def dot(lhs, rhs, out="f32[]", opcode="dot", more=(), **dims):
    """Return the canonical form of a dot given in HLO's notation."""
    made = Instruction("d", parse_shape(out), opcode, ("x", "w"), dims)
    return canonical_product(made, [parse_shape(shape) for shape in (lhs, rhs, *more)])


def sizes(found):
    """Return batch, rows, columns and all of the depth of a product."""
    return found.batch, found.rows, found.columns, found.depth * found.reach, found.flops


def batch(size):
    """Return the window that the compiler writes a batch dimension with."""
    return WindowDimension(size, stride=size - 1, lhs_dilate=size)


def outer(size):
    """Return the window that the compiler writes a dimension of the kernel alone with."""
    return WindowDimension(size, pad_low=size - 1, pad_high=size - 1, reversal=True)


HEADS = ("bf16[2048,2048]", "bf16[2048,32,64]", {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)})
SCORES = (
    *("bf16[8,1024,12,64]", "bf16[8,1024,12,64]"),
    {"lhs_batch_dims": (0, 2), "rhs_batch_dims": (0, 2), "lhs_contracting_dims": (3,), "rhs_contracting_dims": (3,)},
)
OUTPUT = (
    *("bf16[2048,32,64]", "bf16[32,64,2048]"),
    {"lhs_contracting_dims": (1, 2), "rhs_contracting_dims": (0, 1)},
)
AS_CONVOLUTIONS = {
    "heads of the weights": (
        HEADS,
        ("bf0_0oi->b0f", "bf16[2048,2048,1]", "bf16[32,64,2048]", "f32[2048,32,64]", outer(32)),
    ),
    "heads of a batch": (
        SCORES,
        ("0b1f_0o1i->01bf", *SCORES[:2], "f32[8,12,1024,1024]", batch(8), batch(12)),
    ),
    "heads that are summed": (
        OUTPUT,
        ("b0f_0io->bf0", *OUTPUT[:2], "f32[2048,2048,1]", WindowDimension(32)),
    ),
    "rows": (
        ("bf16[8,1024,768]", "bf16[768,2304]", {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (0,)}),
        ("0bf_io0->0bf", "bf16[8,1024,768]", "bf16[768,2304,1]", "f32[8,1024,2304]", WindowDimension(1)),
    ),
}


@pytest.mark.parametrize(("plain", "compiled"), AS_CONVOLUTIONS.values(), ids=AS_CONVOLUTIONS)
def test_a_dot_and_the_convolution_made_of_it_are_one_product(plain, compiled):
    """As the TPU compiler writes the dots of attention: the same batch, rows, columns, depth and flops."""
    lhs, rhs, dims = plain
    assert sizes(dot(lhs, rhs, **dims)) == sizes(convolution(*compiled))


def test_a_dimension_that_the_left_side_lacks_makes_columns():
    """32 heads of 64 are 2,048 columns, whose rows stream once, and no batch whose weights load 32 times."""
    found = convolution(*AS_CONVOLUTIONS["heads of the weights"][1])
    assert (found.batch, found.rows, found.columns, found.kinds) == (1, 2048, 2048, ("columns",))


def test_a_batch_of_2048_is_one():
    """A window of 2048 positions with stride 2047 over a dilated input is a batch of 2048 products."""
    shapes = ("bf16[2048,27,128]", "bf16[2048,27,128]", "bf16[2048,27,27]")
    assert sizes(convolution("0bf_0oi->0bf", *shapes, batch(2048))) == (2048, 27, 27, 128, 2 * 2048 * 27 * 27 * 128)


def test_a_sliding_window_sums_its_taps():
    """3 x 3 over 12 x 12 positions: every row sums nine taps of 192 features."""
    window = WindowDimension(3, pad_low=1, pad_high=1)
    shapes = ("bf16[32,12,12,192]", "f32[3,3,192,384]", "f32[32,12,12,384]")
    found = convolution("b01f_01io->b01f", *shapes, window, window)
    assert (found.rows, found.reach, found.phases) == (32 * 144, 9, 1)


def test_groups_divide_columns_and_depth():
    """With 4 feature groups the kernel has a quarter of the input's features, and each group its own columns."""
    found = convolution(
        "b0f_0io->b0f", "f32[2,9,16]", "f32[1,4,8]", "f32[2,9,8]", WindowDimension(1), feature_group_count=4
    )
    assert (found.groups, found.columns, found.flops) == (4, 2, 2 * 2 * 9 * 4 * 8)


@given(
    st.sampled_from(["f32", "bf16"]),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.lists(ANY, max_size=3),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_flops_are_two_for_each_triple(dtype, features, dimensions, rows, groups):
    """Whatever the kinds: two per output position, kernel position and input element that meet."""
    depth, columns = features
    outs = [output_size(window, size) for size, window in dimensions]
    spatial = "".join(map(str, range(len(dimensions))))
    shapes = (
        [rows, *(size for size, _ in dimensions), depth * groups],
        [*(window.size for _, window in dimensions), depth, columns * groups],
        [rows, *outs, columns * groups],
    )
    lhs, rhs, out = (f"{dtype}[{','.join(map(str, shape))}]" for shape in shapes)
    labels = f"b{spatial}f_{spatial}io->b{spatial}f"
    found = convolution(labels, lhs, rhs, out, *(window for _, window in dimensions), feature_group_count=groups)
    triples = prod(len(naive_meetings(w, size, o)) for (size, w), o in zip(dimensions, outs, strict=True))
    assert found.flops == 2 * rows * depth * columns * groups * triples


def test_ragged_rows_meet_one_matrix_each():
    """64 rows of 32 against 4 matrices [32,16]: each row is multiplied with one of them."""
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,), "rhs_group_dims": (0,), "lhs_ragged_dims": (0,)}
    found = dot("f32[64,32]", "f32[4,32,16]", opcode="ragged-dot", more=["s32[4]"], **dims)
    assert (found.phases, found.rows, found.columns, found.flops) == (4, 64, 16, 2 * 64 * 32 * 16)


def test_a_ragged_contraction_is_a_batch_of_groups():
    """Four groups of 8 of the contracted 32 give four results."""
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,), "lhs_ragged_dims": (1,)}
    found = dot("f32[64,32]", "f32[32,16]", opcode="ragged-dot", more=["s32[4]"], **dims)
    assert (found.batch, found.depth, found.flops) == (4, 8, 2 * 64 * 32 * 16)


@pytest.mark.parametrize("ragged", [0, 1])
def test_no_groups_are_an_empty_product(ragged):
    """Whether they would have rows each or parts of the contracted dimension: nothing is divided by their number."""
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (ragged ^ 1,), "lhs_ragged_dims": (ragged,)}
    dims |= {} if ragged else {"rhs_group_dims": (0,)}
    found = dot("f32[64,32]", "f32[32,16]" if ragged else "f32[0,32,16]", opcode="ragged-dot", more=["s32[0]"], **dims)
    assert found.flops == 0
    assert found.phases == 1


def test_an_empty_dot_is_an_empty_product():
    """No rows and no depth: nothing is divided by zero."""
    assert dot("f32[0,0]", "f32[0,8]", lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)).flops == 0


def test_mixed_operands_run_at_the_rate_of_the_wider():
    """bf16 by s8 is a bf16 product."""
    assert dot("bf16[8,8]", "s8[8,8]").operand_type == "bf16"


def test_scales_stand_behind_both_sides():
    """As XLA's own texts have them: scaled-dot(lhs, rhs, lhs_scale, rhs_scale)."""
    made = Instruction("d", parse_shape("f32[4,8]"), "scaled-dot", ("x", "w", "s", "t"), {})
    assert product_sides(made) == ("x", "w")


@pytest.mark.parametrize(
    ("left", "right", "wider"), [("f32", "bf16", "f32"), ("bf16", "f32", "f32"), ("s8", "bf16", "bf16")]
)
def test_a_product_of_two_types_is_one_of_the_wider(left, right, wider):
    """Convolutions and dots alike."""
    lhs, rhs, out = (parse_shape(text) for text in (f"{left}[8,16]", f"{right}[16,4]", "f32[8,4]"))
    dot = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    labels = {"dim_labels": ConvolutionLabels("bf", "io", "bf")}
    made = [Instruction("c", out, opcode, ("x", "y"), a) for opcode, a in (("dot", dot), ("convolution", labels))]
    assert [canonical_product(each, (lhs, rhs)).operand_type for each in made] == [wider] * 2


@pytest.mark.parametrize(
    ("length", "parts"),
    [
        (256, (256,)),
        (480, (32, 15)),
        (1000, (1000,)),
        (4099, (4099,)),
        (8192, (128, 64)),
        (8200, (8200,)),
        (12000, (32, 375)),
        (40960, (128, 64, 5)),
        (65536, (256, 256)),
        (98304, (128, 128, 6)),
        (131072, (128, 128, 8)),
        (131168, (32, 4099)),
        (1 << 20, (128, 128, 64)),
    ],
)
def test_a_transform_is_made_of_those_that_the_compiler_makes_of_it(length, parts):
    """By programs of these lengths that the TPU compiler made for v5e."""
    assert transform_parts(length) == parts
