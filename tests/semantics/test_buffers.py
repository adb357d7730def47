"""Buffers that are written in place: one writer each, however they are handed on, and only by what knows how."""

from __future__ import annotations

import re

import pytest

from tests.semantics.hlo import parse
from tpusim.semantics.verify.module import problems

OVER = "output_to_operand_aliasing={{}: (0, {})}"
PIN = f'b = b(f32[2]) custom-call(p), custom_call_target="Pin", {OVER}'
UPDATE = "dynamic-update-slice"


def unpin(name):
    """Return a line that makes an array of a buffer."""
    return f'ROOT r = f32[2] custom-call({name}), custom_call_target="Unpin", {OVER}'


def labels(*lines, before=""):
    """Return the labels of what is wrong with a module of an array ``p``, an index ``s`` and these lines."""
    entry = "\n".join(["p = f32[2] parameter(0)", "s = s32[1] constant({0})", *lines])
    text = f"HloModule m\n\n{before}\nENTRY e {{\n{entry}\n}}\n"
    return [re.search(r"\[([a-z]\w*_c\d+)\]", error.message)[1] for error in problems(parse(text))]


PAIR = "t = (f32[2], b(f32[2])) tuple(p, b)"
TAKEN = "g = b(f32[2]) get-tuple-element(t), index=1"


def test_a_buffer_goes_through_a_tuple_to_one_writer():
    """What writes the element writes the buffer, once."""
    assert labels(PIN, PAIR, TAKEN, f"c = b(f32[2]) {UPDATE}(g, p, s)", unpin("c")) == []


def test_a_second_writer_behind_a_tuple_counts():
    """One writes the buffer, one the element of the tuple that holds it."""
    lines = (PIN, PAIR, TAKEN, f"c = b(f32[2]) {UPDATE}(g, p, s)", f"d = b(f32[2]) {UPDATE}(b, p, s)", unpin("c"))
    assert set(labels(*lines)) == {"buffer_c4"}


def test_the_other_element_of_the_tuple_is_another_value():
    """An array beside the buffer may be written over as often as may be."""
    lines = (
        "h = f32[2] get-tuple-element(t), index=0",
        f"x = f32[2] {UPDATE}(h, p, s)",
        f"y = f32[2] {UPDATE}(h, p, s)",
    )
    assert labels(PIN, PAIR, *lines, TAKEN, f"c = b(f32[2]) {UPDATE}(g, p, s)", unpin("c")) == []


def test_a_buffer_in_a_tuple_in_a_tuple_is_followed():
    """Two writers of the element of an element."""
    nested = "n = ((f32[2], b(f32[2])), f32[2]) tuple(t, p)"
    inner = "i = (f32[2], b(f32[2])) get-tuple-element(n), index=0"
    writers = [f"{name} = b(f32[2]) {UPDATE}(g, p, s)" for name in "cd"]
    lines = (PIN, PAIR, nested, inner, TAKEN.replace("(t)", "(i)"), *writers, unpin("c"))
    assert "buffer_c4" in labels(*lines)


@pytest.mark.parametrize("count", [1, 2])
def test_a_tuple_of_one_buffer_twice_hands_on_one_buffer(count):
    """Whichever element is written, it is the same; thirty such tuples one behind the other have 2**30 ways."""
    lines = ["t0 = (b(f32[2]), b(f32[2])) tuple(b, b)"]
    for n in range(1, 31):
        lines += [f"{name}{n} = b(f32[2]) get-tuple-element(t{n - 1}), index={at}" for at, name in enumerate("gh")]
        lines.append(f"t{n} = (b(f32[2]), b(f32[2])) tuple(g{n}, h{n})")
    lines += [f"w{at} = b(f32[2]) get-tuple-element(t30), index={at}" for at in range(2)]
    lines += [f"c{at} = b(f32[2]) {UPDATE}(w{at}, p, s)" for at in range(count)]
    assert set(labels(PIN, *lines, unpin("c0"))) == ({"buffer_c4"} if count > 1 else set())


LOOP = """condition {{ q = (b(f32[2]), f32[2]) parameter(0) ROOT t = pred[] constant(false) }}
body {{
  q = (b(f32[2]), f32[2]) parameter(0)
  g = b(f32[2]) get-tuple-element(q), index=0
  v = f32[2] get-tuple-element(q), index=1
  z = s32[1] constant({{0}})
  c = b(f32[2]) dynamic-update-slice(g, v, z)
  ROOT u = (b(f32[2]), f32[2]) tuple({given}, v)
}}"""
WHILE = (
    PIN,
    "t = (b(f32[2]), f32[2]) tuple(b, p)",
    "w = (b(f32[2]), f32[2]) while(t), condition=condition, body=body",
    "g = b(f32[2]) get-tuple-element(w), index=0",
    unpin("g"),
)


@pytest.mark.parametrize(("given", "wrong"), [("c", set()), ("g", {"buffer_c4"})])
def test_what_the_body_of_a_loop_gives_the_next_trip_writes(given, wrong):
    """To write the buffer and to hand on what it was before would need a copy."""
    assert set(labels(*WHILE, before=LOOP.format(given=given))) == wrong


@pytest.mark.parametrize(("aliases", "wrong"), [(f", {OVER}", []), ("", ["buffer_c3"])])
def test_an_asynchronous_custom_call_hands_its_buffer_on(aliases, wrong):
    """As the synchronous one: by a stated alias."""
    start = f'a = ((b(f32[2])), b(f32[2]), s32[]) custom-call-start(b), custom_call_target="own"{aliases}'
    assert labels(PIN, start, "c = b(f32[2]) custom-call-done(a)", unpin("c")) == wrong


CALLED = 'f { x = b(f32[2]) parameter(0) ROOT y = f32[2] custom-call(x), custom_call_target="Unpin", ALIAS }\n'


@pytest.mark.parametrize(
    ("attributes", "wrong"), [(', frontend_attributes={_xla_stream_annotation="1"}', []), ("", ["buffer_c1"])]
)
def test_a_call_takes_a_buffer_on_a_stream_of_its_own_only(attributes, wrong):
    """Such a call becomes an asynchronous one; any other would read the buffer as a value."""
    called = CALLED.replace("ALIAS", OVER)
    assert labels(PIN, f"ROOT r = f32[2] call(b), to_apply=f{attributes}", before=called) == wrong


WRONG = {
    "the entry takes none": ("q = b(f32[2]) parameter(1)", "q", "buffer_c1"),
    "an update is an array": (f"{PIN}\na = b(f32[2]) {UPDATE}(b, b, s)", "a", "buffer_c1"),
    "created from nothing": ('a = b(f32[2]) custom-call(p), custom_call_target="CreateBuffer"', "a", "buffer_c2"),
    "one array is pinned": (f'a = b(f32[2]) custom-call(p, p), custom_call_target="Pin", {OVER}', "a", "buffer_c2"),
    "an array of its size": (
        f'a = b(f32[3]) custom-call(p), custom_call_target="Pin", {OVER}\n'
        f'b = b(f32[2]) custom-call(p), custom_call_target="Pin", {OVER}',
        "b",
        "buffer_c2",
    ),
    "two aliases": (
        f'{PIN}\na = b(f32[2]) custom-call(b, p), custom_call_target="own", '
        "output_to_operand_aliasing={{}: (0, {}), {}: (0, {})}",
        "a",
        "buffer_c3",
    ),
}


@pytest.mark.parametrize(("lines", "last", "label"), WRONG.values(), ids=WRONG.keys())
def test_what_breaks_a_rule_of_buffers_is_refused(lines, last, label):
    """Each by its label."""
    assert label in labels(*lines.split("\n"), unpin(last))


def test_a_buffer_may_be_created_from_nothing():
    """Without an operand and without an alias."""
    assert labels('b = b(f32[2]) custom-call(), custom_call_target="CreateBuffer"', unpin("b")) == []


@pytest.mark.parametrize(("opcode", "wrong"), [("async-start", []), ("call", ["buffer_c1"] * 2)])
def test_buffers_of_what_a_start_wraps_are_the_starts(opcode, wrong):
    """The wrapped computation reads one as a value, which neither a computation that is called may nor its call."""
    wrapped = "f { x = b(f32[2]) parameter(0) ROOT y = f32[2] copy(x) }\n"
    start = "a = ((b(f32[2])), f32[2], u32[]) async-start(b), calls=f\nROOT r = f32[2] async-done(a)"
    lines = {"async-start": start, "call": "ROOT r = f32[2] call(b), to_apply=f"}[opcode]
    found = labels(PIN, *lines.split("\n"), before=wrapped)
    assert [label for label in found if label == "buffer_c1"] == wrong


def test_the_first_operand_without_an_alias_is_named():
    """Of two buffers, the one that the call does not hand on."""
    lines = (PIN, PIN.replace("b = ", "d = "), 'c = b(f32[2]) custom-call(b, d), custom_call_target="own", ALIAS')
    aliased = [line.replace("ALIAS", "output_to_operand_aliasing={{}: (1, {})}") for line in lines]
    text = "\n".join(["p = f32[2] parameter(0)", *aliased, unpin("c")])
    messages = [error.message for error in problems(parse(f"HloModule m\n\nENTRY e {{\n{text}\n}}\n"))]
    assert any(message.endswith("no alias, or several, of (0, ()) [buffer_c3]") for message in messages)
