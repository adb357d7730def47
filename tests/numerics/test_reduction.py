"""Reductions: the document's examples, naive twins on random windows, XLA as the oracle, and corners of the rules."""

from __future__ import annotations

from functools import reduce as fold
from itertools import product
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics.one_instruction import check_exactly, computation, numbered, program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tpusim.ir.attributes import Window, WindowDimension
from tpusim.numerics.ops.reduction import UFUNCS, reduced
from tpusim.numerics.site import Settings
from tpusim.text.attributes.structured import show_window
from tpusim.text.literals import literal_values

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, np.dtype[Any]]

DIGITS = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ten = s32[] constant(10)
  d = s32[] multiply(a, ten)
  ROOT c = s32[] add(d, b)
}"""

LATER = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  zero = s32[] subtract(a, a)
  ROOT c = s32[] add(zero, b)
}"""
"""The later of two elements: associative, does not commute, and is none of the usual computations."""

LARGEST_AND_PLACE = """f {
  a = s32[] parameter(0)
  i = s32[] parameter(1)
  b = s32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GE
  x = s32[] select(more, a, b)
  k = s32[] select(more, i, j)
  ROOT t = (s32[], s32[]) tuple(x, k)
}"""
"""The larger value and where it was; the earlier one of two alike."""

RUNNING_SUM = """f {
  x = s32[2] parameter(0)
  sum = s32[2] parameter(1)
  new = s32[2] add(x, sum)
  ROOT t = (s32[2], s32[2]) tuple(new, new)
}"""


@pytest.mark.parametrize(
    ("dimensions", "expected"),
    [
        ((0,), [[4, 8, 12], [16, 20, 24]]),
        ((2,), [[6, 15]] * 4),
        ((0, 1), [20, 28, 36]),
        ((0, 1, 2), 84),
    ],
)
def test_the_example_of_reduce(dimensions: tuple[int, ...], expected: Any) -> None:
    """XLA, Operation Semantics, Reduce: a 4x2x3 array of 1..6 four times."""
    array = np.broadcast_to(numbered((2, 3)), (4, 2, 3))
    result = shape_text("s32", np.shape(expected))
    dims = ",".join(map(str, dimensions))
    text = program(
        result, f"reduce(p0, p1), dimensions={{{dims}}}, to_apply=f", ["s32[4,2,3]", "s32[]"], computation("add")
    )
    assert run_ours(text, [array, np.int32(0)])[0].tolist() == expected


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["s32", "u8", "pred"])
def test_integers_reduce_as_in_xla(opcode: str, dtype: str) -> None:
    """Sums and products wrap; on truth values they are or and and. The initial value counts."""
    array = (numbered((3, 4, 5)) % 7).astype({"s32": np.int32, "u8": np.uint8, "pred": np.bool_}[dtype])
    init = np.array(1).astype(array.dtype)
    text = program(
        f"{dtype}[4]",
        "reduce(p0, p1), dimensions={0,2}, to_apply=f",
        [f"{dtype}[3,4,5]", f"{dtype}[]"],
        computation(opcode, dtype),
    )
    check_exactly(text, [array, init])


@pytest.mark.parametrize("opcode", ["and", "or", "xor"])
def test_bits_reduce_as_in_xla(opcode: str) -> None:
    """Bit by bit, with the initial value."""
    text = program("s32[3]", "reduce(p0, p1), dimensions={1}, to_apply=f", ["s32[3,7]", "s32[]"], computation(opcode))
    check_exactly(text, [numbered((3, 7)) * 37, np.array(29, np.int32)])


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_nan_wins_a_reduction(opcode: str) -> None:
    """NaN over anything, also over infinity."""
    text = program(
        "f32[2]", "reduce(p0, p1), dimensions={1}, to_apply=f", ["f32[2,3]", "f32[]"], computation(opcode, "f32")
    )
    array = np.array([[1, np.nan, np.inf], [1, 2, 3]], np.float32)
    check_exactly(text, [array, np.array(2, np.float32)])


def test_bf16_is_summed_in_f32_and_rounded_once() -> None:
    """512 ones are 512; rounded after every step they would stay at 256."""
    text = program(
        "bf16[]", "reduce(p0, p1), dimensions={0}, to_apply=f", ["bf16[512]", "bf16[]"], computation("add", "bf16")
    )
    ones, zero = np.ones(512, ml_dtypes.bfloat16), np.zeros((), ml_dtypes.bfloat16)
    assert float(run_ours(text, [ones, zero])[0]) == 512


SPELLINGS = {
    "call": computation("add", "bf16", "g")
    + "\n\n"
    + computation("add", "bf16").replace("add(a, b)", "call(a, b), to_apply=g"),
    "convert": """f {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  c = f32[] convert(a)
  d = f32[] convert(b)
  s = f32[] add(c, d)
  ROOT r = bf16[] convert(s)
}""",
}
"""Sums of bf16 as other texts have them."""


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    "instruction",
    [
        "reduce(p0, p1), dimensions={0}, to_apply=f",
        "reduce-window(p0, p1), window={size=512}, to_apply=f",
        "scatter(p2, p3, p0), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=f",
        "select-and-scatter(p2, p0, p1), window={size=512 pad=511_511}, select=first, scatter=f",
    ],
)
def test_a_sum_is_rounded_once_however_it_is_written(instruction: str, spelling: str) -> None:
    """512 ones are 512 where the computation is a call of an addition, or one in f32 between conversions."""
    rank = "" if instruction.startswith("reduce(") else "1"
    shapes = ["bf16[512]", "bf16[]", "bf16[1]", "s32[512,1]"]
    first = (
        computation("compare", "bf16", "first")
        .replace("c = bf16[] ", "c = pred[] ")
        .replace(")\n}", "), direction=GE\n}")
    )
    text = program(f"bf16[{rank}]", instruction, shapes, SPELLINGS[spelling], first)
    inputs = [np.ones(512, ml_dtypes.bfloat16), *(np.zeros(n, ml_dtypes.bfloat16) for n in ((), 1))]
    assert float(run_ours(text, [*inputs, np.zeros((512, 1), np.int32)])[0].reshape(())) == 512


def test_the_initial_value_says_in_which_type_to_sum() -> None:
    """Compiled programs sum bf16 into f32: 257 is no bf16."""
    text = program(
        "f32[]", "reduce(p0, p1), dimensions={0}, to_apply=f", ["bf16[257]", "f32[]"], computation("add", "f32")
    )
    assert float(run_ours(text, [np.ones(257, ml_dtypes.bfloat16), np.float32(0)])[0]) == 257


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_sum_overflows_to_infinity(dtype: str) -> None:
    """In silence, as IEEE has it."""
    wanted = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    largest = np.full(4, ml_dtypes.finfo(wanted).max, wanted)
    shapes, body = [f"{dtype}[4]", f"{dtype}[]"], computation("add", dtype)
    text = program(f"{dtype}[]", "reduce(p0, p1), dimensions={0}, to_apply=f", shapes, body)
    assert float(run_ours(text, [largest, np.zeros((), wanted)])[0]) == np.inf
    text = program(f"{dtype}[1]", "reduce-window(p0, p1), window={size=4}, to_apply=f", shapes, body)
    assert float(run_ours(text, [largest, np.zeros((), wanted)])[0][0]) == np.inf


def test_a_long_column_keeps_its_digits() -> None:
    """100,000 rows of 0.1 in f32 within 1e-6 of the exact sum, where adding row by row would lose five digits."""
    text = program(
        "f32[2]", "reduce(p0, p1), dimensions={0}, to_apply=f", ["f32[100000,2]", "f32[]"], computation("add", "f32")
    )
    column = np.full((100000, 2), 0.1, np.float32)
    result = run_ours(text, [column, np.float32(0)])[0]
    np.testing.assert_allclose(result, np.float64(np.float32(0.1)) * 100000, rtol=1e-6)


@pytest.mark.parametrize("opcode", ["add", "multiply"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_does_not_depend_on_how_its_operand_lies_in_memory(opcode: str, axis: int) -> None:
    """A transpose is a view, and the same array computed anew lies in rows: the last bits are the same."""
    values = np.random.default_rng(0).uniform(0.9, 1.1, (500, 300)).astype(np.float32)
    views = [values.T, np.ascontiguousarray(values.T)]
    found = {
        reduced(
            UFUNCS[opcode], view, np.float32(opcode == "multiply"), (axis,), Settings(literal_values, "tpu")
        ).tobytes()
        for view in views
    }
    assert len(found) == 1


@given(st.lists(st.integers(0, 9), max_size=8))
def test_any_computation_keeps_the_order_of_elements(digits: list[int]) -> None:
    """The later of two elements, of which the initial value comes first."""
    text = program("s32[]", "reduce(p0, p1), dimensions={0}, to_apply=f", [f"s32[{len(digits)}]", "s32[]"], LATER)
    result = run_ours(text, [np.array(digits, np.int32), np.int32(-1)])[0]
    assert int(result) == ([-1, *digits])[-1]


def test_a_variadic_reduction_agrees_with_xla() -> None:
    """Values and their places are reduced together."""
    values = np.random.default_rng(1).integers(0, 9, (5, 7)).astype(np.int32)
    places = np.broadcast_to(np.arange(7, dtype=np.int32), (5, 7)).copy()
    text = program(
        "(s32[5], s32[5])",
        "reduce(p0, p1, p2, p3), dimensions={1}, to_apply=f",
        ["s32[5,7]", "s32[5,7]", "s32[]", "s32[]"],
        LARGEST_AND_PLACE,
    )
    check_exactly(text, [values, places, np.array(-1, np.int32), np.array(-1, np.int32)])


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], Window]:
    """Draw sizes and a window over them with strides, dilations and padding of any sign."""
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    dimensions = []
    for size in sizes:
        base = draw(st.integers(1, 3))
        dilated = (size - 1) * base + 1
        low = draw(st.integers(-min(2, dilated), 4))
        dimensions.append(
            WindowDimension(
                size=draw(st.integers(1, 5)),
                stride=draw(st.integers(1, 3)),
                pad_low=low,
                pad_high=draw(st.integers(max(-2, -dilated - low), 4)),
                lhs_dilate=base,
                rhs_dilate=draw(st.integers(1, 2)),
            )
        )
    return sizes, Window(tuple(dimensions))


def naive_windows(array: Array, window: Window) -> tuple[tuple[int, ...], dict[tuple[int, ...], list[int]]]:
    """Return how many positions a window has, and the elements that each of them sees in row-major order."""
    counts, seen = [], []
    for n, d in zip(array.shape, window.dimensions, strict=True):
        space = (n - 1) * d.lhs_dilate + 1 + d.pad_low + d.pad_high - (d.size - 1) * d.rhs_dilate - 1
        counts.append(space // d.stride + 1 if space >= 0 else 0)
        seen.append([list(naive_reach(n, d, k)) for k in range(counts[-1])])
    values = {
        index: [int(array[i]) for i in product(*(axis[k] for axis, k in zip(seen, index, strict=True)))]
        for index in np.ndindex(*counts)
    }
    return tuple(counts), values


def naive_reach(size: int, dimension: WindowDimension, k: int) -> Iterator[int]:
    """Yield the indices that a window sees at position k of one dimension."""
    for j in range(dimension.size):
        place, hole = divmod(k * dimension.stride + j * dimension.rhs_dilate - dimension.pad_low, dimension.lhs_dilate)
        if hole == 0 and 0 <= place < size:
            yield place


def window_program(sizes: tuple[int, ...], counts: tuple[int, ...], window: Window, body: str) -> str:
    """Return a reduce-window on s32."""
    attributes = f"window={show_window(window)}, to_apply=f"
    result = shape_text("s32", counts)
    return program(result, f"reduce-window(p0, p1), {attributes}", [shape_text("s32", sizes), "s32[]"], body)


@given(windows(), st.sampled_from(["add", "maximum", "multiply", "xor"]))
def test_windows_agree_with_their_naive_twin(drawn: tuple[tuple[int, ...], Window], opcode: str) -> None:
    """Padding and holes count for nothing, and the initial value once."""
    sizes, window = drawn
    array = numbered(sizes) % 11 - 3
    counts, seen = naive_windows(array, window)
    text = window_program(sizes, counts, window, computation(opcode))
    step = {"add": int.__add__, "maximum": max, "multiply": int.__mul__, "xor": int.__xor__}[opcode]
    expected = [np.array(fold(step, values, 5)).astype(np.int32) for values in seen.values()]
    np.testing.assert_array_equal(run_ours(text, [array, np.array(5, np.int32)])[0], np.reshape(expected, counts))


@given(windows())
def test_windows_of_any_computation_agree_with_their_naive_twin(drawn: tuple[tuple[int, ...], Window]) -> None:
    """The later of two elements, with nothing that padding could be filled with."""
    sizes, window = drawn
    array = numbered(sizes)
    counts, seen = naive_windows(array, window)
    text = window_program(sizes, counts, window, LATER)
    expected = np.reshape([([-5, *values])[-1] for values in seen.values()], counts)
    np.testing.assert_array_equal(run_ours(text, [array, np.array(-5, np.int32)])[0], expected)


@given(windows())
@settings(max_examples=20)
def test_windows_agree_with_xla(drawn: tuple[tuple[int, ...], Window]) -> None:
    """Sums on s32 wherever XLA's CPU backend takes the window."""
    sizes, window = drawn
    array = numbered(sizes)
    counts, _ = naive_windows(array, window)
    text = window_program(sizes, counts, window, computation("add"))
    check_exactly(text, [array, np.array(0, np.int32)])


@pytest.mark.parametrize(
    ("window", "expected"),
    [("size=3 stride=2", [100, 1]), ("size=3 stride=2 pad=1_1", [1000, 10, 1])],
)
def test_the_example_of_padding(window: str, expected: list[int]) -> None:
    """XLA, Operation Semantics, ReduceWindow: minima of [10000, 1000, 100, 10, 1], VALID and SAME."""
    text = program(
        f"f32[{len(expected)}]",
        f"reduce-window(p0, p1), window={{{window}}}, to_apply=f",
        ["f32[5]", "f32[]"],
        computation("minimum", "f32"),
    )
    inputs = [np.array([10000, 1000, 100, 10, 1], np.float32), np.array(np.finfo(np.float32).max)]
    assert run_ours(text, inputs)[0].tolist() == expected


def test_windows_that_see_everything_are_one_reduction() -> None:
    """A compiled softmax: padding by size - 1 on both sides, every position sees the whole row."""
    array = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)
    text = program(
        "f32[3,8]",
        "reduce-window(p0, p1), window={size=1x15 pad=0_0x7_7}, to_apply=f",
        ["f32[3,8]", "f32[]"],
        computation("maximum", "f32"),
    )
    check_exactly(text, [array, np.array(-np.inf, np.float32)])


def test_a_variadic_window_agrees_with_xla() -> None:
    """The largest value of each window and where it was."""
    values = np.random.default_rng(3).integers(0, 5, (3, 9)).astype(np.int32)
    text = program(
        "(s32[3,4], s32[3,4])",
        "reduce-window(p0, p1, p2, p3), window={size=1x3 stride=1x2}, to_apply=f",
        ["s32[3,9]", "s32[3,9]", "s32[]", "s32[]"],
        LARGEST_AND_PLACE,
    )
    check_exactly(text, [values, numbered((3, 9)), np.array(-9, np.int32), np.array(0, np.int32)])


def select_program(direction: str, window: str, sizes: tuple[int, ...], counts: tuple[int, ...]) -> str:
    """Return a select-and-scatter on s32 that adds what is scattered."""
    scalars = "  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
    select = f"g {{\n{scalars}  ROOT c = pred[] compare(a, b), direction={direction}\n}}"
    shapes = [shape_text("s32", sizes), shape_text("s32", counts), "s32[]"]
    instruction = f"select-and-scatter(p0, p1, p2), window={{{window}}}, select=g, scatter=f"
    return program(shape_text("s32", sizes), instruction, shapes, computation("add"), select)


SELECTIONS = [
    ("size=2x2 stride=2x2", (4, 6), (2, 3)),
    ("size=3x3 stride=1x2 pad=1_1x0_1", (4, 6), (4, 3)),
    ("size=3 stride=2", (7,), (3,)),
    ("size=2 pad=1_1", (3,), (4,)),
]


@pytest.mark.parametrize("direction", ["GE", "LT"])
@pytest.mark.parametrize(("window", "sizes", "counts"), SELECTIONS)
def test_selections_agree_with_xla(direction: str, window: str, sizes: Any, counts: Any) -> None:
    """Overlapping windows add up; what nobody selects is the initial value. No two elements are alike."""
    values = np.random.default_rng(4).permutation(np.prod(sizes)).astype(np.int32).reshape(sizes)
    text = select_program(direction, window, sizes, counts)
    check_exactly(text, [values, numbered(counts), np.array(0, np.int32)])


@pytest.mark.parametrize(("direction", "is_first"), [("GE", True), ("GT", False), ("LE", True), ("LT", False)])
def test_the_computation_chooses_among_equal_elements(direction: str, is_first: bool) -> None:
    """GE keeps the first of equal elements and GT the last, in row-major order: XLA calls it with the earlier first."""
    text = select_program(direction, "size=2x3 stride=2x3", (2, 3), (1, 1))
    result = run_ours(text, [np.ones((2, 3), np.int32), np.array([[7]], np.int32), np.array(0, np.int32)])[0]
    assert np.flatnonzero(result).tolist() == [0 if is_first else 5]


@pytest.mark.parametrize("direction", ["GE", "GT"])
def test_ties_along_one_dimension_agree_with_xla(direction: str) -> None:
    """In one dimension XLA's CPU backend goes by position as the document says; in several it does not."""
    values = np.random.default_rng(4).integers(0, 3, 12).astype(np.int32)
    text = select_program(direction, "size=4 stride=2", (12,), (5,))
    check_exactly(text, [values, numbered((5,)), np.array(0, np.int32)])


def test_the_example_of_select_and_scatter() -> None:
    """XLA, Operation Semantics: the 9 that two windows select becomes 2 + 6 = 8."""
    operand = np.array([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]], np.int32)
    source = np.array([[2, 6], [3, 1]], np.int32)
    text = select_program("GE", "size=2x3 stride=2x2", (4, 5), (2, 2))
    result = run_ours(text, [operand, source, np.array(0, np.int32)])[0]
    assert result.tolist() == [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]


@pytest.mark.parametrize("is_reverse", [False, True])
def test_a_scan_gives_every_step_and_the_last_carry(is_reverse: bool) -> None:
    """Running sums along dimension 1, from either end."""
    array = numbered((2, 5))
    attributes = f"dimensions={{1}}, num_carries=1, is_reverse={str(is_reverse).lower()}, to_apply=f"
    text = program("(s32[2,5], s32[2])", f"scan(p0, p1), {attributes}", ["s32[2,5]", "s32[2]"], RUNNING_SUM)
    sums, last = run_ours(text, [array, np.zeros(2, np.int32)])
    turned = array[:, ::-1] if is_reverse else array
    expected = np.cumsum(turned, 1)
    np.testing.assert_array_equal(sums, expected[:, ::-1] if is_reverse else expected)
    assert last.tolist() == array.sum(1).tolist()


def test_map_agrees_with_xla() -> None:
    """Any computation of several scalars, element by element."""
    text = program("s32[3,4]", "map(p0, p1), dimensions={0,1}, to_apply=f", ["s32[3,4]", "s32[3,4]"], DIGITS)
    array = numbered((3, 4))
    assert run_ours(text, [array, -array])[0].tolist() == run_xla(text, [array, -array])[0].tolist()


ZEROS = [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0), (0.0, 0.0)]


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_zeros_keep_their_order(opcode, zeros):
    """+0 is larger than -0, wherever it stands and whatever the reduction begins with."""
    x = np.float32([zeros, zeros[::-1]])
    sizes = "dimensions={1}", "window={size=1x2}"
    texts = [
        program("f32[2]", f"reduce(p0, p1), {sizes[0]}, to_apply=f", ["f32[2,2]", "f32[]"], computation(opcode, "f32")),
        program(
            "f32[2,1]",
            f"reduce-window(p0, p1), {sizes[1]}, to_apply=f",
            ["f32[2,2]", "f32[]"],
            computation(opcode, "f32"),
        ),
    ]
    expected = {"maximum": all(map(np.signbit, zeros)), "minimum": any(map(np.signbit, zeros))}[opcode]
    start = np.float32(-np.inf if opcode == "maximum" else np.inf)
    for text in texts:
        assert (np.signbit(run_ours(text, [x, start])[0]) == expected).all()


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_zeros_keep_their_order_in_scatters(opcode, zeros):
    """The update against what is there."""
    dims = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    text = program(
        "f32[1]", f"scatter(p0, p1, p2), {dims}, to_apply=f", ["f32[1]", "s32[1,1]", "f32[1]"],
        computation(opcode, "f32"),
    )  # fmt: skip
    found = run_ours(text, [np.float32(zeros[:1]), np.int32([[0]]), np.float32(zeros[1:])])[0]
    assert np.signbit(found) == (all if opcode == "maximum" else any)(map(np.signbit, zeros))
