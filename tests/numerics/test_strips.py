"""Steps in compiled code, strip by strip, against NumPy's kernels one after the other: the same to the last bit."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpusim.numerics.ops.convert import unchanged
from tpusim.numerics.registry import FLOAT_KERNELS
from tpusim.numerics.values import blocks, floats
from tpusim.numerics.values.blocks import in_blocks
from tpusim.numerics.values.strips import Step, program_of

BFLOAT16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
ONE_OPERAND = [unchanged, np.negative, np.absolute, np.sqrt, floats.rsqrt]
TWO_OPERANDS = [np.add, np.subtract, np.multiply, np.divide, floats.maximum, floats.minimum]
# Zeros, subnormal numbers, the edges of normal ones and of infinity, halves between two bf16 numbers.
CORNERS = [
    0.0,
    -0.0,
    1e-45,
    -1e-39,
    1.1754944e-38,
    3.4e38,
    -3.4e38,
    math.inf,
    -math.inf,
    math.nan,
    1.00390625,
    1.01171875,
]


@st.composite
def operands_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> Any:
    """Return an array that broadcasts to ``sizes``, of any type that computes in f32, as it may lie in memory."""
    own = tuple(draw(st.sampled_from([size, size, 1])) for size in sizes)[draw(st.integers(0, len(sizes))) :]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = np.where(rng.random(own) < 0.5, rng.choice(CORNERS, own), rng.standard_normal(own))
    with np.errstate(over="ignore"):
        array = values.astype(np.float32).astype(draw(st.sampled_from([F32, BFLOAT16, F16])))
    if draw(st.booleans()):
        array = np.asfortranarray(array).reshape(own)
    return np.broadcast_to(array, sizes) if draw(st.booleans()) else array


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Step], list[Any]]:
    """Return some steps, the last of which has the sizes of all operands, and the operands."""
    sizes = tuple(draw(st.lists(st.integers(1, 5), max_size=4)))
    operands = draw(st.lists(operands_of(sizes), min_size=1, max_size=3))
    steps = []
    for number in range(draw(st.integers(1, 5))):
        # Conversions are often not steps of their own.
        kernel = draw(st.sampled_from([unchanged] * 6 + ONE_OPERAND + TWO_OPERANDS))
        places = st.integers(0, len(operands) + number - 1)
        taken = tuple(draw(places) for _ in range(1 + (kernel in TWO_OPERANDS)))
        # Others make nothing smaller than what they are given.
        flush = kernel in TWO_OPERANDS[:4] and draw(st.booleans())
        steps.append(Step(kernel, taken, draw(st.sampled_from([F32, BFLOAT16])), flush))
    if draw(st.booleans()):
        steps[-1] = steps[-1]._replace(dtype=F16)
    return steps, operands


@given(cases(), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_compiled_steps_are_numpys(case: tuple[list[Step], list[Any]], strip: int, block: int) -> None:
    """However operands lie and broadcast, wherever blocks and strips end; which NaN it is, nobody says."""
    steps, operands = case
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(blocks, "STRIP_ELEMENTS", strip)
        patch.setattr(blocks, "STRIP_BLOCK_ELEMENTS", block)
        found = in_blocks(steps, operands)
        patch.setattr(blocks, "program_of", lambda steps, types: None)
        expected = in_blocks(steps, operands)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    wide = [values.astype(np.float32) for values in (found, expected)]
    np.testing.assert_array_equal(*wide)
    numbers = ~np.isnan(wide[0])
    np.testing.assert_array_equal(*(np.signbit(values[numbers]) for values in wide))


def test_rows_longer_than_a_strip_are_met_by_their_own_elements() -> None:
    """A row that every line takes, too long to be the same in every strip."""
    table, row = np.ones((3, 5000), np.float32), np.arange(5000, dtype=np.float32)
    found = in_blocks([Step(np.add, (0, 1), F32, flush=True)], [table, row])
    np.testing.assert_array_equal(found, table + row)


@pytest.mark.parametrize(
    ("kernel", "between", "dtype"), [(np.exp, F32, F32), (np.add, F16, F32), (np.add, F32, np.dtype(np.float64))]
)
def test_other_kernels_and_types_are_numpys(kernel: Any, between: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    """A library's functions, roundings to other types between steps, and f64."""
    steps = (Step(kernel, (0, 0), between, flush=False), Step(np.add, (1, 1), dtype, flush=False))
    assert program_of(steps, (F32,)) is None


def _rows(*steps: tuple[Any, tuple[int, ...], np.dtype[Any]]) -> list[list[int]]:
    """Return the places that compiled steps on one f32 take, and whether each rounds to bf16."""
    program = program_of(tuple(Step(*step, flush=False) for step in steps), (F32,))
    assert program is not None
    return [[int(number) for number in (*row[1:3], row[4])] for row in program]


def test_a_conversion_rounds_what_no_other_step_sees() -> None:
    """Then it is no step of its own; to f32 it is the value itself."""
    assert _rows((np.add, (0, 0), F32), (unchanged, (1,), BFLOAT16), (np.add, (2, 0), F32)) == [[0, 0, 1], [1, 0, 0]]
    assert _rows((unchanged, (0,), F32), (np.add, (1, 0), F32)) == [[0, 0, 0]]
    shared = _rows((np.add, (0, 0), F32), (unchanged, (1,), BFLOAT16), (np.add, (2, 1), F32))
    assert shared == [[0, 0, 0], [1, 1, 1], [2, 1, 0]]
    twice = _rows((np.add, (0, 0), F32), (unchanged, (1,), F32), (unchanged, (2,), BFLOAT16), (np.add, (3, 2), F32))
    assert twice == [[0, 0, 0], [1, 1, 1], [2, 1, 0]]


def test_the_kernels_of_opcodes_are_known() -> None:
    """A kernel under a new name would silently run step by step."""
    for opcode in "abs add convert divide maximum minimum multiply negate rsqrt sqrt subtract".split():
        step = Step(FLOAT_KERNELS[opcode], (0, 0), F32, flush=False)
        assert program_of((step,), (F32,)) is not None, opcode
