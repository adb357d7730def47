"""Pass 1: every call has a copy of its own of what it calls. Source: XLA, CallInliner."""

from __future__ import annotations

from tests.compiler.programs import compiled

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
