"""All-gathers that run beside products.

Which of them do, and from where to where, is what libtpu 0.0.52 makes of such programs, compiled ahead of time.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.ir.ops import FREE
from tpusim.pipeline.stages import check, execute, simulate
from tpusim.source import SourceText
from tpusim.text import parse_module

SIZE = 1024
TEXT = """HloModule m, replica_count=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = SQUARE parameter(0)
  w = SQUARE parameter(1)
  g = HALF parameter(2)
  h = HALF parameter(3)
  LINES
}
"""
SQUARE, HALF = f"f32[{SIZE},{SIZE}]", f"f32[{SIZE // 2},{SIZE}]"
GROUPS = "replica_groups={{0,1}}"
DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
GATHERED = f"G = SQUARE all-gather(g), {GROUPS}, dimensions={{0}}"
OTHER = f"H = SQUARE all-gather(h), {GROUPS}, dimensions={{0}}"
FIRST = f"y = SQUARE dot(x, w), {DIMS}"
ORDERS = {
    "needed by the next product": (f"{GATHERED}  {FIRST}  ROOT r = SQUARE dot(y, G), {DIMS}", "begin dot end dot"),
    "one after the other": (
        f"{GATHERED}  {OTHER}  {FIRST}  z = SQUARE dot(y, G), {DIMS}  ROOT r = SQUARE dot(z, H), {DIMS}",
        "begin dot end begin dot end dot",
    ),
    "beside two products": (
        f"{GATHERED}  {FIRST}  z = SQUARE dot(y, w), {DIMS}  ROOT r = SQUARE dot(z, G), {DIMS}",
        "begin dot dot end dot",
    ),
    "beside a sum as well": (
        f"{GATHERED}  {FIRST}  z = SQUARE all-reduce(y), {GROUPS}, to_apply=add  ROOT r = SQUARE dot(z, G), {DIMS}",
        "begin dot all-reduce end dot",
    ),
    "made by a kernel": (
        f"t = HALF tanh(g)  G = SQUARE all-gather(t), {GROUPS}, dimensions={{0}}  {FIRST}  "
        f"ROOT r = SQUARE dot(y, G), {DIMS}",
        "tanh begin dot end dot",
    ),
    "a result": (f"{GATHERED}  {FIRST}  ROOT r = (SQUARE, SQUARE) tuple(y, G)", "begin dot end"),
    "of what is gathered": (
        f"{GATHERED}  T = f32[{2 * SIZE},{SIZE}] all-gather(G), {GROUPS}, dimensions={{0}}  {FIRST}  "
        f"z = SQUARE dot(y, w), {DIMS}  "
        f"ROOT r = f32[{SIZE},{2 * SIZE}] dot(z, T), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
        "all-gather begin dot dot end dot",
    ),
    "needed by the only product": (
        f"{GATHERED}  t = SQUARE tanh(x)  ROOT r = SQUARE dot(t, G), {DIMS}",
        "all-gather fusion",
    ),
    "needed where the product ends": (f"{GATHERED}  {FIRST}  ROOT r = SQUARE multiply(y, G)", "all-gather fusion"),
    "made of the product": (
        f"{FIRST}  s = HALF slice(y), slice={{[0:{SIZE // 2}], [0:{SIZE}]}}  "
        f"G = SQUARE all-gather(s), {GROUPS}, dimensions={{0}}  ROOT r = SQUARE dot(x, G), {DIMS}",
        "fusion all-gather dot",
    ),
}


def text_of(lines):
    """Return a program of some lines, two blanks between them."""
    return TEXT.replace("LINES", lines.replace("  ", "\n")).replace("SQUARE", SQUARE).replace("HALF", HALF)


def order_of(module):
    """Return what runs in the entry, in its order."""
    words = {"all-gather-start": "begin", "all-gather-done": "end"}
    return " ".join(
        words.get(i.opcode, i.opcode) for i in module.entry if i.opcode not in FREE and "copy" not in i.opcode
    )


@pytest.mark.parametrize("how", ORDERS)
def test_one_gather_at_a_time_runs_beside_the_products_before_its_user(how):
    """It begins before the first of them, once the one before it has ended; where there is none it is waited for."""
    lines, expected = ORDERS[how]
    module = compiled(text_of(lines))
    assert check(module) == []
    assert order_of(module) == expected


LOOP = """HloModule loop, replica_count=2

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

body {
  state = (s32[], f32[64,64], f32[64,64], f32[32,64]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  x = f32[64,64] get-tuple-element(state), index=1
  w = f32[64,64] get-tuple-element(state), index=2
  g = f32[32,64] get-tuple-element(state), index=3
  one = s32[] constant(1)
  next = s32[] add(n, one)
  half = f32[32,64] negate(g)
  all = f32[64,64] all-gather(half), replica_groups={{0,1}}, dimensions={0}
  y = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] all-reduce(y), replica_groups={{0,1}}, to_apply=add
  z = f32[64,64] dot(s, all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT after = (s32[], f32[64,64], f32[64,64], f32[32,64]) tuple(next, z, w, half)
}

condition {
  state = (s32[], f32[64,64], f32[64,64], f32[32,64]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  two = s32[] constant(2)
  ROOT less = pred[] compare(n, two), direction=LT
}

ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[64,64] parameter(1)
  g = f32[32,64] parameter(2)
  none = s32[] constant(0)
  start = (s32[], f32[64,64], f32[64,64], f32[32,64]) tuple(none, x, w, g)
  done = (s32[], f32[64,64], f32[64,64], f32[32,64]) while(start), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(done), index=1
}
"""


def test_a_loop_gathers_beside_its_products_and_computes_what_it_did():
    """What is gathered in a trip is another array in each, and is there when the product needs it."""
    before, made = compiled(LOOP, stop_after="flatten"), compiled(LOOP)
    assert check(made) == []
    assert sum("all-gather-start" in computation.opcodes for computation in made.computations) == 1
    rng = np.random.default_rng(8)
    sizes = ((64, 64), (64, 64), (32, 64))
    inputs = [[rng.integers(-1, 2, size).astype("f") for size in sizes] for _ in range(2)]
    for one, other in zip(execute(before, inputs), execute(made, inputs), strict=True):
        np.testing.assert_array_equal(one, other)


UPDATED = (
    f"row = f32[1,{SIZE}] parameter(4)  zero = s32[] constant(0)  {GATHERED}  {FIRST}  z = SQUARE dot(y, G), {DIMS}  "
    "u = HALF dynamic-update-slice(g, row, zero, zero)  ROOT r = (SQUARE, HALF) tuple(z, u)"
)


@pytest.mark.parametrize(
    "order", [UPDATED, UPDATED.replace("  ", "  t = HALF negate(g)  ", 1).replace("all-gather(g)", "all-gather(t)")]
)
def test_what_is_gathered_is_there_until_it_is(order):
    """An argument that another result is written over is read before."""
    text = text_of(order).replace("replica_count=2", "replica_count=2, input_output_alias={ {1}: (2, {}, may-alias) }")
    names = [i.opcode for i in compiled(text).entry]
    read = "negate" if "negate" in names else "all-gather-done" if "all-gather-done" in names else "all-gather"
    assert names.index(read) < names.index("dynamic-update-slice")
    assert "copy" not in names


def test_what_is_gathered_is_not_written_over_what_is_read_yet():
    """Where a trip leaves what it gathered in place of a matrix it begins once nothing reads that any more."""
    made = compiled(LOOP.replace("tuple(next, z, w, half)", "tuple(next, z, all, half)"))
    (body,) = (computation for computation in made.computations if "all-gather" in str(computation.opcodes))
    opcodes = [i.opcode for i in body]
    assert min(at for at, opcode in enumerate(opcodes) if "all-gather" in opcode) > opcodes.index("dot")


def test_what_is_gathered_beside_a_longer_product_costs_little():
    """A chip that waits for it takes longer by most of the gather's time: the two share the HBM."""
    text = text_of(ORDERS["needed by the next product"][0]).replace("1024", "4096").replace("512", "2048")
    module = parse_module(SourceText("gathered", text))
    beside, waiting = (
        simulate(module, "v5e", topology="v5e:2x1", overrides={"ici.gathers_beside_products": value})
        for value in (True, False)
    )
    (gather,) = (record for record in waiting.timeline.records if record.opcode == "all-gather")
    saved_ps = waiting.timeline.total_ps - beside.timeline.total_ps
    assert 0.7 < saved_ps / (gather.end_ps - gather.start_ps) < 1.05
