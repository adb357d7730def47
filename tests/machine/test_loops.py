"""Loops: what one trip says of the others, and when devices agree to skip them."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import cache
from math import inf
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpusim
from tests.machine.collectives import collective, run
from tpusim.errors import UnsupportedError
from tpusim.hardware.load import load_chip
from tpusim.machine import world
from tpusim.machine.run import simulate_pod
from tpusim.machine.steps import control
from tpusim.machine.world import LoopWatch
from tpusim.program.module import Program
from tpusim.program.steps import Branch, Call, ChannelTransfer, Choice, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import Stream, Work

TRACES = Path(__file__).parents[2] / "traces"
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
SLOWER = Kernel(name="t", opcode="fusion", work=Work(ops={"vector": 3e6}))


def only(devices: tuple[int, ...], *steps, name: str) -> Branch:
    """Return a conditional whose second branch some devices take, while lowering has taken it for the first."""
    choices = (Choice((1,), devices), Choice((0,)))
    return Branch(name=name, opcode="conditional", branches=((), steps), choices=choices)


def test_a_trip_that_waits_in_a_branch_of_few_devices_stands_for_no_other():
    """Device 0 waits once for device 1: one trip or ten, it ends as if it had been as late itself."""
    body = (only((0, 1), collective("all-reduce", 1e6, ((0, 1),)), name="b"),)
    lost_ps = []
    for trips in (1, 10):
        loop = Loop(name="l", opcode="while", trips=trips, body=body)
        late, even = (
            run("v5e:2x2", only(devices, KERNEL, name="a"), loop, apart=True).timelines[0].total_ps
            for devices in ((1,), (0, 1))
        )
        lost_ps.append(late - even)
    assert lost_ps == [0, 0]


def steady_trips(cohorts: int, devices: int, lengths_ps: list[dict[int, int]], enough: int = 0, beside=()) -> int:
    """Return how many trips are played before all may jump; every device's trip takes as long as stated."""
    watch = LoopWatch(cohorts, lambda: devices)
    for trip, lengths in enumerate(lengths_ps, start=1):
        for number in lengths:
            watch.begin(number, trip)
        for number, length_ps in lengths.items():
            watch.end(number, length_ps, was_alone=trip not in beside, is_enough=trip == enough)
        if min(watch.steady_after, watch.enough_after) < inf:
            return trip
    return 0


def test_devices_with_equal_trips_jump_after_the_second():
    """One repetition shows that no device has moved against another."""
    assert steady_trips(2, 2, [{0: 5, 1: 5}] * 9) == 2


def test_groups_with_trips_of_their_own_are_played_as_often_as_there_are_devices():
    """A delay may pass on by one device with each trip, so that four devices need four trips without a change."""
    assert steady_trips(2, 4, [{0: 5, 2: 7}] * 9) == 5


def test_a_trip_beside_a_copy_begins_the_count_anew():
    """Of equal trips the third has something else under way: the fourth is the first that shows anything."""
    assert steady_trips(2, 2, [{0: 5, 1: 5}] * 9, beside=(1, 2, 3)) == 4


def test_enough_was_played():
    """Though no trip is like another."""
    assert steady_trips(2, 2, [{0: trip, 1: 5} for trip in range(9)], enough=4) == 4


def test_a_change_begins_the_count_anew():
    """The third trip of device 2 is slower: four more without a change have to follow."""
    assert steady_trips(2, 4, [{0: 5, 2: 7}] * 2 + [{0: 5, 2: 9}] * 9) == 7


READING = Kernel(name="s", opcode="fusion", tiles=10, streams=(Stream("a", "hbm", 1e6, 10),))
COPY = Copy(name="c", opcode="copy-start", n_bytes=4e6)
DONE = Wait(name="d", opcode="copy-done", needs=("c",))


@pytest.mark.parametrize("trips", [2, 3, 9])
@pytest.mark.parametrize(
    ("before", "body"),
    [((COPY,), (READING,)), ((), (READING, COPY)), ((COPY,), (DONE, READING, COPY)), ((), (COPY, DONE, READING))],
    ids=["lands in the first trip", "outlasts its trip", "for the next trip", "within its trip"],
)
def test_a_loop_is_as_many_loops_of_one_trip(before, body, trips):
    """Whatever runs beside the core: a trip stands for others only if nothing tells it from them."""
    once = Loop(name="l", opcode="while", trips=1, body=body)
    many = Loop(name="l", opcode="while", trips=trips, body=body)
    assert run("v5e:1x1", *before, many).last.total_ps == run("v5e:1x1", *before, *[once] * trips).last.total_ps


def test_devices_apart_jump_from_no_trip_beside_a_copy():
    """It slows the first trips alike, and lands in one of them: those behind it are faster."""
    copy = msgspec.structs.replace(COPY, n_bytes=4e8)
    body = (READING, collective("all-reduce", 1e6, ((0, 1, 2, 3),)))
    loops = [Loop(name="l", opcode="while", trips=trips, body=body) for trips in (80, 1)]
    many, once = (run("v5e:2x2", copy, *steps, apart=True) for steps in (loops[:1], loops[1:] * 80))
    assert [timeline.total_ps for timeline in many.timelines] == [timeline.total_ps for timeline in once.timelines]
    assert any(record.count > 1 for record in many.timelines[0].records)


BESIDE = pytest.mark.parametrize(
    "beside",
    [
        COPY,
        collective("all-reduce", 1e6, ((0, 1, 2, 3),), is_async=True),
        HostTransfer(name="c", opcode="send", n_bytes=1e5, is_async=True),
        ChannelTransfer(name="c", opcode="send", n_bytes=1e6, channel_id=1, is_send=True),
        Call(name="c", opcode="async-start", body=(msgspec.structs.replace(SLOWER, name="c"),), is_async=True),
    ],
    ids=["copy", "collective", "host", "channel", "call"],
)


def short_of_records(monkeypatch) -> None:
    """Let every trip stand for others, whatever is under way beside it."""
    monkeypatch.setattr(world, "_PLAYED_RECORDS", 0)
    monkeypatch.setattr(world, "_PLAYED_TIMES", 0)


def count_of(name: str, run) -> int:
    """Return how often a step of device 0 ran, as its records tell."""
    return sum(record.count for record in run.timelines[0].records if record.name == name and not record.is_wait)


@BESIDE
def test_what_was_started_before_a_loop_is_counted_once(monkeypatch, beside):
    """It lands in a trip that stands for all others."""
    short_of_records(monkeypatch)
    assert count_of("c", run("v5e:2x2", beside, Loop(name="l", opcode="while", trips=10**6, body=(SLOWER,)))) == 1


@BESIDE
def test_what_trips_start_is_counted_for_all_of_them(monkeypatch, beside):
    """One begins before the loop, and in each trip one for the next."""
    short_of_records(monkeypatch)
    loop = Loop(name="l", opcode="while", trips=10**6, body=(DONE, beside, KERNEL))
    assert count_of("c", run("v5e:2x2", beside, loop)) == 1 + 10**6


def looped(times: int, *body) -> tuple[Loop]:
    """Return a loop of some steps."""
    return (Loop(name="l", opcode="while", trips=times, body=body),)


def chosen(times: int, *body) -> tuple[Loop]:
    """Return a loop of which every second trip runs some steps twice."""
    branch = Branch(name="b", opcode="conditional", branches=((), body), choices=(Choice((0, 1)),))
    return looped(times, *body, branch)


def called(times: int, *body) -> tuple[Call, ...]:
    """Return calls of some steps, one after the other."""
    return tuple(Call(name=f"call{number}", opcode="call", body=body) for number in range(times))


@pytest.mark.parametrize("again", [looped, chosen, called])
def test_no_trip_in_which_something_lands_stands_for_others(monkeypatch, again):
    """A copy slows the first of some trips, and not those behind it."""
    short_of_records(monkeypatch)
    monkeypatch.setattr(control, "_SHOWN_TRIPS", 0)
    delays_ps = {
        run("v5e:1x1", COPY, *steps).last.total_ps - run("v5e:1x1", *steps).last.total_ps
        for steps in (again(times, READING) for times in (2, 200))
    }
    assert len(delays_ps) == 1
    assert min(delays_ps) > 0


def test_trips_in_which_something_lands_are_bounded(monkeypatch):
    """Copies land in all of them; each level of loops would else play its trips twice, and levels multiply."""
    monkeypatch.setattr(world, "_MORE_RECORDS", 2**10)
    short_of_records(monkeypatch)
    steps = (READING,)
    for level in range(40):
        copy = msgspec.structs.replace(COPY, name=f"c{level}")
        steps = (copy, Loop(name=f"l{level}", opcode="while", trips=9, body=steps))
    found = run("v5e:1x1", *steps)
    assert count_of("s", found) == 9**40
    assert len(found.last.records) < 2**11


@pytest.mark.parametrize("body", [(COPY, DONE, KERNEL), (KERNEL,), (COPY, KERNEL, DONE, READING)])
def test_a_trip_that_leaves_nothing_under_way_stands_for_all_to_come(body):
    """Of a thousand trips one is played: each step has as many records as in one trip, counted a thousand times."""
    once, many = (
        run("v5e:1x1", Loop(name="l", opcode="while", trips=trips, body=body)).last.records for trips in (1, 1000)
    )
    inside = [[record.count for record in records if record.name != "l"] for records in (once, many)]
    assert inside == [[1] * len(inside[0]), [1000] * len(inside[0])]


def test_a_second_call_repeats_its_loops_where_it_stands():
    """The time line says of both visits which of its stretches stand for trips: each as long, one behind the other."""
    body = (Loop(name="l", opcode="while", trips=9, body=(KERNEL,)),)
    program = Program(name="p", chip="v5e", steps=(Call(name="a", opcode="call", body=body),) * 2)
    (timeline,) = simulate_pod([program], load_chip("v5e")).timelines
    first, second = timeline.repeats
    assert second.start_ps - first.start_ps == timeline.total_ps // 2
    assert (second.trips, second.end_ps - second.start_ps) == (8, first.end_ps - first.start_ps)


NUMBERS = st.lists(st.integers(0, 4), min_size=1, max_size=4)


LISTS = {"loop": 2, "branch": 5, "call": 1, "async": 1}
"""Kinds of what holds steps, and how many lists of them each has."""


@cache
def steps_inside(depth: int):
    """Return a strategy for the steps of one list; those that hold others do so to a depth."""
    plain = st.sampled_from([KERNEL, SLOWER, READING, COPY])
    step = st.one_of(plain, holders(depth - 1)) if depth else plain
    return st.lists(step, max_size=3, unique_by=lambda step: step.name).map(tuple)


@st.composite
def holders(draw, depth: int):
    """Draw a loop, a conditional or a call that chooses at each visit, of steps that may do so too."""
    kind = draw(st.sampled_from([*LISTS]))
    lists = [draw(steps_inside(depth)) for _ in range(LISTS[kind])]
    name, choices = f"h{draw(st.integers(0, 10**9))}", (Choice(tuple(draw(NUMBERS))),)
    if kind == "loop":
        return Loop(name=name, opcode="while", choices=choices, trips=2, condition=lists[0], body=lists[1])
    if kind == "branch":
        return Branch(name=name, opcode="conditional", choices=choices, branches=tuple(lists))
    return Call(name=name, opcode="call", body=lists[0], is_async=kind == "async")


@settings(max_examples=100)
@given(st.lists(holders(2), min_size=1, max_size=3, unique_by=lambda step: step.name), st.integers(2, 60))
def test_rounds_of_choices_take_what_their_trips_take(steps, trips):
    """Where what is about to be chosen comes again, the clock jumps over all rounds to come, and they are counted."""
    loop = Loop(name="l", opcode="while", trips=trips, body=(COPY, DONE, *steps))
    program = Program(name="p", chip="v5e", steps=(loop, KERNEL))
    found = []
    for shown in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "_SHOWN_TRIPS", shown)
            timeline = simulate_pod([program], load_chip("v5e")).last
        counts = Counter()
        for record in timeline.records:
            counts[record.name, record.opcode, record.step, record.end_ps - record.start_ps] += record.count
        found.append((timeline.total_ps, counts))
    assert found[0] == found[1]


def test_a_loop_of_ages_in_which_something_is_chosen_takes_no_time():
    """Two trips, then one, and so on, 2^31 times."""
    inner = Loop(name="i", opcode="while", trips=2, choices=(Choice((2, 1)),), body=(KERNEL,))
    times = [
        run("v5e:1x1", Loop(name="l", opcode="while", trips=trips, body=(inner,))).last.total_ps
        for trips in (2, 2**31, 2**31 + 1, 1)
    ]
    assert times[1] == times[0] * 2**30
    assert times[2] == times[1] + times[3]


@settings(max_examples=100)
@given(st.lists(holders(2), min_size=1, max_size=3, unique_by=lambda step: step.name), st.integers(2, 9))
def test_trips_with_the_same_choices_are_as_if_played(steps, trips):
    """What is chosen from trip to trip repeats: each kind of trip is played once, and the time line shows them all."""
    loop = Loop(name="l", opcode="while", trips=trips, body=(COPY, DONE, *steps))
    program = Program(name="p", chip="v5e", steps=(loop, KERNEL))
    with pytest.MonkeyPatch.context() as patch:
        runs = [simulate_pod([program], load_chip("v5e"))]
        patch.setattr(control, "_known_trips", lambda *_: None)
        runs.append(simulate_pod([program], load_chip("v5e")))
    known, played = ([timeline.records for timeline in run.timelines] for run in runs)
    assert known == played
    assert [timeline.total_ps for timeline in runs[0].timelines] == [
        timeline.total_ps for timeline in runs[1].timelines
    ]


@pytest.mark.parametrize("trips", [30, 60])
def test_choices_in_trips_that_were_played_before_are_bounded(monkeypatch, trips):
    """A trip of 64 choices takes a while even if it is like another; what a trip holds multiplies."""
    monkeypatch.setattr(world, "_MOST_REPLAYED", 200)
    alternating = Branch(name="b", opcode="conditional", branches=((KERNEL,), (SLOWER,)), choices=(Choice((0, 1)),))
    inner = Loop(name="i", opcode="while", trips=64, body=(alternating,))
    loop = Loop(name="l", opcode="while", trips=trips, body=(inner,))
    refused = pytest.raises(UnsupportedError, match="or 6,400 choices in them, found more")
    with nullcontext() if trips == 30 else refused:
        run("v5e:1x1", loop)


def test_a_loop_beside_a_long_copy_fills_no_memory():
    """Nothing is alike while the copy is under way; a few rounds of many steps are enough to know the rest."""
    body = tuple(msgspec.structs.replace(KERNEL, name=f"k{number}") for number in range(5000))
    loop = Loop(name="l", opcode="while", trips=10**6, body=body)
    copy = Copy(name="c", opcode="copy-start", n_bytes=1e18)
    run = simulate_pod([Program(name="p", chip="v5e", steps=(copy, loop))], load_chip("v5e"))
    assert len(run.timelines[0].records) < 2**17
    assert sum(record.count for record in run.timelines[0].records if record.is_kernel) == 5000 * 10**6


def test_a_device_by_itself_is_not_given_what_others_send():
    """Its trips are played once for each choice; what the links carried meanwhile was other devices'."""
    alternating = Branch(name="b", opcode="conditional", branches=((KERNEL,), (SLOWER,)), choices=(Choice((0, 1)),))
    loop = Loop(name="l", opcode="while", trips=100, body=(alternating,))
    sums = collective("all-reduce", 1e6, ((2, 3),))
    both = run("v5e:2x2", only((0,), loop, name="own"), only((2, 3), sums, name="others"), apart=True)
    alone = run("v5e:2x2", only((2, 3), sums, name="others"), apart=True)
    assert sum(link.n_bytes for link in both.links) == sum(link.n_bytes for link in alone.links) > 0


def test_cores_beside_each_other_count_their_own_trips():
    """A loop of the core repeats nothing that a call does meanwhile, which began before it."""
    inner = Loop(name="inner", opcode="while", trips=1000, body=(KERNEL,))
    beside = Call(name="beside", opcode="async-start", body=(inner,), is_async=True)
    loop = Loop(name="outer", opcode="while", trips=500, body=(SLOWER, READING))
    end = Wait(name="end", opcode="async-done", needs=("beside",))
    program = Program(name="p", chip="v5e", steps=(beside, loop, end))
    records = simulate_pod([program], load_chip("v5e")).timelines[0].records
    counts = Counter()
    for record in records:
        counts[record.name] += record.count * record.is_kernel
    assert counts == Counter({"k": 1000, "t": 500, "s": 500})


def test_calls_of_calls_beside_the_core_end():
    """Forty levels of calling twice, which nothing can be told of by one run: in seconds, with all executions."""
    steps = (KERNEL,)
    for level in range(40):
        steps = tuple(Call(name=f"c{level}{side}", opcode="call", body=steps) for side in "ab")
    beside = Call(name="beside", opcode="async-start", body=steps, is_async=True)
    end = Wait(name="end", opcode="async-done", needs=("beside",))
    run = simulate_pod([Program(name="p", chip="v5e", steps=(beside, *steps, end))], load_chip("v5e"))
    for row in ("core", "sparsecore"):
        assert sum(r.count for r in run.timelines[0].records if r.is_kernel and r.row == row) == 2**40


def test_devices_that_wait_in_calls_of_calls_are_refused():
    """Each call is played, as its devices differ: more than can be."""
    steps = (collective("all-reduce", 1e3, ((0, 1),)),)
    for level in range(40):
        steps = tuple(Call(name=f"c{level}{side}", opcode="call", body=steps) for side in "ab")
    with pytest.raises(UnsupportedError, match=r"expected a run of at most .* records"):
        run("v5e:2x2", only((0,), KERNEL, name="own"), *steps, apart=True)


@pytest.mark.parametrize("most", [0, 2**14])
def test_links_carry_all_trips_of_devices_that_are_ahead(monkeypatch, most):
    """Two pairs of devices, one of them far slower: 1,000 trips with a megabyte each are as many bytes for both."""
    monkeypatch.setattr(world, "_PLAYED_RECORDS", most)
    slow = tuple(msgspec.structs.replace(KERNEL, name=f"k{number}") for number in range(20))
    sent = [collective("collective-permute", 1e6, pairs=(pair,)) for pair in ((0, 1), (2, 3))]
    sent = [msgspec.structs.replace(one, name=f"p{number}") for number, one in enumerate(sent)]
    loop = Loop(name="l", opcode="while", trips=1000, body=(sent[0], only((2, 3), *slow, name="b"), sent[1]))
    links = run("v5e:2x2", loop, apart=True).links
    assert {(use.chip, use.n_bytes) for use in links} == {(0, 1e9), (2, 1e9)}


def test_loops_in_loops_are_played_once_where_enough_was():
    """Each level would else play some trips more, and levels multiply: eight of a thousand trips."""
    steps = (KERNEL, collective("all-reduce", 1e6, ((0, 1, 2, 3),)))
    for number in range(8):
        steps = (KERNEL, Loop(name=f"l{number}", opcode="while", trips=1000, body=steps))
    copy = msgspec.structs.replace(COPY, n_bytes=1e15)
    timelines = run("v5e:2x2", copy, *steps, apart=True).timelines
    assert sum(len(timeline.records) for timeline in timelines) < 2**15
    played = sum(record.count for record in timelines[0].records if record.opcode == "all-reduce")
    assert played == 1000**8


def test_links_carry_what_they_do_if_all_is_played(monkeypatch):
    """Devices in a ring are at different places of their trips when enough of them were played."""
    played = tpusim.simulate(TRACES / "ring_matmul.v7x_4x4x4.hlo.txt.gz")
    monkeypatch.setattr(world, "_PLAYED_RECORDS", 0)
    monkeypatch.setattr(world, "_PLAYED_TIMES", 1)
    skipped = tpusim.simulate(TRACES / "ring_matmul.v7x_4x4x4.hlo.txt.gz")
    assert len(skipped.timeline.records) < len(played.timeline.records)
    assert skipped.pod.links == played.pod.links


@pytest.mark.parametrize("is_async", [True, False])
def test_what_is_chosen_in_calls_goes_on_from_call_to_call(is_async):
    """Of ten calls beside the core, or on it, the first takes one branch and the others another."""
    choice = Branch(name="b", opcode="conditional", branches=((), (KERNEL,)), choices=(Choice((0, *[1] * 9)),))
    call = Call(name="c", opcode="call", body=(choice,), is_async=is_async)
    end = Wait(name="end", opcode="async-done", needs=("c",))
    loop = Loop(name="l", opcode="while", trips=10, body=(call, end) if is_async else (call,))
    records = simulate_pod([Program(name="p", chip="v5e", steps=(loop,))], load_chip("v5e")).timelines[0].records
    assert sum(record.count for record in records if record.is_kernel) == 9


def sent(pair, n_bytes: float, name: str):
    """Return a permute between two devices."""
    return msgspec.structs.replace(collective("collective-permute", n_bytes, pairs=(pair,)), name=name)


def link_bytes(run) -> dict[tuple[int, str], float]:
    """Return the bytes that each link carried."""
    return {(use.chip, use.way): use.n_bytes for use in run.links}


def test_links_carry_once_what_is_sent_before_a_loop():
    """Two devices are late by a message of their own: the trips of the others do not multiply it."""
    first = [sent((0, 3), 2.0**26, f"s{number}") for number in range(2)]
    loop = Loop(name="l", opcode="while", trips=1000, body=(collective("all-reduce", 4096, ((0, 1, 2, 3),)),))
    parts = [link_bytes(run("v5e:2x2", *steps, apart=True)) for steps in (first, [loop], [*first, loop])]
    assert parts[2] == {link: sum(one.get(link, 0.0) for one in parts[:2]) for link in parts[0] | parts[1]}


def in_a_row(text: str, before, body, trips: int, after):
    """Return the picoseconds of a loop between other steps, and those of its trips one after the other, in no loop."""
    loop = Loop(name="l", opcode="while", trips=trips, body=body)
    chosen = (*before, loop, *after), (*before, *body * trips, *after)
    found = [run(text, *steps, apart=True) for steps in chosen]
    overhead_ps = trips * load_chip("v5e").fixed.loop_iteration_seconds * 1e12
    return found[0].last.total_ps - overhead_ps, found[1].last.total_ps


def kernel(ops: float) -> Kernel:
    """Return a kernel of so many operations."""
    return Kernel(name=f"k{ops}", opcode="fusion", work=Work(ops={"vector": ops}))


def test_groups_that_share_links_drift_past_each_other():
    """Each has a pace of its own, for which the others are now in the way and now not."""
    pairs = tuple((4 * row + first, 4 * row + first + 2) for row in range(4) for first in (0, 1))
    odd = tuple(range(1, 16, 2))
    body = (kernel(1e6), only(odd, kernel(1e4), name="more"), collective("all-reduce", 4e6, pairs))
    looped, played = in_a_row("v5e:4x4", (only(odd, kernel(1e6), name="late"),), body, 400, ())
    assert looped == pytest.approx(played, rel=0.01)


@pytest.mark.parametrize("trips", [100, 200, 400])
def test_devices_that_have_jumped_do_not_make_trips_longer(trips):
    """What they do next is in the way of those that are still in the loop, for some of their trips and not for all."""
    body = (sent((0, 7), 8.4e6, "p"), kernel(3e5))
    looped, played = in_a_row("v5e:2x4", (), body, trips, (sent((3, 5), 134e6, "q"),))
    assert looped == pytest.approx(played, rel=0.04)
