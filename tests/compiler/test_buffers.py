"""Between layouts and fusion: which stacks begin as memory that nobody has written, as AllocateBuffer does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute

LOOP = """HloModule loop

body {{
  p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  stack = f32[4,8,128] get-tuple-element(p), index=1
  x = f32[8,128] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = s32[] constant(0)
  last = s32[] constant(3)
  back = s32[] subtract(last, i)
  bent = f32[8,128] tanh(x)
  part = f32[1,8,128] reshape({part})
  new = f32[4,8,128] dynamic-update-slice(stack, part, {place}, zero, zero)
  ROOT out = (s32[], f32[4,8,128], f32[8,128]) tuple(next, new, bent)
}}

condition {{
  p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  most = s32[] constant({trips})
  ROOT less = pred[] compare(i, most), direction=LT
}}

ENTRY main {{
  x = f32[8,128] parameter(0)
  zero = s32[] constant(0)
  nought = f32[] constant(7)
  stack = f32[4,8,128] broadcast(nought), dimensions={{}}
  first = (s32[], f32[4,8,128], f32[8,128]) tuple(zero, stack, x)
  loop = (s32[], f32[4,8,128], f32[8,128]) while(first), condition=condition, body=body
  ROOT out = f32[4,8,128] get-tuple-element(loop), index=1
}}
"""


@pytest.mark.parametrize(
    ("changed", "is_unwritten"),
    [({}, True), ({"place": "back"}, True), ({"trips": 3}, False), ({"place": "zero"}, False)],
)
def test_a_stack_that_a_loop_fills_has_no_first_value(changed, is_unwritten):
    """From either end, if every place is written; then what it began with does not matter."""
    text = LOOP.format(**{"part": "bent", "place": "i", "trips": 4, **changed})
    given, made = (compiled(text, stop_after=name) for name in ("inline", ""))
    opcodes = [i.opcode for i in made.entry.instructions]
    assert (("custom-call" in opcodes), check(made)) == (is_unwritten, [])
    x = np.linspace(-1, 1, 8 * 128, dtype=np.float32).reshape(8, 128)
    np.testing.assert_array_equal(*(execute(module, [x]) for module in (given, made)))


def test_a_stack_that_is_read_keeps_its_first_value():
    """Here the first trip hands on what was there."""
    lines = "row = f32[1,8,128] slice(stack), slice={{[0:1], [0:8], [0:128]}}\n  part = f32[1,8,128] add(row, row)"
    text = LOOP.replace("part = f32[1,8,128] reshape({part})", lines).format(place="i", trips=4)
    assert "custom-call" not in [i.opcode for i in compiled(text).entry.instructions]
