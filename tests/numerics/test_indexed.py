"""Gather and scatter: naive twins from the definition on random attributes, XLA as the oracle, and corners."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.numerics.one_instruction import check_exactly, computation, numbered, program, shape_text
from tests.numerics.oracle import run_ours

Array = np.ndarray[Any, np.dtype[Any]]

SECOND = "f {\n  a = s32[] parameter(0)\n  ROOT b = s32[] parameter(1)\n}"
DOUBLED_AND_ADDED = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  two = s32[] add(a, a)
  ROOT c = s32[] add(two, b)
}"""
"""Neither commutes nor associates: the order of updates shows."""


class Case(NamedTuple):
    """A gather or, the other way round, a scatter: how windows lie in the operand and in the other array."""

    operand: tuple[int, ...]
    indices: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    batching: tuple[int, ...]
    indexed: tuple[int, ...]
    vector_dim: int
    window_dims: tuple[int, ...]

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Dimensions of the indices that run along those of ``batching``: the first ones that hold no vector."""
        return tuple(d for d in range(len(self.indices)) if d != self.vector_dim)[: len(self.batching)]

    @property
    def outer(self) -> tuple[int, ...]:
        """Sizes of the indices without the vector."""
        return tuple(n for d, n in enumerate(self.indices) if d != self.vector_dim)

    @property
    def result(self) -> tuple[int, ...]:
        """Sizes of what a gather returns and a scatter takes as updates."""
        kept = iter(n for d, n in enumerate(self.sizes) if d not in self.dropped + self.batching)
        outer = iter(self.outer)
        rank = len(self.outer) + len(self.window_dims)
        return tuple(next(kept) if d in self.window_dims else next(outer) for d in range(rank))

    def place(self, indices: Array, index: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return, for an element of the result, the start of its window and where it lies in that window."""
        outer = [i for d, i in enumerate(index) if d not in self.window_dims]
        inner = iter(i for d, i in enumerate(index) if d in self.window_dims)
        vectors = indices[..., None] if self.vector_dim == indices.ndim else np.moveaxis(indices, self.vector_dim, -1)
        start = [0] * len(self.operand)
        for k, d in enumerate(self.indexed):
            start[d] = int(vectors[(*outer, k)])
        for k, d in enumerate(self.batching):
            start[d] = outer[k]
        return start, [0 if d in self.dropped + self.batching else next(inner) for d in range(len(self.operand))]


def braces(numbers: tuple[int, ...]) -> str:
    """Return a list of numbers in HLO text."""
    return f"{{{','.join(map(str, numbers))}}}"


def gather_text(case: Case) -> str:
    """Return the module of a case's gather on s32."""
    attributes = (
        f"offset_dims={braces(case.window_dims)}, collapsed_slice_dims={braces(case.dropped)}, "
        f"start_index_map={braces(case.indexed)}, operand_batching_dims={braces(case.batching)}, "
        f"start_indices_batching_dims={braces(case.batch_dims)}, index_vector_dim={case.vector_dim}, "
        f"slice_sizes={braces(case.sizes)}"
    )
    shapes = [shape_text("s32", case.operand), shape_text("s32", case.indices)]
    return program(shape_text("s32", case.result), f"gather(p0, p1), {attributes}", shapes)


def scatter_text(case: Case, body: str) -> str:
    """Return the module of a case's scatter on s32."""
    attributes = (
        f"update_window_dims={braces(case.window_dims)}, inserted_window_dims={braces(case.dropped)}, "
        f"scatter_dims_to_operand_dims={braces(case.indexed)}, input_batching_dims={braces(case.batching)}, "
        f"scatter_indices_batching_dims={braces(case.batch_dims)}, index_vector_dim={case.vector_dim}, to_apply=f"
    )
    shapes = [shape_text("s32", sizes) for sizes in (case.operand, case.indices, case.result)]
    return program(shape_text("s32", case.operand), f"scatter(p0, p1, p2), {attributes}", shapes, body)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, Array]:
    """Draw a case and indices, some of which reach out of the operand."""
    operand = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    roles = [draw(st.sampled_from("dbkkk")) for _ in operand]
    dropped = tuple(d for d, role in enumerate(roles) if role == "d")
    batching = tuple(d for d, role in enumerate(roles) if role == "b")
    sizes = tuple(1 if role in "db" else draw(st.integers(1, n)) for n, role in zip(operand, roles, strict=True))
    free = draw(st.permutations([d for d in range(len(operand)) if d not in batching]))
    indexed = tuple(free[: draw(st.integers(0, len(free)))])
    outer = [operand[d] for d in batching] + draw(st.lists(st.integers(1, 3), max_size=2))
    vector_dim = draw(st.integers(0, len(outer)))
    has_vector = len(indexed) != 1 or draw(st.booleans())
    indices = (*outer[:vector_dim], len(indexed), *outer[vector_dim:]) if has_vector else tuple(outer)
    vector_dim = vector_dim if has_vector else len(outer)
    kept = len(operand) - len(dropped) - len(batching)
    window_dims = draw(st.permutations(range(len(outer) + kept)))[:kept]
    case = Case(operand, indices, sizes, dropped, batching, indexed, vector_dim, tuple(sorted(window_dims)))
    values = draw(st.lists(st.integers(-1, 4), min_size=prod(indices), max_size=prod(indices)))
    return case, np.array(values, np.int32).reshape(indices)


def naive_gather(case: Case, operand: Array, indices: Array) -> Array:
    """Fetch every element on its own, with starts clamped so that whole windows lie inside."""
    result = np.zeros(case.result, operand.dtype)
    for index in np.ndindex(case.result):
        start, inside = case.place(indices, index)
        limits = [n - size for n, size in zip(case.operand, case.sizes, strict=True)]
        clamped = [min(max(s, 0), limit) for s, limit in zip(start, limits, strict=True)]
        result[index] = operand[tuple(s + i for s, i in zip(clamped, inside, strict=True))]
    return result


def naive_scatter(case: Case, operand: Array, indices: Array, updates: Array) -> Array:
    """Compute ``2 * old + new`` for every element on its own, in row-major order of windows and then of elements."""
    result = operand.copy()
    order = sorted(np.ndindex(case.result), key=lambda i: [i[d] for d in range(len(i)) if d not in case.window_dims])
    for index in order:
        start, inside = case.place(indices, index)
        ends = [s + size for s, size in zip(start, case.sizes, strict=True)]
        if all(s >= 0 and end <= n for s, end, n in zip(start, ends, case.operand, strict=True)):
            place = tuple(s + i for s, i in zip(start, inside, strict=True))
            result[place] = 2 * result[place] + updates[index]
    return result


@given(cases())
@settings(max_examples=200)
def test_gather_agrees_with_its_naive_twin(drawn: tuple[Case, Array]) -> None:
    """Any attributes: collapsed, batching and window dimensions, index vectors in any dimension or none."""
    case, indices = drawn
    operand = numbered(case.operand)
    ours = run_ours(gather_text(case), [operand, indices])[0]
    np.testing.assert_array_equal(ours, naive_gather(case, operand, indices))


@given(cases())
@settings(max_examples=200)
def test_scatter_agrees_with_its_naive_twin(drawn: tuple[Case, Array]) -> None:
    """Any attributes, with a computation that shows the order of updates and of its arguments."""
    case, indices = drawn
    operand, updates = numbered(case.operand), numbered(case.result) * 100
    ours = run_ours(scatter_text(case, DOUBLED_AND_ADDED), [operand, indices, updates])[0]
    np.testing.assert_array_equal(ours, naive_scatter(case, operand, indices, updates))


@given(cases())
@settings(max_examples=15)
def test_gather_agrees_with_xla(drawn: tuple[Case, Array]) -> None:
    """The clamping of starts among the rest."""
    case, indices = drawn
    check_exactly(gather_text(case), [numbered(case.operand), indices])


@given(cases(), st.sampled_from(["add", "multiply", "maximum", "minimum", "xor"]))
@settings(max_examples=20)
def test_scatter_agrees_with_xla(drawn: tuple[Case, Array], opcode: str) -> None:
    """The dropping of windows that reach out among the rest.

    XLA's CPU backend applies one of several updates where nothing is indexed, so such cases are left out.
    """
    case, indices = drawn
    assume(case.indexed)
    inputs = [numbered(case.operand), indices, numbered(case.result) % 5]
    check_exactly(scatter_text(case, computation(opcode)), inputs)


VECTOR = Case((5,), (4,), (2,), (), (), (0,), 1, (1,))
"""Windows of 2 elements of a vector of 5."""


def test_windows_without_elements_that_collapse_give_zeros() -> None:
    """There is nothing to take, and a result to fill."""
    attributes = "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={}, index_vector_dim=0, slice_sizes={0,1}"
    text = program("s32[2,3,1]", f"gather(p0, p1), {attributes}", ["s32[8,1]", "s32[0,2,3]"])
    check_exactly(text, [numbered((8, 1)), np.zeros((0, 2, 3), np.int32)])


def test_windows_that_reach_out_are_moved_by_gather_and_dropped_by_scatter() -> None:
    """Starts -1 and 4 of windows of 2 over 5 elements."""
    indices, operand = np.array([-1, 0, 3, 4], np.int32), numbered((5,))
    assert run_ours(gather_text(VECTOR), [operand, indices])[0].tolist() == [[1, 2], [1, 2], [4, 5], [4, 5]]
    updates = np.array([[9, 9], [6, 7], [8, 8], [9, 9]], np.int32)
    assert run_ours(scatter_text(VECTOR, SECOND), [operand, indices, updates])[0].tolist() == [6, 7, 3, 8, 8]


def test_the_last_of_several_updates_stays() -> None:
    """XLA leaves the order open; row-major order is what its CPU backend has."""
    case = Case((3,), (4,), (1,), (0,), (), (0,), 1, ())
    updates = np.array([5, 6, 7, 8], np.int32)
    check_exactly(scatter_text(case, SECOND), [numbered((3,)), np.array([1, 1, 2, 1], np.int32), updates])


def test_an_unsigned_index_past_the_top_is_clamped_high() -> None:
    """u8 255 is not -1, nor is the largest u64."""
    attributes = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
    for dtype, values in (("u8", np.array([255, 1], np.uint8)), ("u64", np.array([2**64 - 1, 1], np.uint64))):
        text = program("s32[2]", f"gather(p0, p1), {attributes}", ["s32[5]", f"{dtype}[2]"])
        assert run_ours(text, [numbered((5,)), values])[0].tolist() == [5, 2]


@pytest.mark.parametrize("opcode", ["add", "maximum", "minimum", "multiply"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "s8", "u4", "pred", "c64", "f64"])
def test_every_type_scatters(opcode: str, dtype: str) -> None:
    """Small whole numbers, for which all types agree with arithmetic; complex numbers add and multiply."""
    if dtype == "c64" and opcode in ("maximum", "minimum"):
        return
    attributes = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    shapes = [f"{dtype}[3]", "s32[4]", f"{dtype}[4]"]
    body = computation(opcode, dtype)
    text = program(f"{dtype}[3]", f"scatter(p0, p1, p2), {attributes}, to_apply=f", shapes, body)
    types = {"f32": "f4", "f16": "f2", "s8": "i1", "pred": "?", "c64": "c8", "f64": "f8"}
    wanted = {"bf16": ml_dtypes.bfloat16, "u4": ml_dtypes.uint4}.get(dtype) or np.dtype(types[dtype])
    target, updates = np.array([1, 2, 0]).astype(wanted), np.array([1, 2, 3, 0]).astype(wanted)
    expected = {"add": [5, 4, 0], "maximum": [3, 2, 0], "minimum": [1, 2, 0], "multiply": [3, 4, 0]}[opcode]
    result = run_ours(text, [target, np.array([0, 1, 0, 2], np.int32), updates])[0]
    assert result.dtype == wanted
    assert result.astype(complex).tolist() == np.array(expected).astype(bool if dtype == "pred" else int).tolist()


def test_nan_stays_when_scattered() -> None:
    """The maximum with NaN is NaN, whichever of the two it was."""
    attributes = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    text = program(
        "f32[3]",
        f"scatter(p0, p1, p2), {attributes}, to_apply=f",
        ["f32[3]", "s32[2]", "f32[2]"],
        computation("maximum", "f32"),
    )
    inputs = [np.array([np.nan, 1, 1], np.float32), np.array([0, 1], np.int32), np.array([1, np.nan], np.float32)]
    np.testing.assert_array_equal(run_ours(text, inputs)[0], np.array([np.nan, np.nan, 1], np.float32))


def test_several_arrays_scatter_together() -> None:
    """A computation of four scalars: both operands move where the first one grows."""
    body = """f {
  a = s32[] parameter(0)
  i = s32[] parameter(1)
  b = s32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(b, a), direction=GT
  x = s32[] select(more, b, a)
  k = s32[] select(more, j, i)
  ROOT t = (s32[], s32[]) tuple(x, k)
}"""
    attributes = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    shapes = ["s32[2]", "s32[2]", "s32[3]", "s32[3]", "s32[3]"]
    text = program("(s32[2], s32[2])", f"scatter(p0, p1, p2, p3, p4), {attributes}, to_apply=f", shapes, body)
    inputs = [[5, 5], [0, 0], [0, 0, 1], [7, 6, 4], [1, 2, 3]]
    values, places = run_ours(text, [np.array(value, np.int32) for value in inputs])
    assert (values.tolist(), places.tolist()) == ([7, 5], [1, 0])


def test_operands_are_left_alone() -> None:
    """Values are shared, so nobody may write into one."""
    operand = numbered((5,))
    inputs = [operand, np.array([0, 1, 2, 3], np.int32), np.zeros((4, 2), np.int32)]
    for body in (SECOND, computation("add"), DOUBLED_AND_ADDED):
        run_ours(scatter_text(VECTOR, body), inputs)
        assert operand.tolist() == [1, 2, 3, 4, 5]
