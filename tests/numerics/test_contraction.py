"""Dots against XLA, against a systolic array cycle by cycle, and against their definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics import systolic
from tests.numerics.one_instruction import check_exactly, program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.values.precision import Arithmetic, bf16_parts, matmul
from tpusim.shapes.dtype import DTYPES, numpy_dtype

F32 = np.dtype(np.float32)
EPSILON = 2.0**-24
TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s32": np.int32,
    "s16": np.int16,
    "u8": np.uint8,
    "s8": np.int8,
    "c64": np.complex64,
    "pred": np.bool_,
}

INTEGERS = [("s8", "s8"), ("u8", "u8"), ("s16", "s16"), ("s32", "s32"), ("s8", "s32")]
"""Types of operands and result."""

PRECISION_BOUNDS = {"default": 2.0**-7, "high": 2.0**-15, "highest": 2.0**-22}
"""Error of one product of f32 operands, relative to the product, by the precision asked for."""


def integers(rng, name, sizes):
    """Return small whole numbers, whose sums every type but the narrowest holds exactly."""
    low = 0 if name in ("u8", "pred") else -3
    values = rng.integers(low, 2 if name == "pred" else 4, sizes)
    return (
        (values + 1j * rng.integers(-3, 4, sizes)).astype(np.complex64) if name == "c64" else values.astype(TYPES[name])
    )


def matrix_product(name="f32", m=5, k=7, n=6, attributes="", result=None):
    """Return the text of ``[m,k] . [k,n]``."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}" + attributes
    shapes = (shape_text(name, (m, k)), shape_text(name, (k, n)))
    return program(shape_text(result or name, (m, n)), f"dot(p0, p1), {dims}", shapes)


@st.composite
def dots(draw):
    """Return a dot with any order of batch, contracted and free dimensions: its text and the sizes of its operands."""
    sizes = {d: draw(st.integers(1, 4)) for d in "abcdefgh"}
    batch, contracted = draw(st.sampled_from(["", "a", "ab"])), draw(st.sampled_from(["", "c", "cd"]))
    lhs_free, rhs_free = draw(st.sampled_from(["", "e", "ef"])), draw(st.sampled_from(["", "g", "gh"]))
    lhs, rhs = ("".join(draw(st.permutations(batch + contracted + free))) for free in (lhs_free, rhs_free))
    dims = [
        f"{side}_{what}_dims={{{','.join(str(names.index(d)) for d in chosen)}}}"
        for side, names in (("lhs", lhs), ("rhs", rhs))
        for what, chosen in (("batch", batch), ("contracting", contracted))
    ]
    free = "".join(d for d in lhs if d in lhs_free) + "".join(d for d in rhs if d in rhs_free)
    left, right, result = ([sizes[d] for d in names] for names in (lhs, rhs, batch + free))
    name = draw(st.sampled_from(sorted(TYPES)))
    shapes = [shape_text(name, sizes) for sizes in (left, right)]
    text = program(shape_text(name, result), "dot(p0, p1), " + ", ".join(dims), shapes)
    return name, text, left, right


@given(dots(), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_any_dot_of_whole_numbers_is_xlas(dot, seed):
    """Whatever the dimension numbers and the type: sums of small whole numbers are exact."""
    name, text, left, right = dot
    rng = np.random.default_rng(seed)
    inputs = [integers(rng, name, left), integers(rng, name, right)]
    check_exactly(text, inputs)
    if name != "pred":
        np.testing.assert_array_equal(run_ours(text, inputs, "tpu")[0], run_ours(text, inputs)[0])


SMALL_SUMS = [
    ("3", "3", "3", "lhs_batch_dims={0}, rhs_batch_dims={0}"),
    ("3", "4", "3,4", ""),
    ("3,1", "1,4", "3,4", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("1,1", "1,1", "", "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}"),
    ("3,2", "2", "3", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("3,0", "0", "3", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
]
"""Sizes of operands and result, and which dimensions are paired off: sums of one term, of two and of none."""


@pytest.mark.parametrize(("left", "right", "result", "dims"), SMALL_SUMS)
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "f8e5m2", "c64"])
def test_the_sum_of_one_product_is_that_product(left, right, result, dims, name):
    """A zero below zero stays one, as in XLA; longer sums begin with +0."""
    dtype = numpy_dtype(DTYPES[name])
    text = program(f"{name}[{result}]", f"dot(p0, p1), {dims}".rstrip(", "), [f"{name}[{left}]", f"{name}[{right}]"])
    sizes = [[int(size) for size in side.split(",")] for side in (left, right)]
    inputs = [np.zeros(sizes[0], dtype), np.full(sizes[1], -3).astype(dtype)]
    (expected,) = run_xla(text, inputs)
    for precision in ("exact", "tpu"):
        (found,) = run_ours(text, inputs, precision)
        for part in (np.real, np.imag):
            signs = [np.signbit(part(each).astype(np.float32)) for each in (found, expected)]
            np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("asked", PRECISION_BOUNDS)
def test_corrections_of_nothing_leave_the_sign_of_a_zero(asked):
    """The lesser parts of 0 and -3 are zeros of either sign, which must not make +0 of -0."""
    text = matrix_product("f32", 1, 1, 1, f", operand_precision={{{asked},{asked}}}")
    assert np.signbit(run_ours(text, [np.float32([[0]]), np.float32([[-3]])], "tpu")[0])


def test_complex_products_stay_infinite_in_tpu_mode():
    """(1 + i)(1 + inf i) is infinite in both parts, as its real products say."""
    factor = np.zeros((1, 1), np.complex64)
    factor.real, factor.imag = 1, np.inf
    inputs = [np.full((1, 1), 1 + 1j, np.complex64), factor]
    text = matrix_product("c64", 1, 1, 1)
    for found in (*run_xla(text, inputs), *run_ours(text, inputs), *run_ours(text, inputs, "tpu")):
        assert (found.real, found.imag) == (-np.inf, np.inf)


@pytest.mark.parametrize(("name", "result"), INTEGERS)
def test_integer_sums_wrap_around(name, result):
    """A sum too large for its type keeps its low bits."""
    rng, limits = np.random.default_rng(0), np.iinfo(TYPES[name])
    inputs = [
        rng.integers(limits.min, limits.max, sizes, endpoint=True).astype(TYPES[name]) for sizes in ((3, 700), (700, 4))
    ]
    expected = (inputs[0].astype(np.int64) @ inputs[1].astype(np.int64)).astype(TYPES[result])
    np.testing.assert_array_equal(run_ours(matrix_product(name, 3, 700, 4, result=result), inputs)[0], expected)


@pytest.mark.parametrize("name", ["s8", "u8", "s16", "u32", "s64", "pred"])
@pytest.mark.parametrize(
    "opcode",
    ["dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "convolution(p0, p1), dim_labels=bf_io->bf"],
)
def test_float_sums_become_integers_as_converts_do(name, opcode):
    """They end at the largest and the smallest, where sums of integers wrap around."""
    numbers = np.random.default_rng(0)
    inputs = [(numbers.integers(-9, 10, sizes) * 40).astype(np.float32) for sizes in ((4, 6), (6, 5))]
    check_exactly(program(f"{name}[4,5]", opcode, ["f32[4,6]", "f32[6,5]"]), inputs)


@pytest.mark.parametrize("precision", ["exact", "tpu"])
def test_bf16_adds_up_in_f32(precision):
    """512 ones are 512, which bf16 sums of ones never reach."""
    ones = [np.ones(sizes, ml_dtypes.bfloat16) for sizes in ((1, 512), (512, 1))]
    assert run_ours(matrix_product("bf16", 1, 512, 1), ones, precision)[0] == 512


def test_exact_f32_products_are_xlas():
    """Both round in f32 only; the order of addition is free."""
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(sizes, np.float32) for sizes in ((50, 300), (300, 60))]
    text = matrix_product("f32", 50, 300, 60)
    bound = 300 * EPSILON * (np.abs(inputs[0]) @ np.abs(inputs[1]))
    assert (np.abs(run_ours(text, inputs)[0] - run_xla(text, inputs)[0]) <= 2 * bound).all()


@pytest.mark.parametrize("asked", PRECISION_BOUNDS)
def test_more_passes_keep_more_of_the_operands(asked):
    """One, three and six passes keep about 8, 16 and 24 bits, no more and no less."""
    rng = np.random.default_rng(2)
    inputs = [1 + rng.random(sizes, np.float32) for sizes in ((40, 1), (1, 40))]
    text = matrix_product("f32", 40, 1, 40, f", operand_precision={{{asked},{asked}}}")
    exact = inputs[0].astype(np.float64) @ inputs[1]
    error = np.max(np.abs(run_ours(text, inputs, "tpu")[0] - exact) / exact)
    assert PRECISION_BOUNDS[asked] / 64 < error <= PRECISION_BOUNDS[asked]


@pytest.mark.parametrize(("asked", "passes"), [("default", 1), ("high", 3), ("highest", 3)])
def test_f16_takes_one_pass_or_three(asked, passes):
    """What the TPU compiler's ``estimated_cycles`` say: as f32 by default, and never more than three."""
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(sizes).astype(np.float16) for sizes in ((5, 1), (1, 6))]
    text = matrix_product("f16", 5, 1, 6, f", operand_precision={{{asked},{asked}}}", result="f32")
    (high, low), (other_high, other_low) = (bf16_parts(x, 2) for x in inputs)
    expected = high @ other_high + (high @ other_low + low @ other_high if passes > 1 else 0)
    np.testing.assert_array_equal(run_ours(text, inputs, "tpu")[0], expected)


@pytest.mark.parametrize(("algorithm", "asked"), [("dot_bf16_bf16_f32_x3", "high"), ("dot_f32_f32_f32", "highest")])
def test_an_algorithm_stands_for_passes(algorithm, asked):
    """Naming the algorithm and asking for its precision is the same."""
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(sizes, np.float32) for sizes in ((5, 7), (7, 6))]
    named = run_ours(matrix_product(attributes=f", algorithm={algorithm}"), inputs, "tpu")[0]
    asked_for = run_ours(matrix_product(attributes=f", operand_precision={{{asked},{asked}}}"), inputs, "tpu")[0]
    np.testing.assert_array_equal(named, asked_for)


@pytest.mark.parametrize("asked", PRECISION_BOUNDS)
def test_passes_keep_infinities(asked):
    """An infinite operand gives an infinite product, though its lesser bf16 parts are zeros."""
    inputs = [np.float32([[np.inf]]), np.float32([[2]])]
    text = matrix_product("f32", 1, 1, 1, f", operand_precision={{{asked},{asked}}}")
    assert run_ours(text, inputs, "tpu")[0] == np.inf


def test_complex_products_round_their_parts_in_tpu_mode():
    """The matrix unit multiplies real and imaginary parts, each rounded to bf16."""
    rng = np.random.default_rng(4)
    parts = rng.standard_normal((4, 6, 6), np.float32)
    a, b, c, d = (p.astype(ml_dtypes.bfloat16).astype(np.float64) for p in parts)
    inputs = [(parts[i] + 1j * parts[i + 1]).astype(np.complex64) for i in (0, 2)]
    found = run_ours(matrix_product("c64", 6, 6, 6), inputs, "tpu")[0]
    np.testing.assert_allclose(found, (a @ c - b @ d) + 1j * (a @ d + b @ c), rtol=0, atol=1e-5)


def test_the_array_takes_rows_plus_depth_plus_columns():
    """One row enters per cycle; the last sum leaves after it crossed the array's depth and its columns."""
    rows, weights = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(12, dtype=np.float32).reshape(3, 4)
    result, n_cycles = systolic.stream(rows, weights)
    np.testing.assert_array_equal(result, rows @ weights)
    assert n_cycles == 5 + 3 + 4 - 2


@given(st.integers(1, 5), st.integers(1, 20), st.integers(1, 5), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_block_products_agree_with_the_systolic_array(m, k, n, depth, seed):
    """Same operands, same blocks; only the order of addition within a block differs."""
    rng = np.random.default_rng(seed)
    lhs, rhs = (rng.standard_normal(s).astype(ml_dtypes.bfloat16).astype(np.float32) for s in ((m, k), (k, n)))
    found = matmul(Arithmetic(F32, F32, F32, depth, ((0, 0),)), lhs, rhs)
    bound = k * EPSILON * (np.abs(lhs) @ np.abs(rhs))
    assert (np.abs(found - systolic.product(lhs, rhs, depth)) <= 2 * bound).all()


def test_a_block_adds_up_before_it_meets_the_total():
    """128 small products make 2, which counts beside 2**24; one by one, in a deeper array, each would vanish."""
    lhs, rhs = np.ones((1, 256), np.float32), np.zeros((256, 1), np.float32)
    rhs[0], rhs[128:] = 2**24, 2.0**-6
    found = run_ours(matrix_product("f32", 1, 256, 1), [lhs, rhs], "tpu")[0]
    assert found == systolic.product(lhs, rhs, 128) == 2**24 + 2
    assert systolic.product(lhs, rhs, 256) == 2**24


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("depth", [0, 128])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        *((1, 300, 64), (64, 300, 1), (1, 3000, 640), (640, 3000, 1), (1, 3000, 1)),
        *((40, 40, 40), (2, 300, 7), (100, 300, 100), (100, 188, 100), (1000, 128, 3)),
    ],
)
def test_sums_do_not_depend_on_how_operands_lie_in_memory(m, k, n, depth, batch):
    """A transpose that the compiler moves into a layout changes no bit, on processors with kernels for small ones."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.standard_normal(batch + sizes).astype(F32) for sizes in ((m, k), (k, n)))
    arithmetic = Arithmetic(F32, F32, F32, depth, ((0, 0),) if depth else ())
    found = {
        matmul(arithmetic, left, right).tobytes() for left in (lhs, in_columns(lhs)) for right in (rhs, in_columns(rhs))
    }
    assert len(found) == 1


@pytest.mark.parametrize("sizes", [(30, 20), (500, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_times_itself_is_that_times_its_copy(sizes, dtype):
    """NumPy has BLAS compute one half of an array times its own transpose."""
    array = np.random.default_rng(0).standard_normal(sizes).astype(dtype)
    arithmetic = Arithmetic(array.dtype, array.dtype, array.dtype)
    np.testing.assert_array_equal(matmul(arithmetic, array, array.T), matmul(arithmetic, array, array.copy().T))


def in_columns(array):
    """Return matrices whose columns, not rows, lie in one piece."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def naive_ragged_rows(lhs, rhs, sizes):
    """Multiply every row with the matrix of its group, one by one."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rows = [lhs[i] @ rhs[groups[i]] if i < len(groups) else np.zeros(rhs.shape[2]) for i in range(len(lhs))]
    return np.array(rows, np.float32)


@pytest.mark.parametrize("sizes", [(2, 3, 4), (0, 0, 11), (5, 0, 3), (0, 0, 0)])
def test_ragged_rows_meet_their_group(sizes):
    """Row by row: the first rows the first matrix, and so on; rows beyond the groups are zeros."""
    rng = np.random.default_rng(5)
    lhs, rhs = integers(rng, "f32", (11, 5)), integers(rng, "f32", (3, 5, 7))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    text = program("f32[11,7]", f"ragged-dot(p0, p1, p2), {dims}", ["f32[11,5]", "f32[3,5,7]", "s32[3]"])
    found = run_ours(text, [lhs, rhs, np.int32(sizes)])[0]
    np.testing.assert_array_equal(found, naive_ragged_rows(lhs, rhs, sizes))


def test_ragged_rows_may_differ_along_a_batch():
    """With group sizes [batch, group] every batch entry has groups of its own."""
    rng = np.random.default_rng(6)
    lhs, rhs = integers(rng, "f32", (2, 6, 5)), integers(rng, "f32", (3, 2, 5, 4))
    sizes = np.int32([[1, 2, 3], [4, 0, 1]])
    dims = "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
    dims += ", lhs_ragged_dims={1}, rhs_group_dims={0}"
    text = program("f32[2,6,4]", f"ragged-dot(p0, p1, p2), {dims}", ["f32[2,6,5]", "f32[3,2,5,4]", "s32[2,3]"])
    expected = np.stack([naive_ragged_rows(lhs[b], rhs[:, b], sizes[b]) for b in range(2)])
    np.testing.assert_array_equal(run_ours(text, [lhs, rhs, sizes])[0], expected)


def test_without_groups_rows_are_zero_and_contractions_empty():
    """No matrix on the right: eleven rows of zeros, or no product at all."""
    left, sizes = np.ones((11, 5), np.float32), np.zeros(0, np.int32)
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    text = program("f32[11,7]", f"ragged-dot(p0, p1, p2), {dims}", ["f32[11,5]", "f32[0,5,7]", "s32[0]"])
    np.testing.assert_array_equal(run_ours(text, [left, np.ones((0, 5, 7), np.float32), sizes])[0], np.zeros((11, 7)))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
    text = program("f32[0,11,7]", f"ragged-dot(p0, p1, p2), {dims}", ["f32[11,5]", "f32[5,7]", "s32[0]"])
    assert run_ours(text, [left, np.ones((5, 7), np.float32), sizes])[0].shape == (0, 11, 7)


def test_ragged_contraction_gives_one_product_per_group():
    """The contracted dimension falls into stretches, each of which is a dot."""
    rng = np.random.default_rng(7)
    lhs, rhs = integers(rng, "f32", (4, 9)), integers(rng, "f32", (9, 5))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
    text = program("f32[3,4,5]", f"ragged-dot(p0, p1, p2), {dims}", ["f32[4,9]", "f32[9,5]", "s32[3]"])
    expected = np.stack([lhs[:, :2] @ rhs[:2], lhs[:, 2:2] @ rhs[2:2], lhs[:, 2:8] @ rhs[2:8]])
    np.testing.assert_array_equal(run_ours(text, [lhs, rhs, np.int32([2, 0, 6])])[0], expected)


def test_scales_multiply_the_blocks_of_a_scaled_dot():
    """Each scale counts for a block of the contracted dimension; a scalar is no scale."""
    rng = np.random.default_rng(8)
    lhs, rhs, scale = integers(rng, "f32", (4, 8)), integers(rng, "f32", (8, 6)), integers(rng, "f32", (4, 2))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = program("f32[4,6]", f"scaled-dot(p0, p1, p2, p3), {dims}", ["f32[4,8]", "f32[8,6]", "f32[4,2]", "f32[]"])
    expected = (lhs * np.repeat(scale, 4, 1)) @ rhs
    np.testing.assert_array_equal(run_ours(text, [lhs, rhs, scale, np.float32(3)])[0], expected)
