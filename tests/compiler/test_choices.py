"""Pass 2: which conditionals are a branch. The oracle is the program as it was given."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXT = """HloModule m

one {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] tanh(p)
}}

two {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] negate(p)
}}

three {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] exponential(p)
}}

ENTRY e {{
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  i = {index}
  ROOT c = f32[8] conditional(i, {operands}), {branches}
}}
"""
NUMBERED = {"operands": "x, x, y", "branches": "branch_computations={one, two, three}"}
BY_TRUTH = {"operands": "x, y", "branches": "true_computation=one, false_computation=two"}


@pytest.mark.parametrize(
    ("index", "others", "is_left"),
    [
        *[(f"s32[] constant({number})", NUMBERED, False) for number in (-1, 0, 1, 2, 7)],
        *[(f"pred[] constant({truth})", BY_TRUTH, False) for truth in ("true", "false")],
        ("s32[] parameter(1)", {"operands": "y", "branches": "branch_computations={three}"}, False),
        ("s32[] parameter(1)", NUMBERED, True),
        ("s32[] constant(1)", {**NUMBERED, "branches": NUMBERED["branches"] + ", control-predecessors={y}"}, True),
    ],
)
def test_what_is_known_to_be_taken_stands_for_the_conditional(index, others, is_left):
    """Of other numbers than there are branches the last one is (XLA, Operation Semantics)."""
    text = TEXT.format(index=index, **others)
    before, made = (compiled(text, stop_after=step) for step in ("flatten", "simplify"))
    assert check(made) == []
    assert ("conditional" in made.entry.opcodes) == is_left
    inputs = [np.linspace(-1, 1, 8, dtype="f"), np.int32(1)][: 1 + ("parameter(1)" in index)]
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (before, made))
    np.testing.assert_array_equal(expected, found)


def test_a_branch_alone_depends_on_no_value():
    """Nobody is warned that it might not be taken."""
    text = TEXT.format(index="s32[] parameter(1)", operands="y", branches="branch_computations={three}")
    assert simulate(parse_module(SourceText("text", text)), "v5e").summary.warnings == ()
