"""Loops over scalars in compiled code against their naive twin, the rules of the opcodes, and against XLA."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.oracle import flatten, run_ours, run_xla
from tpusim.errors import SimulationError
from tpusim.numerics.ops import control
from tpusim.numerics.scalar_loops import ScalarLoop

FLOATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
TYPES = {"s8": np.int8, "u8": np.uint8, "s32": np.int32, "u32": np.uint32, "s64": np.int64, **FLOATS}
OPERATIONS = "add subtract multiply divide maximum minimum remainder and or xor shift-left select".split()
SHIFTS = {"s": "shift-right-arithmetic", "u": "shift-right-logical"}
CASES = [
    (dtype, operation)
    for dtype in TYPES
    for operation in (*OPERATIONS, *((SHIFTS[dtype[0]],) if dtype not in FLOATS else ()))
    if dtype not in FLOATS or operation not in ("and", "or", "xor", "shift-left", "remainder")
]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, -3e-39, 3.4e38, 0.1, -7.0]


def loop_text(dtype: str, lines: list[str], result: str, trips: int = 6) -> str:
    """A loop whose body computes ``result`` from ``x`` and ``y``, which change places at each trip."""
    state = f"(s32[], {dtype}[], {dtype}[])"
    body = "\n  ".join(lines)
    return f"""HloModule loop

body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {dtype}[] get-tuple-element(s), index=1
  y = {dtype}[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {body}
  ROOT t = {state} tuple(next, y, {result})
}}

cond {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  x = {dtype}[] parameter(0)
  y = {dtype}[] parameter(1)
  zero = s32[] constant(0)
  t = {state} tuple(zero, x, y)
  ROOT w = {state} while(t), condition=cond, body=body
}}
"""


def pairs(dtype: str) -> list[list[np.generic]]:
    """Pairs of values: corners of the type, and what a generator draws."""
    kind, draw = TYPES[dtype], np.random.default_rng(7)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            values = [kind(value) for value in SPECIAL]
    else:
        limits = np.iinfo(kind)
        values = [kind(value) for value in (0, 1, 3, limits.min, limits.max, kind(-1 & limits.max))]
        values += [kind(value) for value in draw.integers(limits.min, limits.max, 4, kind)]
    return [[values[i], values[j]] for i, j in draw.integers(0, len(values), (12, 2))]


def compiled_and_ruled(monkeypatch: pytest.MonkeyPatch, text: str, inputs: list[np.generic], precision: str):
    """What compiled code gives from the second trip on, and what the rules give."""
    trips, run = [], ScalarLoop.run

    def counted(loop: ScalarLoop, *given):
        state, more = run(loop, *given)
        trips.append(more)
        return state, more

    monkeypatch.setattr(ScalarLoop, "run", counted)
    monkeypatch.setattr(control, "PATIENCE", 1)
    compiled = run_ours(text, inputs, precision)
    # The rules alone would give the same.
    assert trips == [5]
    monkeypatch.setattr(control, "PATIENCE", -1)
    return compiled, run_ours(text, inputs, precision)


@pytest.mark.parametrize(("dtype", "operation"), CASES)
def test_compiled_loops_are_what_the_rules_give(monkeypatch, dtype, operation):
    """Bit for bit, in both precisions: sums that wrap, division by zero, zeros of both signs, NaN, subnormals."""
    lines = [
        "z = pred[] compare(x, y), direction=LE",
        f"r = {dtype}[] {operation}({'z, ' * (operation == 'select')}x, y)",
    ]
    text = loop_text(dtype, lines, "r")
    for precision in ("tpu", "exact"):
        for inputs in pairs(dtype):
            one, other = compiled_and_ruled(monkeypatch, text, inputs, precision)
            assert [(v.dtype, v.tobytes()) for v in one] == [(v.dtype, v.tobytes()) for v in other], inputs


@pytest.mark.parametrize("dtype", ["s8", "u8", "s32", "u32", "f32"])
def test_conversions_are_what_the_rules_give(monkeypatch, dtype):
    """There and back through another type, which cuts, saturates or wraps."""
    via = "s8" if dtype == "f32" else "f32"
    lines = [f"a = {dtype}[] add(x, y)", f"b = {via}[] convert(a)", f"r = {dtype}[] convert(b)"]
    for inputs in pairs(dtype):
        one, other = compiled_and_ruled(monkeypatch, loop_text(dtype, lines, "r"), inputs, "tpu")
        assert [v.tobytes() for v in one] == [v.tobytes() for v in other], inputs


@pytest.mark.slow
def test_a_million_trips_are_what_xla_computes():
    """A generator of random numbers by its recurrence, and how often it was odd."""
    lines = [
        "k = s32[] constant(1103515245)",
        "m = s32[] multiply(y, k)",
        "c = s32[] constant(12345)",
        "r = s32[] add(m, c)",
    ]
    text = loop_text("s32", lines, "r", trips=1_000_000)
    inputs = [np.int32(3), np.int32(5)]
    assert [int(v) for v in run_ours(text, inputs)] == [int(v) for v in flatten(tuple(run_xla(text, inputs)))]


def test_a_limit_on_iterations_holds_in_compiled_code():
    """What never ends is stopped at the limit that was given, and the message says the number."""
    text = loop_text("s32", ["r = s32[] add(x, y)"], "r", trips=2_000_000_000)
    with pytest.raises(SimulationError, match="5,000 iterations"):
        run_ours(text, [np.int32(1), np.int32(1)], max_iterations=5000)


def test_arrays_that_are_handed_on_do_not_keep_a_loop_from_being_compiled(monkeypatch):
    """An array that no trip touches comes out as it went in."""
    text = loop_text("s32", ["r = s32[] add(x, y)"], "r").replace("s32[], s32[], s32[]", "s32[], s32[], s32[], f32[3]")
    text = text.replace("tuple(next, y, r)", "tuple(next, y, r, a)").replace(
        "tuple(zero, x, y)", "tuple(zero, x, y, a)"
    )
    text = text.replace("  one = ", "  a = f32[3] get-tuple-element(s), index=3\n  one = ")
    text = text.replace("ENTRY e {", "ENTRY e {\n  a = f32[3] parameter(2)")
    inputs = [np.int32(3), np.int32(5), np.arange(3, dtype=np.float32)]
    one, other = compiled_and_ruled(monkeypatch, text, inputs, "tpu")
    assert [v.tobytes() for v in one] == [v.tobytes() for v in other]
