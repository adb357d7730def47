"""Neighbours are combined first where that changes nothing. Source: the definition, a fold from the left; XLA."""

from __future__ import annotations

from functools import reduce as fold

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.one_instruction import program
from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.ops import reduction

AND_NOT = "  n = TYPE[] not(b)\n  ROOT c = TYPE[] and(a, n)\n"
NOT_LESS = "  g = pred[] compare(a, b), direction=GE\n  ROOT c = TYPE[] select(g, a, b)\n"
# Only where it has 7 on its left it does more than to take what it has on its right.
SEVEN = "  k = TYPE[] constant(7)\n  g = pred[] compare(a, k), direction=EQ\n  n = TYPE[] not(b)\n"
SEVENS = SEVEN + "  ROOT c = TYPE[] select(g, n, b)\n"
NAN = float("nan")


def not_less(a, b):
    """Return the larger of two, or the second where they do not compare."""
    return a if a >= b else b


COMPUTATIONS = {
    "and not": (AND_NOT, "s32", np.int32, lambda a, b: a & ~b, -1, [-2, 5, 7, 12]),
    "not less": (NOT_LESS, "f32", np.float32, not_less, -np.inf, [3, 2, NAN, 1]),
    "not less, narrow": (NOT_LESS, "bf16", ml_dtypes.bfloat16, not_less, -np.inf, [3, 2, NAN, 1]),
    "a number that it names": (SEVENS, "s32", np.int32, lambda a, b: ~b if a == 7 else b, 0, [1, 7, 3, 4]),
}


def scalars(body, dtype):
    """Return a computation of two scalars of a type."""
    return f"f {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n{body.replace('TYPE', dtype)}}}"


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_what_may_not_be_grouped_is_folded_from_the_left(name):
    """By Python's fold, of one row."""
    body, dtype, numpy_type, function, start, row = COMPUTATIONS[name]
    text = program(
        f"{dtype}[]", "reduce(p0, p1), dimensions={0}, to_apply=f", [f"{dtype}[4]", f"{dtype}[]"], scalars(body, dtype)
    )
    found = run_ours(text, [np.array(row, numpy_type), np.array(start, numpy_type)])[0]
    assert found == fold(function, row, start)


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_so_are_windows(name):
    """Each takes in all that came before."""
    body, dtype, numpy_type, function, start, row = COMPUTATIONS[name]
    attributes = "window={size=4 pad=3_0}, to_apply=f"
    text = program(
        f"{dtype}[4]", f"reduce-window(p0, p1), {attributes}", [f"{dtype}[4]", f"{dtype}[]"], scalars(body, dtype)
    )
    found = run_ours(text, [np.array(row, numpy_type), np.array(start, numpy_type)])[0]
    expected = np.array([fold(function, row[: count + 1], start) for count in range(4)], numpy_type)
    np.testing.assert_array_equal(np.float64(found), np.float64(expected))


LARGEST = """f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  MORE
  x = f32[] select(more, a, b)
  alike = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  first = pred[] and(alike, before)
  take = pred[] or(more, first)
  k = s32[] select(take, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k)
}"""
OF_JAX = """larger = pred[] compare(a, b), direction=GT
  strange = pred[] compare(a, a), direction=NE
  more = pred[] or(larger, strange)"""
WITHOUT_NAN = "more = pred[] compare(a, b), direction=GT"


@pytest.mark.parametrize(
    ("more", "nans", "is_fast"), [(OF_JAX, 3, True), (WITHOUT_NAN, 0, True), (WITHOUT_NAN, 3, False)]
)
def test_the_largest_and_its_place(more, nans, is_fast, monkeypatch):
    """That of JAX, which looks for NaN, is made in halves; so is one that does not, where there is none."""
    calls = []
    lifted = reduction.lifted_list
    monkeypatch.setattr(reduction, "lifted_list", lambda *given: calls.append(given) or lifted(*given))
    text = program(
        "(f32[3], s32[3])",
        "reduce(p0, p1, p2, p3), dimensions={1}, to_apply=f",
        ["f32[3,256]", "s32[3,256]", "f32[]", "s32[]"],
        LARGEST.replace("MORE", more),
    )
    values = np.random.default_rng(1).integers(-9, 9, (3, 256)).astype(np.float32)
    values[1, 100 : 100 + nans] = NAN
    places = np.broadcast_to(np.arange(256, dtype=np.int32), (3, 256)).copy()
    inputs = [values, places, np.array(-np.inf, np.float32), np.array(0, np.int32)]
    for ours, theirs in zip(run_ours(text, inputs), run_xla(text, inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (len(calls) < 20) == is_fast
