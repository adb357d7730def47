"""Work between a split and what joins it again moves to the shape before (XLA, ReshapeMover, by idea)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpusim
from tests.compiler.programs import compiled
from tpusim.pipeline.stages import execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "hlo" / "reshapes"
"""A group norm of JAX 0.10.2, and what libtpu 0.0.52 makes of it."""

REGIONS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
"""
HEAD = """
  x = f32[6,10,24] parameter(0)
  zero = f32[] constant(0)
  seven = f32[] constant(7)
  low = f32[] constant(-inf)
  s = f32[6,10,4,6] reshape(x)
"""
GROUPS = """
  sums = f32[6,4] reduce(s, zero), dimensions={1,3}, to_apply=sum
  spread = f32[6,10,4,6] broadcast(sums), dimensions={0,2}
  away = f32[6,10,4,6] subtract(s, spread)
  squares = f32[6,10,4,6] multiply(away, away)
  tops = f32[6,4] reduce(squares, low), dimensions={1,3}, to_apply=most
  wide = f32[6,10,4,6] broadcast(tops), dimensions={0,2}
  part = f32[6,10,4,6] divide(away, wide)
  y = f32[6,10,24] reshape(part)
"""
CASES = {
    "norm": (GROUPS + "  ROOT r = f32[6,10,24] negate(y)", 0),
    "start of its own": ("  ROOT r = f32[4] reduce(s, seven), dimensions={0,1,3}, to_apply=sum", 1),
    "whole": (
        "  n = f32[6,10,4,6] negate(s)\n  ROOT r = f32[] reduce(n, seven), dimensions={0,1,2,3}, to_apply=sum",
        0,
    ),
    "returned": (GROUPS + "  ROOT r = (f32[6,10,24], f32[6,10,4,6]) tuple(y, away)", 2),
    "rows of groups": ("  ROOT r = f32[6,10,4] reduce(s, zero), dimensions={3}, to_apply=sum", 1),
    "turned": ("  t = f32[4,6,6,10] transpose(s), dimensions={2,3,0,1}\n  ROOT r = f32[4,6,6,10] negate(t)", 1),
}


def program(tail):
    """Return the text of a program that splits rows into groups."""
    return f"HloModule m\n{REGIONS}\nENTRY e {{{HEAD}{tail}\n}}\n"


def reshaped(module):
    """Return how many large arrays are split or joined."""
    return sum(i.opcode == "reshape" and i.shape.element_count == 6 * 10 * 24 for i in module.entry)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_split_where_all_is_joined_again_or_summed_up(case):
    """And where something needs the groups themselves, or two sums would start twice, all stays as it is."""
    tail, count = CASES[case]
    assert reshaped(compiled(program(tail), stop_after="reshapes")) == count


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_program(case):
    """Sums are taken in another order."""
    module = parse_module(SourceText("m.v5e.hlo.txt", program(CASES[case][0])))
    x = np.random.default_rng(0).standard_normal((6, 10, 24)).astype(np.float32)
    given, moved = (
        execute(module, [x], precision="exact", schedule=schedule, chip="v5e") for schedule in ("given", "compiled")
    )
    for one, other in zip(given, moved, strict=True) if isinstance(given, tuple) else [(given, moved)]:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_group_norm_takes_what_it_takes_as_the_tpu_compiler_leaves_it():
    """Both simulated; there what is read three times is kept in fast memory."""
    ours = tpusim.simulate(FOLDER / "groupnorm.hlo.txt", "v5e")
    theirs = tpusim.simulate(FOLDER / "groupnorm.v5e.hlo.txt.gz")
    assert ours.timeline.total_ps == pytest.approx(theirs.timeline.total_ps, rel=0.3)
    assert ours.summary.memory.peak_hbm_bytes == pytest.approx(theirs.summary.memory.peak_hbm_bytes, rel=0.01)
