"""Every opcode through all rooms with a text of its own: read, verified, lowered, and timed.

That each can be inferred and computed at all ``test_opcodes`` says; what it then gives, ``test_ops`` and the builder's
tests do.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.build.builder_cases import CASES
from tests.lowering.hlo import lower_module_text
from tpusim import Builder
from tpusim.hardware.units import LOAD, STORE
from tpusim.ir.ops import FREE, MOVES_ONLY, OPERATIONS, async_phase
from tpusim.program.module import walk
from tpusim.program.steps import Kernel
from tpusim.source import SourceText
from tpusim.text import parse_module, print_module

# What compilers make, and what came after XLA's document.
TEXTS = {
    "all-gather-start": """a = (f32[4], f32[8]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}
      ROOT r = f32[8] all-gather-done(a)""",
    "all-reduce-start": """a = f32[4] all-reduce-start(x), to_apply=add, replica_groups={{0,1}}
      ROOT r = f32[4] all-reduce-done(a)""",
    "async-start": """a = ((f32[4]), f32[4], u32[]) async-start(x), calls=inner
      u = ((f32[4]), f32[4], u32[]) async-update(a), calls=inner
      ROOT r = f32[4] async-done(u), calls=inner""",
    "bitcast": "ROOT r = f32[2,2] bitcast(x)",
    "collective-permute-start": """
      a = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}
      ROOT r = f32[4] collective-permute-done(a)""",
    "copy-start": "a = (f32[4], f32[4], u32[]) copy-start(x) ROOT r = f32[4] copy-done(a)",
    "domain": 'ROOT r = f32[4] domain(x), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}',
    "dynamic-reshape": "s = s32[] constant(4) ROOT r = f32[<=4] dynamic-reshape(x, s)",
    "fusion": "ROOT r = f32[4] fusion(x), kind=kLoop, calls=inner",
    "ragged-dot": """m = f32[11,5] constant({...}) w = f32[3,5,7] constant({...}) s = s32[3] constant({4, 4, 3})
      ROOT r = f32[11,7] ragged-dot(m, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0},
      rhs_group_dims={0}""",
    "scaled-dot": """m = bf16[8,64] constant({...}) w = bf16[64,16] constant({...}) s = bf16[8,2] constant({...})
      t = bf16[2,16] constant({...}) ROOT r = f32[8,16] scaled-dot(m, w, s, t), lhs_contracting_dims={1},
      rhs_contracting_dims={0}""",
    "add-dependency": "k = token[] after-all() ROOT r = f32[4] add-dependency(x, k)",
}
COMPUTATIONS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
inner { a = f32[4] parameter(0) ROOT n = f32[4] negate(a) }"""


@cache
def texts() -> dict[str, str]:
    """Return a module's text by opcode: one in which the opcode stands."""
    found: dict[str, str] = {}
    for case in CASES.values():
        builder = Builder("case")
        module = builder.build(case(builder))
        for opcode in module.entry.opcodes:
            found.setdefault(opcode, print_module(module))
    for lines in TEXTS.values():
        text = f"HloModule m, num_partitions=2\n{COMPUTATIONS}\nENTRY e {{ x = f32[4] parameter(0)\n{lines} }}\n"
        for opcode in parse_module(SourceText("m.hlo", text)).entry.opcodes:
            found.setdefault(opcode, text)
    return found


def costs(step) -> bool:
    """Return whether a step computes, or moves bytes if its opcode does nothing else; waits and calls count."""
    if not isinstance(step, Kernel):
        return True
    moves = step.opcode in MOVES_ONLY and step.hbm_bytes
    computes = any(count for unit, count in step.work.ops.items() if unit not in (LOAD, STORE))
    return bool(moves or step.work.matmuls or computes)


@pytest.mark.parametrize("opcode", sorted(OPERATIONS))
def test_no_opcode_is_free_in_silence(opcode):
    """An opcode costs something, is free by its trait, or stands among the estimates of the report."""
    program = lower_module_text(texts()[opcode])
    steps = [step for step, _ in walk(program.steps) if step.opcode == opcode]
    is_named = opcode in FREE or async_phase(opcode) == "update"
    is_estimated = any(estimate.opcode == opcode for estimate in program.unsupported)
    assert is_named or is_estimated or any(map(costs, steps))
    assert not (is_named and steps)
