"""Scalar computations: which are known by one opcode, and lifted control flow against one call per element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.one_instruction import computation, numbered, program
from tests.numerics.oracle import run_ours
from tpusim.numerics.registry import compute_type
from tpusim.numerics.scalar_computation import binary_opcode
from tpusim.semantics.combining import REPLACE
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

if TYPE_CHECKING:
    from collections.abc import Callable

HALVINGS = """next {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] get-tuple-element(s), index=1
  two = s32[] constant(2)
  one = s32[] constant(1)
  half = s32[] divide(n, two)
  more = s32[] add(k, one)
  ROOT t = (s32[], s32[]) tuple(half, more)
}

goes_on {
  s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  zero = s32[] constant(0)
  ROOT more = pred[] compare(n, zero), direction=GT
}

f {
  a = s32[] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s32[]) tuple(a, zero)
  w = (s32[], s32[]) while(s), condition=goes_on, body=next
  ROOT k = s32[] get-tuple-element(w), index=1
}"""

BRANCHES = """up {
  a = s32[] parameter(0)
  ROOT b = s32[] add(a, a)
}

down {
  a = s32[] parameter(0)
  ROOT b = s32[] negate(a)
}

f {
  a = s32[] parameter(0)
  ROOT c = s32[] conditional(a, a, a), branch_computations={up, down}
}"""

CHOICE = BRANCHES.replace(
    "  ROOT c = s32[] conditional(a, a, a), branch_computations={up, down}",
    "  four = s32[] constant(4)\n  p = pred[] compare(a, four), direction=LT\n"
    "  ROOT c = s32[] conditional(p, a, a), true_computation=up, false_computation=down",
)

TABLE = """f {
  a = s32[] parameter(0)
  table = s32[4] constant({7, 5, 3, 1})
  entry = s32[1] dynamic-slice(table, a), dynamic_slice_sizes={1}
  ROOT r = s32[] reshape(entry)
}"""

CALL = """g {
  a = s32[] parameter(0)
  ROOT b = s32[] multiply(a, a)
}

f {
  a = s32[] parameter(0)
  wide = s32[1,1] reshape(a)
  ROOT b = s32[] call(a), to_apply=g
}"""


def opcode_of(body: str) -> str | None:
    """Return the opcode that the computation ``f`` is known by."""
    text = program("s32[]", "negate(p0)", ["s32[]"], body)
    return binary_opcode(parse_module(SourceText("test.hlo", text)), "f")


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_the_usual_computations_are_known_by_their_opcode(opcode: str) -> None:
    """In either order of the parameters."""
    assert opcode_of(computation(opcode)) == opcode
    assert opcode_of(computation(opcode).replace("(a, b)", "(b, a)")) == opcode


@pytest.mark.parametrize(
    "body",
    [
        computation("subtract"),
        computation("add").replace("(a, b)", "(a, a)"),
        computation("add").replace("ROOT c", "c").replace("}", "  ROOT d = s32[] negate(c)\n}"),
        "f {\n  a = s32[] parameter(0)\n  ROOT b = s32[] negate(a)\n}",
    ],
)
def test_other_computations_are_not(body: str) -> None:
    """What does not commute, repeats a parameter, does more, or has another number of parameters."""
    assert opcode_of(body) is None


def test_truth_values_know_only_bits() -> None:
    """Their sum is or, their product is and."""
    assert opcode_of(computation("add", "pred")) == "or"
    assert opcode_of(computation("minimum", "pred")) == "and"


def test_the_second_parameter_replaces() -> None:
    """The computation of a scatter that overwrites."""
    assert opcode_of("f {\n  a = s32[] parameter(0)\n  ROOT b = s32[] parameter(1)\n}") == REPLACE


@pytest.mark.parametrize(
    ("body", "twin"),
    [
        (HALVINGS, lambda n: max(n, 0).bit_length()),
        (BRANCHES, lambda n: 2 * n if n == 0 else -n),
        (CHOICE, lambda n: 2 * n if n < 4 else -n),
        (TABLE, lambda n: [7, 5, 3, 1][min(max(n, 0), 3)]),
        (CALL, lambda n: n * n),
        ("f { n = s32[] parameter(0)  ROOT p = s32[] dot(n, n) }", lambda n: n * n),
    ],
    ids=["while", "branches", "predicate", "table", "call", "product"],
)
def test_lifted_computations_agree_with_one_call_per_element(body: str, twin: Callable[[int], int]) -> None:
    """Loops of different length per element, branches by index (a wrong one is the last), tables, calls."""
    array = numbered((2, 4)) % 7 - 1
    text = program("s32[2,4]", "map(p0), dimensions={0,1}, to_apply=f", ["s32[2,4]"], body)
    assert run_ours(text, [array])[0].tolist() == [[twin(int(n)) for n in row] for row in array]


@pytest.mark.parametrize("size", [0, 3])
def test_a_table_takes_any_number_of_elements(size: int) -> None:
    """None at all gives none, of the computation's type."""
    text = program(f"s32[{size}]", "map(p0), dimensions={0}, to_apply=f", [f"s32[{size}]"], TABLE)
    result = run_ours(text, [np.zeros(size, np.int32)])[0]
    assert (result.dtype, result.tolist()) == (np.int32, [7] * size)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (ml_dtypes.bfloat16, np.float32),
        (np.float16, np.float32),
        (ml_dtypes.float8_e4m3fn, np.float32),
        (np.float64, np.float64),
        (ml_dtypes.int4, np.int8),
        (ml_dtypes.uint2, np.uint8),
        (np.int8, np.int8),
        (np.bool_, np.bool_),
        (np.complex64, np.complex64),
    ],
)
def test_narrow_types_are_computed_in_wider_ones(dtype: Any, expected: Any) -> None:
    """Floats in f32 at least, integers in bytes at least."""
    assert compute_type(np.dtype(dtype)) == np.dtype(expected)
