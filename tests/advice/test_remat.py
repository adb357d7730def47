"""Recomputation: which products are twins, and what a policy keeps."""

from __future__ import annotations

import pytest
from msgspec import structs

import tpusim.advice.advise  # noqa: F401 (enters the rules)
from tpusim.advice.rules.remat import _paired, _Product
from tpusim.advice.trials import RULES, Case
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Program
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, Work
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

AGAIN = Kernel(
    name="q",
    opcode="dot",
    op_name="jit(f)/rematted_computation/dot",
    work=Work(matmuls=(Matmul(weight_rows=128, streamed_rows=1e5),)),
    flops=1.0,
    product_flops=1.0,
)


def test_a_twin_has_as_many_batches():
    """Two products of a line, as large as each other, of which the second is in batches: in both passes."""
    forward = [structs.replace(AGAIN, name=f"p{n}", op_name="jit(f)/dot") for n in range(2)]
    again = [structs.replace(AGAIN, name=f"q{n}") for n in range(2)]
    made = {id(one): _Product(8, is_batched=n % 2 == 1, is_all=True) for n, one in enumerate((*forward, *again))}
    pairs = _paired([*forward, *again], set(map(id, again)), made, {})
    assert [(step.name, twin.name) for step, twin, _ in pairs] == [("q0", "p0"), ("q1", "p1")]


SCANNED = """
HloModule scanned, is_scheduled=true

%more (s: (s32[], bf16[4096,2048], bf16[2048,2048])) -> pred[] {{
  %s = (s32[]{{:T(128)}}, {x}, {w}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %n = s32[]{{:T(128)}} constant(8)
  ROOT %less = pred[]{{:T(512)}} compare(%i, %n), direction=LT
}}

%forward (s: (s32[], bf16[4096,2048], bf16[2048,2048])) -> (s32[], bf16[4096,2048], bf16[2048,2048]) {{
  %s = (s32[]{{:T(128)}}, {x}, {w}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %x = {x} get-tuple-element(%s), index=1
  %w = {w} get-tuple-element(%s), index=2
  %one = s32[]{{:T(128)}} constant(1)
  %j = s32[]{{:T(128)}} add(%i, %one)
  %first = {x} dot(%x, %w), {dims}, metadata={{op_name="jit(f)/jvp()/dot" source_file="f.py" source_line=1}}
  ROOT %t = (s32[]{{:T(128)}}, {x}, {w}) tuple(%j, %first, %w)
}}

%backward (s: (s32[], bf16[4096,2048], bf16[2048,2048])) -> (s32[], bf16[4096,2048], bf16[2048,2048]) {{
  %s = (s32[]{{:T(128)}}, {x}, {w}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %x = {x} get-tuple-element(%s), index=1
  %w = {w} get-tuple-element(%s), index=2
  %one = s32[]{{:T(128)}} constant(1)
  %j = s32[]{{:T(128)}} add(%i, %one)
  %again = {x} dot(%x, %w), {dims}, metadata={{op_name="{scope}/dot" source_file="f.py" source_line=1}}
  %b = {b} bitcast(%{of})
  %batched = {b} dot(%b, %b), {batches}, metadata={{op_name="{inner}/dot" source_file="f.py" source_line=2}}
  %y = {x} bitcast(%batched)
  %z = {x} add(%y, %again)
  ROOT %t = (s32[]{{:T(128)}}, {x}, {w}) tuple(%j, %z, %w)
}}

ENTRY %main (x: bf16[4096,2048], w: bf16[2048,2048]) -> (s32[], bf16[4096,2048], bf16[2048,2048]) {{
  %x = {x} parameter(0)
  %w = {w} parameter(1)
  %zero = s32[]{{:T(128)}} constant(0)
  %t = (s32[]{{:T(128)}}, {x}, {w}) tuple(%zero, %x, %w)
  %there = (s32[]{{:T(128)}}, {x}, {w}) while(%t), condition=%more, body=%forward
  %y = {x} get-tuple-element(%there), index=1
  %u = (s32[]{{:T(128)}}, {x}, {w}) tuple(%zero, %y, %w)
  ROOT %back = (s32[]{{:T(128)}}, {x}, {w}) while(%u), condition=%more, body=%backward
}}
"""


@pytest.mark.parametrize(
    ("scope", "of", "policy"),
    [
        ("", "x", "dots_saveable"),
        ("rematted_computation", "x", "dots_with_no_batch_dims_saveable"),
        ("rematted_computation", "again", ""),
    ],
)
def test_a_policy_keeps_no_more_than_was_counted(scope, of, policy):
    """What multiplies in batches has another form in the forward pass: it stays, and of what is kept it may take that.

    Attention on slices of one product took 66.6 ms, and 71.9 with that product kept, as the TPU compiler made both.
    """
    again = "jit(f)/transpose(jvp())/rematted_computation"
    shapes = {"x": "4096,2048", "w": "2048,2048", "b": "2,2048,2048"}
    tiled = {k: f"bf16[{v}]{{{'2,' * (k == 'b')}1,0:T(8,128)(2,1)}}" for k, v in shapes.items()}
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    batches = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
    inner = f"jit(f)/transpose(jvp())/{scope}"
    text = SCANNED.format(**tiled, dims=dims, batches=batches, scope=again, inner=inner, of=of)
    case = Case(simulate(parse_module(SourceText("scanned.v5e.hlo", text)), "v5e"), None)
    changes = [trial.change.rpartition(".")[2] for trial in RULES["recomputation"](case)]
    assert changes == [policy] * bool(policy)


def test_without_a_checkpoint_all_is_held():
    """What the forward pass makes in another form, or not at all, is one of its results then, as the others are."""
    out = (Stream("r", "hbm", 1e6, is_output=True),)
    forward = structs.replace(AGAIN, name="p", op_name="jit(f)/dot", source="f.py:1", streams=out)
    again = [structs.replace(AGAIN, name=f"q{n}", source=f"f.py:{n}", streams=out) for n in (1, 2)]
    case = Case(simulate(Program(name="p", chip="v5e", steps=(forward, *again))), None)
    (trial,) = RULES["recomputation"](case)
    assert (trial.change, trial.saved_bytes) == ("take jax.checkpoint away", -2_000_000)
