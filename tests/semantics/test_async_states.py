"""What an asynchronous operation may hand its state to, and what that state has to say of its operands."""

from __future__ import annotations

import pytest

from tests.semantics.hlo import parse
from tpusim.semantics.verify.module import problems


def faults(*lines, before=""):
    """Return the messages about a module of an array ``p`` and these lines."""
    entry = "\n".join(["p = f32[2] parameter(0)", *lines])
    return [error.message for error in problems(parse(f"HloModule m\n\n{before}\nENTRY e {{\n{entry}\n}}\n"))]


WRAPPED = "w { x = f32[2] parameter(0) y = TYPE[2] parameter(1) ROOT n = f32[2] negate(x) }\n"


@pytest.mark.parametrize(("second", "label"), [("f32", ""), ("s32", "async_c4")])
def test_every_operand_of_a_start_is_one_of_its_computation(second, label):
    """The first agrees; the second does or does not."""
    start = "a = ((f32[2], f32[2]), f32[2], u32[]) async-start(p, p), calls=w"
    found = faults(start, "ROOT d = f32[2] async-done(a)", before=WRAPPED.replace("TYPE", second))
    assert any(f"[{label}]" in message for message in found) if label else found == []


@pytest.mark.parametrize(
    ("form", "done"), [("async-start(OF), calls=w", "async"), ("call-start(OF), to_apply=w", "call")]
)
def test_a_done_has_all_operands_of_the_computation(form, done):
    """However the start names it; before that, updates may bring them."""
    whole, first = f"((f32[2], f32[2]), f32[2], u32[]) {form}", f"((f32[2]), f32[2], u32[]) {form}"
    wrapped = WRAPPED.replace("TYPE", "f32")
    end = f"ROOT d = f32[2] {done}-done"
    assert faults("a = " + whole.replace("OF", "p, p"), f"{end}(a)", before=wrapped) == []
    update = f"u = ((f32[2], f32[2]), f32[2], u32[]) {done}-update(a, p)"
    assert faults("a = " + first.replace("OF", "p"), update, f"{end}(u)", before=wrapped) == []
    (found,) = faults("a = " + first.replace("OF", "p"), f"{end}(a)", before=wrapped)
    assert "[async_c13]" in found


def test_the_state_of_a_send_may_be_carried_in_a_tuple():
    """A pipelined transfer ends in another trip than it begins in."""
    lines = ("k = token[] after-all()", "s = (f32[2], u32[], token[]) send(p, k), channel_id=1")
    taken = "g = (f32[2], u32[], token[]) get-tuple-element(t), index=0"
    end = ("e = token[] send-done(g), channel_id=1", "ROOT r = f32[2] negate(p)")
    found = faults(*lines, "t = ((f32[2], u32[], token[]), f32[2]) tuple(s, p)", taken, *end)
    assert not any("[pair_c1]" in message for message in found)


def test_the_state_of_a_copy_may_not():
    """Its end takes it as it is."""
    start = "a = (f32[2], f32[2], u32[]) copy-start(p)"
    taken = "g = (f32[2], f32[2], u32[]) get-tuple-element(t), index=0"
    found = faults(start, "t = ((f32[2], f32[2], u32[]), f32[2]) tuple(a, p)", taken, "ROOT d = f32[2] copy-done(g)")
    assert any("[pair_c1]" in message for message in found)


STATE = "((f32[2], f32[2]), f32[2], u32[])"
TWO = WRAPPED.replace("TYPE", "f32") + WRAPPED.replace("TYPE", "f32").replace("w {", "v {")


def test_an_update_takes_its_state_first():
    """As an operand that is added the state is misused."""
    start = f"a = {STATE} async-start(p, p), calls=w"
    good = (start, f"u = {STATE} async-update(a)", "ROOT d = f32[2] async-done(u)")
    assert faults(*good, before=TWO) == faults(start, "ROOT d = f32[2] async-done(a)", before=TWO) == []
    other = f"b = {STATE} async-start(p, p), calls=v"
    found = faults(start, other, f"u = {STATE} async-update(b, a)", good[2], before=TWO)
    assert [message[: message.index(":")] for message in found if "[async_c8]" in message] == ["'async-start' 'a'"]
