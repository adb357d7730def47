"""Pass 1: what is called is copied for each that runs it. Source: XLA, CallInliner and FlattenCallGraph."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.compiler.programs import compiled
from tpusim import check
from tpusim.errors import UnsupportedError

CALLS = """HloModule calls

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

inner { x = f32[8] parameter(0)  ROOT y = f32[8] tanh(x) }

outer {
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  y = f32[8] call(x), to_apply=inner
  sum = f32[] reduce(y, zero), dimensions={0}, to_apply=add
  wide = f32[8] broadcast(sum), dimensions={}
  ROOT z = f32[8] call(wide), to_apply=inner
}

ENTRY main {
  p = f32[8] parameter(0)
  once = f32[8] call(p), to_apply=outer
  ROOT twice = f32[8] call(once), to_apply=outer
}
"""


def test_calls_are_gone_and_what_is_applied_to_elements_stays():
    """Two calls of two calls are four copies."""
    module = compiled(CALLS, stop_after="inline")
    assert sorted(c.name for c in module.computations) == ["add", "main"]
    opcodes = [i.opcode for i in module.entry]
    assert (opcodes.count("tanh"), opcodes.count("reduce"), opcodes.count("call")) == (4, 2, 0)


SHARED = """HloModule shared

less { p = (s32[], f32[8,128], f32[8,128]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)  ROOT c = pred[] compare(i, n), direction=LT }

body { p = (s32[], f32[8,128], f32[8,128]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  a = f32[8,128] get-tuple-element(p), index=1  b = f32[8,128] get-tuple-element(p), index=2
  one = s32[] constant(1)  j = s32[] add(i, one)  s = f32[8,128] add(a, b)
  ROOT t = (s32[], f32[8,128], f32[8,128]) tuple(j, s, b) }

ENTRY main { x = f32[8,128] parameter(0)  q = f32[8,128] tanh(x)  z = s32[] constant(0)
  w = (s32[], f32[8,128], f32[8,128]) tuple(z, x, x)
  l = (s32[], f32[8,128], f32[8,128]) while(w), condition=less, body=body
  r = f32[8,128] get-tuple-element(l), index=1
  v = (s32[], f32[8,128], f32[8,128]) tuple(z, q, r)
  m = (s32[], f32[8,128], f32[8,128]) while(v), condition=less, body=body
  u = f32[8,128] get-tuple-element(m), index=1
  ROOT o = (f32[8,128], f32[8,128], f32[8,128]) tuple(r, u, q) }
"""


def test_loops_have_bodies_of_their_own():
    """One body for two loops would have to lie where both have their arrays: in HBM, and in VMEM."""
    module = compiled(SHARED)
    loops = [i for i in module.entry if i.opcode == "while"]
    assert len({loop.attributes["body"] for loop in loops}) == 2
    assert check(module) == []


def test_branches_that_are_the_same_are_copied_too():
    """What each is given may lie elsewhere."""
    text = """HloModule same

one { x = f32[8,128] parameter(0)  ROOT y = f32[8,128] tanh(x) }

ENTRY main { p = pred[] parameter(0)  x = f32[8,128] parameter(1)  q = f32[8,128] exponential(x)
  ROOT c = f32[8,128] conditional(p, x, q), true_computation=one, false_computation=one }
"""
    (branch,) = [i for i in compiled(text, stop_after="inline").entry if i.opcode == "conditional"]
    assert len(set(branch.called_computations)) == 2


def _deep(levels: int, before: int = 0) -> str:
    """Return two calls on each of some levels: 2^(levels - 1) copies of the lowest, with instructions before them."""
    bodies = [
        f"c{n} {{ x = f32[8] parameter(0)  y = f32[8] call(x), to_apply=c{n - 1}"
        f"  ROOT z = f32[8] call(y), to_apply=c{n - 1} }}"
        for n in range(1, levels)
    ]
    lowest = "c0 { x = f32[8] parameter(0)  ROOT y = f32[8] tanh(x) }"
    chain = "  ".join(f"a{n} = f32[8] tanh(a{n - 1})" for n in range(1, before + 1))
    top = f"c{levels - 1}"
    entry = f"ENTRY main {{ a0 = f32[8] parameter(0)  {chain}  ROOT r = f32[8] call(a{before}), to_apply={top} }}"
    return "\n\n".join(["HloModule deep", lowest, *bodies, entry]) + "\n"


def test_calls_that_multiply_without_bound_are_refused_before_they_are_copied():
    """Two calls on each of forty levels would be a million million copies."""
    with pytest.raises(UnsupportedError, match="at most 65536"):
        compiled(_deep(40), stop_after="inline")
    tracemalloc.start()
    with pytest.raises(UnsupportedError, match="at most 65536"):
        compiled(_deep(16), stop_after="inline")
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 2**20


def test_a_program_that_is_long_itself_may_become_longer():
    """It has some 66,000 instructions with its calls written out, which is less than three times as many."""
    module = compiled(_deep(14, before=25_000), stop_after="inline")
    assert len(module.entry.instructions) == 1 + 25_000 + 2**13


SENDING = """HloModule sending

send { x = f32[8,128] parameter(0)  t = token[] after-all()
  o = token[] outfeed(x, t), outfeed_shape=f32[8,128]{1,0}  ROOT z = f32[] constant(0) }

less { p = (s32[], f32[8,128]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)  ROOT c = pred[] compare(i, n), direction=LT }

body { p = (s32[], f32[8,128]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  x = f32[8,128] get-tuple-element(p), index=1  z = f32[] call(x), to_apply=send
  one = s32[] constant(1)  j = s32[] add(i, one)  ROOT r = (s32[], f32[8,128]) tuple(j, x) }

ENTRY main {
  x = f32[8,128] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8,128]) tuple(zero, x)
  first = (s32[], f32[8,128]) while(start), condition=less, body=body
  second = (s32[], f32[8,128]) while(start), condition=less, body=body
  c = f32[] call(x), to_apply=send
  w = f32[8,128] custom-call(x), custom_call_target="Write", custom_call_has_side_effect=true
  v = f32[8,128] custom-call(x), custom_call_target="Write", custom_call_has_side_effect=true
  ROOT n = f32[8,128] negate(x)
}
"""


def test_what_runs_for_what_it_does_is_kept():
    """Two loops that are alike, a call and two custom calls, of which nothing is used."""
    module = compiled(SENDING)
    opcodes = [i.opcode for i in module.entry]
    assert [opcodes.count(opcode) for opcode in ("while", "outfeed", "custom-call")] == [2, 1, 2]
    assert sum(i.opcode == "outfeed" for c in module.computations for i in c) == 3
