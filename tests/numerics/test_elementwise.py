"""Element-wise operations: against XLA, against the rules where backends differ, and the fast kernels against twins."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics.oracle import run_ours, run_xla
from tpusim.errors import UnsupportedError
from tpusim.ir.ops import OPERATIONS, Category
from tpusim.numerics.ops import elementwise
from tpusim.numerics.registry import RULES
from tpusim.numerics.values import blocks, floats, integers
from tpusim.shapes.dtype import DTYPES, numpy_dtype

NAMES = {numpy_dtype(each): name for name, each in DTYPES.items() if each.is_array_type}
FLOAT_VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.49999997, 1.5, 2.5, -2.5, 3.7, -8.0, 1e-3, 88.0, -88.0, 1e10]
FLOAT_VALUES += [math.inf, -math.inf, math.nan]
# An argument of 1e10 has no digits left after a reduction by f32's pi: both sides may be far out.
TAME_VALUES = [value for value in FLOAT_VALUES if abs(value) < 100]

EXACT = "abs add ceil divide floor multiply negate remainder round-nearest-afz round-nearest-even sign sqrt subtract"
BOUNDS = {
    **dict.fromkeys(EXACT.split(), 0.0),
    **dict.fromkeys(("maximum", "minimum", "clamp", "is-finite"), 0.0),
    **dict.fromkeys("cbrt cosine erf exponential exponential-minus-one log log-plus-one sine tanh".split(), 1e-6),
    **dict.fromkeys("atan2 logistic power rsqrt tan".split(), 1e-6),
}
"""The relative error to XLA that each operation on f32 may have; bf16 may differ by one rounding."""

TWO_OPERANDS = frozenset("add subtract multiply divide remainder maximum minimum power atan2".split())
INTEGER_OPS = "add subtract multiply divide remainder maximum minimum and or xor".split()
SHIFTS = ["shift-left", "shift-right-arithmetic", "shift-right-logical"]
# XLA's CPU backend has none of these: it wants them expanded before.
BY_MATH = {
    "acos": math.acos,
    "acosh": math.acosh,
    "asin": math.asin,
    "asinh": math.asinh,
    "atanh": math.atanh,
    "cosh": math.cosh,
    "sinh": math.sinh,
}
C64 = np.array([1 + 2j, -8, 0, -1 - 0.5j, 3 - 4j, 0.25j], np.complex64)


def hlo(opcode: str, arrays: list[Any], result: str = "", attributes: str = "") -> str:
    """Return a module of one instruction on arrays; the result is of the first one's type unless told otherwise."""
    shapes = [f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}]" for array in arrays]
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes)]
    dimensions = shapes[-1][shapes[-1].index("[") :]
    operands = ", ".join(f"p{i}" for i in range(len(arrays)))
    lines.append(f"  ROOT r = {result or NAMES[arrays[0].dtype]}{dimensions} {opcode}({operands}){attributes}")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def ours(opcode: str, *arrays: Any, result: str = "", attributes: str = "", precision: str = "exact") -> Any:
    """Return what we compute for one instruction."""
    return run_ours(hlo(opcode, list(arrays), result, attributes), arrays, precision)[0]


def typed(values: list[float], dtype: Any) -> Any:
    """Return values as an array of a type, too large ones as infinity."""
    with np.errstate(over="ignore"):
        return np.array(values).astype(dtype)


def pairs(values: list[float], dtype: Any) -> tuple[Any, Any]:
    """Return all pairs of values as two arrays."""
    left, right = np.meshgrid(typed(values, dtype), typed(values, dtype))
    return left.reshape(-1).copy(), right.reshape(-1).copy()


def assert_matches_xla(opcode: str, *arrays: Any, result: str = "", attributes: str = "", rtol: float = 0.0) -> None:
    """Compare type, values and, if they must be the same, signs of zeros."""
    expected = run_xla(hlo(opcode, list(arrays), result, attributes), arrays)[0]
    found = ours(opcode, *arrays, result=result, attributes=attributes)
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "V":
        found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-37)
    if rtol == 0 and found.dtype.kind == "f":
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


def float_arguments(opcode: str, dtype: Any) -> tuple[Any, ...]:
    """Return arguments for an opcode: all pairs of the values, or each once."""
    values = TAME_VALUES if opcode in ("sine", "cosine", "tan") else FLOAT_VALUES
    if opcode in TWO_OPERANDS:
        return pairs(values, dtype)
    return (typed(values, dtype),)


@pytest.mark.parametrize("opcode", sorted(BOUNDS.keys() - {"clamp", "is-finite", "maximum", "minimum"}))
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16"])
def test_floats_agree_with_xla(opcode: str, name: str) -> None:
    """Ordinary values, signed zeros, infinities and NaN, in all pairs where there are two operands."""
    arguments = float_arguments(opcode, numpy_dtype(DTYPES[name]))
    one_rounding = {"bf16": 2.0**-7, "f16": 2.0**-9}.get(name, 0.0)
    bound = BOUNDS[opcode]
    assert_matches_xla(opcode, *arguments, rtol=bound + one_rounding if bound else 0.0)


@pytest.mark.parametrize(("opcode", "function"), BY_MATH.items())
def test_inverse_and_hyperbolic_functions_agree_with_the_math_library(opcode: str, function: Any) -> None:
    """Within 1e-6 wherever the function is defined."""
    values = np.array([1.0, 1.5, 4.0, 30.0] if opcode == "acosh" else [-0.9, -0.5, 0.0, 1e-3, 0.7], np.float32)
    np.testing.assert_allclose(ours(opcode, values), [function(float(v)) for v in values], rtol=1e-6)


@pytest.mark.parametrize("opcode", INTEGER_OPS)
@pytest.mark.parametrize("name", ["s8", "u8", "s32", "u32", "s64", "u64", "s4", "u4"])
def test_integers_agree_with_xla_bit_by_bit(opcode: str, name: str) -> None:
    """Corners in all pairs: wrapping, division by zero, the lowest number by -1, negative exponents."""
    dtype = numpy_dtype(DTYPES[name])
    limits = ml_dtypes.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, int(limits.max), int(limits.max) - 1, int(limits.min), int(limits.min) + 1]
    values += [-1, -2, -7] if limits.min < 0 else []
    left, right = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    assert_matches_xla(opcode, left.reshape(-1), right.reshape(-1))


@pytest.mark.parametrize("name", ["s8", "u8", "s32", "u64"])
def test_integer_powers_wrap(name: str) -> None:
    """Against Python's integers, for exponents of any size (XLA's CPU backend reads 6 bits of them)."""
    dtype, bits = numpy_dtype(DTYPES[name]), DTYPES[name].bits
    values = [0, 1, 2, 3, 5, 7, 100, 127]
    # Exponents past 63 are where XLA's CPU backend stops being the oracle.
    base, exponent = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    found = ours("power", base.reshape(-1), exponent.reshape(-1))
    assert [int(v) % 2**bits for v in found] == [pow(b, e, 2**bits) for e in values for b in values]


def test_negative_powers_of_integers_agree_with_xla() -> None:
    """Only 1 and -1 have a reciprocal; that of 0 is 0."""
    base = np.array([0, 1, -1, -1, 2, -5], np.int32)
    assert_matches_xla("power", base, np.array([-1, -3, -2, -3, -1, -2], np.int32))


@pytest.mark.parametrize("opcode", SHIFTS)
@pytest.mark.parametrize("name", ["s8", "s32", "s64", "s4", "u8", "u32", "u4"])
def test_shifts_agree_with_xla_for_any_amount(opcode: str, name: str) -> None:
    """Amounts of the width or more, and negative ones, shift everything out; an arithmetic shift knows no unsigned."""
    dtype = numpy_dtype(DTYPES[name])
    bits = DTYPES[name].bits
    values, amounts = np.array([1, 5, -1, -5, 7]), np.array([0, 1, bits - 1, bits, bits + 1, -1])
    left, right = np.meshgrid(values.astype(dtype), amounts.astype(dtype))
    assert_matches_xla(opcode, left.reshape(-1), right.reshape(-1))


@pytest.mark.parametrize("opcode", ["abs", "negate", "not", "sign", "count-leading-zeros", "popcnt"])
@pytest.mark.parametrize("name", ["s8", "s16", "s32", "s64"])
def test_integer_functions_of_one_operand_agree_with_xla(opcode: str, name: str) -> None:
    """The lowest number is its own negative; the sign is a bit like any other to those that count."""
    dtype = np.dtype(numpy_dtype(DTYPES[name]))
    values = np.array([0, 1, 2, 5, 100, -1, -2, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    assert_matches_xla(opcode, values)


@pytest.mark.parametrize("bits", [4, 8, 32, 64])
@pytest.mark.parametrize("sign", "su")
def test_mulhi_is_the_upper_half_of_the_product(bits: int, sign: str) -> None:
    """Against Python's integers, which do not end."""
    dtype = numpy_dtype(DTYPES[f"{sign}{bits}"])
    low = -(1 << bits - 1) if sign == "s" else 0
    values = [low, low + 1, 0, 1, 3, low + (1 << bits) - 1, low + (1 << bits - 1) - 2]
    left, right = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    found = ours("mulhi", left.reshape(-1), right.reshape(-1))
    assert [int(v) for v in found] == [a * b >> bits for b in values for a in values]


@pytest.mark.parametrize(("opcode", "expected"), [("popcnt", [0, 1, 4, 1]), ("count-leading-zeros", [4, 3, 0, 0])])
def test_narrow_integers_count_their_own_bits(opcode: str, expected: list[int]) -> None:
    """Four bits are four bits, in whatever they are stored (XLA's CPU backend counts those of a byte)."""
    found = ours(opcode, np.array([0, 1, -1, -8], ml_dtypes.int4))
    assert found.astype(np.int8).tolist() == expected


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_maximum_and_minimum_keep_nan_and_order_zeros(opcode: str, name: str) -> None:
    """NaN wins over anything; of two zeros +0 is the larger."""
    left, right = pairs([0.0, -0.0, 1.0, -1.0, math.inf, math.nan], numpy_dtype(DTYPES[name]))
    found = ours(opcode, left, right).astype(np.float64)
    for a, b, value in zip(left.astype(np.float64), right.astype(np.float64), found, strict=True):
        expected = (max if opcode == "maximum" else min)((a, b), key=lambda v: (v, math.copysign(1, v)))
        expected = math.nan if math.isnan(a) or math.isnan(b) else expected
        np.testing.assert_equal(
            math.copysign(1, value) if value == 0 else value, math.copysign(1, expected) if expected == 0 else expected
        )


def test_clamp_agrees_with_xla_in_all_orders_and_with_nan() -> None:
    """If the bounds cross, the upper one wins; NaN in any of the three is NaN."""
    values = np.array([-2, 0.5, 3, math.nan, math.inf], np.float32)
    low, value, high = (grid.reshape(-1).copy() for grid in np.meshgrid(values, values, values))
    assert_matches_xla("clamp", low, value, high)


def test_clamp_takes_scalar_bounds() -> None:
    """The bounds may be scalars where the operand is an array (XLA, Clamp)."""
    text = hlo("clamp", [np.int32(0), np.zeros(3, np.int32), np.int32(6)]).replace("= s32[] clamp", "= s32[3] clamp")
    assert run_ours(text, [np.int32(0), np.array([-1, 5, 9], np.int32), np.int32(6)])[0].tolist() == [0, 5, 6]


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("kind", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_compare_agrees_with_xla_in_both_orders(direction: str, kind: str, name: str) -> None:
    """NaN of both signs, zeros of both signs, infinities."""
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -math.nan]
    left, right = pairs(values, numpy_dtype(DTYPES[name]))
    assert_matches_xla("compare", left, right, result="pred", attributes=f", direction={direction}, type={kind}")


def test_total_order_is_that_of_the_bits() -> None:
    """-NaN < -Inf < -1 < -0 < +0 < 1 < Inf < NaN, and NaN equals itself (XLA, Compare)."""
    ordered = np.array(
        [0xFFC00000, 0xFF800000, 0xBF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000], np.uint32
    )
    values = ordered.view(np.float32)
    left, right = np.meshgrid(values, values, indexing="ij")
    found = ours("compare", left, right, result="pred", attributes=", direction=LT, type=TOTALORDER")
    np.testing.assert_array_equal(found, np.triu(np.ones((8, 8), bool), 1))


@pytest.mark.parametrize("opcode", ["add", "multiply", "and", "or", "xor", "maximum", "minimum", "not"])
def test_truth_values_agree_with_xla(opcode: str) -> None:
    """Addition is or, multiplication is and."""
    left, right = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert_matches_xla(opcode, *(left, right)[: 1 if opcode == "not" else 2])


COMPLEX = "cosine exponential exponential-minus-one log log-plus-one logistic negate sign sine sqrt tan tanh"


@pytest.mark.parametrize("opcode", COMPLEX.split())
def test_complex_functions_agree_with_xla(opcode: str) -> None:
    """The branch cuts are where XLA's are."""
    expected = run_xla(hlo(opcode, [C64]), [C64])[0]
    np.testing.assert_allclose(ours(opcode, C64), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("opcode", ["exponential", "exponential-minus-one", "log-plus-one", "logistic"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_functions_agree_with_xla_near_zero_and_far_out(opcode: str, dtype: type) -> None:
    """What is tiny keeps its digits; what overflows on the way to a finite result, or beside a zero, does not."""
    parts = [0.0, 1e-9, -1e-5, 0.5, -2.5, 80.0, -80.0, 89.0, -100.0, 3e38]
    values = np.array([complex(real, imaginary) for real in parts for imaginary in parts], dtype)
    expected, found = run_xla(hlo(opcode, [values]), [values])[0], ours(opcode, values)
    for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
        # Of exp(-80 + i), less one, XLA gives up the imaginary part.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-34)


@pytest.mark.parametrize("opcode", ["exponential", "exponential-minus-one"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_exponentials_of_real_numbers_are_real(opcode: str, dtype: type) -> None:
    """Whatever the number is: NaN and infinities too have an imaginary part of zero, as on XLA."""
    values = np.zeros(5, dtype)
    values.real = [math.nan, math.inf, -math.inf, 1, 0]
    expected, found = run_xla(hlo(opcode, [values]), [values])[0], ours(opcode, values)
    np.testing.assert_array_equal(found.imag, expected.imag)
    np.testing.assert_allclose(found.real, expected.real, rtol=1e-6)


def test_complex_quotients_by_zero_and_infinity_keep_their_direction() -> None:
    """As in C99 (Annex G), and on XLA."""
    left = np.array([1 - 2.5j, 1 + 1j, 1e4 + 1j, 1 + 1j, complex(np.inf, 1)], np.complex64)
    right = np.zeros(5, np.complex64)
    right.real, right.imag = [-0.0, -0.0, -np.inf, np.inf, 2], [0.0, -0.0, -np.inf, 0, 1]
    expected, found = run_xla(hlo("divide", [left, right]), [left, right])[0], ours("divide", left, right)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found.real), np.signbit(expected.real))


@pytest.mark.parametrize("direction", ["EQ", "LT", "GE"])
@pytest.mark.parametrize("name", ["f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4"])
def test_the_total_order_of_bytes_is_that_of_xla(direction: str, name: str) -> None:
    """All pairs of all 256: NaNs of other bits are other numbers."""
    values = np.arange(256, dtype=np.uint8).view(numpy_dtype(DTYPES[name]))
    left, right = (np.ascontiguousarray(side) for side in np.meshgrid(values, values, indexing="ij"))
    assert_matches_xla("compare", left, right, result="pred", attributes=f", direction={direction}, type=TOTALORDER")


@pytest.mark.parametrize("opcode", ["add", "atan2", "divide", "multiply", "power", "subtract"])
def test_complex_arithmetic_agrees_with_xla(opcode: str) -> None:
    """Pairs of numbers neither of which is zero, which XLA's backends disagree about."""
    left, right = C64[[0, 1, 3, 4]], C64[[4, 3, 0, 0]]
    expected = run_xla(hlo(opcode, [left, right]), [left, right])[0]
    np.testing.assert_allclose(ours(opcode, left, right), expected, rtol=2e-5)


def test_complex_numbers_come_apart_and_together() -> None:
    """``complex(real(z), imag(z))`` is z, and abs has no overflow on the way."""
    parts = [ours(opcode, C64, result="f32") for opcode in ("real", "imag")]
    np.testing.assert_array_equal(ours("complex", *parts, result="c64"), C64)
    assert ours("abs", np.array([3e38 + 4e37j], np.complex64), result="f32")[0] == np.float32(np.hypot(3e38, 4e37))


@pytest.mark.parametrize("opcode", ["real", "imag"])
def test_real_numbers_have_parts_too(opcode: str) -> None:
    """A real number is its own real part, and has none that is imaginary."""
    assert_matches_xla(opcode, np.array([1.0, -2.0], np.float32))


@pytest.mark.parametrize("name", ["f32", "bf16", "s8", "c64", "f64", "s4", "pred"])
def test_select_agrees_with_xla(name: str) -> None:
    """By an array of predicates, bits unchanged."""
    dtype = numpy_dtype(DTYPES[name])
    predicate = np.array([True, False, True, False])
    one, two = np.array([1, 0, 1, 1]).astype(dtype), np.array([0, 1, 0, 0]).astype(dtype)
    assert_matches_xla("select", predicate, one, two, result=name)


def test_select_by_a_scalar_takes_one_operand_whole() -> None:
    """The predicate may be a scalar where the others are arrays (XLA, Select)."""
    one, two = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0], np.float32)
    for predicate in (np.array(True), np.array(False)):
        assert_matches_xla("select", predicate, one, two, result="f32")


def test_is_finite_is_false_for_infinities_and_nan() -> None:
    """As XLA has it, in bf16 as well."""
    assert_matches_xla("is-finite", np.array(FLOAT_VALUES).astype(ml_dtypes.bfloat16), result="pred")


@pytest.mark.parametrize("name", ["s32", "u8", "f32", "bf16", "c64", "s4"])
@pytest.mark.parametrize("axis", [0, 1])
def test_iota_agrees_with_xla(name: str, axis: int) -> None:
    """Indices past what the type counts are converted like integers: bf16 makes 260 of 259."""
    sizes = "5,300" if name != "s4" else "3,6"
    text = f"HloModule m\nENTRY e {{\n  ROOT r = {name}[{sizes}] iota(), iota_dimension={axis}\n}}\n"
    found, expected = run_ours(text, [])[0], run_xla(text, [])[0]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_broadcast_puts_operand_dimensions_where_told() -> None:
    """XLA's example: f32[2] into f32[2,2] by dimension 0 gives rows, by dimension 1 columns of one value each."""
    text = "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2,2] broadcast(p), dimensions={%d}\n}\n"
    values = [np.array([1.0, 2.0], np.float32)]
    assert run_ours(text % 0, values)[0].tolist() == [[1, 1], [2, 2]]
    assert run_ours(text % 1, values)[0].tolist() == [[1, 2], [1, 2]]


def test_map_runs_its_computation_on_every_element() -> None:
    """XLA's example: a computation of two scalars on two arrays."""
    text = """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] constant(10)
  d = f32[] multiply(a, c)
  ROOT e = f32[] add(d, b)
}
ENTRY e {
  p = f32[3] parameter(0)
  q = f32[3] parameter(1)
  ROOT r = f32[3] map(p, q), dimensions={0}, to_apply=f
}
"""
    arrays = [np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)]
    assert run_ours(text, arrays)[0].tolist() == [14, 25, 36]


def test_bf16_rounds_once_per_instruction() -> None:
    """256 + 1 is 256 in bf16, and so is one more: nothing is kept beyond the type."""
    values = np.full(3, 256, ml_dtypes.bfloat16)
    ones = np.ones(3, ml_dtypes.bfloat16)
    once = ours("add", values, ones)
    assert ours("add", once, ones).astype(np.float32).tolist() == [256, 256, 256]


def test_results_too_small_to_be_normal_are_zero_on_the_tpu_only() -> None:
    """A TPU has no subnormal f32; ``exact`` is IEEE."""
    tiny, half = np.array([1.5e-38, -1.5e-38], np.float32), np.array([0.5, 0.5], np.float32)
    assert ours("multiply", tiny, half, precision="tpu").tolist() == [0, 0]
    assert np.signbit(ours("multiply", tiny, half, precision="tpu")).tolist() == [False, True]
    assert ours("multiply", tiny, half)[0] == tiny[0] / 2 != 0


def test_an_operation_that_the_type_lacks_is_refused() -> None:
    """XLA has no floor of integers."""
    with pytest.raises(UnsupportedError, match="floor is not defined on s32"):
        ours("floor", np.array([1], np.int32))


def test_every_elementwise_opcode_has_a_rule() -> None:
    """Nothing of the category is missing from the table."""
    named = {name for name, row in OPERATIONS.items() if row.category is Category.ELEMENTWISE}
    assert named | {"iota", "broadcast"} <= RULES.keys()


def test_erf_is_close_to_the_math_library_everywhere() -> None:
    """Within 5e-7 on f32 and to a unit in the last place on f64."""
    values = np.linspace(-5, 5, 999)
    expected = [math.erf(value) for value in values]
    np.testing.assert_allclose(floats.erf(values.astype(np.float32)), expected, rtol=5e-7, atol=1e-7)
    np.testing.assert_allclose(floats.erf(values), expected, rtol=4e-16)
    # What is computed with it, such as a root of 1 - erf(x), has no value beyond.
    assert np.abs(floats.erf(np.linspace(-20, 20, 20001, dtype=np.float32))).max() == 1


@given(st.lists(st.integers(1, 4), min_size=0, max_size=4), st.integers(1, 40), st.data())
@settings(max_examples=60)
def test_blocks_do_not_show(sizes: list[int], block: int, data: st.DataObject) -> None:
    """However an array is cut and however its operands lie and broadcast, the result is NumPy's."""
    operands = [data.draw(laid_out(sizes)) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", block)
        found = blocks.compute(lambda a, b: a * b + b, operands, np.dtype(np.float32))
    expected = np.broadcast_to(operands[0] * operands[1] + operands[1], found.shape)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float32
    assert isinstance(found, np.ndarray)


@st.composite
def laid_out(draw: st.DrawFn, sizes: list[int]) -> Any:
    """Return an f32 array that broadcasts to ``sizes``: whole, transposed in memory, or repeated."""
    own = [draw(st.sampled_from([size, 1])) for size in sizes]
    array = np.arange(math.prod(own), dtype=np.float32).reshape(own)
    if draw(st.booleans()):
        array = np.asfortranarray(array).reshape(own)
    return np.broadcast_to(array, sizes) if draw(st.booleans()) else array


def test_choosing_kernel_agrees_with_its_twin() -> None:
    """Against a list comprehension, on broadcast operands of one and of several dimensions."""
    predicate = np.array([[True, False, True]])
    chosen, other = np.arange(6, dtype=np.uint16).reshape(2, 3), np.array([9], np.uint16)
    found = elementwise._choose(predicate, chosen, other)
    assert found.tolist() == [[int(c) if p else 9 for p, c in zip(predicate[0], row, strict=True)] for row in chosen]


@given(st.integers(-128, 127), st.integers(-128, 127))
@settings(max_examples=100)
def test_integer_division_agrees_with_its_twin(left: int, right: int) -> None:
    """Quotient and remainder make up the dividend, and the remainder has its sign."""
    one, two = np.array([left], np.int8), np.array([right], np.int8)
    with np.errstate(all="ignore"):
        quotient, rest = integers.divide(one, two), integers.remainder(one, two)
    expected = (-1, left) if right == 0 else (math.trunc(left / right), int(math.fmod(left, right)))
    assert (int(quotient[0]), int(rest[0])) == (-128 if expected[0] == 128 else expected[0], expected[1])
