"""Behind pass 2: what is computed before loops. The oracle is the program as it was given, however often loops run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import SUM, compiled
from tpusim.compiler.simplify.invariant import move_invariants
from tpusim.compiler.target import Target
from tpusim.draft import Draft
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

STATE = "(s32[], f32[4,8], f32[4,8], f32[8], s32[])"
HEAD = f"""HloModule m

{SUM}

twice {{
  a = f32[4,8] parameter(0)
  e = f32[4,8] exponential(a)
  ROOT d = f32[4,8] add(e, e)
}}

chance {{
  a = f32[] parameter(0)
  h = f32[] constant(1)
  ROOT r = f32[] rng(a, h), distribution=rng_uniform
}}
"""
LOOP = """
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0  c = f32[4,8] get-tuple-element(p), index=1
  x = f32[4,8] get-tuple-element(p), index=2  y = f32[8] get-tuple-element(p), index=3
  n = s32[] get-tuple-element(p), index=4  one = s32[] constant(1)  next = s32[] add(i, one)
  two = f32[] constant(2)  twos = f32[4,8] broadcast(two), dimensions={{}}  zero = f32[] constant(0)
  many = f32[4,8] broadcast(y), dimensions={{1}}  half = f32[4,8] cosine(c)
  {made}
  sum = f32[4,8] add(half, m)
  ROOT t = {state} tuple(next, sum, {x}, y, n)
}}

condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0  n = s32[] get-tuple-element(p), index=4
  ROOT r = pred[] compare(i, n), direction=LT
}}
"""
ENTRY = """
ENTRY e {{
  c = f32[4,8] parameter(0)
  x = f32[4,8] parameter(1)
  y = f32[8] parameter(2)
  n = s32[] parameter(3)
  zero = s32[] constant(0)
  s = {state} tuple(zero, c, x, y, n)
  w = {state} while(s), condition=condition, body=body{said}
  {rest}
}}
"""
ONE = "ROOT r = f32[4,8] get-tuple-element(w), index=1"
TANH = "m = f32[4,8] tanh(x)"


def split(text):
    """Return a text with one instruction in a line."""
    return "\n".join(line.replace("  ", "\n  ") if "  " in line.strip() else line for line in text.splitlines())


def program(made, rest=ONE, *, said="", x="x"):
    """Return a loop that adds ``m`` to what it carries, made of what is the same in every trip and what is not."""
    return split(HEAD + (LOOP + ENTRY).format(made=made, rest=rest, said=said, x=x, state=STATE))


def body_of(module):
    """Return the instructions of the body of a module's loop, by opcode."""
    (loop,) = [i for computation in module.computations for i in computation if i.opcode == "while"]
    return [i.opcode for i in module[loop.attributes["body"]]]


def moved(text):
    """Return the opcodes of a loop's body that are gone from it behind the pass."""
    before, after = (compiled(text, stop_after=step) for step in ("simplify", "invariant"))
    assert check(after) == []
    return sorted(set(body_of(before)) - set(body_of(after)))


def check_values(text):
    """Assert that a program computes the same with the pass as without, of no trip, of one and of several."""
    # Products of these are added up without rounding, in whatever order.
    c, x = (np.arange(64, dtype="f").reshape(2, 4, 8) % 11 - 5) / 8
    for trips in (0, 1, 3):
        inputs = [c, x, x[0], np.int32(trips)]
        before, *after = (compiled(text, stop_after=step) for step in ("flatten", "invariant", "clean-up", ""))
        expected = np.asarray(execute(before, inputs, precision="exact", chip="v5e"))
        for module in after:
            assert execute(module, inputs, precision="exact", chip="v5e").tobytes() == expected.tobytes()


LEAVE = {
    "one": (TANH, ["tanh"]),
    "what takes it": ("a = f32[4,8] tanh(x)  m = f32[4,8] exponential(a)", ["exponential", "tanh"]),
    "one that stays takes it as well": (
        "a = f32[4,8] tanh(x)  b = f32[4,8] exponential(a)  d = f32[4,8] multiply(half, a)  m = f32[4,8] add(b, d)",
        ["exponential", "tanh"],
    ),
    "moved elements with their user": (
        "a = f32[4,8] reverse(x), dimensions={1}  m = f32[4,8] tanh(a)",
        ["reverse", "tanh"],
    ),
    "a number": ("a = f32[] add(two, two)  b = f32[8] tanh(y)  m = f32[4,8] broadcast(b), dimensions={1}", ["tanh"]),
    "a call": ("m = f32[4,8] call(x), to_apply=twice", ["exponential"]),
    "a sum of what is larger": (
        "a = f32[4,8] multiply(x, many)  b = f32[8] reduce(a, zero), dimensions={0}, to_apply=sum  "
        "m = f32[4,8] broadcast(b), dimensions={1}",
        ["multiply", "reduce"],
    ),
    "a product of what is larger": (
        "a = f32[4,8] multiply(x, twos)  b = f32[4,4] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}  "
        "d = f32[4,4] sine(b)  m = f32[4,8] dot(d, half), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["broadcast", "multiply", "sine"],
    ),
}


@pytest.mark.parametrize("case", LEAVE)
def test_what_is_the_same_in_every_trip_is_computed_before(case):
    """Operations whose operands are, with what they need and is not worth it alone."""
    made, gone = LEAVE[case]
    assert moved(program(made)) == gone
    check_values(program(made))


STAY = {
    "what changes": "m = f32[4,8] tanh(c)",
    "moved elements alone": "a = f32[4,8] reverse(x), dimensions={1}  m = f32[4,8] multiply(a, half)",
    "what is larger": "m = f32[4,8] multiply(many, half)",
    "what takes such": "a = f32[4,8] multiply(x, twos)  m = f32[4,8] tanh(a)",
    "a sum of what stays": "a = f32[4,8] multiply(x, many)  b = f32[8] reduce(a, zero), dimensions={0}, to_apply=sum  "
    "d = f32[4,8] broadcast(b), dimensions={1}  g = f32[4,8] multiply(a, half)  m = f32[4,8] add(d, g)",
    "numbers by chance": "low = f32[] constant(0)  high = f32[] constant(1)  "
    "m = f32[4,8] rng(low, high), distribution=rng_uniform",
    "what applies such": "m = f32[4,8] map(x), dimensions={0,1}, to_apply=chance",
    "what has as many elements as a number says": "a = f32[<=4,8] set-dimension-size(x, n), dimensions={0}  "
    "b = f32[8] reduce(a, zero), dimensions={0}, to_apply=sum  m = f32[4,8] broadcast(b), dimensions={1}",
    "a product larger than its operands": "a = f32[8,8] dot(y, y), lhs_contracting_dims={}, rhs_contracting_dims={}  "
    "b = f32[4,8] slice(a), slice={[0:4],[0:8]}  m = f32[4,8] add(b, half)",
    "what a barrier hands on": "a = (f32[4,8]) tuple(x)  b = (f32[4,8]) opt-barrier(a)  "
    "d = f32[4,8] get-tuple-element(b), index=0  m = f32[4,8] add(d, half)",
    "what does something": 'm = f32[4,8] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true',
    "where other arrays lie": 'a = f32[4,8] tanh(x)  b = f32[4,8] custom-call(c), custom_call_target="MoveToHost"  '
    'd = f32[4,8] custom-call(b), custom_call_target="MoveToDevice"  m = f32[4,8] add(a, d)',
    "a sum over devices": "m = f32[4,8] all-reduce(x), replica_groups={}, to_apply=sum",
    "what is made of constants": "a = f32[] power(zero, two)  b = f32[] clamp(a, a, a)  g = f32[4,8] broadcast(b), "
    "dimensions={}  m = f32[4,8] add(g, half)",
    "a mark": 'm = f32[4,8] custom-call(x), custom_call_target="Sharding"',
    "what waits": "m = f32[4,8] tanh(x), control-predecessors={half}",
    "what others wait for": "early = f32[4,8] tanh(x)  late = f32[4,8] sine(c), control-predecessors={early}  "
    "m = f32[4,8] add(early, late)",
}


@pytest.mark.parametrize("case", STAY)
def test_everything_else_stays(case):
    """What changes from trip to trip, what would fill memory, and what does something besides."""
    assert moved(program(STAY[case])) == []


def test_what_only_an_effect_takes_leaves():
    """It is needed as what the result takes."""
    effect = 'g = f32[4,8] custom-call(a), custom_call_target="f", custom_call_has_side_effect=true'
    assert moved(program(f"a = f32[4,8] tanh(x)  {effect}  m = f32[4,8] add(half, half)")) == ["tanh"]


def test_a_body_that_ends_in_no_tuple_is_left():
    """It is not known which of its elements stay the same."""
    text = program(TANH).replace("tuple(next, sum, x, y, n)", 'custom-call(next, sum, x, y, n), custom_call_target="f"')
    assert moved(text) == []


@pytest.mark.parametrize("case", ["what is larger", "a sum of what stays"])
def test_what_stays_is_computed_as_before(case):
    """Of those that compute the same on every machine."""
    check_values(program(STAY[case]))


def test_an_element_that_another_takes_the_place_of_is_not_the_same():
    """What a body reads is another array from the second trip on."""
    assert moved(program(TANH, x="c")) == []
    check_values(program(TANH, x="c"))


def test_nothing_leaves_a_loop_of_which_the_program_says_so():
    """By the attribute that XLA has for it."""
    said = ', frontend_attributes={_xla_disable_loop_instr_hoisting="true"}'
    assert moved(program(TANH, said=said)) == []


def test_nothing_leaves_a_loop_that_runs_once():
    """One that the program keeps a loop, for one."""
    said = ', frontend_attributes={skip-simplify-while-loops_trip-count-one="true"}'
    text = program(TANH, said=said).replace("n = s32[] parameter(3)", "n = s32[] constant(1)")
    assert moved(text) == []


def test_loops_that_are_given_one_body_are_treated_each_by_itself():
    """Pass 1 gives each a body of its own; without it nothing leaves them."""
    again = f"""ss = {STATE} tuple(zero, x, c, y, n)
  v = {STATE} while(ss), condition=condition, body=body
  a = f32[4,8] get-tuple-element(w), index=1
  b = f32[4,8] get-tuple-element(v), index=1
  ROOT r = f32[4,8] add(a, b)"""
    text = program(TANH, again)
    assert [i.opcode for i in compiled(text, stop_after="invariant").entry].count("tanh") == 2
    check_values(text)
    # A draft in which no pass has given them bodies of their own.
    draft = Draft(parse_module(SourceText("text", text)))
    move_invariants(draft, Target(load_chip("v5e")))
    assert "tanh" not in [i.opcode for i in draft.write().entry]


@pytest.mark.parametrize(
    "rest",
    [
        f"b = {STATE} opt-barrier(w)  ROOT r = f32[4,8] get-tuple-element(b), index=1",
        f"o = {STATE} copy(w)  ROOT a = f32[4,8] get-tuple-element(o), index=1",
    ],
)
def test_what_takes_all_that_a_loop_carries_takes_what_it_did(rest):
    """A barrier and a copy of the tuple."""
    text = program(TANH, rest)
    assert moved(text) == ["tanh"]
    check_values(text)


def test_a_result_that_is_all_of_a_loop_keeps_its_form():
    """What is carried besides is no part of it."""
    text = program(TANH).replace(split(ONE).strip(), "").replace("  w = ", "  ROOT w = ")
    after = compiled(text, stop_after="invariant")
    assert check(after) == []
    assert str(after.entry.root.shape).count("[") == STATE.count("[")


def test_a_loop_that_is_handed_a_tuple_carries_more_than_that():
    """As where a program takes all of its state as one argument."""
    text = program(TANH).replace("n = s32[] parameter(3)", f"n = s32[] parameter(3)\n  b = {STATE} opt-barrier(s)")
    text = text.replace("while(s)", "while(b)").replace(f"  b = {STATE} opt-barrier(s)\n", "")
    text = text.replace("  w = ", f"  b = {STATE} opt-barrier(s)\n  w = ")
    assert moved(text) == ["tanh"]
    check_values(text)


def test_what_is_said_of_each_element_goes():
    """The origins of five are none of six."""
    each = ", ".join(f'{{"s" {{{n}}}}}' for n in range(5))
    text = program(TANH, said=f", origin={{({each})}}")
    after = compiled(text, stop_after="invariant")
    assert "origin" in text
    assert "origin" not in after.text
    assert moved(text) == ["tanh"]


NESTED = """
outer {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0  c = f32[4,8] get-tuple-element(q), index=1
  x = f32[4,8] get-tuple-element(q), index=2  y = f32[8] get-tuple-element(q), index=3
  n = s32[] get-tuple-element(q), index=4  one = s32[] constant(1)  next = s32[] add(i, one)  zero = s32[] constant(0)
  s = {state} tuple(zero, {begun}, x, y, n)
  v = {state} while(s), condition=condition, body=body
  d = f32[4,8] get-tuple-element(v), index=1  e = f32[4,8] multiply(c, d)
  ROOT t = {state} tuple(next, e, x, y, n)
}}

around {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0  n = s32[] get-tuple-element(p), index=4
  ROOT r = pred[] compare(i, n), direction=LT
}}
"""


def nested(begun):
    """Return a loop in a loop, which begins with an element of the outer one."""
    text = HEAD + (LOOP + NESTED + ENTRY).format(made=TANH, rest=ONE, said="", x="x", begun=begun, state=STATE)
    head, entry = text.split("ENTRY")
    return split(head + "ENTRY" + entry.replace("condition=condition, body=body", "condition=around, body=outer"))


@pytest.mark.parametrize(("begun", "loops"), [("c", 0), ("x", 1)])
def test_what_leaves_an_inner_loop_leaves_the_outer_one(begun, loops):
    """And so does all of the inner loop where it begins alike in every trip."""
    text = nested(begun)
    after = compiled(text, stop_after="invariant")
    assert check(after) == []
    opcodes = [i.opcode for i in after.entry]
    assert opcodes.count("while") == 1 + loops
    assert opcodes.count("tanh") == 1
    assert sum(i.opcode == "tanh" for computation in after.computations for i in computation) == 1
    check_values(text)
