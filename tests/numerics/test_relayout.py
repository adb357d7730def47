"""Packing and unpacking: the documents' examples, the naive twin, every width, and bytes worked out by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.shapes.strategies import DATA_TYPES, naive_buffer, tiled_arrays
from tpusim.errors import ProgramError, UnsupportedError
from tpusim.numerics.values.relayout import pack, unpack
from tpusim.shapes.dtype import DTYPES, DType, numpy_dtype
from tpusim.shapes.layout import Layout
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape

PACKED = [(dtype, bits) for dtype in DATA_TYPES for bits in (1, 2, 4) if dtype.is_pred or dtype.bits <= bits]


def array(text: str) -> ArrayShape:
    """Return the array that a text states."""
    shape = parse_shape(text)
    assert isinstance(shape, ArrayShape)
    return shape


def random_values(shape: ArrayShape) -> NDArray[Any]:
    """Return values of random bits, as many of them as the element type has."""
    dtype = shape.dtype
    raw = np.random.default_rng(1).integers(0, 256, (*shape.dimensions, dtype.storage_bits // 8), np.uint8)
    raw &= 1 if dtype.is_pred else (1 << min(dtype.bits, 8)) - 1
    return raw.view(numpy_dtype(dtype)).reshape(shape.dimensions)


def numbered(dimensions: tuple[int, ...]) -> NDArray[np.int32]:
    """Return an array of 1, 2, 3, ... in row-major order."""
    return np.arange(1, np.prod(dimensions, dtype=int) + 1, dtype=np.int32).reshape(dimensions)


def test_padded_dimensions_hold_the_padding_value() -> None:
    """XLA, "Shapes and layout": [2 x 3] padded to [3 x 5] in column order is a d 0 b e 0 c f 0 0 0 0 0 0 0."""
    shape = ArrayShape(DTYPES["s32"], (2, 3), (), Layout((0, 1), padded_dimensions=(3, 5)))
    packed = pack(numbered((2, 3)), shape).view(np.int32)
    assert packed.tolist() == [1, 4, 0, 2, 5, 0, 3, 6, 0, 0, 0, 0, 0, 0, 0]


def test_the_padding_value_may_be_any_scalar() -> None:
    """Padding of the dimensions takes it, padding of tiles does not."""
    layout = Layout((0,), tiles=((4,),), padded_dimensions=(3,), padding_value=-1.5)
    packed = pack(np.array([1, 2], np.float32), ArrayShape(DTYPES["f32"], (2,), (), layout), fill=7)
    assert packed.view(np.float32).tolist() == [1, 2, -1.5, 7]


def test_the_first_figure_in_bytes() -> None:
    """XLA, "Tiled layout", figure 1: 3x5 under 2x2 tiles, element (2,3), the fourteenth, at position 17."""
    packed = pack(numbered((3, 5)), array("s32[3,5]{1,0:T(2,2)}")).view(np.int32)
    first_row = [1, 2, 6, 7, 3, 4, 8, 9, 5, 0, 10, 0]
    assert packed.tolist() == [*first_row, 11, 12, 0, 0, 13, 14, 0, 0, 15, 0, 0, 0]
    assert packed[17] == numbered((3, 5))[2, 3]


def test_two_bf16_rows_share_each_word() -> None:
    """Under T(8,128)(2,1) row 0 is the lower and row 1 the upper half of the first words."""
    values = np.array([[1.0] * 3, [2.0] * 3], ml_dtypes.bfloat16)
    words = pack(values, array("bf16[2,3]{1,0:T(8,128)(2,1)}")).view(np.uint32)
    one, two = 0x3F80, 0x4000
    assert [hex(word) for word in words[:4]] == [*[hex(two << 16 | one)] * 3, "0x0"]


def test_narrow_elements_fill_a_byte_from_its_low_bits() -> None:
    """Element 0 of four bits is the low half of byte 0; what is left over is fill."""
    nibbles = np.array([1, -2, 3], ml_dtypes.int4)
    pairs = np.array([1, -2, -1], ml_dtypes.int2)
    assert pack(nibbles, array("s4[3]{0:E(4)}"), fill=-1).tolist() == [0xE1, 0xF3]
    assert pack(pairs, array("s2[3]{0:E(2)}")).tolist() == [0b00_11_10_01]


def test_without_a_width_narrow_elements_fill_bytes() -> None:
    """XLA stores a byte per s4 unless the layout says E(4)."""
    assert pack(np.array([1, -2], ml_dtypes.int4), array("s4[2]")).tolist() == [0x01, 0x0E]


def test_metadata_stands_before_the_data() -> None:
    """M(3): three zero bytes, which need not keep the data aligned."""
    shape = array("u16[2]{0:M(3)}")
    packed = pack(np.array([0x0102, 0x0304], np.uint16), shape)
    assert packed.tolist() == [0, 0, 0, 2, 1, 4, 3]
    assert unpack(packed, shape).tolist() == [0x0102, 0x0304]


@given(tiled_arrays(), st.integers(-5, 5))
def test_pack_is_pad_reshape_transpose(shape: ArrayShape, fill: int) -> None:
    """XLA, "Tiled layout": the naive twin does it with NumPy on the whole array."""
    assert isinstance(shape.layout, Layout)
    expected = naive_buffer(numbered(shape.dimensions).astype(np.int64), shape.layout)
    expected[expected == 0] = fill
    assert pack(numbered(shape.dimensions), shape, fill=fill).view(np.int32).tolist() == expected.tolist()


@given(tiled_arrays())
def test_unpack_inverts_pack(shape: ArrayShape) -> None:
    """Whatever the tiles, nothing but padding is lost."""
    values = numbered(shape.dimensions)
    back = unpack(pack(values, shape, fill=-1), shape)
    assert (back.shape, back.dtype, back.tolist()) == (values.shape, values.dtype, values.tolist())


@pytest.mark.parametrize("dtype", DATA_TYPES, ids=str)
def test_every_element_type_keeps_its_bits(dtype: DType) -> None:
    """Random bits, NaN payloads among them, come back as they were."""
    shape = ArrayShape(dtype, (5, 7), (), Layout((0, 1), ((2, 4), (2, 1))))
    values = random_values(shape)
    back = unpack(pack(values, shape), shape)
    assert (back.dtype, back.tobytes()) == (values.dtype, values.tobytes())


@pytest.mark.parametrize(("dtype", "bits"), PACKED, ids=lambda value: str(value))
def test_every_packed_type_keeps_its_bits(dtype: DType, bits: int) -> None:
    """Likewise with 1, 2 or 4 bits per element, in 8 * 8 * bits / 8 bytes (5x7 pads to 8x8)."""
    shape = ArrayShape(dtype, (5, 7), (), Layout((0, 1), ((4, 4),), element_size_bits=bits))
    values = random_values(shape)
    packed = pack(values, shape, fill=1)
    assert packed.size == 8 * 8 * bits // 8
    assert unpack(packed, shape).tobytes() == values.tobytes()


def test_a_buffer_may_begin_at_any_byte() -> None:
    """A slice of a larger memory need not be aligned to the element."""
    shape = array("f32[3]{0:T(4)}")
    values = np.array([1, 2, 3], np.float32)
    memory = np.concatenate([np.zeros(1, np.uint8), pack(values, shape)])
    assert unpack(memory[1:], shape).tolist() == [1, 2, 3]


@pytest.mark.parametrize("values", [np.zeros((3, 2), np.float32), np.zeros((2, 3), np.int32)])
def test_an_array_that_is_not_of_the_shape_is_refused(values: NDArray[Any]) -> None:
    """Sizes or element type differ."""
    with pytest.raises(ProgramError, match=r"expected an array float32\[2, 3\]"):
        pack(values, array("f32[2,3]"))


def test_a_buffer_of_another_length_is_refused() -> None:
    """Four floats are sixteen bytes."""
    with pytest.raises(ProgramError, match=r"expected a buffer uint8\[16\]"):
        unpack(np.zeros(12, np.uint8), array("f32[4]"))


@pytest.mark.parametrize("text", ["f32[2]{0:E(4)}", "s4[2]{0:E(3)}", "f32[2]{0:P(f32[4])}", "token[]"])
def test_what_cannot_be_stored_is_refused(text: str) -> None:
    """Widths that lose bits or straddle bytes, shapes stored as others, and types without values."""
    with pytest.raises(UnsupportedError):
        unpack(np.zeros(0, np.uint8), array(text))
