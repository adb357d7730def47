"""Conversions between element types: against XLA, the rules of tiny floats, and the fast kernels against twins."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.ops import convert
from tpusim.shapes.dtype import DTYPES, numpy_dtype

INTEGERS = ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
FLOATS = ["bf16", "f16", "f32", "f64"]
TINY = ["f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"]
FLOAT_VALUES = [0.0, -0.0, 0.4, -0.5, 1.0, 7.9, -8.9, 255.9, 300.5, 65519.0, 65520.0, -70000.0, 16777217.0, 3e9, -3e9]
FLOAT_VALUES += [1.5e19, 2e38, -math.inf, math.inf, math.nan]
INTEGER_VALUES = [0, 1, -1, 7, 8, 100, -100, 255, 259, 2049, 65520, 16777217, -(2**31), 2**31 - 1, 2**63 - 1, -(2**63)]


def module(source: str, target: str, size: int, opcode: str = "convert", attributes: str = "") -> str:
    """Return a module that converts ``size`` elements."""
    lines = [f"  p = {source}[{size}] parameter(0)", f"  ROOT r = {target}[{size}] {opcode}(p){attributes}"]
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def both(text: str, values: Any) -> tuple[Any, Any]:
    """Return what we and XLA give."""
    return run_ours(text, [values])[0], run_xla(text, [values])[0]


def assert_same(found: Any, expected: Any) -> None:
    """Compare type and values, NaN and the signs of zeros included."""
    assert found.dtype == expected.dtype
    is_float = found.dtype.kind in "fc" or np.dtype(found.dtype).name.startswith(("bf", "float"))
    wide = [array.astype(np.float64) if is_float else array.astype(object) for array in (found, expected)]
    np.testing.assert_array_equal(*wide)
    if is_float:
        known = ~np.isnan(wide[0])
        np.testing.assert_array_equal(*(np.signbit(array[known]) for array in wide))


def typed(values: list[Any], name: str) -> Any:
    """Return values as an array of a type: too large floats become infinite, integers wrap."""
    with np.errstate(all="ignore"):
        source = np.array(values, np.int64) if isinstance(values[0], int) else np.array(values)
        return source.astype(numpy_dtype(DTYPES[name]))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [*INTEGERS, "pred"])
def test_floats_become_integers_as_in_xla(source: str, target: str) -> None:
    """Cut towards zero, saturated, NaN is 0; to ``pred`` anything but zero is true."""
    values = typed(FLOAT_VALUES, source)
    assert_same(*both(module(source, target, len(values)), values))


@pytest.mark.parametrize("source", [*INTEGERS, "pred"])
@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS, "pred"])
def test_integers_convert_as_in_xla(source: str, target: str) -> None:
    """Low bits among integers, nearest even to floats: 16777217 becomes 16777216."""
    values = typed(INTEGER_VALUES, source)
    assert_same(*both(module(source, target, len(values)), values))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_floats_convert_as_in_xla(source: str, target: str) -> None:
    """Nearest even, overflow to infinity, ties and values next to them."""
    # Halves of the last place of bf16 and of f16, and their neighbours.
    ties = [1 + k * 2.0**-9 for k in range(9)] + [1 + k * 2.0**-12 for k in range(9)]
    values = typed([*FLOAT_VALUES, *ties], source)
    assert_same(*both(module(source, target, len(values)), values))


@pytest.mark.parametrize("target", TINY)
def test_tiny_floats_round_as_in_xla(target: str) -> None:
    """Ties, the end of the range, and NaN where there is no infinity."""
    values = np.array(
        [0, 1, 1.0625, 1.125, 1.1875, 0.3, 15.5, 15.75, 29, 31, 240, 248, 464, 465, 500, 5e4, 7e4], np.float32
    )
    values = np.concatenate([values, -values, np.array([math.inf, math.nan], np.float32)])
    assert_same(*both(module("f32", target, len(values)), values))


def nearest_even(value: float, positive: list[float]) -> float:
    """Return the number nearest to a value among those of a type from 0 up; of two as near, that with an even place."""
    # From 0 up places count as bits do, so that the last bit is even where the place is.
    distances = [(abs(Fraction(number) - abs(Fraction(value))), place & 1) for place, number in enumerate(positive)]
    return math.copysign(positive[distances.index(min(distances))], value)


@pytest.mark.parametrize("target", [*TINY, "f4e2m1fn"])
def test_doubles_round_once_to_tiny_floats(target: str) -> None:
    """Numbers between two neighbours, and one unit of a double beside the middle, which f32 cannot tell from it."""
    bits = DTYPES[target].bits
    positive = np.arange(1 << bits - 1, dtype=np.uint8).view(numpy_dtype(DTYPES[target])).astype(np.float64)
    positive = positive[np.isfinite(positive)]
    middle = (positive[1:] + positive[:-1]) / 2
    values = np.concatenate([middle, np.nextafter(middle, np.inf), -np.nextafter(middle, 0)])
    found = run_ours(module("f64", target, len(values)), [values])[0].astype(np.float64)
    assert found.tolist() == [nearest_even(value, positive.tolist()) for value in values.tolist()]


@pytest.mark.parametrize("target", TINY)
def test_doubles_become_tiny_floats_as_in_xla(target: str) -> None:
    """Beside ties, and beyond the range."""
    ties = np.array([1.0625, 1.125, 1.25, 1.75, 3.5, 240, 248, 464, 57344, 61440], np.float64)
    values = np.concatenate([np.nextafter(ties, np.inf), np.nextafter(ties, 0), -ties, [math.inf, math.nan, 0.0, -0.0]])
    assert_same(*both(module("f64", target, len(values)), values))


@pytest.mark.parametrize("source", FLOATS)
def test_nan_is_minus_zero_where_there_is_no_nan(source: str) -> None:
    """Of either sign; infinities become the largest number."""
    values = np.array([math.nan, -math.nan, math.inf, -math.inf]).astype(numpy_dtype(DTYPES[source]))
    assert_same(*both(module(source, "f4e2m1fn", 4), values))


@pytest.mark.parametrize("source", TINY)
def test_all_tiny_floats_widen_as_in_xla(source: str) -> None:
    """All 256 bytes."""
    values = np.arange(256, dtype=np.uint8).view(numpy_dtype(DTYPES[source]))
    assert_same(*both(module(source, "f32", 256), values))


@pytest.mark.parametrize("source", ["f32", "s32", "bf16"])
def test_real_numbers_become_complex(source: str) -> None:
    """With an imaginary part of zero."""
    values = typed([1, -2, 3], source)
    assert run_ours(module(source, "c64", 3), [values])[0].tolist() == [1, -2, 3]


def bitcast(source: str, sizes: str, target: str, new_sizes: str) -> str:
    """Return a module of one ``bitcast-convert``."""
    lines = f"  p = {source}[{sizes}] parameter(0)\n  ROOT r = {target}[{new_sizes}] bitcast-convert(p)\n"
    return "HloModule m\nENTRY e {\n" + lines + "}\n"


@pytest.mark.parametrize(
    ("source", "sizes", "target", "new_sizes"),
    [
        ("f32", "6", "s32", "6"),
        ("f32", "6", "u16", "6,2"),
        ("u16", "3,2", "f32", "3"),
        ("f32", "", "u8", "4"),
        ("u8", "4", "f32", ""),
        ("f64", "2,3", "u32", "2,3,2"),
        ("bf16", "4", "s16", "4"),
        ("s8", "3", "u4", "3,2"),
        ("u4", "3,2", "s8", "3"),
        ("u16", "3", "s4", "3,4"),
        ("s4", "3,4", "u16", "3"),
        ("u2", "2", "u4", ""),
        ("s4", "", "s2", "2"),
        ("u4", "3", "u2", "3,2"),
        ("u2", "3,2", "u4", "3"),
        ("u2", "4,2", "u4", "4"),
    ],
)
def test_bitcast_convert_agrees_with_xla(source: str, sizes: str, target: str, new_sizes: str) -> None:
    """A narrower type adds a last dimension, low bits first; a wider one takes it away."""
    dimensions = [int(size) for size in sizes.split(",") if size]
    values = typed([(37 * i) % 251 - 60 for i in range(math.prod(dimensions))], source).reshape(dimensions)
    found, expected = both(bitcast(source, sizes, target, new_sizes), values)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert_same(found, expected)


PRECISIONS = [(8, 7), (5, 10), (4, 3), (5, 2), (2, 0), (8, 23), (1, 1), (8, 0), (11, 52)]


@pytest.mark.parametrize(("exponent", "mantissa"), PRECISIONS)
@pytest.mark.parametrize("name", FLOATS)
def test_reduce_precision_agrees_with_xla(exponent: int, mantissa: int, name: str) -> None:
    """Ties, carries into the exponent, both ends of the reduced range; infinite stays infinite."""
    values = [1 + k * 2.0**-8 for k in range(20)] + [2.0**k for k in range(-20, 20)] + [1e-8, 65519.0, 65520.0, 1.999]
    array = typed([*values, *(-v for v in values), 0.0, -0.0, math.inf, -math.inf], name)
    attributes = f", exponent_bits={exponent}, mantissa_bits={mantissa}"
    assert_same(*both(module(name, name, len(array), "reduce-precision", attributes), array))


@pytest.mark.parametrize(("exponent", "mantissa"), [*PRECISIONS, (3, 4), (5, 1), (5, 0), (5, 23), (6, 1), (8, 2)])
@pytest.mark.parametrize("name", [*TINY, "f8e8m0fnu", "f4e2m1fn"])
def test_reduce_precision_of_all_tiny_floats_agrees_with_xla(exponent: int, mantissa: int, name: str) -> None:
    """Subnormal numbers stay where the type has five bits of exponent and as many are asked for, elsewhere they go."""
    array = np.arange(1 << DTYPES[name].bits, dtype=np.uint8).view(numpy_dtype(DTYPES[name]))
    attributes = f", exponent_bits={exponent}, mantissa_bits={mantissa}"
    assert_same(*both(module(name, name, len(array), "reduce-precision", attributes), array))


def test_reduce_precision_keeps_nan() -> None:
    """NaN stays NaN, with fewer bits too."""
    text = module("f32", "f32", 1, "reduce-precision", ", exponent_bits=5, mantissa_bits=10")
    assert np.isnan(run_ours(text, [np.array([math.nan], np.float32)])[0][0])


def stochastic(target: str, values: list[float], random: list[int]) -> Any:
    """Return what ``stochastic-convert`` makes of f32 numbers and random u32 ones."""
    lines = [f"  p = f32[{len(values)}] parameter(0)", f"  q = u32[{len(values)}] parameter(1)"]
    lines.append(f"  ROOT r = {target}[{len(values)}] stochastic-convert(p, q)")
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    return run_ours(text, [np.array(values, np.float32), np.array(random, np.uint32)])[0]


def test_stochastic_convert_to_integers_rounds_up_below_the_share() -> None:
    """1.25 becomes 2 for the lowest quarter of random numbers, -1.25 then becomes -2; ends saturate, NaN is 0."""
    quarter = 1 << 30
    found = stochastic("s32", [1.25, 1.25, -1.25, -1.25], [quarter - 1, quarter, quarter - 1, quarter])
    assert found.tolist() == [2, 1, -2, -1]
    ends = stochastic("s8", [3e9, -3e9, math.inf, math.nan, 127.5, 4.0], [0] * 6)
    assert ends.tolist() == [127, -128, 127, 0, 127, 4]
    # A share below that of the least random number is none.
    assert stochastic("s32", [1e-20, 2.0**-32], [0, 0]).tolist() == [0, 1]


def test_stochastic_convert_to_bf16_is_right_on_average() -> None:
    """1 + 2**-9 lies a quarter of the way from 1 to the next bf16 number."""
    n = 1024
    found = stochastic("bf16", [1 + 2.0**-9] * n, [(i << 22) + 12345 for i in range(n)]).astype(np.float32)
    assert set(found.tolist()) == {1.0, 1 + 2.0**-7}
    assert found.mean() == 1 + 2.0**-9


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
@settings(max_examples=100)
def test_rounding_to_bf16_agrees_with_its_twin(words: list[int]) -> None:
    """Any bits at all, against ml_dtypes; of NaN only that it is one."""
    values = np.array(words, np.uint32).view(np.float32)
    found = convert.from_float32(values, convert.BFLOAT16).astype(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, values.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_all_bf16_numbers_survive_the_way_through_f32() -> None:
    """All 65,536 of them, bit by bit but for quiet NaN."""
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    wide = convert.to_float32(values)
    np.testing.assert_array_equal(wide, values.astype(np.float32))
    back = convert.from_float32(wide, convert.BFLOAT16)
    known = ~np.isnan(wide)
    np.testing.assert_array_equal(back[known].view(np.uint16), values[known].view(np.uint16))


def test_helpers_take_arrays_as_they_lie() -> None:
    """Repeated, transposed, empty and scalar ones; into an array that is there already, too."""
    values = np.broadcast_to(np.array([[1.5], [2.0]], ml_dtypes.bfloat16), (2, 3))
    assert convert.to_float32(values.T).tolist() == [[1.5, 2.0]] * 3
    assert convert.to_float32(np.zeros((), ml_dtypes.bfloat16)).shape == ()
    assert convert.to_float32(np.zeros((0, 2), ml_dtypes.bfloat16)).shape == (0, 2)
    values = np.arange(35, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(5, 7)
    packed = np.zeros(3, [("byte", np.uint8), ("row", ml_dtypes.bfloat16, 4)])
    packed["row"] = values[:3, :4]
    for tile in (values[1:4, 2:6], values[::2, :3], values[:, 6:], values[::-1, 1:4], values[:, ::3], packed["row"]):
        np.testing.assert_array_equal(convert.to_float32(tile), tile.astype(np.float32))
    out = np.zeros((2, 2), ml_dtypes.bfloat16)
    assert convert.from_float32(np.ones(1, np.float32), convert.BFLOAT16, out) is out
    assert out.tolist() == [[1, 1], [1, 1]]
