"""Literals: canonical text, and the values that they stand for."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.oracle import run_ours, run_xla
from tests.text import xla
from tests.text.programs import entry, source
from tpusim.errors import UnsupportedError
from tpusim.ir.module import Literal
from tpusim.semantics.scalars import literal_number
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape
from tpusim.text import literal_values, parse_module


def read(shape: str, text: str) -> Literal:
    """Return the literal of a constant."""
    found = parse_module(source(entry(f"c = {shape} constant({text})"))).entry.root.immediate
    assert isinstance(found, Literal)
    return found


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("pred[]", "true"),
        ("pred[3]", "{true, 0, 1}"),
        ("s32[2,3]", "{{1,2,3},{4,5,6}}"),
        ("f32[2,1,2]", "{{{1.5,2}},{{3,4}}}"),
        ("f32[2,0]", "{{},{}}"),
        ("f32[0,2]", "{}"),
        ("c64[2]", "{(1,2),(3,-0.5)}"),
        ("(f32[2], (pred[], s32[]))", "({1,2}, (true, 3))"),
        ("f32[4]", "{nan,-nan,inf,-inf}"),
        ("f32[]", "nan(0x7f)"),
        ("s8[3]", "{1 2,,3}"),
        ("f32[12]", "{1,2,3,4,5,6,7,8,9,10,11,12}"),
    ],
)
def test_the_canonical_text_is_xlas(shape: str, text: str) -> None:
    """Braces, blanks and commas are as XLA prints the same constant in full."""
    assert f"constant({read(shape, text).text})" in xla.reprint_in_full(entry(f"c = {shape} constant({text})"))


@pytest.mark.parametrize(
    ("shape", "text", "dtype"),
    [
        ("s32[2,3]", "{{1,2,3},{4,5,6}}", np.int32),
        ("u64[2]", "{18446744073709551615, -1}", np.uint64),
        ("s4[2]", "{-8, 7}", ml_dtypes.int4),
        ("pred[2]", "{true, 0}", np.bool_),
        ("f32[3]", "{0.1, inf, -0}", np.float32),
        ("bf16[2]", "{0.1, 1e38}", ml_dtypes.bfloat16),
        ("f8e4m3fn[2]", "{448, 0.3}", ml_dtypes.float8_e4m3fn),
        ("c64[1,2]", "{{(1, 2), (3, -0.5)}}", np.complex64),
        ("f32[2,0]", "{{}, {}}", np.float32),
        ("c128[0]", "{}", np.complex128),
    ],
)
def test_values_have_the_type_and_the_dimensions(shape: str, text: str, dtype: type) -> None:
    """Every kind of element type, with NumPy's or ml_dtypes' own reading of the numbers as the oracle."""
    values = literal_values(read(shape, text), parse_shape(shape))
    plain = eval(
        text.replace("{", "[").replace("}", "]").replace("(", "complex("),
        {  # the braces of a literal
            "inf": math.inf,
            "true": True,
            "complex": complex,
        },
    )
    if dtype is np.uint64:
        plain = [number % 2**64 for number in plain]
    expected = np.array(plain, dtype=dtype if dtype is not ml_dtypes.int4 else np.int64).astype(dtype)
    assert values.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(values, expected.reshape(values.shape))
    assert "x".join(map(str, values.shape)) == shape[shape.index("[") + 1 : -1].replace(",", "x")


@pytest.mark.parametrize(
    ("dtype", "text", "bits"),
    [
        ("f32", "nan", 0x7FC00000),
        ("f32", "-nan", 0xFFC00000),
        ("f32", "nan(0x1)", 0x7F800001),
        ("f64", "-nan(0x7f)", 0xFFF000000000007F),
        ("f16", "nan(0x3ff)", 0x7FFF),
        ("bf16", "nan(0x1)", 0x7F81),
        ("f32", "-0", 0x80000000),
        ("f8e4m3fn", "nan", 0x7F),
        ("f8e4m3fn", "-nan", 0xFF),
        ("f8e4m3fn", "-nan(0x8000000000000)", 0xFF),
    ],
)
def test_a_nan_keeps_its_sign_and_payload(dtype: str, text: str, bits: int) -> None:
    """IEEE 754: sign, exponent of ones, payload; the quiet bit alone if none is written."""
    values = literal_values(read(f"{dtype}[1]", f"{{{text}}}"), parse_shape(f"{dtype}[1]"))
    assert values.view(f"uint{8 * values.dtype.itemsize}")[0] == bits


@pytest.mark.parametrize("name", sorted(name for name, dtype in DTYPES.items() if dtype.is_float))
def test_what_is_no_number_has_the_bits_of_xla(name: str) -> None:
    """NaN and infinity of either sign, whether the type tells them apart or has neither."""
    text = entry(f"ROOT c = {name}[4] constant({{-nan, nan, inf, -inf}})")
    found, expected = run_ours(text, [])[0], run_xla(text, [])[0]
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", sorted(name for name, dtype in DTYPES.items() if dtype.is_float))
def test_numbers_beside_a_tie_are_rounded_as_by_xla(name: str) -> None:
    """Once, or through f32, which makes a tie of them: ties between neighbours of 0 to 10 bits, by a hair missed."""
    ties = [1 + 2.0 ** -(bits + 1) for bits in range(11)]
    numbers = [repr(sign * tie + hair) for sign in (1, -1) for tie in ties for hair in (-1e-13, 0, 1e-13)]
    numbers = numbers[: len(numbers) // 2] if name == "f8e8m0fnu" else numbers
    text = entry(f"ROOT c = {name}[{len(numbers)}] constant({{{', '.join(numbers)}}})")
    found, expected = run_ours(text, [])[0], run_xla(text, [])[0]
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_a_tuple_is_a_tuple_of_values() -> None:
    """Nested as its shape is."""
    shape = "((), f32[2], (pred[], c64[]))"
    values = literal_values(read(shape, "((), {1, 2}, (true, (3, 4)))"), parse_shape(shape))
    assert values[0] == ()
    assert values[1].tolist() == [1, 2]
    assert (bool(values[2][0]), complex(values[2][1])) == (True, 3 + 4j)


def test_an_elided_value_is_unknown() -> None:
    """The text says so, and asking for the value says what to do."""
    literal = read("f32[64,64]", "{...}")
    assert literal.elided
    with pytest.raises(UnsupportedError, match="print_large_constants"):
        literal_values(literal, parse_shape("f32[64,64]"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("-3", -3),
        ("1e-05", 1e-05),
        ("-inf", -math.inf),
        ("{1, 2}", None),
        ("{3}", 3),
        ("(1, 2)", None),
        ("{...}", None),
    ],
)
def test_a_scalar_has_a_value_without_numpy(text: str, value: object) -> None:
    """Trip counts and the like are asked for while lowering."""
    found = literal_number(Literal(text))
    assert found == value
    assert type(found) is type(value)
    assert math.isnan(literal_number(Literal("nan(0x7f)")) or 0)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "element"), [("f32", "1.5"), ("s32", "-7"), ("f32", "nan"), ("bf16", "3e5")])
def test_a_million_elements_are_read_in_one_go(dtype: str, element: str) -> None:
    """The count is checked, and the text is that of its elements."""
    text = ", ".join([element] * 1_000_000)
    assert read(f"{dtype}[1000000]", f"{{{text}}}").text == f"{{{text}}}"
