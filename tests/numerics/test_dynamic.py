"""Dynamic dimensions: the document's example, sizes that travel through operations, reshapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.numerics.one_instruction import computation, numbered, program
from tests.numerics.oracle import run_ours, run_xla
from tpusim.errors import ProgramError, UnsupportedError
from tpusim.numerics.ops.dynamic import fit_together, reshaped_sizes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape

SET = "d = s32[<=10] set-dimension-size(p0, p1), dimensions={0}"


def lines_of(*lines: str) -> str:
    """Return a program of lines of HLO on 1..10, whose size is the second argument."""
    entry = [
        "ENTRY e {",
        "p0 = s32[10] parameter(0)",
        "p1 = s32[] parameter(1)",
        "zero = s32[] constant(0)",
        "one = s32[] constant(1)",
        SET,
        *lines,
        "}",
    ]
    return "\n\n".join(["HloModule m", computation("add"), computation("multiply", name="g"), "\n".join(entry)])


def run(result: str, *lines: str, size: int = 5) -> Any:
    """Return the result of lines of HLO on 1..10 of dynamic size."""
    text = lines_of(*lines[:-1], f"ROOT r = {result} {lines[-1]}")
    return run_ours(text, [numbered((10,)), np.array(size, np.int32)])[0]


@pytest.mark.parametrize(("size", "total", "product"), [(5, 15, 120), (6, 21, 720), (0, 0, 1)])
def test_the_example_of_set_dimension_size(size: int, total: int, product: int) -> None:
    """XLA, Operation Semantics, SetDimensionSize: what lies past the size does not count."""
    assert run("s32[]", "reduce(d, zero), dimensions={0}, to_apply=f", size=size) == total
    assert run("s32[]", "reduce(d, one), dimensions={0}, to_apply=g", size=size) == product


def test_get_dimension_size_returns_the_true_size() -> None:
    """Not the bound."""
    assert run("s32[]", "get-dimension-size(d), dimensions={0}", size=7) == 7


def test_concatenation_compacts() -> None:
    """No padding is left between the operands."""
    assert run("s32[<=20]", "concatenate(d, d), dimensions={0}", size=2).tolist() == [1, 2, 1, 2]


def test_a_size_may_grow_back() -> None:
    """What fills the array up is unspecified in XLA, and zero here."""
    grown = run("s32[10]", "ten = s32[] constant(10)", "set-dimension-size(d, ten), dimensions={0}", size=3)
    assert grown.tolist() == [1, 2, 3] + [0] * 7


GATHER = "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1"
SCATTER = (
    "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f"
)
PLACES = {
    "dynamic-slice": ["w = s32[3] dynamic-slice(d, at), dynamic_slice_sizes={3}", "s32[1] slice(w), slice={[0:1]}"],
    "whole dynamic-slice": ["s32[<=10] dynamic-slice(d, at), dynamic_slice_sizes={10}"],
    "gather": [
        f"w = s32[1,3] gather(d, places), {GATHER}, slice_sizes={{3}}",
        "s32[1,1] slice(w), slice={[0:1], [0:1]}",
    ],
    "whole gather": [f"s32[1,<=10] gather(d, places), {GATHER}, slice_sizes={{10}}"],
    "dynamic-update-slice": ["s32[<=10] dynamic-update-slice(d, three, at)"],
    "scatter": [f"s32[<=10] scatter(d, places, row), {SCATTER}"],
}


@pytest.mark.parametrize("start", [-2, 0, 2, 3, 4])
@pytest.mark.parametrize("name", PLACES)
def test_places_are_moved_in_by_the_bound(name: str, start: int) -> None:
    """Not by the size, as XLA: what lies beyond the size is written for nobody, and what is read there is nobody's."""
    *lines, last = PLACES[name]
    text = lines_of(
        "at = s32[] parameter(2)",
        "three = s32[3] constant({100, 2000, 30000})",
        "row = s32[1,3] reshape(three)",
        "places = s32[1,1] reshape(at)",
        *lines,
        f"found = {last}",
        f"ROOT r = s32[] reduce(found, zero), dimensions={{{'0,1' if '[1,' in last else '0'}}}, to_apply=f",
    )
    inputs = [numbered((10,)), np.array(5, np.int32), np.array(start, np.int32)]
    assert run_ours(text, inputs)[0] == run_xla(text, inputs)[0]


BOTH = """
both {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  s = s32[] add(a, c)
  t = s32[] multiply(b, d)
  ROOT r = (s32[], s32[]) tuple(s, t)
}
"""
BESIDE_WHOLE = {
    "reduce": "(s32[], s32[]) reduce(d, p0, zero, one), dimensions={0}, to_apply=both",
    "reduce of the other": "(s32[], s32[]) reduce(p0, d, zero, one), dimensions={0}, to_apply=both",
    "dot": "s32[] dot(d, p0), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "dot by rows": "s32[3] dot(rows, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot of ones": "s32[3] dot(d, rows), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
}


@pytest.mark.parametrize("size", [0, 1, 5, 10])
@pytest.mark.parametrize("name", BESIDE_WHOLE)
def test_what_is_not_there_counts_for_nothing_beside_what_is(name: str, size: int) -> None:
    """XLA fills up the operand of dynamic size, with initial values or zeros, and takes the whole of the other."""
    rows = "rows = s32[3,10] broadcast(p0), dimensions={1}"
    text = lines_of(rows, f"ROOT r = {BESIDE_WHOLE[name]}").replace("\n\n", f"\n{BOTH}\n", 1)
    inputs = [numbered((10,)), np.array(size, np.int32)]
    for own, wanted in zip(run_ours(text, inputs), run_xla(text, inputs), strict=True):
        np.testing.assert_array_equal(own, wanted)


def test_a_dynamic_reshape_takes_its_sizes_from_operands() -> None:
    """Six elements as 3 by 2."""
    lines = ("three = s32[] constant(3)", "two = s32[] constant(2)", "dynamic-reshape(d, three, two)")
    assert run("s32[<=5,<=2]", *lines, size=6).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_reshape_finds_the_one_dynamic_size() -> None:
    """The static dimension stays as it is."""
    assert run("s32[<=5,2]", "reshape(d)", size=6).tolist() == [[1, 2], [3, 4], [5, 6]]


def shape(text: str) -> ArrayShape:
    """Return the array that a text states."""
    found = parse_shape(text)
    assert isinstance(found, ArrayShape)
    return found


@pytest.mark.parametrize(
    ("sizes", "source", "target", "expected"),
    [
        ((3, 4), "f32[<=5,4]", "f32[<=20]", (12,)),
        ((3, 2), "f32[<=4,<=6]", "f32[<=4,1,<=6]", (3, 1, 2)),
        ((12,), "f32[<=20]", "f32[<=5,4]", (3, 4)),
        ((1, 3, 1), "f32[1,<=5,1]", "f32[<=5]", (3,)),
        ((0, 4), "f32[<=5,4]", "f32[4,<=5]", (4, 0)),
    ],
)
def test_sizes_travel_through_reshapes(sizes: Any, source: str, target: str, expected: Any) -> None:
    """Dimensions that are reshaped together share their elements."""
    assert reshaped_sizes(sizes, shape(source), shape(target)) == expected


def test_two_dynamic_sizes_out_of_one_are_refused() -> None:
    """Nobody knows how to share the elements out."""
    with pytest.raises(UnsupportedError, match="at most one dynamic dimension"):
        reshaped_sizes((6,), shape("f32[<=20]"), shape("f32[<=5,<=4]"))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3))
def test_operands_are_cut_to_the_least_size(sizes: list[tuple[int, int]]) -> None:
    """Scalars stay."""
    arrays = [numbered(size) for size in sizes]
    shapes = [ArrayShape(DTYPES["s32"], size) for size in (*sizes, ())]
    fitted = fit_together([*arrays, np.array(7)], shapes)
    least = tuple(map(min, zip(*sizes, strict=True)))
    assert [array.shape for array in fitted] == [least] * len(sizes) + [()]


@pytest.mark.parametrize("operands", ["d, d", "d, p0", "p0, d"])
def test_a_map_takes_what_is_there(operands: str) -> None:
    """As element-wise operations do."""
    found = run(
        "s32[]",
        f"m = s32[<=10] map({operands}), dimensions={{0}}, to_apply=f",
        "reduce(m, zero), dimensions={0}, to_apply=f",
    )
    assert found == 30


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (10, 1), (1, 1), (3, 5), (1, 0), (0, 5)])
@pytest.mark.parametrize("opcode", ["add", "multiply", "subtract", "maximum"])
def test_one_element_is_repeated_beside_others(opcode: str, sizes: tuple[int, int]) -> None:
    """Along a dimension that is dynamic in both, as XLA does; else the lesser size counts."""
    text = lines_of(
        "p2 = s32[] parameter(2)",
        SET.replace("d =", "e =").replace("p1", "p2"),
        f"x = s32[<=10] {opcode}(d, e)",
        "n = s32[] get-dimension-size(x), dimensions={0}",
        "sum = s32[] reduce(x, zero), dimensions={0}, to_apply=f",
        "ROOT r = (s32[], s32[]) tuple(n, sum)",
    )
    inputs = [numbered((10,)), *(np.array(size, np.int32) for size in sizes)]
    assert [int(value) for value in run_ours(text, inputs)] == [int(value) for value in run_xla(text, inputs)]


@pytest.mark.parametrize("size", [-1, 9])
def test_a_size_beyond_its_bound_is_refused(size):
    """XLA leaves it open; no array has such a size."""
    text = program("f32[<=8]", "set-dimension-size(p0, p1), dimensions={0}", ["f32[8]", "s32[]"])
    with pytest.raises(ProgramError, match=rf"(?s)test.hlo:6:.*r: expected a size from 0 to 8.*found {size}.*\^"):
        run_ours(text, [np.ones(8, np.float32), np.int32(size)])


@pytest.mark.parametrize(("sizes", "words"), [((3, 2), "8 elements"), ((5, 2), "0 to 4"), ((-4, -2), "0 to 4")])
def test_a_reshape_to_sizes_that_do_not_fit_is_refused(sizes, words):
    """Too few elements, too large a size, a size below zero."""
    text = program("f32[<=4,<=2]", "dynamic-reshape(p0, p1, p2)", ["f32[8]", "s32[]", "s32[]"])
    with pytest.raises(ProgramError, match=rf"(?s)test.hlo.*r: expected .*{words}"):
        run_ours(text, [np.ones(8, np.float32), *map(np.int32, sizes)])
