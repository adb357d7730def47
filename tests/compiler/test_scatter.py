"""Sums over devices of which each keeps its part: reduce-scatters, with the values that they had."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import SUM, compiled
from tpusim.pipeline.stages import check, execute, prepare, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

SUM_OF_ALL = "all-reduce(p), channel_id=1, replica_groups=GROUPS, use_global_device_ids=true, to_apply=sum"
TABLE = """
  table = s32[8] constant(STARTS)
  row = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={1}
  start = s32[] reshape(row)"""
MULTIPLIED = """
  four = u32[] constant(4)
  start = u32[] multiply(id, four)"""
ONE, TWO, PAIRS = "{{0,1,2,3,4,5,6,7}}", "{{0,1,2,3},{4,5,6,7}}", "{{0,4},{1,5},{2,6},{3,7}}"


def text_of(start, sizes, groups=ONE, index="start, zero", more=""):
    """Return a program of 8 devices that slices a sum of 32 by 16 numbers."""
    of = "u32" if "= u32" in start else "s32"
    last = more or f"ROOT part = f32[{sizes}] dynamic-slice(s, {index}), dynamic_slice_sizes={{{sizes}}}"
    return f"""HloModule parts, num_partitions=8

{SUM}

ENTRY main {{
  p = f32[32,16] parameter(0)
  id = u32[] partition-id()
  zero = {of}[] constant(0){start}
  s = f32[32,16] {SUM_OF_ALL.replace("GROUPS", groups)}
  {last}
}}
"""


def table(*starts):
    """Return where the part of each of 8 devices begins, as partitioning leaves it."""
    return TABLE.replace("STARTS", "{" + ",".join(map(str, starts)) + "}")


def opcodes(module):
    """Return the opcodes that run, with those of loops."""
    return [instruction.opcode for computation in module.computations for instruction in computation]


EIGHTHS, HALVES = range(0, 32, 4), (0, 0, 0, 0, 16, 16, 16, 16)
TURNS = {
    "rows, by a table": text_of(table(*EIGHTHS), "4,16"),
    "rows, by their number": text_of(MULTIPLIED, "4,16"),
    "columns": text_of(table(*range(0, 16, 2)), "32,2", index="zero, start"),
    "along an axis": text_of(table(0, 8, 16, 24, 0, 8, 16, 24), "8,16", TWO),
    "across it": text_of(table(*HALVES), "16,16", PAIRS),
    "in another order": text_of(table(*reversed(EIGHTHS)), "4,16", "{{7,6,5,4,3,2,1,0}}"),
}


@pytest.mark.parametrize("name", TURNS)
def test_parts_in_turn_are_scattered(name):
    """With the values of the whole sum's parts, and a sum no more."""
    module, rng = compiled(TURNS[name]), np.random.default_rng(1)
    assert check(module) == []
    assert ("reduce-scatter" in opcodes(module), "all-reduce" in opcodes(module)) == (True, False)
    inputs = [[rng.integers(-9, 9, (32, 16)).astype("f4")] for _ in range(8)]
    before = execute(parse_module(SourceText("text", TURNS[name])), inputs)
    np.testing.assert_array_equal(execute(module, inputs), before)


TUPLE = """part = f32[4,16] dynamic-slice(s, start, zero), dynamic_slice_sizes={4,16}
  ROOT both = (f32[4,16], f32[32,16]) tuple(part, s)"""
NO_TURNS = {
    "the sum is a result too": text_of(table(*EIGHTHS), "", more=TUPLE),
    "the turn of another": text_of(table(*reversed(EIGHTHS)), "4,16"),
    "not all of it": text_of(table(*range(0, 16, 2)), "2,16"),
    "the same for all": text_of("\n  start = s32[] constant(4)", "4,16"),
    "not known": text_of("\n  n = s32[8] parameter(1)\n  row = s32[1] slice(n), slice={[0:1]}"
                         "\n  start = s32[] reshape(row)", "4,16"),
    "along two dimensions": text_of(table(*HALVES), "16,8", PAIRS),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_TURNS)
def test_other_parts_leave_a_sum(name):
    """What else takes the sum needs all of it."""
    assert "all-reduce" in opcodes(compiled(NO_TURNS[name]))


LOOP = f"""HloModule loop, num_partitions=8

{SUM}

body {{
  t = (s32[], f32[4,16], f32[32,16]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  a = f32[4,16] get-tuple-element(t), index=1
  q = f32[32,16] get-tuple-element(t), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  f = f32[] convert(n)
  b = f32[32,16] broadcast(f), dimensions={{}}
  p = f32[32,16] multiply(q, b)
  id = u32[] partition-id()
  zero = s32[] constant(0){table(*EIGHTHS)}
  s = f32[32,16] {SUM_OF_ALL.replace("GROUPS", ONE)}
  part = f32[4,16] dynamic-slice(s, start, zero), dynamic_slice_sizes={{4,16}}
  c = f32[4,16] add(a, part)
  ROOT u = (s32[], f32[4,16], f32[32,16]) tuple(n, c, q)
}}

condition {{
  t = (s32[], f32[4,16], f32[32,16]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}}

ENTRY main {{
  q = f32[32,16] parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  a = f32[4,16] broadcast(none), dimensions={{}}
  t = (s32[], f32[4,16], f32[32,16]) tuple(zero, a, q)
  w = (s32[], f32[4,16], f32[32,16]) while(t), condition=condition, body=body
  ROOT r = f32[4,16] get-tuple-element(w), index=1
}}
"""


def test_sums_of_a_loop_are_scattered_too():
    """As the gradients of layers that are scanned."""
    found = opcodes(compiled(LOOP))
    assert (found.count("reduce-scatter"), found.count("all-reduce")) == (1, 0)


def on_all(devices, rows=8192):
    """Return a program of so many devices, each of which keeps its rows of a sum of 16 MiB."""
    kept, whole = f"bf16[{rows // devices},1024]", f"bf16[{rows},1024]"
    return f"""HloModule slice, num_partitions={devices}

{SUM.replace("f32", "bf16")}

ENTRY main {{
  p = {whole} parameter(0)
  id = u32[] partition-id()
  zero = u32[] constant(0)
  rows = u32[] constant({rows // devices})
  start = u32[] multiply(id, rows)
  s = {whole} all-reduce(p), channel_id=1, replica_groups=[1,{devices}]<=[{devices}], use_global_device_ids=true,
    to_apply=sum
  ROOT part = {kept} dynamic-slice(s, start, zero), dynamic_slice_sizes={{{rows // devices},1024}}
}}
"""


SLICES = {
    "v5e:2x2": "reduce-scatter",
    "v5e:2x4": "reduce-scatter",
    "v5e:4x8": "reduce-scatter",
    "v6e:2x2": "reduce-scatter",
    "v5p:2x2x1": "reduce-scatter",
    "v5e:4x4": "all-reduce",
    "v5e:8x8": "all-reduce",
    "v6e:4x4": "all-reduce",
    "v5p:2x2x2": "all-reduce",
    "v5p:4x2x2": "all-reduce",
    "v5p:4x4x4": "all-reduce",
}
"""What the TPU compiler makes of a sum over all devices of a slice of which each keeps its rows."""


@pytest.mark.parametrize("topology", SLICES)
def test_a_whole_slice_scatters_where_the_tpu_compiler_has_it(topology):
    """The oracle is the program that it compiles ahead of time for the slice."""
    chip, _, sizes = topology.partition(":")
    module = parse_module(SourceText("text", on_all(int(np.prod([int(size) for size in sizes.split("x")])))))
    (step,) = prepare(module, chip, topology).program.collectives
    assert step.kind == SLICES[topology]


def scattered_on_all(devices):
    """Return a program of so many devices that scatters what ``on_all`` sums, as ``jax.lax.psum_scatter`` does."""
    head, _, _ = on_all(devices).partition("  id = ")
    groups = f"channel_id=1, replica_groups=[1,{devices}]<=[{devices}], use_global_device_ids=true"
    kept = f"bf16[{8192 // devices},1024]"
    last = f"  ROOT part = {kept} reduce-scatter(p), {groups}, dimensions={{0}}, to_apply=sum\n}}\n"
    return head + last


@pytest.mark.parametrize("topology", SLICES)
def test_what_a_program_scatters_over_a_whole_slice_is_summed_where_the_tpu_compiler_sums_it(topology):
    """The oracle is as above, and what each device keeps is the same."""
    chip, _, sizes = topology.partition(":")
    text = scattered_on_all(int(np.prod([int(size) for size in sizes.split("x")])))
    (step,) = prepare(parse_module(SourceText("text", text)), chip, topology).program.collectives
    assert step.kind == SLICES[topology]


def test_parts_of_what_is_summed_for_a_scatter_are_its_parts():
    """Each device takes those of its turn: 16 of them, on 4 by 4 chips."""
    text = scattered_on_all(16).replace("8192", "32").replace("512", "2").replace("1024", "8").replace("bf16", "f32")
    before, rng = parse_module(SourceText("text", text)), np.random.default_rng(2)
    after = prepare(before, "v5e", "v5e:4x4").module
    assert "reduce-scatter" not in opcodes(after)
    inputs = [[rng.integers(-9, 9, (32, 8)).astype("f4")] for _ in range(16)]
    np.testing.assert_array_equal(execute(after, inputs), execute(before, inputs))


def test_the_slice_that_a_run_has_by_default_counts():
    """16 chips of v5e are 4 by 4, where the sum stays; a group of half of them scatters."""
    whole = parse_module(SourceText("text", on_all(16)))
    assert [step.kind for step in prepare(whole, "v5e").program.collectives] == ["all-reduce"]
    halves = on_all(16).replace("[1,16]<=[16]", "[2,8]<=[16]").replace("512", "1024")
    halves = halves.replace("start = u32[] multiply(id, rows)", "\n".join((
        "eight = u32[] constant(8)", "turn = u32[] remainder(id, eight)", "start = u32[] multiply(turn, rows)",
    )))  # fmt: skip
    module = parse_module(SourceText("text", halves))
    assert [step.kind for step in prepare(module, "v5e").program.collectives] == ["reduce-scatter"]


def test_links_carry_half():
    """A sum is scattered and then gathered; of a scattered one the gathering is left out."""
    scattered = on_all(4)
    index = "start = u32[] multiply(id, rows)"
    summed = scattered.replace(index, "start = u32[] constant(2048)")
    half, all_of_it = (
        simulate(parse_module(SourceText("text", text)), "v5e").summary.counts["ici"] for text in (scattered, summed)
    )
    assert all_of_it == pytest.approx(2 * half)
