"""Channels between devices: what arrives, who waits, and that a deadlock here is one of execution too."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

import tpusim
from tests.machine.collectives import collective, program_of
from tpusim.errors import SimulationError
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.steps import Branch, ChannelTransfer, Choice, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

CHIP = load_chip("v5e")
SHAPE = "f32[1024,1024]{1,0:T(8,128)}"
LINES = {
    "recv": "%recv{n} = ({s}, u32[], token[]) recv(%token{n}), channel_id={c}{pairs}",
    "recv-done": "%recv-done{n} = ({s}, token[]) recv-done(%recv{n}), channel_id={c}",
    "send": "%send{n} = ({s}, u32[], token[]) send(%x, %token{n}), channel_id={c}{pairs}",
    "send-done": "%send-done{n} = token[] send-done(%send{n}), channel_id={c}",
}


def module_of(schedule: str, pairs: str):
    """Return a module for two partitions whose schedule names opcodes with their channels: ``recv1 send1 ...``."""
    stated = f', frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}' if pairs else ""
    words = [re.fullmatch(r"(\D+)(\d)", word).groups() for word in schedule.split()]
    channels = sorted({channel for _, channel in words})
    lines = [f"%x = {SHAPE} parameter(0)", *(f"%token{c} = token[] after-all()" for c in channels)]
    lines += [LINES[opcode].format(s=SHAPE, n=c, c=c, pairs=stated) for opcode, c in words]
    lines.append(f"ROOT %y = {SHAPE} copy(%x)")
    text = "\n".join(f"  {line}" for line in lines)
    head = "HloModule m, is_scheduled=true, num_partitions=2\n\nENTRY %main {\n"
    return parse_module(SourceText("m.hlo", f"{head}{text}\n}}\n"))


BOTH_WAYS = "{{0,1},{1,0}}"
ONE_WAY = "{{0,1}}"
# Schedule, pairs, and whether it can go on: a send waits for the receive's slot, an end of a receive for its bytes.
SCHEDULES = [
    ("recv1 send1 recv-done1 send-done1", BOTH_WAYS, True),
    ("send1 recv1 recv-done1 send-done1", BOTH_WAYS, False),
    ("recv1 recv-done1 send1 send-done1", BOTH_WAYS, False),
    ("send1 recv1 recv-done1 send-done1", ONE_WAY, True),
    ("recv1 recv-done1 send1 send-done1", ONE_WAY, True),
    ("recv1 send1 send-done1 recv-done1", ONE_WAY, True),
    ("recv1 recv2 send2 send1 recv-done1 recv-done2 send-done1 send-done2", BOTH_WAYS, True),
    ("recv1 send2 recv2 send1 recv-done1 recv-done2 send-done1 send-done2", BOTH_WAYS, False),
    ("recv1 send1 recv-done1 send-done1", "{{0,0},{1,1}}", True),
    # Without pairs a device would send to itself, though there is another one.
    ("recv1 send1 recv-done1 send-done1", "", False),
]


def stops(action) -> bool:
    """Tell whether something ends in a SimulationError."""
    try:
        action()
    except SimulationError:
        return True
    return False


@pytest.mark.parametrize(("schedule", "pairs", "goes_on"), SCHEDULES)
def test_executing_and_simulating_stop_in_the_same_schedules(schedule, pairs, goes_on):
    """Crossed sends and receives wait for ever in both, others in neither."""
    module = module_of(schedule, pairs)
    values = [[np.zeros((1024, 1024), np.float32)]] * 2
    assert stops(lambda: tpusim.execute(module, values)) is not goes_on
    assert stops(lambda: tpusim.simulate(module, "v5e")) is not goes_on


def test_a_deadlock_names_the_cycle():
    """Who waits at which instruction, with file and line, for what, from whom."""
    with pytest.raises(SimulationError) as error:
        tpusim.simulate(module_of("send1 recv1 recv-done1 send-done1", BOTH_WAYS), "v5e")
    message = str(error.value)
    assert "wait for each other for ever" in message
    for own, other in ((0, 1), (1, 0)):
        assert f"device {own} waits at send 'send1' (m.hlo:6) for a recv on channel 1 from device {other}" in message


def test_a_send_without_pairs_to_its_own_device_is_refused_with_what_to_state():
    """Which of several devices is meant is not known."""
    with pytest.raises(SimulationError, match=r"device 0 at send 'send1' \(m.hlo:7\).*to itself.*source_target_pairs"):
        tpusim.simulate(module_of("recv1 send1 recv-done1 send-done1", ""), "v5e")


def test_a_message_takes_hop_and_bytes():
    """From the start of the send: the launch, a hop, and 4 MiB over a link."""
    run = tpusim.simulate(module_of("recv1 send1 recv-done1 send-done1", ONE_WAY), "v5e").pod
    send = next(r for timeline in run.timelines for r in timeline.records if r.name == "send1" and r.payload_bytes)
    rate = CHIP.ici.link_bytes_per_second * CHIP.ici.efficiency
    expected = CHIP.ici.launch_seconds + CHIP.ici.hop_latency_seconds + 2**22 / rate
    assert send.duration_ps / 1e12 == pytest.approx(expected, rel=1e-6)
    assert (send.peer, len(run.timelines)) == (1, 2)


def test_a_message_is_written_to_memory_as_it_comes():
    """The receiver is done when its last byte has come: memory is faster than a link."""
    run = tpusim.simulate(module_of("recv1 send1 recv-done1 send-done1", ONE_WAY), "v5e").pod
    ends = {r.name: r.end_ps for timeline in run.timelines for r in timeline.records if r.payload_bytes}
    assert ends["recv1"] == ends["send1"]


def stage(*steps):
    """Return a program of one stage of a pipeline."""
    return program_of(*steps, devices=1)


def test_each_copy_of_a_program_sends():
    """Two devices exchange something; on four the other two do so as well."""
    module = module_of("recv1 send1 recv-done1 send-done1", BOTH_WAYS)
    run = tpusim.simulate(module, "v5e", topology="v5e:2x2").pod
    sent = [r for timeline in run.timelines for r in timeline.records if r.name == "send1" and r.payload_bytes]
    assert sorted(record.peer for record in sent) == [0, 1, 2, 3]


def transfer(name: str, is_send: bool, channel: int) -> ChannelTransfer:
    """Return one end of a channel."""
    return ChannelTransfer(
        name=name, opcode="send" if is_send else "recv", n_bytes=1e6, channel_id=channel, is_send=is_send
    )


def test_a_pipeline_of_programs_waits_for_its_first_stage():
    """The second program's kernel begins when the first one's result has come."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
    first = stage(kernel, transfer("s", True, 1), Wait(name="sd", opcode="send-done", needs=("s",)))
    second = stage(transfer("r", False, 1), Wait(name="rd", opcode="recv-done", needs=("r",)), kernel)
    run = simulate_pod([first, second], CHIP)
    ends = [next(r.end_ps for r in timeline.records if r.name == "k") for timeline in run.timelines]
    assert ends[1] > 2 * ends[0]


def test_the_send_that_waited_longest_has_the_first_receive():
    """Two programs send on one channel, the second one later; the third receives twice, later still."""
    early = stage(transfer("s", True, 1), Wait(name="sd", opcode="send-done", needs=("s",)))
    late = stage(Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6})), *early.steps)
    waiting = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e7}))
    ends = [transfer("r", False, 1), Wait(name="rd", opcode="recv-done", needs=("r",))]
    run = simulate_pod([late, early, stage(waiting, *ends, waiting, *ends)], CHIP)
    assert run.timelines[1].total_ps < run.timelines[2].total_ps / 2 < run.timelines[0].total_ps


def test_one_more_collective_than_the_others_is_a_deadlock():
    """The one that comes again is told that its partner has ended."""
    reduce = collective("all-reduce", 1e6, ((0, 1),), channel_id=1)
    with pytest.raises(SimulationError, match=r"device 0 waits at all-reduce 'c' .*from device 1, which has ended"):
        simulate_pod([program_of(reduce, reduce), program_of(reduce)], CHIP)


def test_different_collectives_wait_for_each_other():
    """Each comes to its own: both are named."""
    steps = [collective(kind, 1e6, ((0, 1),), channel_id=n) for n, kind in enumerate(("all-reduce", "all-gather"), 1)]
    with pytest.raises(SimulationError, match=r"device 0 waits .* from device 1; device 1 waits .* from device 0"):
        simulate_pod([program_of(step) for step in steps], CHIP)


def test_a_timeout_says_where_everybody_is():
    """In simulated time, and with what to do."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e9}))
    with pytest.raises(SimulationError, match=r"device 0 is at fusion 'k'; allow more time"):
        simulate_pod([program_of(kernel)], CHIP, None, None, RunOptions(timeout_seconds=1e-6))


def test_a_timeout_names_four_devices_and_counts_the_others():
    """Of sixteen devices twelve are more."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e9}))
    options = RunOptions(per_device=True, timeout_seconds=1e-6)
    with pytest.raises(SimulationError, match=r"device 3 is at fusion 'k'; and 12 more; allow more time"):
        simulate_pod([program_of(kernel, devices=16)], CHIP, parse_topology("v5e:4x4"), None, options)


def test_a_run_that_ends_in_time_is_not_disturbed():
    """The same time line with and without."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e3}))
    free, bound = (
        simulate_pod([program_of(kernel)], CHIP, None, None, RunOptions(timeout_seconds=t)) for t in (None, 1.0)
    )
    assert free == bound


def test_programs_side_by_side_have_groups_of_their_own():
    """Two programs for two devices each: their all-reduces of one channel do not meet."""
    reduce = collective("all-reduce", 1e6, ((0, 1),), channel_id=1)
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
    programs = [program_of(reduce, devices=2), program_of(kernel, reduce, devices=2)]
    totals = [timeline.total_ps for timeline in simulate_pod(programs, CHIP).timelines]
    assert totals[0] == totals[1] < totals[2] == totals[3]


def test_an_end_that_no_program_has_is_outside_and_ready():
    """One stage of a pipeline alone: its message takes hop and bytes, and a warning says what was assumed."""
    result = tpusim.simulate(module_of("send1 send-done1", ""), "v5e")
    rate = CHIP.ici.link_bytes_per_second * CHIP.ici.efficiency
    expected = CHIP.ici.launch_seconds + CHIP.ici.hop_latency_seconds + 2**22 / rate
    send = next(record for record in result.timeline.records if record.name == "send1")
    assert send.duration_ps / 1e12 == pytest.approx(expected, rel=1e-6)
    assert any(
        warning.startswith("channel 1: its other end is not in this program") for warning in result.program.warnings
    )


def test_an_end_that_another_program_has_is_no_warning():
    """Two stages side by side; and of two that both send, each channel once."""
    sender, receiver = module_of("send1 send-done1", ""), module_of("recv1 recv-done1", "")
    assert not tpusim.simulate(sender, "v5e", beside=[receiver]).program.warnings
    (warning,) = tpusim.simulate(sender, "v5e", beside=[sender]).program.warnings
    assert warning.startswith("channel 1: its other end is not in the 2 programs of this run")


def test_a_collective_in_a_branch_that_only_some_take_is_a_deadlock():
    """Device 0 reduces, the others go by: they have ended, and device 0 is told so."""
    reduce = collective("all-reduce", 1e6, (tuple(range(4)),), channel_id=1)
    choices = (Choice((0,), (0,)), Choice((1,), (1, 2, 3)))
    branch = Branch(name="b", opcode="conditional", choices=choices, branches=((reduce,), ()))
    with pytest.raises(SimulationError, match=r"device 0 waits at all-reduce 'c' .* from device 1, which has ended"):
        simulate_pod([program_of(branch, devices=4)], CHIP)


TWO_BRANCHES = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

%br0 (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0:T(256)}} parameter(0)
  ROOT %{first} = f32[8]{{0:T(256)}} all-reduce(%p), {stated}
}}

%br1 (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0:T(256)}} parameter(0)
  ROOT %{second} = f32[8]{{0:T(256)}} all-reduce(%p), {stated}
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0:T(256)}} parameter(0)
  %pid = u32[] partition-id()
  %i = s32[] convert(%pid)
  %c = f32[8]{{0:T(256)}} conditional(%i, %x, %x), branch_computations={{%br0, %{taken}}}
  ROOT %z = f32[8]{{0:T(256)}} all-reduce(%c), {stated}
}}
"""
STATED = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add"


@pytest.mark.parametrize(
    ("first", "second", "taken", "groups", "goes_on"),
    [
        ("ra", "rb", "br1", "{{0,1}}", False),
        ("ra", "ra", "br1", "{{0,1}}", False),
        ("ra", "rb", "br0", "{{0,1}}", True),
        ("ra", "rb", "br1", "{{0},{1}}", True),
    ],
)
def test_collectives_of_one_program_meet_where_they_stand(first, second, taken, groups, goes_on):
    """All on channel 1, as JAX writes them: those of two branches do not meet, one that two calls share does."""
    stated = STATED.replace("{{0,1}}", groups)
    text = TWO_BRANCHES.format(first=first, second=second, taken=taken, stated=stated)
    module = parse_module(SourceText("m.hlo", text))
    assert stops(lambda: tpusim.execute(module, [[np.zeros(8, np.float32)]] * 2)) is not goes_on
    assert stops(lambda: tpusim.simulate(module, "v5e")) is not goes_on


def test_a_collective_that_only_some_take_does_not_shift_the_others():
    """Half the devices reduce in pairs in a branch, then all reduce across the pairs: four launches at most."""
    inner, outer = (
        msgspec.structs.replace(collective("all-reduce", 1e6, groups, channel_id=1), name=name)
        for name, groups in (("inner", ((0, 1), (2, 3))), ("outer", ((0, 2), (1, 3))))
    )
    choices = (Choice((0,), (0, 1)), Choice((1,), (2, 3)))
    branch = Branch(name="b", opcode="conditional", choices=choices, branches=((inner,), ()))
    done = simulate_pod([program_of(branch, outer, devices=4)], CHIP)
    names = [[r.name for r in timeline.records if r.opcode == "all-reduce"] for timeline in done.timelines]
    assert names == [["inner", "outer"]] * 2 + [["outer"]] * 2
    assert len({timeline.total_ps for timeline in done.timelines}) == 1


OF_TWO = collective("all-reduce", 1e6, ((0, 1),), channel_id=1)


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(OF_TWO, n_bytes=4.0),
        msgspec.structs.replace(OF_TWO, kind="all-gather", opcode="all-gather"),
        msgspec.structs.replace(OF_TWO, groups=((1, 0),)),
    ],
)
def test_programs_that_meet_on_a_channel_must_do_the_same(other):
    """Another kind, group or size is told of both."""
    with pytest.raises(SimulationError, match=r"expected collectives of one kind.* device 0 at .* and device 1 at "):
        simulate_pod([program_of(OF_TWO), program_of(other)], CHIP)


def test_channels_of_programs_count_by_group():
    """All on channel 1: device 0 meets device 1 and then device 2, who has been nowhere before."""
    first, second = (msgspec.structs.replace(OF_TWO, groups=((0, n),)) for n in (1, 2))
    done = simulate_pod([program_of(first, second), program_of(first), program_of(second)], CHIP)
    totals = [timeline.total_ps for timeline in done.timelines]
    assert totals[1] < totals[0] == totals[2]


def test_each_device_sends_as_often_as_its_own_loop_says():
    """Device 0 sends three times and device 1 receives three times, in loops of different programs and lengths."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e5}))
    sends = (kernel, transfer("s", True, 1), Wait(name="sd", opcode="send-done", needs=("s",)))
    receives = (transfer("r", False, 1), Wait(name="rd", opcode="recv-done", needs=("r",)))
    loops = [Loop(name="l", opcode="while", trips=3, body=body) for body in (sends, receives)]
    run = simulate_pod([stage(loop) for loop in loops], CHIP)
    counts = [sum(r.count for r in timeline.records if r.name in ("s", "r")) for timeline in run.timelines]
    assert counts == [3, 3]
    assert sum(link.n_bytes for link in run.links) == 3e6


def test_loops_of_different_lengths_that_never_meet_are_told():
    """Device 0 sends a thousand times, device 1 receives 999 times."""
    send = (transfer("s", True, 1), Wait(name="sd", opcode="send-done", needs=("s",)))
    receive = (transfer("r", False, 1), Wait(name="rd", opcode="recv-done", needs=("r",)))
    loops = [Loop(name="l", opcode="while", trips=n, body=body) for n, body in ((1000, send), (999, receive))]
    with pytest.raises(
        SimulationError, match=r"device 0 waits at send 's' for a recv on channel 1 from device 1, which"
    ):
        simulate_pod([stage(loop) for loop in loops], CHIP)
