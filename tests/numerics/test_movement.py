"""Movement: the document's examples, XLA as the oracle on random attributes, and bitcasts byte by byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.numerics.one_instruction import check_exactly, numbered, program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tests.shapes.strategies import DATA_TYPES, tiled_arrays
from tpusim.numerics.ops.movement import padded, same_order
from tpusim.shapes.address import linear_index, multi_index, physical_bytes, physical_order_sizes
from tpusim.shapes.dtype import DType, numpy_dtype
from tpusim.shapes.layout import Layout
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=3)


def check(result: str, instruction: str, inputs: list[np.ndarray[Any, Any]]) -> None:
    """Assert that we and XLA give the same bits for one instruction on s32 parameters."""
    text = program(result, instruction, [shape_text("s32", value.shape) for value in inputs])
    check_exactly(text, inputs)


def one_by_one_padded(array: np.ndarray[Any, Any], value: int, paddings: list[tuple[int, int, int]]) -> Any:
    """Naive twin of ``padded``: put each element where the definition says, then cut the edges."""
    step = [interior + 1 for _, _, interior in paddings]
    dilated = [(n - 1) * s + 1 if n else 0 for n, s in zip(array.shape, step, strict=True)]
    whole = np.full([n + lo + hi for n, (lo, hi, _) in zip(dilated, paddings, strict=True)], value, array.dtype)
    for index in np.ndindex(array.shape):
        place = tuple(i * s + lo for i, s, (lo, _, _) in zip(index, step, paddings, strict=True))
        if all(0 <= p < n for p, n in zip(place, whole.shape, strict=True)):
            whole[place] = array[index]
    return whole


@st.composite
def pads(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Draw sizes and a padding for each that leaves no size negative."""
    sizes, paddings = draw(SIZES), []
    for size in sizes:
        interior, low = draw(st.integers(0, 2)), draw(st.integers(-4, 4))
        dilated = (size - 1) * (interior + 1) + 1 if size else 0
        low = max(low, -dilated)
        paddings.append((low, draw(st.integers(max(-4, -dilated - low), 4)), interior))
    return sizes, paddings


@given(pads())
def test_padding_agrees_with_its_naive_twin(drawn: tuple[list[int], list[tuple[int, int, int]]]) -> None:
    """Low, high and interior padding of any sign where the definition allows one."""
    sizes, paddings = drawn
    array = numbered(sizes)
    np.testing.assert_array_equal(padded(array, -7, paddings), one_by_one_padded(array, -7, paddings))


@given(pads())
@settings(max_examples=15)
def test_pad_agrees_with_xla(drawn: tuple[list[int], list[tuple[int, int, int]]]) -> None:
    """The same through HLO text."""
    sizes, paddings = drawn
    array, value = numbered(sizes), np.array(-7, np.int32)
    result = shape_text("s32", one_by_one_padded(array, -7, paddings).shape)
    check(result, f"pad(p0, p1), padding={'x'.join('_'.join(map(str, p)) for p in paddings)}", [array, value])


@given(SIZES, st.data())
@settings(max_examples=15)
def test_slice_agrees_with_xla(sizes: list[int], data: st.DataObject) -> None:
    """Start, limit and stride of every dimension."""
    parts, wanted = [], []
    for size in sizes:
        start = data.draw(st.integers(0, size))
        limit, stride = data.draw(st.integers(start, size)), data.draw(st.integers(1, 3))
        parts.append(f"[{start}:{limit}:{stride}]")
        wanted.append(-(-(limit - start) // stride))
    check(shape_text("s32", wanted), f"slice(p0), slice={{{', '.join(parts)}}}", [numbered(sizes)])


@given(st.permutations(range(3)))
@settings(max_examples=6)
def test_transpose_agrees_with_xla(order: list[int]) -> None:
    """Dimension i of the result is dimension order[i] of the operand."""
    array = numbered((2, 3, 4))
    result = shape_text("s32", [array.shape[d] for d in order])
    check(result, f"transpose(p0), dimensions={{{','.join(map(str, order))}}}", [array])


@pytest.mark.parametrize(
    ("result", "instruction", "sizes"),
    [
        ("s32[6,4]", "reshape(p0)", (2, 3, 4)),
        ("s32[]", "reshape(p0)", (1, 1)),
        ("s32[1,1]", "reshape(p0)", ()),
        ("s32[2,3,4]", "reverse(p0), dimensions={0,2}", (2, 3, 4)),
        ("s32[3]", "reverse(p0), dimensions={}", (3,)),
        ("s32[2,6]", "concatenate(p0, p0, p0), dimensions={1}", (2, 2)),
    ],
)
def test_the_operation_agrees_with_xla(result: str, instruction: str, sizes: tuple[int, ...]) -> None:
    """Reshape, reverse and concatenate."""
    check(result, instruction, [numbered(sizes)])


EXAMPLES: list[tuple[str, list[Any], list[Any]]] = [
    ("slice(p0), slice={[2:4]}", [[0, 1, 2, 3, 4]], [2, 3]),
    (
        "slice(p0), slice={[2:4], [1:3]}",
        [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]],
        [[7, 8], [10, 11]],
    ),
    ("dynamic-slice(p0, p1), dynamic_slice_sizes={2}", [[0, 1, 2, 3, 4], 2], [2, 3]),
    (
        "dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,2}",
        [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], 2, 1],
        [[7, 8], [10, 11]],
    ),
    ("dynamic-update-slice(p0, p1, p2)", [[0, 1, 2, 3, 4], [5, 6], 2], [0, 1, 5, 6, 4]),
    (
        "dynamic-update-slice(p0, p1, p2, p3)",
        [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], [[12, 13], [14, 15], [16, 17]], 1, 1],
        [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]],
    ),
    ("concatenate(p0, p1), dimensions={0}", [[[1, 2], [3, 4], [5, 6]], [[7, 8]]], [[1, 2], [3, 4], [5, 6], [7, 8]]),
    ("concatenate(p0, p1, p2), dimensions={0}", [[2, 3], [4, 5], [6, 7]], [2, 3, 4, 5, 6, 7]),
]


@pytest.mark.parametrize(("instruction", "inputs", "expected"), EXAMPLES)
def test_the_examples_of_the_document(instruction: str, inputs: list[Any], expected: list[Any]) -> None:
    """XLA, Operation Semantics: Slice, DynamicSlice, DynamicUpdateSlice and Concatenate, with their own numbers."""
    arrays = [np.array(value, np.int32) for value in inputs]
    text = program(
        shape_text("s32", np.shape(expected)), instruction, [shape_text("s32", array.shape) for array in arrays]
    )
    assert run_ours(text, arrays)[0].tolist() == expected


@pytest.mark.parametrize("dtype", DATA_TYPES, ids=str)
def test_every_type_moves_bit_by_bit(dtype: DType) -> None:
    """Slicing and turning around leave the bits of every element type alone."""
    array = np.array([[1, 0, 1], [0, 0, 1]]).astype(numpy_dtype(dtype))
    text = program(f"{dtype}[2,2]", "slice(q), slice={[0:2],[1:3]}", [f"{dtype}[2,3]"])
    text = text.replace("  ROOT", f"  q = {dtype}[2,3] reverse(p0), dimensions={{1}}\n  ROOT")
    assert run_ours(text, [array])[0].tobytes() == array[:, ::-1][:, 1:].tobytes()


@pytest.mark.parametrize("starts", [(0, 0), (1, 2), (9, -9), (-1, 3)])
def test_starts_of_dynamic_slices_are_clamped(starts: tuple[int, int]) -> None:
    """Each start moves into 0..size - slice."""
    inputs = [numbered((3, 5)), *(np.array(start, np.int32) for start in starts)]
    check("s32[2,3]", "dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,3}", inputs)


@pytest.mark.parametrize("starts", [(0, 0), (1, 2), (9, -9), (-1, 3)])
def test_starts_of_dynamic_updates_are_clamped(starts: tuple[int, int]) -> None:
    """Each start moves into 0..size - update."""
    inputs = [numbered((3, 5)), -numbered((2, 3)), *(np.array(start, np.int32) for start in starts)]
    check("s32[3,5]", "dynamic-update-slice(p0, p1, p2, p3)", inputs)


def test_a_huge_unsigned_start_is_clamped_to_the_top() -> None:
    """u32 4294967295 is not -1."""
    text = program("s32[2]", "dynamic-slice(p0, p1), dynamic_slice_sizes={2}", ["s32[5]", "u32[]"])
    inputs = [numbered((5,)), np.array(2**32 - 1, np.uint32)]
    assert run_ours(text, inputs)[0].tolist() == run_xla(text, inputs)[0].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("line", "count"), [("dynamic-update-slice(p0, p1)", 2), ("dynamic-slice(p0), dynamic_slice_sizes={}", 1)]
)
def test_a_number_has_one_place(line: str, count: int) -> None:
    """Of no dimensions, and without a start."""
    check("s32[]", line, [np.array(n, np.int32) for n in range(7, 7 + count)])


def test_an_update_leaves_its_operand_alone() -> None:
    """Values are shared, so nobody may write into one."""
    array = numbered((4,))
    text = program("s32[4]", "dynamic-update-slice(p0, p1, p2)", ["s32[4]", "s32[1]", "s32[]"])
    changed = run_ours(text, [array, np.array([9], np.int32), np.array(2, np.int32)])[0]
    assert changed.tolist() == [1, 2, 9, 4]
    assert array.tolist() == [1, 2, 3, 4]


def naive_bitcast(array: np.ndarray[Any, Any], source: ArrayShape, target: ArrayShape) -> np.ndarray[Any, Any]:
    """Fetch every element of the result from its position in the operand's buffer; padding there is 0."""
    result = np.zeros(target.dimensions, array.dtype)
    for index in np.ndindex(target.dimensions):
        found = multi_index(source, linear_index(target, index))
        result[index] = 0 if found is None else array[found]
    return result


def check_bitcast(source: ArrayShape, target: ArrayShape) -> None:
    """Assert that a bitcast of s32 between two layouts agrees with the naive twin."""
    array = numbered(source.dimensions)
    ours = run_ours(program(str(target), "bitcast(p0)", [str(source)]), [array])[0]
    np.testing.assert_array_equal(ours, naive_bitcast(array, source, target))


@pytest.mark.parametrize(
    ("source", "target", "is_fast"),
    [
        ("s32[16,128]{1,0:T(8,128)}", "s32[1,2,8,128]{3,2,1,0:T(8,128)}", True),
        ("s32[3,200]{1,0:T(8,128)}", "s32[200,3]{0,1:T(8,128)}", True),
        ("s32[2048]{0:T(1024)}", "s32[16,128]{1,0:T(8,128)}", True),
        ("s32[4,16,256]{2,1,0:T(8,128)(2,1)}", "s32[64,256]{1,0:T(8,128)(2,1)}", True),
        ("s32[4,12,256]{2,1,0:T(8,128)}", "s32[48,256]{1,0:T(8,128)}", False),
        ("s32[300]{0:T(512)(128)(2,1)}", "s32[1,300]{1,0:T(2,128)(2,1)}", False),
        ("s32[8,256]{1,0:T(8,128)}", "s32[1,2,8,128]{3,2,1,0:T(8,128)}", False),
        ("s32[3,9,8]{1,2,0:T(8,128)}", "s32[3,1,8]{1,2,0:T(8,128)}", False),
    ],
)
def test_a_bitcast_reads_the_same_bytes_under_the_other_layout(source: str, target: str, is_fast: bool) -> None:
    """Pairs as compiled programs have them, and which of them only rename dimensions."""
    before, after = parse_shape(source), parse_shape(target)
    assert isinstance(before, ArrayShape)
    assert isinstance(after, ArrayShape)
    if physical_bytes(before) == physical_bytes(after):
        check_bitcast(before, after)
    assert same_order(before, after) == is_fast


@st.composite
def bitcasts(draw: st.DrawFn) -> tuple[ArrayShape, ArrayShape]:
    """Draw a tiled array and another one that joins physical dimensions of it, or has more of size 1."""
    source = draw(tiled_arrays())
    sizes: list[int] = []
    for size in physical_order_sizes(source):
        sizes = [*sizes[:-1], sizes[-1] * size] if sizes and draw(st.booleans()) else [*sizes, size]
        sizes += [1] * draw(st.sampled_from([0, 0, 1]))
    order = tuple(draw(st.permutations(range(len(sizes)))))
    dimensions = [0] * len(sizes)
    for size, number in zip(sizes, order[::-1], strict=True):
        dimensions[number] = size
    return source, ArrayShape(source.dtype, tuple(dimensions), (), Layout(order, source.actual_layout.tiles))


@given(bitcasts())
def test_bitcasts_agree_with_the_naive_twin(drawn: tuple[ArrayShape, ArrayShape]) -> None:
    """Whether the result only renames dimensions or goes through bytes."""
    source, target = drawn
    assume(physical_bytes(source) == physical_bytes(target))
    check_bitcast(source, target)


def test_a_bitcast_may_change_the_type() -> None:
    """Bits stay: 1.0 in f32 is 0x3f800000."""
    text = program("u32[2,1]{0,1}", "bitcast(p0)", ["f32[2]{0}"])
    assert run_ours(text, [np.array([1.0, -0.0], np.float32)])[0].tolist() == [[0x3F800000], [0x80000000]]


def test_a_bitcast_may_change_the_width() -> None:
    """Bytes stay: two numbers of 8 bits lie where one of 16 did, the low half first."""
    text = program("u8[4]{0}", "bitcast(p0)", ["u16[2]{0}"])
    assert run_ours(text, [np.array([0x0102, 0x0304], np.uint16)])[0].tolist() == [2, 1, 4, 3]
