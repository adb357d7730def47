"""What may not be written over is copied before it is updated in place (XLA, CopyInsertion)."""

from __future__ import annotations

import numpy as np
import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def compiled(entry, header="", regions=""):
    """Return what a program becomes on a v3, where nothing moves to fast memory."""
    text = f"HloModule test{header}\n{regions}\nENTRY main {{\n{entry}\n}}\n"
    module = compile_module(parse_module(SourceText("test", text)), Target(load_chip("v3")))
    assert check(module) == []
    return module


def copied(module):
    """Return what is copied, in its order."""
    return [i.operands[0].partition(".")[0] for i in module.entry.instructions if i.opcode == "copy"]


UPDATE = """
  x = f32[64,128] parameter(0)
  u = f32[8,128] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  ROOT out = f32[64,128] dynamic-update-slice(x, u, i, zero)
"""


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("", ["x"]),
        (", input_output_alias={ {}: (0, {}, may-alias) }", []),
        (", buffer_donor={ (0, {}) }", []),
        (", buffer_donor={ (1, {}) }", ["x"]),
    ],
)
def test_an_argument_is_copied_unless_the_caller_gives_it_away(header, what):
    """Its memory is the caller's."""
    assert copied(compiled(UPDATE, header)) == what


def test_what_is_read_afterwards_is_copied():
    """And what is not, not."""
    entry = """
  x = f32[64,128] parameter(0)
  u = f32[8,128] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  bent = f32[64,128] tanh(x)
  new = f32[64,128] dynamic-update-slice(bent, u, i, zero)
  more = f32[64,128] dynamic-update-slice(new, u, zero, zero)
  ROOT out = (f32[64,128], f32[64,128]) tuple(more, bent)
"""
    assert copied(compiled(entry)) == ["bent"]


RESULTS = """
  x = f32[64,128] parameter(0)
  n = f32[64,128] negate(x)
  ROOT out = (f32[64,128], f32[64,128], f32[64,128]) tuple(x, n, n)
"""


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("", ["x", "n"]),
        (", input_output_alias={ {0}: (0, {}, may-alias) }", ["n"]),
        (", input_output_alias={ {1}: (0, {}, may-alias) }", ["x", "n"]),
        (", buffer_donor={ (0, {}) }", ["n"]),
    ],
)
def test_what_is_returned_as_it_is_has_memory_of_its_own(header, what):
    """An argument that the caller keeps, and one array that is two results: each is written, as every result is."""
    assert copied(compiled(RESULTS, header)) == what


def test_an_argument_that_is_all_that_is_returned_is_copied():
    """Behind a view and through a loop that hands it on, too."""
    assert copied(compiled("ROOT x = f32[64,128] parameter(0)")) == ["x"]
    passed = LOOP.replace("get-tuple-element(end), index=1", "get-tuple-element(end), index=2")
    module = compiled(passed, regions=STEPS)
    assert module.entry.root.opcode == "copy"


LOOP = """
  x = f32[64,128] parameter(0)
  w = f32[64,128] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[64,128], f32[64,128]) tuple(zero, x, w)
  end = (s32[], f32[64,128], f32[64,128]) while(start), condition=more, body=step
  ROOT out = f32[64,128] get-tuple-element(end), index=1
"""
STEPS = """
more {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(n, three), direction=LT
}
step {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  x = f32[64,128] get-tuple-element(p), index=1
  w = f32[64,128] get-tuple-element(p), index=2
  y = f32[64,128] multiply(x, w)
  ROOT t = (s32[], f32[64,128], f32[64,128]) tuple(m, y, w)
}
"""


def test_what_a_loop_changes_of_its_arguments_is_copied():
    """And what it only reads, not."""
    module = compiled(LOOP, regions=STEPS)
    assert copied(module) == ["x"]
    x, w = np.random.default_rng(7).standard_normal((2, 64, 128)).astype(np.float32)
    assert (execute(module, {"in0": x, "in1": w}, precision="exact", chip="v3") == x * w * w * w).all()


SWAPPED = """
body { p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64,128] get-tuple-element(p), index=1
  b = f32[64,128] get-tuple-element(p), index=2
  c = f32[64,128] tanh(a)
  d = f32[64,128] add(a, b)
  ROOT out = (s32[], f32[64,128], f32[64,128]) tuple(next, c, d) }
condition { p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  most = s32[] constant(4)
  ROOT less = pred[] compare(i, most), direction=LT }
"""

TWICE = """
  zero = s32[] constant(0)
  number = f32[] constant(2)
  more = f32[] constant(3)
  x = f32[64,128] MADE
  first = (s32[], f32[64,128], f32[64,128]) tuple(zero, x, x)
  ROOT loop = (s32[], f32[64,128], f32[64,128]) while(first), condition=condition, body=body
"""


def test_what_a_loop_carries_twice_and_changes_has_two_places():
    """What is made of nothing is made twice; anything else is copied."""
    made = compiled(TWICE.replace("MADE", "broadcast(number), dimensions={}"), regions=SWAPPED)
    assert [i.opcode for i in made.entry.instructions].count("broadcast") == 2
    drawn = compiled(TWICE.replace("MADE", "rng(number, more), distribution=rng_uniform"), regions=SWAPPED)
    assert copied(drawn) == ["x"]


def test_what_a_loop_carries_twice_and_changes_once_has_two_places():
    """Else the one that it only reads would change with the other."""
    body = SWAPPED.replace("tuple(next, c, d)", "tuple(next, d, b)")
    made = compiled(TWICE.replace("MADE", "broadcast(number), dimensions={}"), regions=body)
    assert [i.opcode for i in made.entry.instructions].count("broadcast") == 2


TRIPS = """
more {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(3)
  ROOT c = pred[] compare(n, most), direction=LT
}

body {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[64,128] get-tuple-element(p), index=1
  y = f32[64,128] get-tuple-element(p), index=2
  BODY
}
"""
LOOP_OF_TRIPS = """
  x = f32[64,128] parameter(0)
  y = f32[64,128] parameter(1)
  a = f32[64,128] tanh(x)
  b = f32[64,128] tanh(y)
  zero = s32[] constant(0)
  t = (s32[], f32[64,128], f32[64,128]) tuple(zero, a, b)
  w = (s32[], f32[64,128], f32[64,128]) while(t), condition=more, body=body
  ROOT z = f32[64,128] get-tuple-element(w), index=2
"""


@pytest.mark.parametrize(
    ("x", "y", "copies"),
    [
        ("tanh(x)", "tanh(y)", 0),
        ("tanh(x)", "add(x, y)", 1),
        ("reverse(x), dimensions={0}", "tanh(y)", 1),
        ("reverse(y), dimensions={0}", "reverse(x), dimensions={0}", 2),
    ],
    ids=["element by element", "and by another", "from other places", "crosswise"],
)
def test_what_a_loop_reads_when_the_new_one_is_there_is_copied(x, y, copies):
    """The new value is written where the old one lies; element by element that can be while it is read."""
    body = f"""u = f32[64,128] {x}
  v = f32[64,128] {y}
  ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, u, v)"""
    module = compiled(LOOP_OF_TRIPS, regions=TRIPS.replace("BODY", body))
    loop = next(i for i in module.entry if i.opcode == "while")
    inside = module[loop.attributes["body"]]
    assert [i.opcode for i in inside].count("copy") == copies
    inputs = [np.random.default_rng(at).normal(size=(64, 128)).astype("f4") for at in range(2)]
    text = f"HloModule test\n{TRIPS.replace('BODY', body)}\nENTRY main {{\n{LOOP_OF_TRIPS}\n}}\n"
    expected = execute(parse_module(SourceText("test", text)), inputs)
    np.testing.assert_array_equal(execute(module, inputs), expected)


def test_a_loop_that_uses_each_array_twice_is_compiled_at_once():
    """Sixty layers have 2**60 ways through them, from what is read to what is written in its place."""
    layers = "".join(
        f"l{n} = f32[64,128] exponential({f'm{n - 1}' if n else 'x'})\n"
        f"k{n} = f32[64,128] negate({f'm{n - 1}' if n else 'x'})\nm{n} = f32[64,128] multiply(l{n}, k{n})\n"
        for n in range(60)
    )
    body = f"{layers}ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, m59, y)"
    module = compiled(LOOP_OF_TRIPS, regions=TRIPS.replace("BODY", body))
    loop = next(i for i in module.entry if i.opcode == "while")
    assert not any(i.opcode == "copy" for i in module[loop.attributes["body"]])
