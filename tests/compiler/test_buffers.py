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


BRANCHES = """top { p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  s = f32[4,8,128] get-tuple-element(p), index=1
  ROOT r = f32[1,8,128] slice(s), slice={[3:4], [0:8], [0:128]} }

twice { p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  s = f32[4,8,128] get-tuple-element(p), index=1
  r = f32[1,8,128] slice(s), slice={[2:3], [0:8], [0:128]}
  ROOT t = f32[1,8,128] add(r, r) }

once { p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,128] get-tuple-element(p), index=2
  y = f32[8,128] exponential(x)
  s = f32[4,8,128] get-tuple-element(p), index=1
  ten = s32[] constant(10)
  j = s32[] add(i, ten)
  r = f32[1,8,128] slice(s), slice={[3:4], [0:8], [0:128]}
  z = f32[8,128] reshape(r)
  w = f32[8,128] add(y, z)
  ROOT out = (s32[], f32[4,8,128], f32[8,128]) tuple(j, s, w) }

less { p = (s32[], f32[4,8,128], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  most = s32[] constant(10)
  ROOT less = pred[] compare(i, most), direction=LT }

body"""

READ = {
    "itself": "row = f32[1,8,128] slice(stack), slice={[0:1], [0:8], [0:128]}\n  part = f32[1,8,128] add(row, row)",
    "behind a barrier": "q = (s32[], f32[4,8,128], f32[8,128]) opt-barrier(p)\n"
    "  s = f32[4,8,128] get-tuple-element(q), index=1\n"
    "  part = f32[1,8,128] slice(s), slice={[3:4], [0:8], [0:128]}",
    "by branches": "part = f32[1,8,128] conditional(i, p, p), branch_computations={top, twice}",
    "by another loop": "q = (s32[], f32[4,8,128], f32[8,128]) while(p), condition=less, body=once\n"
    "  y = f32[8,128] get-tuple-element(q), index=2\n  part = f32[1,8,128] reshape(y)",
}


@pytest.mark.parametrize("how", READ)
def test_a_stack_that_is_read_keeps_its_first_value(how):
    """Here trips hand on what was there: whoever takes the whole tuple of the loop has the stack as well."""
    text = LOOP.replace("part = f32[1,8,128] reshape({part})", READ[how].replace("{", "{{").replace("}", "}}"))
    _check_that_values_stay(text.format(place="i", trips=4).replace("body", BRANCHES, 1))


def test_a_stack_that_a_condition_reads_keeps_its_first_value():
    """How often the loop runs is stated all the same."""
    text = LOOP.replace("ROOT less = pred[] compare(i, most)", "below = pred[] compare(i, most)")
    lines = """direction=LT
  s = f32[4,8,128] get-tuple-element(p), index=1
  corner = f32[1,1,1] slice(s), slice={{[3:4], [7:8], [127:128]}}
  last = f32[] reshape(corner)
  nought = f32[] constant(0)
  is_there = pred[] compare(last, nought), direction=NE
  ROOT less = pred[] and(below, is_there)
"""
    stated = 'body=body, backend_config={{"known_trip_count":{{"n":"4"}}}}'
    text = text.replace("direction=LT\n", lines).replace("body=body", stated)
    _check_that_values_stay(text.format(part="bent", place="i", trips=4))


def test_what_another_loop_begins_from_keeps_its_first_value():
    """One fills the stack, the other doubles it; both are given one tuple."""
    text = LOOP.format(part="bent", place="i", trips=4)
    doubled = text[text.index("body") : text.index("condition")].replace("body", "double")
    doubled = doubled.replace("dynamic-update-slice(stack, part, i, zero, zero)", "add(stack, stack)")
    both = """other = (s32[], f32[4,8,128], f32[8,128]) while(first), condition=condition, body=double
  filled = f32[4,8,128] get-tuple-element(loop), index=1
  twice = f32[4,8,128] get-tuple-element(other), index=1
  ROOT out = f32[4,8,128] add(filled, twice)"""
    text = text.replace("ROOT out = f32[4,8,128] get-tuple-element(loop), index=1", both)
    made = _check_that_values_stay(text.replace("ENTRY", doubled + "ENTRY"))
    assert "custom-call" in [i.opcode for i in made.entry.instructions]


def _check_that_values_stay(text):
    """Check that a module computes what it did when it is compiled, and return it compiled."""
    given, made = (compiled(text, stop_after=name) for name in ("inline", ""))
    assert check(made) == []
    x = np.linspace(-1, 1, 8 * 128, dtype=np.float32).reshape(8, 128)
    np.testing.assert_array_equal(*(execute(module, [x]) for module in (given, made)))
    return made
