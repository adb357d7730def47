"""Devices that come late: what the others wait for them is told apart from what the bytes take."""

from __future__ import annotations

import msgspec
import pytest

from tests.machine.collectives import collective, program_of, run
from tpusim.analysis.communication import pod_use
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.steps import ChannelTransfer, Choice, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.records import LATE
from tpusim.units import PS_PER_SECOND

CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
DEVICES = range(4)
TRIPS = tuple(3 * (number + 1) for number in DEVICES)
ALL = (tuple(DEVICES),)
PAIRS = ((0, 1), (2, 3))


def uneven(*steps, apart: bool | None = None, each_trips=TRIPS):
    """Return a run in which device n goes 3 (n + 1) times, or as stated, through a kernel before some steps."""
    chosen = sorted(set(each_trips))
    numbers = [tuple(number for number in DEVICES if each_trips[number] == trips) for trips in chosen]
    choices = tuple(Choice((trips,), devices) for trips, devices in zip(chosen, numbers, strict=True))
    loop = Loop(name="l", opcode="while", trips=1, body=(KERNEL,), choices=choices)
    options = RunOptions(per_device=apart)
    return simulate_pod([program_of(loop, *steps, devices=4)], CHIP, parse_topology("v5e:2x2"), None, options)


def named(timeline, name: str):
    """Return the only record of a name."""
    (found,) = [record for record in timeline.records if record.name == name]
    return found


def trip_ps() -> int:
    """Return how long a trip takes: that of the kernel, and of the loop's own overhead."""
    loops = [Loop(name="l", opcode="while", trips=trips, body=(KERNEL,)) for trips in (1, 2)]
    one, two = (run("v5e:1x1", loop).last.total_ps for loop in loops)
    return two - one


@pytest.mark.parametrize("apart", [None, True])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather"])
def test_the_wait_for_the_last_is_the_trips_that_it_makes_more(kind, apart):
    """Device n waits for 3 (3 - n) trips, and from then on the collective takes as long as where none is late."""
    reduce = collective(kind, 8e6, ALL, channel_id=1)
    alone = run("v5e:2x2", reduce, apart=True)
    transfer_ps = named(alone.last, "c").duration_ps
    each = uneven(reduce, apart=apart)
    for number, timeline in enumerate(each.timelines):
        record = named(timeline, "c")
        assert record.late_ps == (TRIPS[-1] - TRIPS[number]) * trip_ps()
        assert record.duration_ps - record.late_ps == transfer_ps
        assert record.bound_by == ("ICI" if 2 * record.late_ps < record.duration_ps else LATE)
    (use,), (even,) = pod_use(each).collectives, pod_use(alone).collectives
    assert use.bus_bytes_per_second == pytest.approx(even.bus_bytes_per_second)


@pytest.mark.parametrize("apart", [None, True])
def test_a_wait_for_a_late_collective_beside_the_core_is_waiting(apart):
    """The pairs begin beside the core: what their ends wait for the other of the pair is no communication."""
    start = collective("all-reduce", 8e6, PAIRS, channel_id=1, is_async=True)
    uses = pod_use(uneven(start, Wait(name="d", opcode="wait", needs=("c",)), apart=apart)).devices
    waited = {number: use.waiting_ps for use in uses for number in use.devices}
    late_ps = 3 * trip_ps()
    assert waited == {0: late_ps, 1: 0, 2: late_ps, 3: 0}
    assert {use.exposed_ps for use in uses} == {uses[0].exposed_ps}
    assert {use.hidden_ps for use in uses} == {0}


@pytest.mark.parametrize("apart", [None, True])
def test_times_beyond_64_bits_are_told_apart(apart):
    """Nothing keeps a device from going through a loop for years."""
    trips = (1, 1, 10**15, 2 * 10**15)
    each = uneven(collective("all-reduce", 8e6, ALL, channel_id=1), apart=apart, each_trips=trips)
    waited = {number: use.waiting_ps for use in pod_use(each).devices for number in use.devices}
    assert waited == {number: (trips[-1] - trips[number]) * trip_ps() for number in DEVICES}
    assert waited[0] > 2**64


def test_who_is_late_shows_for_each_of_a_cohort():
    """Every time line is that of a run of every device by itself, its parts as well."""
    steps = (collective("all-reduce", 8e6, PAIRS, channel_id=1), collective("all-gather", 8e6, ALL, channel_id=2))
    together, apart = (uneven(*steps, apart=apart) for apart in (None, True))
    assert [timeline.records for timeline in together.timelines] == [timeline.records for timeline in apart.timelines]


def test_partners_that_are_not_as_late_show_for_each_of_a_cohort():
    """Devices 0 and 1 do the same, but what runs beside their kernels waits 1 trip for device 2, 4 for device 3."""
    start = collective("all-reduce", 8e5, ((0, 2), (1, 3)), channel_id=1, is_async=True)
    steps = (start, *[KERNEL] * 12, Wait(name="d", opcode="wait", needs=("c",)))
    together, apart = (uneven(*steps, apart=apart, each_trips=(1, 1, 2, 5)) for apart in (None, True))
    late_ps = [named(timeline, "c").late_ps for timeline in together.timelines]
    assert late_ps == [trip_ps(), 4 * trip_ps(), 0, 0]
    assert late_ps == [named(timeline, "c").late_ps for timeline in apart.timelines]


def test_times_by_what_bound_them_are_the_time_of_the_core():
    """For every device the columns add up to its time."""
    for use in pod_use(uneven(collective("all-reduce", 8e6, ALL, channel_id=1))).devices:
        assert use.compute_ps + use.exposed_ps + use.waiting_ps == use.total_ps


def transfer(name: str, is_send: bool) -> ChannelTransfer:
    """Return one end of a channel."""
    opcode = "send" if is_send else "recv"
    return ChannelTransfer(name=name, opcode=opcode, n_bytes=1e6, channel_id=1, is_send=is_send)


def ends(*befores: Kernel):
    """Return the run of a sender and a receiver, each with some kernels before, and one beside the transfer."""
    send, receive = (
        program_of(
            *[KERNEL] * before,
            transfer("t", is_send),
            KERNEL,
            Wait(name="d", opcode="wait", needs=("t",)),
        )
        for is_send, before in zip((True, False), befores, strict=True)
    )
    return simulate_pod([send, receive], CHIP)


def test_nothing_is_hidden_before_it_is_sent():
    """A receive five kernels early: one of them beside it, then it waits for four, and only then bytes come."""
    kernel_ps = run("v5e:1x1", KERNEL).last.total_ps
    sender, receiver = pod_use(ends(5, 0)).devices
    send = next(record for record in ends(5, 0).timelines[0].records if record.name == "t")
    assert receiver.waiting_ps == 4 * kernel_ps
    assert receiver.hidden_ps == 0
    assert receiver.exposed_ps == pytest.approx(send.duration_ps, abs=1)
    assert sender.waiting_ps == 0
    record = next(record for record in ends(5, 0).timelines[1].records if record.name == "t")
    assert record.late_ps == 5 * kernel_ps


def test_a_send_waits_for_its_receiver():
    """Five kernels until the other lays out a slot are waiting; the bytes then come beside a kernel."""
    kernel_ps = run("v5e:1x1", KERNEL).last.total_ps
    sender, receiver = pod_use(ends(0, 5)).devices
    assert (sender.waiting_ps, receiver.waiting_ps) == (5 * kernel_ps, 0)


@pytest.mark.parametrize("befores", [(6, 1), (1, 6)], ids=["the sender is late", "the receiver is late"])
def test_parts_of_a_transfer_are_all_of_its_time(befores):
    """Five kernels of waiting for the other end, and what its bytes take, add up."""
    records = [record for timeline in ends(*befores).timelines for record in timeline.records if record.parts]
    waits = [record for record in records if record.name == "t" and (record.is_wait or record.late_ps)]
    assert len(waits) == 1
    assert sum(waits[0].parts.values()) == waits[0].duration_ps
    assert waits[0].late_ps == 5 * run("v5e:1x1", KERNEL).last.total_ps


def test_a_wait_to_send_is_one_of_the_core():
    """It is no end of something: its record says so, and what was waited for."""
    wait = next(record for record in ends(0, 5).timelines[0].records if record.row == "core" and record.name == "t")
    assert (wait.is_wait, set(wait.parts)) == (True, {LATE})
    assert wait.duration_ps == 5 * run("v5e:1x1", KERNEL).last.total_ps


def test_of_two_pairs_that_end_together_the_one_that_came_together_first_counts():
    """Device 0 sends to device 3, two hops away, and gets from device 2, as much later as the second hop takes."""
    delay_ps = trip_ps()
    chip = msgspec.structs.replace(
        CHIP, ici=msgspec.structs.replace(CHIP.ici, hop_latency_seconds=delay_ps / PS_PER_SECOND)
    )
    loop = Loop(name="l", opcode="while", trips=0, body=(KERNEL,), choices=(Choice((1,), (2,)),))
    permute = collective("collective-permute", 8e6, pairs=((0, 3), (2, 0)), channel_id=1)
    options = RunOptions(per_device=True)
    each = simulate_pod([program_of(loop, permute, devices=4)], chip, parse_topology("v5e:2x2"), None, options)
    sent, got = (named(each.timelines[number], "c") for number in (3, 2))
    assert (sent.end_ps, got.start_ps - sent.start_ps) == (got.end_ps, delay_ps)
    assert named(each.timelines[0], "c").late_ps == 0
