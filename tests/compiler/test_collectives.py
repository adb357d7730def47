"""Collectives of compiled programs run beside the kernels that do not need them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

COLLECTIVES = {
    "gathered": "all-gather(a), replica_groups={{0,1}}, dimensions={0}",
    "reduced": "all-reduce(a), replica_groups={{0,1}}, to_apply=add",
    "permuted": "collective-permute(a), source_target_pairs={{0,1},{1,0}}",
}


def text_of(name):
    """Return a program in which a collective and a product need the same array, and nothing of each other."""
    rows = 2048 if name == "gathered" else 1024
    return f"""HloModule beside, replica_count=2

add {{ x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }}

ENTRY main {{
  p = f32[1024,1024] parameter(0)
  q = f32[1024,1024] parameter(1)
  a = f32[1024,1024] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sent = f32[{rows},1024] {COLLECTIVES[name]}
  b = f32[1024,1024] dot(a, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = f32[{rows},1024] tanh(sent)
  ROOT both = (f32[{rows},1024], f32[1024,1024]) tuple(c, b)
}}
"""


@pytest.mark.parametrize("name", COLLECTIVES)
def test_it_starts_behind_what_it_sends_and_ends_before_its_user(name):
    """With the product that it does not need between the two, wherever the order has that."""
    module = compiled(text_of(name))
    assert check(module) == []
    opcodes = [i.opcode for i in module.entry]
    start = next(at for at, opcode in enumerate(opcodes) if opcode.endswith("-start") and "copy" not in opcode)
    done = next(at for at, opcode in enumerate(opcodes) if opcode.endswith("-done") and "copy" not in opcode)
    assert module.entry.instructions[start - 1].name in module.entry.instructions[start].operands
    user = module.entry.instructions[done + 1]
    assert module.entry.instructions[done].name in user.operands


@pytest.mark.parametrize("name", COLLECTIVES)
def test_values_and_bytes_stay(name):
    """What each device computes is what it did, and the links carry as much."""
    text, rng = text_of(name).replace("1024", "8").replace("2048", "16"), np.random.default_rng(1)
    inputs = [[rng.normal(size=(8, 8)).astype("f4") for _ in range(2)] for _ in range(2)]
    before, after = parse_module(SourceText("text", text)), compiled(text)
    for one, two in zip(execute(before, inputs), execute(after, inputs), strict=True):
        for ours, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    result = simulate(compiled(text_of(name)), "v5e", topology="v5e:1x2")
    assert sum(record.payload_bytes for record in result.timeline.records) >= 2**22
