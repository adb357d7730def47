"""Collectives in fusions of the TPU compiler, undone: each is made once, for what it is, and gives the same values."""

from __future__ import annotations

import numpy as np
import pytest

from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.undo.defuse import defuse

GATHER = "all-gather(p), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true"
PIECES = f"""\
HloModule m, is_scheduled=true, num_partitions=2

start {{
  p = f32[2] parameter(0)
  g = f32[4] {GATHER}
  ROOT c = (f32[2], f32[4], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
}}

beside {{
  p = f32[2] parameter(0)
  q = f32[4] parameter(1)
  h = u32[] parameter(2)
  y = f32[4] parameter(3)
  g = f32[4] {GATHER}
  n = f32[4] negate(y)
  ROOT t = (f32[4], f32[2], f32[4], f32[4], u32[]) tuple(n, p, q, g, h)
}}

done {{
  p = f32[2] parameter(0)
  q = f32[4] parameter(1)
  h = u32[] parameter(2)
  g = f32[4] {GATHER}
  ROOT c = f32[4] custom-call(p, q, g, h), custom_call_target="AsyncCollectiveDone"
}}
"""
KERNEL = """\
  k = (f32[4], f32[2], f32[4], f32[4], u32[]) fusion(a, b, c, y), kind=kOutput, calls=beside
  n = f32[4] get-tuple-element(k), index=0
  ka = f32[2] get-tuple-element(k), index=1
  kb = f32[4] get-tuple-element(k), index=2
  kc = u32[] get-tuple-element(k), index=4
"""
STATE = "(f32[4], f32[2], f32[4], u32[])"
STRAIGHT = f"""\
ENTRY e {{
  x = f32[2] parameter(0)
  y = f32[4] parameter(1)
  s = (f32[2], f32[4], u32[]) fusion(x), kind=kCustom, calls=start
  a = f32[2] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  c = u32[] get-tuple-element(s), index=2
{KERNEL}  d = f32[4] fusion(ka, kb, kc), kind=kCustom, calls=done
  ROOT t = (f32[4], f32[4]) tuple(n, d)
}}
"""
# What begins before the loop and in each trip ends in the next one.
LOOP = f"""\
again {{
  p = f32[2] parameter(0)
  g = f32[4] {GATHER}
  ROOT c = (f32[2], f32[4], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
}}

body {{
  w = {STATE} parameter(0)
  y = f32[4] get-tuple-element(w), index=0
  a = f32[2] get-tuple-element(w), index=1
  b = f32[4] get-tuple-element(w), index=2
  c = u32[] get-tuple-element(w), index=3
{KERNEL}  d = f32[4] fusion(ka, kb, kc), kind=kCustom, calls=done
  m = f32[4] subtract(d, n)
  z = f32[2] slice(m), slice={{[1:3]}}
  s = (f32[2], f32[4], u32[]) fusion(z), kind=kCustom, calls=again
  sa = f32[2] get-tuple-element(s), index=0
  sb = f32[4] get-tuple-element(s), index=1
  sc = u32[] get-tuple-element(s), index=2
  ROOT t = {STATE} tuple(m, sa, sb, sc)
}}

condition {{
  w = {STATE} parameter(0)
  y = f32[4] get-tuple-element(w), index=0
  z = f32[1] slice(y), slice={{[0:1]}}
  r = f32[] reshape(z)
  l = f32[] constant(50)
  ROOT p = pred[] compare(r, l), direction=LT
}}

ENTRY e {{
  x = f32[2] parameter(0)
  y = f32[4] parameter(1)
  s = (f32[2], f32[4], u32[]) fusion(x), kind=kCustom, calls=start
  a = f32[2] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  c = u32[] get-tuple-element(s), index=2
  i = {STATE} tuple(y, a, b, c)
  w = {STATE} while(i), condition=condition, body=body
  ROOT n = f32[4] get-tuple-element(w), index=0
}}
"""


def undone(text):
    """Return a module as it is given, and as a front end would have it."""
    module = parse_module(SourceText("m.hlo", text))
    plain = defuse(module)
    assert check(plain) == []
    return module, plain


def opcodes(module):
    """Return the opcodes of all collectives of a module."""
    names = ("all-gather", "all-reduce", "reduce-scatter")
    return sorted(i.opcode for computation in module.computations for i in computation if i.opcode in names)


@pytest.mark.parametrize("text", [STRAIGHT, LOOP], ids=["straight", "loop"])
def test_a_collective_in_pieces_is_made_once(text):
    """Its start, the kernel under which it goes on and its end each have a copy, which nothing tells from three."""
    module, plain = undone(f"{PIECES}\n{text}")
    assert opcodes(plain) == ["all-gather"]
    assert "AsyncCollective" not in plain.text
    inputs = [[np.float32([1 + 2 * n, 2 + 2 * n]), np.float32([5, 6, 7, 8])] for n in range(2)]
    for one, other in zip(execute(module, inputs), execute(plain, inputs), strict=True):
        np.testing.assert_array_equal(np.stack(one), np.stack(other))


def test_starts_of_collectives_that_are_made_of_something_stay():
    """What a start takes is then not what its collective does, and it stays as it is written."""
    text = f"{PIECES}\n{STRAIGHT}".replace("custom-call(g), custom", "custom-call(h), custom")
    text = text.replace("  ROOT c = (f32[2]", "  h = f32[4] bitcast(g)\n  ROOT c = (f32[2]")
    assert "AsyncCollectiveStart" in defuse(parse_module(SourceText("m.hlo", text))).text


ADD = """\
add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}
"""
GROUPS = "replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add"
TABLE = "constant({0, 0, 1, 1})"
OWN = f"""\
  i = u32[] partition-id()
  k = u32[4] {TABLE}
  v = u32[1] dynamic-slice(k, i), dynamic_slice_sizes={{1}}
  n = u32[] reshape(v)
  h = u32[] constant(2)
  m = u32[] multiply(n, h)
  z = u32[] constant(0)
"""
SCATTER = f"""\
HloModule m, is_scheduled=true, num_partitions=4

{ADD}
scatter {{
  x = f32[4,4] parameter(0)
  r = f32[4,4] all-reduce(x), channel_id=1, {GROUPS}
{OWN}  ROOT d = f32[2,4] dynamic-slice(r, m, z), dynamic_slice_sizes={{2,4}}
}}

ENTRY e {{
  x = f32[4,4] parameter(0)
  ROOT f = f32[2,4] fusion(x), kind=kCustom, calls=scatter
}}
"""
SEVERAL = f"""\
HloModule m, is_scheduled=true, num_partitions=4

{ADD}
scatter {{
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  r = (f32[4,4], f32[4,4], f32[4,4]) all-reduce(x, y, x), channel_id=1, {GROUPS}
  a = f32[4,4] get-tuple-element(r), index=0
  b = f32[4,4] get-tuple-element(r), index=1
  c = f32[4,4] get-tuple-element(r), index=2
{OWN}  d = f32[2,4] dynamic-slice(a, m, z), dynamic_slice_sizes={{2,4}}
  e = f32[4,2] dynamic-slice(b, z, m), dynamic_slice_sizes={{4,2}}
  f = f32[2,4] dynamic-slice(c, m, z), dynamic_slice_sizes={{2,4}}
  ROOT t = (f32[2,4], f32[4,2], f32[2,4]) tuple(d, e, f)
}}

ENTRY e {{
  x = f32[4,4] parameter(0)
  y = f32[4,4] negate(x)
  ROOT f = (f32[2,4], f32[4,2], f32[2,4]) fusion(x, y), kind=kCustom, calls=scatter
}}
"""


@pytest.mark.parametrize(("text", "count"), [(SCATTER, 1), (SEVERAL, 2)], ids=["one", "several"])
def test_a_sum_of_which_each_keeps_its_part_is_a_reduce_scatter(text, count):
    """The TPU compiler writes one so, of several arrays too; an all-reduce would send twice the bytes."""
    module, plain = undone(text)
    assert opcodes(plain) == ["reduce-scatter"] * count
    inputs = [[np.arange(16, dtype=np.float32).reshape(4, 4) + 100 * n] for n in range(4)]
    for one, other in zip(execute(module, inputs), execute(plain, inputs), strict=True):
        pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
        assert all(np.array_equal(*pair) for pair in pairs)


OTHERS = {
    "another part": SCATTER.replace("{0, 0, 1, 1}", "{1, 1, 0, 0}"),
    "a part that is known at run time": SCATTER.replace("multiply(n, h)", "multiply(q, h)")
    .replace("  i =", "  q = u32[] parameter(1)\n  i =")
    .replace("  ROOT f = f32[2,4] fusion(x)", "  y = u32[] parameter(1)\n  ROOT f = f32[2,4] fusion(x, y)"),
    "more than its part": SCATTER.replace("f32[2,4]", "f32[3,4]").replace("{2,4}", "{3,4}"),
    "the sum as well": SCATTER.replace("ROOT d =", "d =")
    .replace("sizes={2,4}", "sizes={2,4}\n  ROOT t = (f32[2,4], f32[4,4]) tuple(d, r)")
    .replace("ROOT f = f32[2,4] fusion", "ROOT f = (f32[2,4], f32[4,4]) fusion"),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_any_other_part_of_a_sum_is_a_part_of_a_sum(text):
    """A reduce-scatter gives each device of a group its turn, and nothing else."""
    assert opcodes(undone(text)[1]) == ["all-reduce"]


STATED = 'calls=scatter, backend_config={"collective_algorithm_config":{"emitter":"SingleInputAllReduceScatterFusion"}}'


@pytest.mark.parametrize(("calls", "opcode"), [("calls=scatter", "all-reduce"), (STATED, "reduce-scatter")])
def test_a_table_that_is_left_out_leaves_what_the_compiler_states(calls, opcode):
    """XLA prints large constants as dots."""
    text = SCATTER.replace(TABLE, "constant({...})").replace("calls=scatter", calls)
    assert opcodes(undone(text)[1]) == [opcode]
