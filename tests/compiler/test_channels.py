"""Sends and receives in compiled programs: whatever the devices, none waits for ever. The oracle is the simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.compiler.programs import compiled
from tpusim import simulate

COUNT = 4
RING = "{{0,1},{1,2},{2,3},{3,0}}"
CHAIN = "{{0,1},{1,2},{2,3}}"
MESSAGE = "(f32[8,128], u32[], token[])"
PAIRS = 'frontend_attributes={{_xla_send_recv_source_target_pairs="{}"}}'
SUM = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"


def step(number, sent, *, channel=None, pairs=RING):
    """Return the lines of a message: g of the number is what comes, written in the order in which XLA wants it."""
    channel = f"channel_id={channel or number}"
    pairs = PAIRS.format(pairs)
    return f"""
      v{number} = {MESSAGE} recv(k), {channel}, {pairs}
      q{number} = {MESSAGE} send({sent}, k), {channel}, {pairs}
      sd{number} = token[] send-done(q{number}), {channel}
      vd{number} = (f32[8,128], token[]) recv-done(v{number}), {channel}
      g{number} = f32[8,128] get-tuple-element(vd{number}), index=0"""


def program(*lines, others="", header=f"num_partitions={COUNT}"):
    """Return a program of messages, and whatever else."""
    text = "\n".join(lines)
    return (
        f"HloModule m, {header}\n{others}\nENTRY e {{ p = f32[8,128] parameter(0)  k = token[] after-all()\n{text}\n}}"
    )


def backwards(text):
    """Return the same program with the lines of each message turned: their order says nothing then."""
    lines = text.splitlines()
    for at in range(len(lines) - 1):
        if " recv(" in lines[at] and " send(" in lines[at + 1]:
            lines[at : at + 2] = lines[at + 1], lines[at]
    return "\n".join(lines)


OVER_ALL = f"channel_id=9, replica_groups=[1,{COUNT}]<=[{COUNT}], use_global_device_ids=true, to_apply=sum"
REDUCE = f"ROOT r = f32[8,128] all-reduce(g1), {OVER_ALL}"
TWO = "ROOT r = f32[8,128] add(g1, g2)"
PROGRAMS = {
    "ring": program(step(1, "p"), "ROOT r = f32[8,128] copy(g1)"),
    "one after the other": program(step(1, "p"), step(2, "g1"), step(3, "g2"), "ROOT r = f32[8,128] copy(g3)"),
    "both ways": program(step(1, "p"), step(2, "p", pairs="{{1,0},{2,1},{3,2},{0,3}}"), TWO),
    "one pair, then a sum": program(step(1, "p", pairs="{{0,1}}"), REDUCE, others=SUM),
    "ring, then a sum": program(step(1, "p"), REDUCE, others=SUM),
    "sum of what is sent": program(
        f"s = f32[8,128] all-reduce(p), {OVER_ALL}",
        step(1, "s"),
        "ROOT r = f32[8,128] add(g1, p)",
        others=SUM,
    ),
    "two messages on a channel": program(step(1, "p"), step(2, "p", channel=1), TWO),
    "a chain that passes on": program(
        f"v = {MESSAGE} recv(k), channel_id=1, {PAIRS.format(CHAIN)}",
        "vd = (f32[8,128], token[]) recv-done(v), channel_id=1",
        "g = f32[8,128] get-tuple-element(vd), index=0",
        f"q = {MESSAGE} send(g, k), channel_id=1, {PAIRS.format(CHAIN)}",
        "sd = token[] send-done(q), channel_id=1",
        "ROOT r = f32[8,128] copy(g)",
    ),
}


@pytest.mark.parametrize("turned", [False, True], ids=["as written", "turned"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_device_waits_for_ever(name, turned):
    """On four devices; where the text has sends before receives too."""
    text = PROGRAMS[name]
    assert simulate(compiled(backwards(text) if turned else text), "v5e").time_us > 0


LOOP = f"""
      body {{ s = (s32[], f32[8,128], {MESSAGE}) parameter(0)  i = s32[] get-tuple-element(s), index=0
        one = s32[] constant(1)  j = s32[] add(i, one)  v = {MESSAGE} get-tuple-element(s), index=2
        vd = (f32[8,128], token[]) recv-done(v), channel_id=1
        k = token[] get-tuple-element(vd), index=1
        g = f32[8,128] get-tuple-element(vd), index=0
        n = {MESSAGE} recv(k), channel_id=1, {PAIRS.format(RING)}
        q = {MESSAGE} send(g, k), channel_id=1, {PAIRS.format(RING)}
        sd = token[] send-done(q), channel_id=1
        ROOT t = (s32[], f32[8,128], {MESSAGE}) tuple(j, g, n) }}
      cond {{ s = (s32[], f32[8,128], {MESSAGE}) parameter(0)  i = s32[] get-tuple-element(s), index=0
        three = s32[] constant(3)  ROOT c = pred[] compare(i, three), direction=LT }}"""


def test_what_a_loop_waits_for_is_sent_before_it():
    """The message starts before the loop, and ends in it; the send is used by nothing in there."""
    text = program(
        f"v = {MESSAGE} recv(k), channel_id=1, {PAIRS.format(RING)}",
        "zero = s32[] constant(0)",
        f"t = (s32[], f32[8,128], {MESSAGE}) tuple(zero, p, v)",
        f"w = (s32[], f32[8,128], {MESSAGE}) while(t), condition=cond, body=body",
        f"last = {MESSAGE} get-tuple-element(w), index=2",
        "vd = (f32[8,128], token[]) recv-done(last), channel_id=1",
        f"q = {MESSAGE} send(p, k), channel_id=1, {PAIRS.format(RING)}",
        "sd = token[] send-done(q), channel_id=1",
        "ROOT g = f32[8,128] get-tuple-element(vd), index=0",
        others=LOOP,
    )
    names = [i.name for i in compiled(text).entry]
    assert names.index("q.1") < names.index("w")


def test_messages_of_a_channel_keep_their_turns():
    """Which send meets which receive is their order."""
    names = [i.name for i in compiled(PROGRAMS["two messages on a channel"]).entry]
    for wanted in (["v1", "v2", "vd2"], ["q1", "q2", "vd2"], ["v1", "q1", "vd1"], ["v2", "q2", "vd2"]):
        assert all(names.index(one) < names.index(other) for one, other in pairwise(wanted))
