"""Pass 2: loops that run once or never are no loops. Source: XLA, WhileLoopSimplifier."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute

BODY = "y = f32[8] tanh(x)"


def loop(trips, body=BODY, more="", stated=""):
    """Return a program with a loop that counts to ``trips``, or what stands in place of that."""
    return f"""HloModule m

add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}

less {{ p = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  m = s32[] get-tuple-element(p), index=2  n = s32[] {trips if "(" in str(trips) else f"constant({trips})"}  {more}
  ROOT c = pred[] compare(i, n), direction=LT }}

body {{ p = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
  x = f32[8] get-tuple-element(p), index=1  n = s32[] get-tuple-element(p), index=2
  {body}
  j = s32[] add(i, one)  ROOT t = (s32[], f32[8], s32[]) tuple(j, y, n) }}

ENTRY main {{ x = f32[8] parameter(0)  n = s32[] parameter(1)  zero = s32[] constant(0)
  h = f32[8] negate(x)  v = (s32[], f32[8], s32[]) tuple(zero, h, n)
  l = (s32[], f32[8], s32[]) while(v), condition=less, body=body{stated}
  ROOT y = f32[8] get-tuple-element(l), index=1 }}
"""


def left(text):
    """Return the opcodes that work in a program's entry after the pass."""
    made = compiled(text, stop_after="simplify")
    assert check(made) == []
    return [i.opcode for i in made.entry if i.opcode not in ("parameter", "constant", "tuple", "get-tuple-element")]


@pytest.mark.parametrize(
    ("trips", "expected"),
    [
        (-1, ["negate"]),
        (0, ["negate"]),
        (1, ["negate", "tanh"]),
        (2, ["negate", "while"]),
        ("copy(m)", ["negate", "while"]),
    ],
)
def test_a_loop_of_one_trip_is_its_body(trips, expected):
    """And one of none is what it begins with; more trips, and as many as an argument says, stay a loop."""
    assert left(loop(trips)) == expected


@pytest.mark.parametrize("trips", [0, 1, 2])
@pytest.mark.parametrize("stop_after", ["simplify", ""])
def test_the_values_are_those_of_the_loop(trips, stop_after):
    """Bit for bit."""
    inputs = {"in0": np.random.default_rng(0).normal(size=8).astype("f"), "in1": np.int32(5)}
    given, made = (compiled(loop(trips), stop_after=step) for step in ("inline", stop_after))
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (given, made))
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


INNER = """
inner {{ p = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
  x = f32[8] get-tuple-element(p), index=1  n = s32[] get-tuple-element(p), index=2  y = f32[8] sine(x)
  j = s32[] add(i, one)  ROOT t = (s32[], f32[8], s32[]) tuple(j, y, n) }}
"""


@pytest.mark.parametrize(("outer", "expected"), [(1, ["negate", "sine"]), (2, ["negate", "while"])])
def test_what_an_outer_loop_counts_is_known_inside_when_it_is_gone(outer, expected):
    """The inner one begins with the counter of the outer one."""
    body = """u = (s32[], f32[8], s32[]) tuple(i, x, n)
  k = (s32[], f32[8], s32[]) while(u), condition=less.1, body=inner
  y = f32[8] get-tuple-element(k), index=1"""
    head, _, rest = loop(outer, body).partition("\nless {")
    less = "\nless {" + rest[: rest.index("\nbody {")]
    once = less.replace("less", "less.1").replace(f"constant({outer})", "constant(1)")
    assert left(head + once + INNER.format() + "\nless {" + rest) == expected


EFFECTS = {
    "a random number": (
        "o = f32[] constant(0)  e = f32[] rng(o, o), distribution=rng_uniform  y = f32[8] broadcast(e), dimensions={}",
        1,
    ),
    "what the host does": ('y = f32[8] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true', 1),
    "a sum over devices": ("y = f32[8] all-reduce(x), channel_id=7, replica_groups={{0}}, to_apply=add", 0),
    "random bits": (
        "s = u64[2] constant({1, 2})  e = (u64[2], u32[8]) rng-bit-generator(s), algorithm=rng_three_fry  "
        "w = u32[8] get-tuple-element(e), index=1  y = f32[8] convert(w)",
        0,
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_what_only_its_place_says_when_to_do_stays_in_its_loop(name):
    """Nothing would say any more what it comes after."""
    body, loops = EFFECTS[name]
    assert left(loop(1, body)).count("while") == loops


@pytest.mark.parametrize("name", EFFECTS)
def test_what_never_runs_does_nothing(name):
    """Whatever it would have done."""
    assert left(loop(0, EFFECTS[name][0])) == ["negate"]


@pytest.mark.parametrize("trips", [0, 1])
def test_a_loop_whose_condition_does_something_stays(trips):
    """It is asked once more than the loop runs."""
    more = "o = f32[] constant(0)  e = f32[] rng(o, o), distribution=rng_uniform"
    assert "while" in left(loop(trips, more=more))


@pytest.mark.parametrize(
    ("stated", "loops"),
    [
        ('backend_config={"known_trip_count":{"n":"1"}}', 0),
        ('backend_config={"known_trip_count":{"n":"7"}}', 1),
        ('frontend_attributes={skip-simplify-while-loops_trip-count-one="true"}', 1),
    ],
)
def test_a_loop_stays_where_that_is_stated(stated, loops):
    """By a front end, or since its text has another number of trips than it counts."""
    assert left(loop(1, stated=f", {stated}")).count("while") == loops
