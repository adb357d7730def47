"""Constants: what Python's and NumPy's values become, and that the text holds every bit of them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.build.builder import Builder
from tpusim.errors import ProgramError
from tpusim.shapes.dtype import DTYPES, numpy_dtype
from tpusim.source import SourceText
from tpusim.text import literal_values, parse_module, print_module

FLOAT_BYTES = sorted(name for name, dtype in DTYPES.items() if dtype.is_float and dtype.bits == 8)
TYPES = [
    *(np.float64, np.float32, np.float16, ml_dtypes.bfloat16),
    *(numpy_dtype(DTYPES[name]) for name in FLOAT_BYTES),
    *(np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
]


def constant_of(value: Any, dtype: str | None = None) -> Any:
    """Return the value that a constant has after its module was printed and read, with no broadcast of one element."""
    b = Builder("m")
    b.constant(value, dtype)
    module = parse_module(SourceText("m", print_module(b.build())))
    assert module == b.build()
    constant = next(i for i in module.entry if i.opcode == "constant")
    return literal_values(constant.immediate, constant.shape)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (True, None, "pred[]"),
        (3, None, "s32[]"),
        (2.5, None, "f32[]"),
        (1j, None, "c64[]"),
        ([1, 2], None, "s32[2]"),
        ([[1, 2], [3, 4.0]], None, "f32[2,2]"),
        ([[], []], None, "f32[2,0]"),
        (np.zeros((0, 3), np.int8), None, "s8[0,3]"),
        (np.float64(1), None, "f64[]"),
        (np.arange(3), None, "s64[3]"),
        (ml_dtypes.bfloat16(1), None, "bf16[]"),
        (np.arange(3, dtype=">i4"), None, "s32[3]"),
        (np.array([1, -2], ml_dtypes.int4), None, "s4[2]"),
        (np.array([1, 2], ml_dtypes.float8_e4m3fn), None, "f8e4m3fn[2]"),
        (7, "u8", "u8[]"),
        ([1.5, 2], "bf16", "bf16[2]"),
        ([1, 2], "c128", "c128[2]"),
    ],
)
def test_a_value_has_the_shape_that_it_says(value: Any, dtype: str | None, shape: str) -> None:
    """Python's numbers have XLA's usual types, arrays their own, and ``dtype`` overrules both."""
    op = Builder("m").constant(value, dtype)
    assert str(op.shape) == shape


def test_an_array_of_equal_elements_is_a_broadcast() -> None:
    """As in XlaBuilder; zeros of either sign are not equal."""
    b = Builder("m")
    assert str(b.constant([[2.0, 2.0]]).shape) == "f32[1,2]"
    b.constant([0.0, -0.0])
    assert [i.opcode for i in b.build().entry] == ["constant", "broadcast", "constant"]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
@given(data=st.data())
def test_every_bit_survives_the_text(dtype: Any, data: st.DataObject) -> None:
    """Any bits as elements, NaNs with payloads among them: written and read they are the same bits."""
    width = np.dtype(dtype).itemsize
    words = data.draw(st.lists(st.integers(0, 2 ** (8 * width) - 1), min_size=2, max_size=6, unique=True))
    array = np.array(words, f"uint{8 * width}").view(dtype).reshape(1, -1)
    np.testing.assert_array_equal(constant_of(array).view(f"uint{8 * width}"), array.view(f"uint{8 * width}"))


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.is_float])
def test_every_float_type_has_a_text(dtype: str) -> None:
    """Numbers that all types hold."""
    values = constant_of([1.0, 2.0, 4.0], dtype)
    np.testing.assert_array_equal(values.astype(np.float32), [1, 2, 4])


def test_complex_parts_keep_signs_and_nans() -> None:
    """Real and imaginary part are written on their own."""
    array = np.array([complex(0.0, -0.0), complex(float("nan"), float("inf")), 1e-40j], np.complex64)
    np.testing.assert_array_equal(constant_of(array).view(np.uint32), array.view(np.uint32))


def test_rows_of_a_matrix_are_where_they_were() -> None:
    """Row-major order, at any rank."""
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    np.testing.assert_array_equal(constant_of(array), array)


@pytest.mark.parametrize(("value", "dtype"), [(256, "u8"), (-1, "u32"), (2**40, None), (1.5, "s32"), (8, "s4")])
def test_integers_out_of_range_are_refused(value: Any, dtype: str | None) -> None:
    """The error names the range."""
    with pytest.raises(ProgramError, match="expected integers from"):
        Builder("m").constant(value, dtype)


def test_words_are_no_numbers() -> None:
    """Text has no element type."""
    with pytest.raises(ProgramError, match="expected numbers"):
        Builder("m").constant("abc")


def test_xla_reads_the_zero_below_zero() -> None:
    """XLA takes ``-0`` for an integer; what we write comes back with its sign."""
    xla = pytest.importorskip("tests.text.xla")
    b = Builder("m")
    b.constant([-0.0, 1.0])
    assert "-0, 1" in xla.reprint(print_module(b.build()))


@pytest.mark.parametrize("name", FLOAT_BYTES)
def test_nans_of_a_byte_are_written_as_xla_prints_them(name: str) -> None:
    """What XLA prints of the NaNs of our text, with their signs and payloads, is what stands there."""
    xla = pytest.importorskip("tests.text.xla")
    b = Builder("m")
    b.constant(np.arange(256, dtype=np.uint8).view(numpy_dtype(DTYPES[name])))
    nans = re.findall(r"-?nan(?:\(\w+\))?", print_module(b.build()))
    assert nans == re.findall(r"-?nan(?:\(\w+\))?", xla.reprint_in_full(print_module(b.build())))
