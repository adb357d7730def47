"""Deadlocks: the devices that a message names wait for each other, and nobody else is named as one of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machine.collectives import collective, program_of
from tpusim.errors import SimulationError
from tpusim.hardware.load import load_chip
from tpusim.machine import run
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.machine.waits import find_cycle
from tpusim.program.feed import Feed
from tpusim.program.steps import Branch, ChannelTransfer, Choice, HostTransfer, Loop, Wait

CHIP = load_chip("v5e")


def send(channel: int):
    """Return a send that no pairs are stated of, and its end."""
    name = f"s{channel}"
    step = ChannelTransfer(name=name, opcode="send", n_bytes=1e6, channel_id=channel, is_send=True)
    return step, Wait(name=f"{name}d", opcode="send-done", needs=(name,))


def receive(channel: int):
    """Return a receive that no pairs are stated of, and its end."""
    name = f"r{channel}"
    step = ChannelTransfer(name=name, opcode="recv", n_bytes=1e6, channel_id=channel, is_send=False)
    return step, Wait(name=f"{name}d", opcode="recv-done", needs=(name,))


def told(*programs) -> dict[int, list[int]]:
    """Return whom each device waits for that the error names as a member of a cycle, in its order."""
    with pytest.raises(SimulationError) as error:
        simulate_pod(programs, CHIP)
    message = str(error.value)
    assert "wait for each other for ever" in message
    members = re.findall(r"device (\d+) waits at [^;]* from ((?:device \d+(?:, which has ended)?(?:, )?)+)", message)
    return {int(number): [int(peer) for peer in re.findall(r"device (\d+)", peers)] for number, peers in members}


def test_a_cycle_of_three_programs_is_named_as_it_is():
    """Each waits for bytes before it sends: the first for those of the third, the third for those of the second."""
    stages = [program_of(*receive(before), *send(own)) for before, own in ((3, 1), (1, 2), (2, 3))]
    assert told(*stages) == {0: [2], 2: [1], 1: [0]}


def test_who_waits_for_members_of_a_cycle_is_no_member():
    """Device 0 waits for device 1, which waits for device 2 as that does for it."""
    bystander = program_of(*receive(7))
    first = program_of(*receive(2), *send(1), *send(7))
    second = program_of(*receive(1), *send(2))
    assert told(bystander, first, second) == {1: [2], 2: [1]}


def test_a_cycle_goes_on_behind_a_peer_that_is_in_none():
    """Device 0 reduces with 1, which waits for outside of the circle, and with 2, which waits for device 0."""
    reduce = collective("all-reduce", 1e6, ((0, 1, 2),), channel_id=9)
    first = program_of(reduce, *send(1))
    second = program_of(*receive(5), reduce)
    third = program_of(*receive(1), reduce)
    # Of channel 5 the other end comes in a program that has ended without reaching it.
    fourth = program_of(Loop(name="l", opcode="while", trips=0, body=send(5)))
    assert told(first, second, third, fourth) == {0: [2, 1], 2: [0]}


def test_a_receive_that_nobody_stands_at_is_no_part():
    """Device 0 has laid out a slot for device 1, but stands at what device 2 has to do."""
    slot = receive(1)
    first = program_of(slot[0], *receive(2), *send(3), *send(4), slot[1])
    second = program_of(*receive(3), *send(1))
    third = program_of(*receive(4), *send(2))
    assert told(first, second, third) == {0: [2], 2: [0]}


def taken_by(groups, *, late: tuple[int, ...]):
    """Return a program whose devices reduce in groups, all but some, which have the other branch and go by."""
    every = tuple(sorted(number for group in groups for number in group))
    choices = (
        Choice((0,), tuple(number for number in every if number not in late)),
        Choice((1,), late),
    )
    reduce = collective("all-reduce", 1e6, groups, channel_id=1)
    return program_of(
        Branch(name="b", opcode="conditional", choices=choices, branches=((reduce,), ())), devices=len(every)
    )


EVERYONE = tuple(range(64))
HALVES = EVERYONE[:32], EVERYONE[32:]
PAIRS = tuple(zip(*HALVES, strict=True))


@pytest.mark.parametrize(
    ("groups", "late", "most"),
    [
        ((EVERYONE,), (63,), 2),
        ((EVERYONE,), (0, 5), 2),
        (PAIRS, HALVES[1], 2),
        (HALVES, (63,), 64),
        (PAIRS, (40, 41), 64),
    ],
    ids=["one is late", "two are late", "half are late", "one of two groups goes on", "most pairs go on"],
)
def test_a_message_is_that_of_devices_each_by_itself(monkeypatch, groups, late, most):
    """Where all that are simulated together wait, they are not run again one by one to say so."""
    simulated = []
    world = run.World
    monkeypatch.setattr(
        run,
        "World",
        lambda costs, placed, *rest, **named: simulated.append(len(placed)) or world(costs, placed, *rest, **named),
    )
    messages = []
    for per_device in (None, True):
        with pytest.raises(SimulationError) as error:
            simulate_pod([taken_by(groups, late=late)], CHIP, None, None, RunOptions(per_device=per_device))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert simulated[-1] == 64
    assert max(simulated[:-1]) == most


def reached(needed: dict[int, list[int]], start: int) -> set[int]:
    """Return the devices that one waits for, directly or not."""
    found: set[int] = set()
    ahead = [start]
    while ahead:
        fresh = set(needed.get(ahead.pop(), [])) - found
        found |= fresh
        ahead += fresh
    return found


@given(st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 7), unique=True, max_size=4)))
def test_a_cycle_is_found_where_there_is_one(needed):
    """Against who can be reached from himself; and what is found is a cycle, each device once."""
    cycle = find_cycle(needed)
    assert bool(cycle) == any(number in reached(needed, number) for number in needed)
    assert len(set(cycle)) == len(cycle)
    assert all(after in needed[number] for number, after in zip(cycle, cycle[1:] + cycle[:1], strict=True))


FEEDS = [("infeed", False), ("outfeed", True)]


@pytest.mark.parametrize(("opcode", "to_host"), FEEDS)
def test_a_recorded_feed_that_has_ended_is_named(opcode, to_host):
    """Three times are recorded; of twenty transfers those that no queue holds wait for ever."""
    loop = Loop(
        name="l",
        opcode="while",
        trips=20,
        body=(HostTransfer(name="h", opcode=opcode, n_bytes=16e3, to_host=to_host),),
    )
    feed = Feed(kind="file", times=(1e-6, 2e-6, 3e-6))
    with pytest.raises(SimulationError, match=r"from the host, whose recorded feed has ended"):
        simulate_pod([program_of(loop)], CHIP, None, None, RunOptions(**{opcode: feed}))


class Counted(dict[int, list[int]]):
    """A mapping that counts how often an entry is looked up."""

    count = 0

    def __getitem__(self, key):
        """Count, and give up where a search has gone astray."""
        self.count += 1
        assert self.count < 1000
        return super().__getitem__(key)


def test_the_search_comes_to_each_device_once():
    """A ladder of 40 steps has 2^40 ways down and no way up."""
    needed = Counted({n: [n // 2 * 2 + 2, n // 2 * 2 + 3] for n in range(80)})
    assert find_cycle(needed) == []
