"""Pass 2: what a loop carries no more. The oracle is the program as it was given."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tests.growth import within
from tpusim.pipeline.stages import check, execute

LOOP = """HloModule m

body {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = f32[8] get-tuple-element(p), index=1
  a = f32[4,8] get-tuple-element(p), index=2
  b = f32[4,8] get-tuple-element(p), index=3
  one = s32[] constant(1)  none = s32[] constant(0)  next = s32[] add(i, one)
  d = f32[8] tanh(c)  row = f32[1,8] reshape(d)  other = f32[1,8] reshape(c)
  a1 = f32[4,8] dynamic-update-slice({first}, row, i, none)
  b1 = f32[4,8] dynamic-update-slice({second})
  ROOT t = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(next, d, a1, b1)
}}

condition {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(4)  b = f32[4,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)  part = f32[1,1] dynamic-slice(b, zero, zero), dynamic_slice_sizes={{1,1}}
  s = f32[] reshape(part)  far = f32[] constant(5)  is_near = pred[] compare(s, far), direction=LT
  is_less = pred[] compare(i, n), direction=LT  ROOT r = pred[] and(is_less, is_near)
}}

ENTRY e {{
  x = f32[8] parameter(0)
  y = f32[] parameter(1)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  empty = f32[4,8] broadcast(none), dimensions={{}}
  full = f32[4,8] broadcast({begun}), dimensions={{}}
  s = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(zero, x, empty, full)
  w = (s32[], f32[8], f32[4,8], f32[4,8]) while(s), condition=condition, body=body
  {rest}
}}
"""
BOTH = """c = f32[8] get-tuple-element(w), index=1
  a = f32[4,8] get-tuple-element(w), index=2
  b = f32[4,8] get-tuple-element(w), index=3
  ROOT t = (f32[8], f32[4,8], f32[4,8]) tuple(c, a, b)"""


def program(first="a", second="b, row, i, none", begun="none", rest=BOTH):
    """Return a loop that writes a row into each of two arrays in every trip."""
    text = LOOP.format(first=first, second=second, begun=begun, rest=rest)
    return "\n".join(line.replace("  ", "\n  ") if "  " in line.strip() else line for line in text.splitlines())


def carried(module):
    """Return how many things each loop of a module carries."""
    return [len(i.shape.elements) for computation in module.computations for i in computation if i.opcode == "while"]


def check_values(text):
    """Assert that a program computes the same before and after the pass."""
    inputs = [np.linspace(-1, 1, 8, dtype="f"), np.float32(2)]
    before, made = (compiled(text, stop_after=step) for step in ("flatten", "simplify"))
    assert check(made) == []
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (before, made))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("arrays", [("a", "b"), ("b", "a"), ("b", "b")])
def test_stacks_of_the_same_rows_are_one(arrays):
    """Also where a loop exchanges them, or goes on with one: neither then nor later is there a difference."""
    text = program(arrays[0], f"{arrays[1]}, row, i, none")
    assert carried(compiled(text, stop_after="simplify")) == [3]
    check_values(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"second": "b, other, i, none"},
        {"second": "b, row, none, none"},
        {"begun": "y"},
        {"rest": "ROOT t = (s32[], f32[8], f32[4,8], f32[4,8]) copy(w)"},
    ],
)
def test_others_are_carried_as_they_are(changes):
    """Other rows, other places, another beginning, and a result that is all of it."""
    text = program(**changes)
    made = compiled(text, stop_after="simplify")
    assert carried(made) == [4]
    if "rest" not in changes:
        check_values(text)


@pytest.mark.parametrize(
    ("rest", "count"),
    [
        ("ROOT c = f32[8] get-tuple-element(w), index=1", 3),
        ("a = f32[4,8] get-tuple-element(w), index=2  ROOT t = f32[4,8] tanh(a)", 4),
        ("ROOT i = s32[] get-tuple-element(w), index=0", 3),
    ],
)
def test_what_nobody_reads_is_not_carried(rest, count):
    """The condition reads the second array, and with it what its rows are made of."""
    made = compiled(program(begun="y", rest=rest), stop_after="simplify")
    assert carried(made) == [count]
    inputs = [np.linspace(-1, 1, 8, dtype="f"), np.float32(2)]
    before = compiled(program(begun="y", rest=rest), stop_after="flatten")
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (before, made))
    np.testing.assert_array_equal(expected, found)


def test_what_is_said_of_each_element_goes():
    """Shardings and origins of three are none of two."""
    three = ", sharding={{replicated},{replicated},{replicated},{replicated}}"
    text = (
        program()
        .replace("body=body", f"body=body{three}")
        .replace("parameter(0)\n  i =", f"parameter(0){three}\n  i =")
    )
    made = compiled(text, stop_after="simplify")
    assert carried(made) == [3]
    assert "sharding" in text
    assert "sharding" not in made.text


def test_loops_that_share_a_body_keep_what_they_carry():
    """One of them begins with two arrays that differ."""
    second = """begin = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(zero, x, empty, ys)
  v = (s32[], f32[8], f32[4,8], f32[4,8]) while(begin), condition=condition, body=body
  a2 = f32[4,8] get-tuple-element(v), index=2
  b2 = f32[4,8] get-tuple-element(v), index=3
  """
    text = program(
        rest="ys = f32[4,8] broadcast(y), dimensions={}\n  " + second + BOTH.replace("c, a, b)", "c, a2, b2)")
    )
    check_values(text)


ACTS = """HloModule m

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  t = token[] after-all()
  o = token[] outfeed(x, t), outfeed_shape=f32[8]
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[8]) tuple(n, x)
}

condition {
  p = (s32[], f32[8]) parameter(0)
  t = token[] after-all()
  f = (pred[], token[]) infeed(t)
  ROOT go = pred[] get-tuple-element(f), index=0
}

ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=condition, body=body
  ROOT y = f32[8] tanh(x)
}
"""


NOISE = """z = f32[] constant(1)
  noise = f32[8] broadcast(z), dimensions={}
  o = token[] outfeed(noise,"""


@pytest.mark.parametrize("sent", ["o = token[] outfeed(x,", NOISE], ids=["carried", "not carried"])
def test_a_loop_that_only_does_something_goes_on(sent):
    """Also where it reads nothing that it carries."""
    made = compiled(ACTS.replace("o = token[] outfeed(x,", sent))
    assert check(made) == []
    assert carried(made) == [1]


def shifting(count):
    """Return a program whose loop hands each of so many arrays on to the next in every trip."""
    shape = f"(s32[], f32[8], {', '.join(['f32[8]'] * count)})"
    elements = "\n".join(f"  e{at} = f32[8] get-tuple-element(p), index={at + 2}" for at in range(count))
    after = ", ".join(["d", *(f"e{at}" for at in range(count - 1))])
    return f"""HloModule m

body {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = f32[8] get-tuple-element(p), index=1
{elements}
  d = f32[8] tanh(c)
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = {shape} tuple(n, d, {after})
}}

condition {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  most = s32[] constant(9)
  ROOT go = pred[] compare(i, most), direction=LT
}}

ENTRY e {{
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  y = f32[8] broadcast(none), dimensions={{}}
  s = {shape} tuple(zero, x, {", ".join(["y"] * count)})
  w = {shape} while(s), condition=condition, body=body
  ROOT z = f32[8] get-tuple-element(w), index={count + 1}
}}
"""


def test_a_register_that_shifts_takes_no_longer_than_its_length():
    """Each of a thousand begins as one, and every trip tells one more of them from the others."""
    text = shifting(1000)
    within(10, lambda: compiled(text, stop_after="simplify"))
