"""Pass 2: equal loops, branches and collectives are one, however their computations are called. Source: XLA, HloCSE."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute

LOOP = """
less.N {{ p.N = (s32[], f32[8]) parameter(0)  i.N = s32[] get-tuple-element(p.N), index=0
  n.N = s32[] constant(3)  ROOT c.N = pred[] compare(i.N, n.N), direction=LT }}

body.N {{ q.N = (s32[], f32[8]) parameter(0)  j.N = s32[] get-tuple-element(q.N), index=0
  one.N = s32[] constant(1)  k.N = s32[] add(j.N, one.N)  x.N = f32[8] get-tuple-element(q.N), index=1
  {line}
  ROOT t.N = (s32[], f32[8]) tuple(k.N, y.N) }}
"""


def loop(number, line):
    """Return the computations of a loop whose names have a number."""
    return LOOP.format(line=line).replace(".N", f".{number}")


def twice(one, other, start="zero"):
    """Return a program that runs two loops over the same argument, each with a line of its own in the body."""
    return f"""HloModule twice
{loop(0, one)}{loop(1, other)}
ENTRY main {{ x = f32[8] parameter(0)  zero = s32[] constant(0)  nought = s32[] constant(1)
  v = (s32[], f32[8]) tuple(zero, x)  w = (s32[], f32[8]) tuple({start}, x)
  a = (s32[], f32[8]) while(v), condition=less.0, body=body.0
  b = (s32[], f32[8]) while(w), condition=less.1, body=body.1
  y = f32[8] get-tuple-element(a), index=1  z = f32[8] get-tuple-element(b), index=1
  two = f32[] constant(2)  twos = f32[8] broadcast(two), dimensions={{}}  d = f32[8] multiply(z, twos)
  ROOT r = (f32[8], f32[8]) tuple(y, d) }}
"""


def left(text, opcode, stop_after="simplify"):
    """Return how many instructions of an opcode a program's entry has after a pass, and check what it computes."""
    given, made = (compiled(text, stop_after=step) for step in ("inline", stop_after))
    assert check(made) == []
    rng = np.random.default_rng(0)
    inputs = {f"in{p.immediate}": rng.normal(size=p.shape.dimensions).astype("f") for p in given.entry.parameters}
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (given, made))
    np.testing.assert_array_equal(np.array(found).view("u4"), np.array(expected).view("u4"))
    return [i.opcode for i in made.entry].count(opcode)


TANH = "y.N = f32[8] tanh(x.N)"


def test_loops_that_say_the_same_are_one():
    """Their computations have other names."""
    assert left(twice(TANH, TANH), "while") == 1
    assert left(twice(TANH, TANH), "while", "") == 1


@pytest.mark.parametrize(
    ("other", "start"),
    [
        ("y.N = f32[8] sine(x.N)", "zero"),
        (TANH, "nought"),
        ("h.N = f32[8] tanh(x.N)  y.N = f32[8] add(h.N, x.N)", "zero"),
    ],
)
def test_loops_that_say_something_else_are_two(other, start):
    """In their body, or where they begin."""
    assert left(twice(TANH, other, start), "while") == 2


def test_equal_loops_over_other_values_run_computations_of_their_own():
    """What they hand over may lie elsewhere."""
    made = compiled(twice(TANH, TANH, "nought"), stop_after="simplify")
    assert sorted(c.name for c in made.computations) == ["body.0", "body.1", "less.0", "less.1", "main"]


def test_loops_of_loops_that_say_the_same_are_one():
    """What is innermost is compared first."""
    inner = loop(2, TANH) + loop(3, TANH)
    call = "u.N = (s32[], f32[8]) tuple(j.N, x.N)  l.N = (s32[], f32[8]) while(u.N), condition=less.M, body=body.M"
    lines = [f"{call}  y.N = f32[8] get-tuple-element(l.N), index=1".replace(".M", f".{at}") for at in (2, 3)]
    text = twice(*lines).replace("HloModule twice\n", f"HloModule twice\n{inner}")
    assert left(text, "while") == 1


CHOICE = """HloModule choice

yes.0 { a = f32[8] parameter(0)  ROOT b = f32[8] tanh(a) }
no.0 { a = f32[8] parameter(0)  ROOT b = f32[8] negate(a) }
yes.1 { a = f32[8] parameter(0)  ROOT b = f32[8] tanh(a) }
no.1 { a = f32[8] parameter(0)  ROOT b = f32[8] OTHER(a) }

ENTRY main { x = f32[8] parameter(0)  s = f32[] parameter(1)  zero = f32[] constant(0)
  p = pred[] compare(s, zero), direction=GT
  y = f32[8] conditional(p, x, x), true_computation=yes.0, false_computation=no.0
  z = f32[8] conditional(p, x, x), true_computation=yes.1, false_computation=no.1
  ROOT r = f32[8] add(y, z) }
"""


@pytest.mark.parametrize(("other", "expected"), [("negate", 1), ("sine", 2)])
def test_branches_that_say_the_same_are_one(other, expected):
    """Of two branches each both have to."""
    assert left(CHOICE.replace("OTHER", other), "conditional") == expected


EFFECTS = {
    "a random number": (
        "o.N = f32[] constant(0)  e.N = f32[] rng(o.N, o.N), distribution=rng_uniform  "
        "y.N = f32[8] broadcast(e.N), dimensions={}"
    ),
    "what the host does": 'y.N = f32[8] custom-call(x.N), custom_call_target="f", custom_call_has_side_effect=true',
    "a sum over devices": "y.N = f32[8] all-reduce(x.N), channel_id=7, replica_groups={{0}}, to_apply=add",
}
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"


@pytest.mark.parametrize("name", EFFECTS)
def test_loops_that_do_something_stay_apart(name):
    """Random numbers are others the second time, and what meets others does so as often as it is said."""
    line = EFFECTS[name]
    text = twice(line, line).replace("HloModule twice\n", f"HloModule twice\n{ADD}")
    made = compiled(text, stop_after="simplify").entry
    assert [i.opcode for i in made].count("while") == 2


def test_loops_over_numbers_that_are_left_out_stay_apart():
    """What the text does not say may differ."""
    line = "m.N = f32[8] constant({...})  y.N = f32[8] add(x.N, m.N)"
    made = compiled(twice(line, line), stop_after="simplify").entry
    assert [i.opcode for i in made].count("while") == 2


OPERATIONS = {
    "all-gather": ("f32[16]", "dimensions={0}, use_global_device_ids=true"),
    "all-reduce": ("f32[8]", "use_global_device_ids=true, to_apply=plus.N"),
    "reduce-scatter": ("f32[4]", "dimensions={0}, use_global_device_ids=true, to_apply=plus.N"),
    "all-to-all": ("f32[8]", "dimensions={0}"),
    "collective-permute": ("f32[8]", "source_target_pairs={{0,1},{1,0}}"),
}
PLUS = "plus.N { p.N = f32[] parameter(0)  q.N = f32[] parameter(1)  ROOT s.N = f32[] add(p.N, q.N) }\n"


def met(opcode, other=("x", ", channel_id=2")):
    """Return a program of two collectives, the second of an operand and on a channel of its own, for two devices."""
    shape, named = OPERATIONS[opcode]
    groups = "" if "pairs" in named else ", replica_groups={{0,1}}"
    calls = [
        f"{opcode}({operand}){channel}{groups}, {named}".replace(".N", f".{number}")
        for number, (operand, channel) in enumerate([("x", ", channel_id=1"), other])
    ]
    if not other[1]:
        calls[1] = calls[1].replace(", use_global_device_ids=true", "")
    return f"""HloModule met, num_partitions=2
{PLUS.replace(".N", ".0")}{PLUS.replace(".N", ".1")}
ENTRY main {{ x = f32[8] parameter(0)  y = f32[8] negate(x)
  a = {shape} {calls[0]}
  b = {shape} {calls[1]}
  c = {shape} tanh(b)
  ROOT r = ({shape}, {shape}) tuple(a, c) }}
"""


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_collectives_that_say_the_same_are_one(opcode):
    """On two channels, and with what they apply under two names; each device has what it had."""
    given, made = (compiled(met(opcode), stop_after=step) for step in ("inline", "simplify"))
    assert check(made) == []
    assert [[i.opcode for i in module.entry].count(opcode) for module in (given, made)] == [2, 1]
    inputs = [[np.arange(8, dtype="f4") / 8 + number] for number in range(2)]
    for one, other in zip(execute(given, inputs), execute(made, inputs), strict=True):
        assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("other", [("y", ", channel_id=2"), ("x", "")], ids=["an operand", "what groups count"])
def test_collectives_of_something_else_are_two(other):
    """Of another array, or among replicas where the first is among partitions."""
    made = compiled(met("all-reduce", other), stop_after="simplify")
    assert [i.opcode for i in made.entry].count("all-reduce") == 2
