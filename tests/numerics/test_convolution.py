"""Convolutions against XLA, and what windows meet against counting."""

from __future__ import annotations

import re
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.growth import within
from tests.numerics.one_instruction import check_exactly, program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tests.semantics.windows import DIMENSIONS
from tpusim.ir.attributes import Window
from tpusim.numerics.ops import convolution
from tpusim.semantics.windows import output_size
from tpusim.text.attributes.structured import show_window

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s32": np.int32, "s8": np.int8}


def conv(lhs, rhs, out, rest, name="f32"):
    """Return the text of a convolution from the sizes of its three arrays and its attributes."""
    return program(
        shape_text(name, out), f"convolution(p0, p1), {rest}", [shape_text(name, lhs), shape_text(name, rhs)]
    )


def whole_numbers(seed, name, *shapes):
    """Return small whole numbers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, sizes).astype(TYPES[name]) for sizes in shapes]


@st.composite
def convolutions(draw):
    """Return any convolution: its text and what it takes."""
    dimensions = draw(st.lists(DIMENSIONS, max_size=3))
    groups, kind = draw(st.integers(1, 3)), draw(st.sampled_from(["feature", "batch"]))
    batch, depth, columns = (draw(st.integers(1, 3)) for _ in range(3))
    spatial = [str(number) for number in range(len(dimensions))]
    lhs, rhs, out = (
        {d: value(*dimension) for d, dimension in zip(spatial, dimensions, strict=True)}
        for value in (lambda n, w: n, lambda n, w: w.size, lambda n, w: output_size(w, n))
    )
    lhs |= {"b": batch * (groups if kind == "batch" else 1), "f": depth * (groups if kind == "feature" else 1)}
    rhs |= {"i": depth, "o": columns * groups}
    out |= {"b": batch, "f": columns * groups}
    labels = ["".join(draw(st.permutations(sorted(sizes)))) for sizes in (lhs, rhs, out)]
    sizes = [[s[d] for d in label] for s, label in zip((lhs, rhs, out), labels, strict=True)]
    window = f"window={show_window(Window(tuple(w for _, w in dimensions)))}, " if dimensions else ""
    rest = f"{window}dim_labels={labels[0]}_{labels[1]}->{labels[2]}, {kind}_group_count={groups}"
    name = draw(st.sampled_from(sorted(TYPES)))
    return conv(*sizes, rest, name), whole_numbers(draw(st.integers(0, 9)), name, *sizes[:2])


@given(convolutions())
@settings(max_examples=50, deadline=None)
def test_any_convolution_of_whole_numbers_is_xlas(case):
    """Any window, dilation, padding, reversal, grouping, order of dimensions and number of them."""
    text, inputs = case
    check_exactly(text, inputs)
    np.testing.assert_array_equal(run_ours(text, inputs, "tpu")[0], run_ours(text, inputs)[0])


BATCHED = [
    ("window={size=6 stride=5 lhs_dilate=6}, dim_labels=0bf_0io->0bf", (6, 5, 7), (6, 7, 4), "nbf,nfo->nbo"),
    ("window={size=6 stride=5 lhs_dilate=6}, dim_labels=0bf_0oi->0bf", (6, 5, 7), (6, 4, 7), "nbf,nof->nbo"),
    ("window={size=6 pad=5_5 rhs_reversal=1}, dim_labels=bf0_0oi->b0f", (5, 7, 1), (6, 4, 7), "bfz,nof->bno"),
    ("window={size=6}, dim_labels=b0f_0io->b0f", (5, 6, 7), (6, 7, 4), "bnf,nfo->bo"),
    ("window={size=1}, dim_labels=0bf_io0->0bf", (3, 5, 7), (7, 4, 1), "nbf,foz->nbo"),
    (
        "window={size=3x2 stride=2x1 lhs_dilate=3x2}, dim_labels=01bf_01io->01bf",
        (3, 2, 5, 7),
        (3, 2, 7, 4),
        "nmbf,nmfo->nmbo",
    ),
]
"""How the TPU compiler writes dots with batch, outer and further contracted dimensions, and what they mean."""


@pytest.mark.parametrize(("rest", "lhs", "rhs", "meaning"), BATCHED)
def test_dots_written_as_windows_are_dots(rest, lhs, rhs, meaning):
    """The window tricks of compiled programs come out as the batched products that they stand for."""
    left, right = whole_numbers(0, "f32", lhs, rhs)
    expected = np.einsum(meaning, left, right)
    out = expected.shape if "->b0f" not in rest or expected.ndim == 3 else (expected.shape[0], 1, expected.shape[1])
    found = run_ours(conv(lhs, rhs, out, rest), [left, right], "tpu")[0]
    np.testing.assert_array_equal(found, expected.reshape(out))


def test_a_batch_as_window_costs_a_batch():
    """Taken as a window, ten times the batch would be a hundred times the work: positions times outputs."""
    _seconds_of_batch(2)
    pairs = [(_seconds_of_batch(100), _seconds_of_batch(1000)) for _ in range(3)]
    small, large = (min(seconds) for seconds in zip(*pairs, strict=True))
    assert large < 40 * small


def _seconds_of_batch(count):
    """Return the CPU time that so many products take as one convolution, whose results are checked."""
    inputs = whole_numbers(0, "f32", (count, 8, 16), (count, 16, 8))
    window = f"window={{size={count} stride={count - 1} lhs_dilate={count}}}, dim_labels=0bf_0io->0bf"
    text = conv((count, 8, 16), (count, 16, 8), (count, 8, 8), window)
    begin = time.process_time()
    found = run_ours(text, inputs, "tpu")[0]
    seconds = time.process_time() - begin
    np.testing.assert_array_equal(found, inputs[0] @ inputs[1])
    return seconds


@pytest.mark.parametrize("most", [1, 100, 1000])
def test_patches_may_be_cut_anywhere(monkeypatch, most):
    """The limit on memory changes nothing but memory."""
    inputs = whole_numbers(1, "f32", (2, 9, 8, 3), (3, 3, 3, 5))
    text = conv((2, 9, 8, 3), (3, 3, 3, 5), (2, 9, 8, 5), "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f")
    whole = run_ours(text, inputs)[0]
    monkeypatch.setattr(convolution, "_MOST_PATCH_ELEMENTS", most)
    np.testing.assert_array_equal(run_ours(text, inputs)[0], whole)


def test_f32_convolutions_are_xlas_within_the_rounding_of_sums():
    """A 3x3 kernel over 40 features: 360 products in another order."""
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(sizes, np.float32) for sizes in ((2, 9, 9, 40), (3, 3, 40, 8))]
    text = conv((2, 9, 9, 40), (3, 3, 40, 8), (2, 7, 7, 8), "window={size=3x3}, dim_labels=b01f_01io->b01f")
    bound = 360 * 2.0**-24 * run_xla(text, [np.abs(value) for value in inputs])[0]
    assert (np.abs(run_ours(text, inputs)[0] - run_xla(text, inputs)[0]) <= bound).all()


def test_tpu_mode_rounds_operands_to_bf16():
    """The result is that of the rounded operands, as exact as f32 sums are."""
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(sizes, np.float32) for sizes in ((1, 6, 6, 4), (3, 3, 4, 8))]
    rounded = [value.astype(ml_dtypes.bfloat16).astype(np.float32) for value in inputs]
    text = conv((1, 6, 6, 4), (3, 3, 4, 8), (1, 4, 4, 8), "window={size=3x3}, dim_labels=b01f_01io->b01f")
    np.testing.assert_allclose(run_ours(text, inputs, "tpu")[0], run_xla(text, rounded)[0], rtol=0, atol=1e-5)


def test_complex_convolutions_are_xlas():
    """Complex numbers go through whole when exact."""
    rng = np.random.default_rng(4)
    inputs = [
        (rng.integers(-3, 4, s) + 1j * rng.integers(-3, 4, s)).astype(np.complex64) for s in ((2, 7, 3), (3, 3, 4))
    ]
    check_exactly(conv((2, 7, 3), (3, 3, 4), (2, 5, 4), "window={size=3}, dim_labels=b0f_0io->b0f", "c64"), inputs)


@pytest.mark.parametrize("window", ["size=3", "size=2 pad=-2_-2", "size=3 pad=0_1 rhs_dilate=2"])
def test_a_window_that_hangs_over_has_no_outputs(window):
    """Nothing comes out, and nothing breaks."""
    inputs = whole_numbers(5, "f32", (2, 2, 3), (int(re.findall(r"\d", window)[0]), 3, 4))
    text = conv(inputs[0].shape, inputs[1].shape, (2, 0, 4), f"window={{{window}}}, dim_labels=b0f_0io->b0f")
    assert run_ours(text, inputs)[0].shape == (2, 0, 4)


def test_a_convolution_without_elements_goes_through_none_of_its_sizes():
    """A batch of none, and kernels for no output, along a dimension of a billion pairs of positions."""
    size = 10**9
    window = f"window={{size={size} stride={size - 1} lhs_dilate={size}}}, dim_labels=b0f_0io->b0f"
    text = conv((0, size, 1), (size, 1, 0), (0, size, 0), window)
    inputs = [np.zeros(sizes, np.float32) for sizes in ((0, size, 1), (size, 1, 0))]
    (result,) = within(5, lambda: run_ours(text, inputs))
    assert result.shape == (0, size, 0)
