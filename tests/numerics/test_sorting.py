"""Sort and topk: XLA as the oracle, Python's sort as the naive twin, and which comparators go by keys."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.numerics.one_instruction import check_exactly, program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.ops.sorting import top_k
from tpusim.numerics.values.comparators import Key, order_of
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

Array = np.ndarray[Any, np.dtype[Any]]

SPECIAL = np.array([3, -0.0, np.nan, 0.0, -np.inf, 1e-30, -2, np.inf, -np.nan, 0.0, 3, -0.0], np.float32)

CANONICAL = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  no_number = f32[] constant(nan)
  zero = f32[] constant(0)
  is_nan_a = pred[] compare(a, a), direction=NE
  is_zero_a = pred[] compare(a, zero), direction=EQ
  x = f32[] select(is_zero_a, zero, a)
  key_a = f32[] select(is_nan_a, no_number, x)
  is_nan_b = pred[] compare(b, b), direction=NE
  is_zero_b = pred[] compare(b, zero), direction=EQ
  y = f32[] select(is_zero_b, zero, b)
  key_b = f32[] select(is_nan_b, no_number, y)
  ROOT less = pred[] compare(key_a, key_b), direction=LT, type=TOTALORDER
}"""
"""JAX's comparator of floats: all NaNs alike and last, both zeros alike."""

BY_BITS_THEN_PLACE = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  most = s32[] constant(2147483647)
  zero = s32[] constant(0)
  p = s32[] bitcast-convert(a)
  p_is_negative = pred[] compare(p, zero), direction=LT
  p_flipped = s32[] xor(most, p)
  p_key = s32[] select(p_is_negative, p_flipped, p)
  q = s32[] bitcast-convert(b)
  q_is_negative = pred[] compare(q, zero), direction=LT
  q_flipped = s32[] xor(most, q)
  q_key = s32[] select(q_is_negative, q_flipped, q)
  less = pred[] compare(p_key, q_key), direction=LT
  more = pred[] compare(q_key, p_key), direction=LT
  same = pred[] compare(less, more), direction=EQ
  place = pred[] compare(i, j), direction=LT
  ROOT before = pred[] select(same, place, less)
}"""
"""The TPU compiler's form of a stable sort in total order."""

TWO_KEYS = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  less = pred[] compare(a, b), direction=LT
  same = pred[] compare(a, b), direction=EQ
  more = pred[] compare(c, d), direction=GT
  tie = pred[] and(same, more)
  ROOT before = pred[] or(less, tie)
}"""
"""JAX's form of several keys: the first ascending, the second descending."""

BY_LAST_DIGIT = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ten = s32[] constant(10)
  p = s32[] remainder(a, ten)
  q = s32[] remainder(b, ten)
  d = s32[] subtract(p, q)
  zero = s32[] constant(0)
  ROOT before = pred[] compare(d, zero), direction=LT
}"""
"""An order that is not written as a comparison of two keys."""


def plain(direction: str, dtype: str = "s32", kind: str = "") -> str:
    """Return a comparator that compares two scalars, in total order if ``kind`` says so."""
    scalars = f"  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
    return f"f {{\n{scalars}  ROOT c = pred[] compare(a, b), direction={direction}{kind}\n}}"


def sort_text(shapes: list[str], dimension: int, body: str) -> str:
    """Return a stable sort of parameters of these shapes."""
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    return program(result, f"sort({names}), dimensions={{{dimension}}}, is_stable=true, to_apply=f", shapes, body)


def keys_of(body: str) -> list[Key] | None:
    """Return the keys of a comparator given as text."""
    text = program("s32[]", "negate(p0)", ["s32[]"], body)
    return order_of(parse_module(SourceText("test.hlo", text))["f"])


def bits(array: Array) -> list[int]:
    """Return floats as the integers of their bits, which tell zeros and NaNs apart."""
    return array.view(np.uint32).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_sorting_any_dimension_agrees_with_xla(dimension: int, direction: str) -> None:
    """Every line along the dimension on its own."""
    array = np.random.default_rng(1).integers(-9, 9, (3, 4, 5)).astype(np.int32)
    check_exactly(sort_text(["s32[3,4,5]"], dimension, plain(direction)), [array])


@pytest.mark.parametrize("dtype", ["u8", "s8", "u32", "s64", "f32", "f64", "bf16", "f16", "pred"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_sorting_any_type_agrees_with_xla(dtype: str, direction: str) -> None:
    """Unsigned numbers by value, not by bits; -Inf and Inf in place."""
    types = {"bf16": ml_dtypes.bfloat16, "pred": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64}
    wanted = types.get(dtype) or np.dtype(f"{'int' if dtype[0] == 's' else 'uint'}{dtype[1:]}")
    array = np.random.default_rng(2).integers(0, 250, 40).astype(np.uint8).astype(wanted)
    check_exactly(sort_text([f"{dtype}[40]"], 0, plain(direction, dtype)), [array])


@pytest.mark.parametrize("body", [CANONICAL, plain("LT", "f32", ", type=TOTALORDER")])
def test_floats_in_total_order_agree_with_xla(body: str) -> None:
    """NaNs, zeros and infinities of both signs, bit by bit."""
    text = sort_text(["f32[12]"], 0, body)
    assert bits(run_ours(text, [SPECIAL])[0]) == bits(run_xla(text, [SPECIAL])[0])


def test_the_compiled_form_of_a_stable_sort_agrees_with_the_plain_one() -> None:
    """Integers of the floats' bits, and the place where these are equal."""
    places = np.arange(12, dtype=np.int32)
    result = run_ours(sort_text(["f32[12]", "s32[12]"], 0, BY_BITS_THEN_PLACE), [SPECIAL, places])
    simple = run_ours(sort_text(["f32[12]"], 0, plain("LT", "f32", ", type=TOTALORDER")), [SPECIAL])
    assert bits(result[0]) == bits(simple[0])
    assert bits(SPECIAL[result[1]]) == bits(simple[0])


@given(st.lists(st.integers(0, 99), max_size=40))
def test_any_comparator_sorts_stably(numbers: list[int]) -> None:
    """By the last digit alone, against Python's sort."""
    text = sort_text([f"s32[{len(numbers)}]"], 0, BY_LAST_DIGIT)
    assert run_ours(text, [np.array(numbers, np.int32)])[0].tolist() == sorted(numbers, key=lambda n: n % 10)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_two_keys_sort_as_written(pairs: list[tuple[int, int]]) -> None:
    """Ascending by the first, then descending by the second."""
    first, second = (np.array([pair[i] for pair in pairs], np.int32) for i in range(2))
    shape = f"s32[{len(pairs)}]"
    result = run_ours(sort_text([shape, shape], 0, TWO_KEYS), [first, second])
    expected = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    assert list(zip(*(part.tolist() for part in result), strict=True)) == expected


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.sampled_from(["LT", "GT"]))
def test_equal_elements_keep_their_order(numbers: list[int], direction: str) -> None:
    """Seen by a second operand that the comparator does not look at, descending as well as ascending."""
    scalars = "".join(f"  {name} = s32[] parameter({i})\n" for i, name in enumerate("abcd"))
    body = f"f {{\n{scalars}  ROOT e = pred[] compare(a, b), direction={direction}\n}}"
    shape = f"s32[{len(numbers)}]"
    inputs = [np.array(numbers, np.int32), np.arange(len(numbers), dtype=np.int32)]
    places = run_ours(sort_text([shape, shape], 0, body), inputs)[1].tolist()
    assert places == sorted(range(len(numbers)), key=lambda i: numbers[i] * (1 if direction == "LT" else -1))


def test_an_order_that_is_none_still_gives_every_element_once() -> None:
    """Rock, paper, scissors: a comparator must not go round, but if it does nothing is lost."""
    body = BY_LAST_DIGIT.replace("d = s32[] subtract(p, q)", "e = s32[] subtract(p, q)\n  d = s32[] negate(e)").replace(
        "direction=LT", "direction=NE"
    )
    numbers = np.array([0, 1, 2, 1, 0, 2, 2], np.int32)
    assert sorted(run_ours(sort_text(["s32[7]"], 0, body), [numbers])[0].tolist()) == sorted(numbers.tolist())


def test_the_network_sorts_rows_of_several_dimensions() -> None:
    """Along the middle dimension, by Python's sort line by line."""
    array = np.random.default_rng(5).integers(0, 99, (2, 11, 3)).astype(np.int32)
    result = run_ours(sort_text([shape_text("s32", array.shape)], 1, BY_LAST_DIGIT), [array])[0]
    compare = cmp_to_key(lambda a, b: int(a) % 10 - int(b) % 10)
    for i, k in np.ndindex(2, 3):
        assert result[i, :, k].tolist() == sorted(array[i, :, k].tolist(), key=compare)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (plain("LT"), [Key("a", True, False)]),
        (plain("GT"), [Key("a", False, False)]),
        (CANONICAL, [Key("key_a", True, True)]),
        (BY_BITS_THEN_PLACE, [Key("p_key", True, False), Key("i", True, False)]),
        (TWO_KEYS, [Key("a", True, False), Key("c", False, False)]),
        (plain("EQ"), None),
        (BY_LAST_DIGIT, None),
        (TWO_KEYS.replace("same = pred[] compare(a, b)", "same = pred[] compare(c, d)"), None),
        (CANONICAL.replace("y = f32[] select(is_zero_b, zero, b)", "y = f32[] select(is_zero_b, b, zero)"), None),
    ],
)
def test_keys_are_read_from_comparators(body: str, expected: list[Key] | None) -> None:
    """Only where both sides are the same expression."""
    assert keys_of(body) == expected


def test_the_sides_may_be_swapped() -> None:
    """B > a says the same as a < b."""
    assert keys_of(plain("GT").replace("compare(a, b)", "compare(b, a)")) == [Key("a", True, False)]


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_sort_stays(size: int) -> None:
    """Lines of no or one element, and no lines at all."""
    array = np.zeros((3, size), np.int32)
    assert run_ours(sort_text([f"s32[3,{size}]"], 1, plain("LT")), [array])[0].shape == (3, size)
    assert run_ours(sort_text([f"s32[{size},3]"], 1, plain("LT")), [array.T])[0].shape == (size, 3)


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("largest", ["true", "false"])
def test_topk_agrees_with_a_stable_sort(k: int, largest: str) -> None:
    """Descending (ascending) total order; of equal elements the first one first."""
    array = np.stack([SPECIAL, SPECIAL[::-1], np.arange(12) % 3]).astype(np.float32)
    text = program(f"(f32[3,{k}], s32[3,{k}])", f"topk(p0), k={k}, largest={largest}", ["f32[3,12]"])
    values, places = run_ours(text, [array])
    raw = array.view(np.int32).astype(np.int64)
    keys = np.where(raw < 0, raw ^ 0x7FFFFFFF, raw)
    order = np.argsort(-keys if largest == "true" else keys, axis=1, kind="stable")[:, :k]
    assert places.tolist() == order.tolist()
    assert values.tobytes() == np.take_along_axis(array, order, 1).tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.float64, ml_dtypes.bfloat16])
def test_topk_of_any_type_agrees_with_a_stable_sort(dtype: Any) -> None:
    """Ties among few values, at the ends of the type's range as well."""
    array = np.random.default_rng(6).integers(0, 9, 50).astype(dtype)
    values, places = top_k(array, 7)
    order = sorted(range(50), key=lambda i: (-float(array[i]), i))[:7]
    assert places.tolist() == order
    assert values.tolist() == array[order].tolist()


@pytest.mark.parametrize("step", ["{s}{i} = s32[] negate({s}{before})", "{s}{i} = s32[] add({s}{before}, {s}{before})"])
def test_keys_of_any_depth_are_read(step: str) -> None:
    """Deeper than Python recurses; and doubled in each of 3,000 steps, so that no walk may take each way."""
    steps = [step.format(s=side, i=i, before=i - 1) for i in range(1, 3001) for side in "ab"]
    lines = ["f {", "a0 = s32[] parameter(0)", "b0 = s32[] parameter(1)", *steps]
    lines.append("ROOT r = pred[] compare(a3000, b3000), direction=LT\n}")
    body = "\n".join(lines)
    assert keys_of(body) == [Key("a3000", is_ascending=True, is_total=False)]


def test_orders_nest_to_any_depth() -> None:
    """The order of each level breaks the ties of the one above, which is itself: a key that is there once."""
    levels = [
        f"{side}{i} = pred[] select(t{i}, {side}{i - 1}, {side}{i - 1})" for i in range(1, 2001) for side in ("x", "y")
    ]
    tests = [f"t{i} = pred[] compare(x{i - 1}, y{i - 1}), direction=EQ" for i in range(1, 2001)]
    nested = [line for i in range(2000) for line in (tests[i], *levels[2 * i : 2 * i + 2])]
    lines = ["f {", "a = s32[] parameter(0)", "b = s32[] parameter(1)"]
    lines += ["x0 = pred[] compare(a, b), direction=LT", "y0 = pred[] compare(b, a), direction=LT", *nested, "}"]
    body = "\n".join(lines)
    assert keys_of(body.replace("x2000 =", "ROOT x2000 =")) == [Key("a", is_ascending=True, is_total=False)]
