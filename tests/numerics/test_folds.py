"""Computations applied to one element after the other in compiled code, against the rules of the opcodes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.one_instruction import program
from tests.numerics.oracle import run_ours
from tpusim.numerics import folds

FLOATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
INTEGERS = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32, "u32": np.uint32}
TYPES: dict[str, Any] = {**FLOATS, **INTEGERS, "s64": np.int64}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, -3e-39, 6e-8, -2e-5, 6.5e4, 3.3e38, 0.1, -7.0]
COUNT = 60


def both(monkeypatch: pytest.MonkeyPatch, text: str, inputs: list[Any], precision: str = "tpu") -> list[list[Any]]:
    """Return what compiled code gives and what the rules give, as types and bytes."""
    ran, found = [], []
    run = folds.Fold.run
    monkeypatch.setattr(folds.Fold, "run", lambda fold, *given: ran.append(fold) or run(fold, *given))
    for patience in (1, 10**9):
        monkeypatch.setattr(folds, "PATIENCE", patience)
        found.append([(value.dtype, value.shape, value.tobytes()) for value in run_ours(text, inputs, precision)])
    monkeypatch.setattr(folds.Fold, "run", run)
    assert len(ran) == 1
    return found


def numbers(dtype: str, *sizes: int, seed: int = 0) -> Any:
    """Return numbers of a type: corners of it, and what a generator draws."""
    draw, kind = np.random.default_rng(seed), TYPES[dtype]
    if dtype in FLOATS:
        drawn = draw.normal(size=sizes) * 10.0 ** draw.integers(-4, 4, sizes)
        special = draw.choice(SPECIAL, sizes)
        with np.errstate(over="ignore"):
            return np.where(draw.random(sizes) < 0.03, special, drawn).astype(kind)
    limits = np.iinfo(kind)
    return draw.integers(limits.min, limits.max, sizes, kind, endpoint=True)


def folding(dtype: str, *lines: str) -> str:
    """Return a computation of ``a`` and ``b`` that ends in the last of these lines, ``r``."""
    *before, last = (f"  {line}" for line in lines)
    head = [f"  a = {dtype}[] parameter(0)", f"  b = {dtype}[] parameter(1)"]
    return "\n".join(["f {", *head, *before, f"  ROOT {last.strip()}", "}"])


OF_ALL = "add subtract multiply divide maximum minimum".split()
CASES = [(dtype, opcode) for dtype in TYPES for opcode in OF_ALL]
CASES += [(dtype, opcode) for dtype in (*INTEGERS, "s64") for opcode in "and or xor remainder shift-left".split()]


@pytest.mark.parametrize("precision", ["tpu", "exact"])
@pytest.mark.parametrize(("dtype", "opcode"), CASES)
def test_a_reduction_is_what_the_rules_give(monkeypatch, dtype, opcode, precision):
    """Bit for bit, columns each for itself: rounding to the type at each operation, zeros of both signs, NaN."""
    text = program(
        f"{dtype}[4]",
        "reduce(p0, p1), dimensions={0}, to_apply=f",
        [f"{dtype}[{COUNT},4]", f"{dtype}[]"],
        folding(dtype, f"c = {dtype}[] {opcode}(b, a)", f"r = {dtype}[] subtract(c, b)"),
    )
    one, other = both(monkeypatch, text, [numbers(dtype, COUNT, 4), numbers(dtype)], precision)
    assert one == other


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("opcode", ["negate", "abs", "sqrt", "rsqrt"])
def test_operations_of_one_float_are_what_the_rules_give(monkeypatch, dtype, opcode):
    """The inverse root is rounded as a root as well."""
    text = program(
        f"{dtype}[]",
        "reduce(p0, p1), dimensions={0}, to_apply=f",
        [f"{dtype}[{COUNT}]", f"{dtype}[]"],
        folding(dtype, f"c = {dtype}[] {opcode}(b)", f"d = {dtype}[] subtract(a, c)", f"r = {dtype}[] {opcode}(d)"),
    )
    for seed in range(8):
        one, other = both(monkeypatch, text, [numbers(dtype, COUNT, seed=seed), numbers(dtype)])
        assert one == other


@pytest.mark.parametrize("dtype", ["pred", "s8", "u8", "s32", "s64"])
def test_operations_of_one_integer_are_what_the_rules_give(monkeypatch, dtype):
    """The lowest one stays itself; truth values turn round."""
    lines = [f"c = {dtype}[] not(a)", f"r = {dtype}[] or(c, b)"]
    if dtype != "pred":
        lines = [
            f"n = {dtype}[] negate(b)",
            f"m = {dtype}[] abs(n)",
            f"c = {dtype}[] not(m)",
            f"r = {dtype}[] add(a, c)",
        ]
    text = program(
        f"{dtype}[]",
        "reduce(p0, p1), dimensions={0}, to_apply=f",
        [f"{dtype}[{COUNT}]", f"{dtype}[]"],
        folding(dtype, *lines),
    )
    drawn = [numbers("s8", COUNT) > 0, np.True_] if dtype == "pred" else [numbers(dtype, COUNT), numbers(dtype)]
    one, other = both(monkeypatch, text, drawn)
    assert one == other


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("via", TYPES)
def test_conversions_are_what_the_rules_give(monkeypatch, dtype, via):
    """There and back: rounded, cut, saturated or wrapped."""
    lines = [f"c = {dtype}[] subtract(a, b)", f"d = {via}[] convert(c)", f"r = {dtype}[] convert(d)"]
    text = program(
        f"{dtype}[]",
        "reduce(p0, p1), dimensions={0}, to_apply=f",
        [f"{dtype}[{COUNT}]", f"{dtype}[]"],
        folding(dtype, *lines),
    )
    one, other = both(monkeypatch, text, [numbers(dtype, COUNT), numbers(dtype)])
    assert one == other


SQUARES = folding("f32", "c = f32[] multiply(b, b)", "r = f32[] add(a, c)")
DIGITS = folding("s32", "k = s32[] constant(3)", "c = s32[] multiply(a, k)", "r = s32[] subtract(c, b)")


def test_a_sum_of_squares_is_rounded_at_each_step():
    """As NumPy's own running sum in f32 is, which goes from one element to the next."""
    text = program("f32[]", "reduce(p0, p1), dimensions={0}, to_apply=f", ["f32[70000]", "f32[]"], SQUARES)
    array = np.random.default_rng(2).normal(size=70000).astype(np.float32)
    expected = np.add.accumulate(array * array)[-1]
    assert run_ours(text, [array, np.float32(0)])[0] == expected


HALVED_OR_NEW = """g {
  p = pred[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] select(p, x, x)
}

f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  half = f32[] constant(0.5)
  less = f32[] multiply(a, half)
  more = pred[] compare(less, b), direction=GE
  x = f32[] select(more, less, b)
  y = f32[] call(more, x), to_apply=g
  k = s32[] select(more, i, j)
  ROOT t = (f32[], s32[]) tuple(y, k)
}"""


def test_several_arrays_are_reduced_at_once(monkeypatch):
    """Of different types, with a choice among them, calls and constants in the computation."""
    parameters = ["f32[3,60]", "s32[3,60]", "f32[]", "s32[]"]
    text = program("(f32[3], s32[3])", "reduce(p0, p1, p2, p3), dimensions={1}, to_apply=f", parameters, HALVED_OR_NEW)
    inputs = [numbers("f32", 3, COUNT), numbers("s32", 3, COUNT), np.float32(1), np.int32(-1)]
    one, other = both(monkeypatch, text, inputs)
    assert one == other


def test_updates_of_a_place_follow_one_another(monkeypatch):
    """Windows that lie over each other, and some that do not lie inside."""
    text = program(
        "f32[6,3]",
        "scatter(p0, p1, p2), update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=f",
        ["f32[6,3]", "s32[50,1]", "f32[50,2,3]"],
        SQUARES,
    )
    places = np.random.default_rng(1).integers(-1, 6, (50, 1)).astype(np.int32)
    one, other = both(monkeypatch, text, [numbers("f32", 6, 3), places, numbers("f32", 50, 2, 3)])
    assert one == other


RUNNING = """f {
  x = bf16[] parameter(0)
  n = s32[] parameter(1)
  a = bf16[] parameter(2)
  c = s32[] parameter(3)
  y = bf16[] multiply(x, x)
  b = bf16[] add(a, y)
  d = s32[] subtract(n, c)
  m = pred[] compare(b, y), direction=LT
  ROOT t = (pred[], s32[], bf16[], bf16[], s32[]) tuple(m, c, y, b, d)
}"""


@pytest.mark.parametrize("reverse", ["", ", is_reverse=true"])
def test_a_scan_gives_what_the_rules_give(monkeypatch, reverse):
    """Results of every step and what is carried, from either end."""
    text = program(
        "(pred[60], s32[60], bf16[60], bf16[], s32[])",
        f"scan(p0, p1, p2, p3), dimensions={{0}}, num_carries=2{reverse}, to_apply=f",
        ["bf16[60]", "s32[60]", "bf16[]", "s32[]"],
        RUNNING,
    )
    inputs = [numbers("bf16", COUNT), numbers("s32", COUNT), numbers("bf16"), numbers("s32")]
    one, other = both(monkeypatch, text, inputs)
    assert one == other


@pytest.mark.parametrize("count", [0, 1, folds._BLOCK + 3])
def test_elements_are_taken_block_by_block(monkeypatch, count):
    """What is left of the last block, and none at all."""
    monkeypatch.setattr(folds, "PATIENCE", 0)
    text = program("s32[2]", "reduce(p0, p1), dimensions={0}, to_apply=f", [f"s32[{count},2]", "s32[]"], DIGITS)
    array = np.arange(2 * count, dtype=np.int32).reshape(count, 2)
    expected = np.full(2, 7, np.int64)
    for row in array:
        expected = (3 * expected - row) % 2**32
    assert (run_ours(text, [array, np.int32(7)])[0].astype(np.int64) % 2**32).tolist() == expected.tolist()
