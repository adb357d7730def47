"""Sums over devices that are added to each other.

What becomes of them is what libtpu 0.0.52 makes of 18 such programs, compiled ahead of time for v5e:2x4.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute

TEXT = """HloModule m, replica_count=2

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] {combines}(a, b)
}}

ENTRY e {{
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  z = f32[8,8] parameter(2)
  w = f32[8,8] parameter(3)
  {lines}
}}
"""
ALL = "replica_groups={{0,1}}, to_apply=sum"
X, Y, Z, W = (f"{name.upper()} = f32[8,8] all-reduce({name}), {ALL}" for name in "xyzw")
TOP, NEXT = (f"{n.upper()} = f32[4,8] reduce-scatter({n}), dimensions={{0}}, {ALL}" for n in "xy")
ACROSS = f"Y = f32[8,4] reduce-scatter(y), dimensions={{1}}, {ALL}"
OTHERS = "Y = f32[8,8] all-reduce(y), replica_groups={{0},{1}}, to_apply=sum"
JOINED = {
    "two": f"{X}  {Y}  ROOT r = f32[8,8] add(X, Y)",
    "three": f"{X}  {Y}  {Z}  a = f32[8,8] add(X, Y)  ROOT r = f32[8,8] add(a, Z)",
    "a tree of four": (
        f"{X}  {Y}  {Z}  {W}  a = f32[8,8] add(X, Y)  b = f32[8,8] add(Z, W)  ROOT r = f32[8,8] add(a, b)"
    ),
    "parts of sums": f"{TOP}  {NEXT}  ROOT r = f32[4,8] add(X, Y)",
}
APART = {
    "subtracted": f"{X}  {Y}  ROOT r = f32[8,8] subtract(X, Y)",
    "compared": f"{X}  {Y}  ROOT r = f32[8,8] maximum(X, Y)",
    "one has another user": f"{X}  {Y}  a = f32[8,8] add(X, Y)  ROOT r = (f32[8,8], f32[8,8]) tuple(a, X)",
    "one with itself": f"{X}  ROOT r = f32[8,8] add(X, X)",
    "in other groups": f"{X}  {OTHERS}  ROOT r = f32[8,8] add(X, Y)",
    "another between": f"{X}  {Y}  a = f32[8,8] add(X, z)  ROOT r = f32[8,8] add(a, Y)",
    "converted between": (
        f"{X}  {Y}  a = bf16[8,8] convert(X)  b = bf16[8,8] convert(Y)  ROOT r = bf16[8,8] add(a, b)"
    ),
    "parts along other dimensions": f"{TOP}  {ACROSS}  a = f32[4,8] reshape(Y)  ROOT r = f32[4,8] add(X, a)",
    "another behind one": (
        f"{X}  {Y}  s = f32[8,8] negate(z), control-predecessors={{X}}  a = f32[8,8] add(X, Y)  "
        f"ROOT r = (f32[8,8], f32[8,8]) tuple(a, s)"
    ),
    "added behind another": (
        f"{X}  {Y}  s = f32[8,8] negate(z)  t = f32[8,8] add(X, Y), control-predecessors={{s}}  "
        f"ROOT r = (f32[8,8], f32[8,8]) tuple(s, t)"
    ),
    "one is the result": f"ROOT {X}  {Y}  a = f32[8,8] add(X, Y)  t = token[] after-all()  o = token[] outfeed(a, t)",
    "behind another": f"{X}  {Y}, control-predecessors={{X}}  ROOT r = f32[8,8] add(X, Y)",
}


def sums_of(lines, combines="add"):
    """Return the sums over devices that the pass leaves, which gives what the text does of small whole numbers."""
    text = TEXT.format(lines=lines.replace("  ", "\n"), combines=combines)
    before, made = (compiled(text, stop_after=step) for step in ("invariant", "reassociate"))
    assert check(made) == []
    rng = np.random.default_rng(7)
    inputs = [[rng.integers(-9, 9, (8, 8)).astype("f") for _ in "xyzw"] for _ in range(2)]
    for one, other in zip(execute(before, inputs), execute(made, inputs), strict=True):
        both = ((each if isinstance(each, tuple) else (each,)) for each in (one, other))
        for ours, theirs in zip(*both, strict=True):
            np.testing.assert_array_equal(np.float64(ours), np.float64(theirs))
    return [one for one in made.entry if one.opcode in ("all-reduce", "reduce-scatter")]


@pytest.mark.parametrize("how", JOINED)
def test_sums_that_are_added_are_one(how):
    """However many there are, and in whichever order they are added."""
    assert len(sums_of(JOINED[how])) == 1


def test_the_largest_of_maxima_is_one():
    """What puts two of them together is what they do themselves."""
    assert len(sums_of(JOINED["two"].replace("add(", "maximum("), "maximum")) == 1


@pytest.mark.parametrize("how", APART)
def test_other_sums_stay_apart(how):
    """Each of these is another number, or is needed by itself."""
    lines = APART[how]
    assert len(sums_of(lines)) == lines.count("to_apply")
