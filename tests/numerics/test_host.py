"""Infeed, outfeed, and what is sent and received on channels."""

from __future__ import annotations

from collections import deque
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tpusim
from tests.numerics.devices import devices_of, module_of, run, run_on
from tpusim.build.builder import Builder
from tpusim.errors import ProgramError, SimulationError
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

X = np.array([1.0, 2.0], np.float32)
PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'
SHIFT = (
    "x = f32[2] parameter(0)",
    "t = token[] after-all()",
    f"r = (f32[2], u32[], token[]) recv(t), channel_id=1, {PAIRS}",
    f"s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {PAIRS}",
    "d = (f32[2], token[]) recv-done(r), channel_id=1",
    "e = token[] send-done(s), channel_id=1",
    "ROOT g = f32[2] get-tuple-element(d), index=0",
)


def fed_twice() -> Builder:
    """Return a program that returns two values of its infeed."""
    b = Builder("m")
    b.tuple([b.infeed("f32[2]"), b.infeed("(s32[], f32[2])")])
    return b


def test_infeeds_come_in_the_order_of_the_program() -> None:
    """Each replica reads its own iterator, and lists stand for tuples."""
    feeds = [iter([X + replica, (replica, X)]) for replica in range(2)]
    results = run(fed_twice(), [[], []], infeeds=feeds)
    for replica, (first, (number, _)) in enumerate(results):
        np.testing.assert_array_equal(first, X + replica)
        assert number == replica


def test_an_infeed_of_nothing_reads_nothing() -> None:
    """An empty tuple is there without any feed."""
    b = Builder("m")
    b.infeed("()")
    assert run(b, [[]]) == [()]


def test_a_tuple_may_come_one_array_after_the_other() -> None:
    """A file has no tuples: each takes as many arrays as it has, and the next infeed those behind."""
    b = Builder("m")
    b.tuple([b.infeed("(s32[], f32[2])"), b.infeed("f32[2]"), b.infeed("(f32[2])")])
    (number, first), second, (third,) = run(b, [[]], infeeds=[[np.array(7, np.int32), X, X + 1, (X + 2,)]])[0]
    assert [number, first[0], second[0], third[0]] == [7, 1, 2, 3]


def test_too_few_arrays_for_a_tuple_are_counted() -> None:
    """What it takes, and what is left."""
    b = Builder("m")
    b.infeed("(f32[2], f32[2], s32[])")
    said = r"'infeed.*' takes 3 arrays for \(f32\[2\], f32\[2\], s32\[\]\); the infeed has 2 more"
    with pytest.raises(SimulationError, match=said):
        run(b, [[]], infeeds=[[X, X]])


@pytest.mark.parametrize(("feeds", "said"), [([], "was given none"), ([[X]], "has ended")])
def test_an_infeed_that_is_empty_is_an_error(feeds: list[Any], said: str) -> None:
    """No infeed at all, or one value too few."""
    with pytest.raises(SimulationError, match=said):
        run(fed_twice(), [[]], infeeds=feeds)


def taken(shape: str, value: Any) -> Any:
    """Return what a program makes of one value of its infeed."""
    b = Builder("m")
    b.infeed(shape)
    return run(b, [[]], infeeds=[[value]])[0]


@pytest.mark.parametrize(
    ("shape", "value", "said"),
    [
        ("f32[2]", np.zeros(3, np.float32), r"expected the sizes of f32\[2\], found \(3,\)"),
        ("s8[3]", np.array([300.7, np.nan, -1e9]), r"expected s8\[3\], an array of int8, found float64"),
        ("s8[3]", [300, 1, 2], "expected numbers that s8 can hold"),
        ("f32[2]", np.array([1 + 2j, 3]), r"expected f32\[2\], an array of float32, found complex128"),
        ("f32[2]", np.array(["1.5", "2"]), "expected numbers for"),
        ("s32[1]", np.array(["2020-01-01"], "datetime64[D]"), "expected numbers for"),
        ("(f32[2], s32[])", [X], "expected 2 values for .*, found a list of 1"),
        ("(f32[2], s32[])", (X, np.array(1.5)), r"expected s32\[\], an array of int32, found float64"),
    ],
)
def test_an_infeed_takes_what_a_parameter_takes(shape: str, value: Any, said: str) -> None:
    """The same sizes and types: nothing is cut, wrapped or read out of text in silence. The infeed is named."""
    with pytest.raises(ProgramError, match=f"infeed.*: {said}"):
        taken(shape, value)


def test_an_infeed_of_a_narrow_type_takes_float32() -> None:
    """As a parameter does, of a type that NumPy's files know not."""
    assert taken("s4[2]", X).tolist() == [1, 2]


def test_exact_values_take_the_infeed_in_the_type_that_it_states() -> None:
    """In place of bf16 a scheduled program then computes in f32, also with what comes in."""
    text = (
        "HloModule m, is_scheduled=true\n\nENTRY e {\n  t = token[] after-all()\n"
        "  a = (bf16[2], token[]) infeed(t)\n  x = bf16[2] get-tuple-element(a), index=0\n"
        "  y = bf16[2] multiply(x, x)\n  ROOT z = bf16[2] subtract(y, x)\n}\n"
    )
    module = parse_module(SourceText("test.hlo", text))
    given = np.array([1.0078125, 3], ml_dtypes.bfloat16)
    found = tpusim.execute(module, [], infeed=[given], precision="exact")
    assert found.astype(np.float32).tolist() == [np.float32(1.0078125**2 - 1.0078125).astype(found.dtype), 6]


def test_a_loop_may_depend_on_the_infeed() -> None:
    """One replica is fed more turns than the other: their all-reduce is a deadlock, which the error names."""
    b = Builder("m")
    init = b.parameter(0, "f32[]")
    b.while_(
        lambda x: x.builder.infeed("pred[]"),
        lambda x: x.builder.cross_replica_sum(x),
        init,
    )
    one = np.array(1, np.float32)
    assert run(b, [[one], [one]], infeeds=[[True, True, False]] * 2) == [4.0, 4.0]
    with pytest.raises(SimulationError, match=r"device 0 waits at all-reduce .* for 1 \(ended\)"):
        run(b, [[one], [one]], infeeds=[[True, True, False], [True, False]])


def test_outfeeds_pile_up_in_order() -> None:
    """What a program hands to the host stays on its device's list."""
    b = Builder("m")
    x = b.parameter(0, "f32[2]")
    b.outfeed(x)
    b.outfeed(b.neg(x))
    module, devices = devices_of(b, 2)
    run_on(module, devices, [[X], [X + 1]])
    assert [[value.tolist() for value in device.outfeed] for device in devices] == [
        [[1, 2], [-1, -2]],
        [[2, 3], [-2, -3]],
    ]


def test_values_go_to_the_host_and_come_from_it() -> None:
    """Channels of the host hold plain values in the mailbox."""
    b = Builder("m")
    x = b.parameter(0, "f32[2]")
    token = b.send_to_host(x, b.after_all(), "f32[2]", 3)
    b.get_tuple_element(b.recv_from_host(token, "f32[2]", 4), 0)
    module, (device,) = devices_of(b, 1)
    device.mailbox[4] = deque([[7, 8]])
    (result,) = run_on(module, [device], [[X]])
    assert (result.tolist(), device.mailbox[3][0].tolist()) == ([7, 8], [1, 2])


def test_a_receive_from_a_silent_host_is_an_error() -> None:
    """The error names the channel."""
    b = Builder("m")
    b.recv_from_host(b.after_all(), "f32[2]", 4)
    with pytest.raises(SimulationError, match="nothing into channel 4"):
        run(b, [[]])


@pytest.mark.parametrize("opcode", ["recv", "send"])
def test_a_peer_that_the_run_has_not_is_named(opcode: str) -> None:
    """As for the groups of collectives."""
    pairs = "{{1,0}}" if opcode == "recv" else "{{0,1}}"
    state = f'channel_id=1, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
    operands = "t" if opcode == "recv" else "x, t"
    module = module_of(
        "x = f32[2] parameter(0)",
        "t = token[] after-all()",
        f"r = (f32[2], u32[], token[]) {opcode}({operands}), {state}",
        f"ROOT d = {'(f32[2], token[])' if opcode == 'recv' else 'token[]'} {opcode}-done(r), channel_id=1",
    )
    with pytest.raises(ProgramError, match=r"expected devices among the 1 of this run, found \[1\]"):
        run(module, [[X]])


def test_send_and_receive_shift_values_along_the_pairs() -> None:
    """0 to 1 and 1 to 2; device 0 receives nothing, device 2 sends nothing."""
    results = run(module_of(*SHIFT), [[X + device] for device in range(3)])
    np.testing.assert_array_equal(results, [0 * X, X, X + 1])


def test_a_channel_without_pairs_joins_one_sender_and_one_receiver() -> None:
    """Replica 0 sends, replica 1 receives, as a branch on the replica decides."""
    b = Builder("m")
    x = b.parameter(0, "f32[2]")

    def sending(v: Any) -> Any:
        v.builder.send(v, 1)
        return v.builder.neg(v)

    is_first = b.eq(b.replica_id(), b.constant(0, "u32"))
    b.conditional(is_first, x, sending, x, lambda v: v.builder.recv("f32[2]", 1))
    np.testing.assert_array_equal(run(b, [[X], [X + 1]]), [-X, X])


def exchange(first: str, second: str, is_send_first: bool) -> list[str]:
    """Return the lines of a branch that sends on one channel and receives on another, in either order."""
    send = [
        f"s = (f32[2], u32[], token[]) send(x, t), channel_id={first}",
        f"e = token[] send-done(s), channel_id={first}",
    ]
    receive = [
        f"r = (f32[2], u32[], token[]) recv(t), channel_id={second}",
        f"d = (f32[2], token[]) recv-done(r), channel_id={second}",
    ]
    body = [*send, *receive] if is_send_first else [receive[0], *send, receive[1]]
    return [
        "x = f32[2] parameter(0)",
        "t = token[] after-all()",
        *body,
        "ROOT g = f32[2] get-tuple-element(d), index=0",
    ]


def exchanging(is_send_first: bool) -> Any:
    """Return a module in which two replicas swap values on channels 1 and 2."""
    lines = [exchange("1", "2", is_send_first), exchange("2", "1", is_send_first)]
    branches = [f"b{number} {{\n  " + "\n  ".join(body) + "\n}\n" for number, body in enumerate(lines)]
    return module_of(
        "x = f32[2] parameter(0)",
        "i = u32[] replica-id()",
        "n = s32[] convert(i)",
        "ROOT c = f32[2] conditional(n, x, x), branch_computations={b0, b1}",
        before="\n".join(branches),
    )


def test_two_devices_swap_values() -> None:
    """Receives are laid out first, as the document's order has it: recv before send before recv-done."""
    np.testing.assert_array_equal(run(exchanging(False), [[X], [X + 1]]), [X + 1, X])


def test_a_cyclic_schedule_is_a_deadlock() -> None:
    """Both send before they lay out their receives: each send waits for the other's receive for ever."""
    with pytest.raises(
        SimulationError, match=r"device 0 waits at send 's' on channel 1 .* for 1 \(send 's' on channel 2"
    ):
        run(exchanging(True), [[X], [X + 1]])


def test_a_device_alone_cannot_send_to_nobody() -> None:
    """There is no other device that could receive."""
    b = Builder("m")
    b.send(b.parameter(0, "f32[2]"), 1)
    with pytest.raises(SimulationError, match="channel 1"):
        run(b, [[X]])
