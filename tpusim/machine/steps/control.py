"""Loops, branches, calls and waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any

from tpusim.machine.choices import Choices
from tpusim.machine.core import Activity, Core, Holding, at_once, runs
from tpusim.machine.costs import Traits
from tpusim.machine.device import Trips, Visit
from tpusim.machine.events import Event
from tpusim.machine.host.queues import WAIT_AT_QUEUE
from tpusim.machine.world import MOST_PLAYED_TRIPS, LoopWatch
from tpusim.program.steps import AnyStep, Branch, Call, Loop, Wait
from tpusim.timeline.records import SPARSECORE
from tpusim.units import seconds_to_ps


@runs(Wait)
def run_wait(_core: Core, _step: Wait) -> None:
    """Do nothing: what the step needs has ended."""


@runs(Loop)
def run_loop(core: Core, loop: Loop) -> Holding:
    """Run the trips of a loop, or let the clock jump over a visit like the ones before.

    The first trips of a visit find the host's queues as what is between the visits has left them: where enough was
    played, it is whole visits that stand for others.
    """
    watch, trips = _watch(core, loop), core.device.chooser.chosen(loop, loop.trips)
    begin_ps, mark, visits = core.now_ps, core.recorded.mark(), _visits_before(core, loop)
    if visits and (watch.was_enough if watch else core.device.world.played.is_enough and not _may_differ(core, loop)):
        # In turns: hosts that draw their times do so anew at each visit.
        visits.rotate()
        core.recorded.replay(visits[0].recorded, begin_ps)
        yield from _pass(core, loop, trips, visits[0].duration_ps)
        return
    yield from _run_trips(core, loop, trips, watch)
    if visits is not None:
        visits.append(_visited(core, begin_ps, mark))


def _run_trips(core: Core, loop: Loop, trips: int, watch: LoopWatch | None) -> Holding:
    """Run trips until one repeats the one before it exactly, then let the clock jump over the rest.

    A trip repeats if nothing was under way beside the core when it began and when it ended: then nothing tells the next
    one from it. Where devices wait for each other in the loop, all have to agree to jump.
    """
    device, done = core.device, 0
    known = _known_trips(core, loop)
    rounds = _Rounds(core, loop) if known else None
    played, before = _Played(core, loop), _Before(core)
    while done < trips:
        if rounds and (again := (yield from rounds.jump(done, trips))):
            done += again
            continue
        # Asked before the trip as well: a copy that lands during it makes it slower than those to come.
        was_alone, made = device.is_alone, device.chooser.made
        if known is not None and was_alone and (yield from _played_before(core, known)):
            done += 1
            continue
        mark, begin_ps = played.begin()
        if watch:
            watch.begin(device.number, done + 1)
        yield loop.condition
        yield from _jump(core, loop)
        yield loop.body
        done += 1
        if not watch and before.has_landed():
            played.forget()
            continue
        is_alone = was_alone and device.is_alone
        if known and rounds and is_alone and rounds.is_whole and (choices := device.chooser.kept(made)) is not None:
            _enter(known, choices, _visited(core, begin_ps, mark))
        if watch:
            was_alone = is_alone and not _is_paced(core, device.world.costs.loop(loop))
            is_enough = _are_enough(core, loop, done)
            watch.end(device.number, core.now_ps - begin_ps, was_alone=was_alone, is_enough=is_enough)
        steady_ps = _steady_ps(core, loop, watch, done, begin_ps if is_alone else None)
        if done < trips and steady_ps is not None:
            done += yield from played.jump(trips - done, steady_ps)
        elif done < trips and (done >= watch.enough_after if watch else _is_enough(core, loop, played.count)):
            done += yield from played.jump_in_rounds(trips - done)
    yield loop.condition


_LEAST_PACED_TRIPS = 16
"""Trips that are played of a loop that meets a host with a pace: the first ones find its queues full, or empty."""

_MOST_VISITS = 64
"""Visits of such a loop that stand for others, in turns."""


class _Before:
    """What was under way beside a core before it came to some steps."""

    def __init__(self, core: Core) -> None:
        self._device = core.device
        self._begun, self._left = core.device.under_way.begun, len(core.device.under_way)

    def has_landed(self) -> bool:
        """Return whether some of it has landed since this was last asked, and the steps may be played without it.

        What goes on without it is not like that, and is faster.
        """
        before, self._left = self._left, self._device.under_way.up_to(self._begun)
        return self._left < before and self._device.world.played.has_room


class _Played:
    """The trips of one visit to a loop that were played: where each begins in what is recorded, and on the clock."""

    def __init__(self, core: Core, loop: Loop) -> None:
        self._core = core
        self._loop = loop
        self._begins: deque[tuple[int, int]] = deque(maxlen=MOST_PLAYED_TRIPS)
        # How many of the last trips are a round, and how many are still to be played before rounds make up the rest.
        self._round = self._to_play = 0

    def begin(self) -> tuple[int, int]:
        """Note that a trip begins; return its place in what is recorded and the time."""
        self._begins.append((self._core.recorded.mark(), self._core.now_ps))
        return self._begins[-1]

    @property
    def count(self) -> int:
        """How many trips may stand for others."""
        return len(self._begins)

    def forget(self) -> None:
        """Let the trips that were played so far stand for no others."""
        self._begins.clear()
        self._round = self._to_play = 0

    def jump(self, left: int, steady_ps: int) -> Generator[Event, Any, int]:
        """Let the clock jump over the trips that are left, as long as steady ones are; return how many these were.

        Devices that have jumped make a trip of those that have not another one: what is counted is the last that was
        as long.
        """
        ends = [(self._core.recorded.mark(), self._core.now_ps), *reversed(self._begins)]
        lengths_ps = [end[1] - begin[1] for end, begin in pairwise(ends)]
        at = lengths_ps.index(steady_ps) if steady_ps in lengths_ps else 0
        yield from _count(self._core, self._loop, (ends[at + 1][0], ends[at][0]), left, steady_ps, 1)
        return left

    def jump_in_rounds(self, left: int) -> Generator[Event, Any, int]:
        """Let the clock jump over the trips that are left, once whole rounds of those that were played make them up.

        No trip is like another one, so that as many as possible stand for those to come; not the first, for which
        others may have come late. Return how many were jumped over.
        """
        if not self._round:
            most = max(1, len(self._begins) - 1)
            self._round = min(range(most, most // 2, -1), key=lambda length: left % length)
            self._to_play = left % self._round
        if self._to_play:
            self._to_play -= 1
            return 0
        begin, begin_ps = self._begins[-self._round]
        times, round_ps = left // self._round, self._core.now_ps - begin_ps
        if len(self._begins) > 1:
            device = self._core.device
            device.world.steady_ps[id(self._loop), device.number] = round_ps // self._round
        yield from _count(self._core, self._loop, (begin, self._core.recorded.mark()), times, round_ps, self._round)
        return left


_SHOWN_TRIPS = 2**10
"""Of a loop in which something is chosen: its first visit shows as many, each by itself, before rounds are counted."""


class _Rounds:
    """What is about to be chosen at the trips of one visit to a loop, which comes again after some: those are a round.

    Rounds repeat as trips do where nothing is under way beside the core when each of their trips begins. What was
    chosen in rounds that were jumped over is written down nowhere: what contains them is not kept by what was chosen.
    """

    def __init__(self, core: Core, loop: Loop) -> None:
        self._core, self._loop, self._jumps = core, loop, core.device.chooser.jumps
        self._begun: dict[tuple[int, ...], tuple[int, int, int]] = {}
        self._before = _Before(core)

    @property
    def is_whole(self) -> bool:
        """Whether all has been written down that was chosen in this visit, or within it."""
        return self._core.device.chooser.jumps == self._jumps

    def jump(self, done: int, trips: int) -> Generator[Event, Any, int]:
        """Let the clock jump over the rounds to come, if a round has just ended; return how many trips these are."""
        core = self._core
        visited = id(self._loop), core.call
        if done < _SHOWN_TRIPS and visited not in core.device.counted:
            return 0
        if self._before.has_landed() or not core.device.is_alone:
            self._begun.clear()
            return 0
        state = core.device.chooser.state(self._loop)
        if state not in self._begun:
            self._begun[state] = done, core.now_ps, core.recorded.mark()
            return 0
        first, begin_ps, mark = self._begun[state]
        rounds = (trips - done) // (done - first)
        self._begun.clear()
        if not rounds:
            return 0
        core.device.chooser.jumps += 1
        core.device.counted.add(visited)
        yield from _count(core, self._loop, (mark, core.recorded.mark()), rounds, core.now_ps - begin_ps, done - first)
        return rounds * (done - first)


def _count(core: Core, loop: Loop, span: tuple[int, int], times: int, round_ps: int, round_trips: int) -> Activity:
    """Count the trips that were recorded between two marks so many times more, and let the clock jump over that."""
    rest_ps = times * round_ps
    core.recorded.repeat(loop.name, span, (core.now_ps, core.now_ps + rest_ps), times)
    yield from _pass(core, loop, times * round_trips, rest_ps)


def _pass(core: Core, loop: Loop, trips: int, rest_ps: int) -> Activity:
    """Let the clock jump over trips of a loop that take ``rest_ps``, or longer if the host does at its pace."""
    begin_ps, meetings = core.now_ps, core.device.host.meetings(loop, trips)
    yield core.env.timeout(rest_ps)
    if meetings:
        slowest = max(meetings, key=lambda meeting: meeting.least_ps)
        if slowest.least_ps > rest_ps:
            yield core.env.timeout(slowest.least_ps - rest_ps)
            core.record(slowest.step, begin_ps + rest_ps, bound_by=WAIT_AT_QUEUE[slowest.step.to_host], is_wait=True)
    for meeting in meetings:
        core.device.host.land(meeting, core.now_ps - begin_ps)


def _jump(core: Core, step: AnyStep) -> Activity:
    """Take what the scalar core needs to go on somewhere else."""
    start_ps = core.now_ps
    yield core.env.timeout(seconds_to_ps(core.device.chip.fixed.loop_iteration_seconds))
    core.record(step, start_ps, bound_by="latency")


def _waits_for_others(core: Core, traits: Traits) -> bool:
    """Return whether a device waits for others in some steps: then it must not jump unless they do."""
    world = core.device.world
    return not world.for_all and world.member_count > 1 and traits.communicates


def _is_paced(core: Core, traits: Traits) -> bool:
    """Return whether some steps meet a host that has a pace of its own, or others to serve: no run is like another."""
    host = core.device.host
    has_pace = host.infeed is not None or host.outfeed is not None
    return traits.meets_host and (has_pace or core.device.shares_host_link)


def _watch(core: Core, loop: Loop) -> LoopWatch | None:
    """Return the watch over this visit to a loop, None where each device goes through it by itself."""
    world, visit = core.device.world, core.device.chooser.visit(("loop", id(loop)))
    traits = world.costs.loop(loop)
    if not _waits_for_others(core, traits) or not world.is_one_program or traits.varies:
        return None
    if any(choice.devices for choice in loop.choices):
        return None
    key = id(loop), visit
    if key not in world.loop_watches:
        least_trips = _least_trips(core, loop) if world.played.is_enough else 0
        patience = partial(_patience, core, loop)
        watch = LoopWatch(len(world.cohorts), patience, least_trips=least_trips)
        world.loop_watches[key] = watch
    return world.loop_watches[key]


def _patience(core: Core, loop: Loop) -> float:
    """Return how many trips without a change tell that none is to come, where groups of devices keep their paces."""
    world = core.device.world
    return world.member_count if world.costs.are_apart(loop, core.device.cohort.devices) else inf


def _steady_ps(core: Core, loop: Loop, watch: LoopWatch | None, done: int, begin_ps: int | None) -> int | None:
    """Return how long each trip to come is, by what is known of this visit or one before, None if that is nothing yet.

    ``begin_ps`` is when the trip began that has just ended, None if something else was under way.
    """
    number, known = core.device.number, core.device.world.steady_ps
    if watch:
        if done == watch.steady_after:
            known[id(loop), number] = watch.length_ps(number)
        is_due = done == watch.steady_after or done >= watch.enough_after
        return known.get((id(loop), number)) if is_due else None
    traits = core.device.world.costs.loop(loop)
    stands_alone = not (traits.varies or _waits_for_others(core, traits) or _is_paced(core, traits))
    return core.now_ps - begin_ps if stands_alone and begin_ps is not None else None


def _is_enough(core: Core, loop: Loop, done: int) -> bool:
    """Return whether the trips that a device by itself has played stand for all to come."""
    return not _may_differ(core, loop) and _are_enough(core, loop, done)


def _are_enough(core: Core, loop: Loop, done: int) -> bool:
    """Return whether so many trips of a visit were played that they stand for the rest."""
    return core.device.world.is_enough(done) and done >= _least_trips(core, loop)


def _least_trips(core: Core, loop: Loop) -> int:
    """Return how many trips of a visit have to be played, though enough was played before."""
    device = core.device
    is_first_special = _meets_queue(core, loop) and not device.world.played.is_spent
    return _LEAST_PACED_TRIPS if is_first_special else 1


def _may_differ(core: Core, loop: Loop) -> bool:
    """Return whether visits or trips of a device by itself are unlike others, whatever was played."""
    traits = core.device.world.costs.loop(loop)
    return traits.varies or _waits_for_others(core, traits) or (traits.meets_host and core.device.host.will_end)


def _meets_queue(core: Core, loop: Loop) -> bool:
    """Return whether a loop meets a host that has a pace of its own."""
    host = core.device.host
    return core.device.world.costs.loop(loop).meets_host and (host.infeed is not None or host.outfeed is not None)


def _visits_before(core: Core, loop: Loop) -> deque[Visit] | None:
    """Return the last visits that were played to a loop that meets a host with a pace; None for another loop."""
    if not _meets_queue(core, loop):
        return None
    return core.device.paced_visits.setdefault((id(loop), core.call), deque(maxlen=_MOST_VISITS))


def _known_trips(core: Core, loop: Loop) -> Trips | None:
    """Return the trips of a loop by what is chosen in them; None where that is not all that tells them apart."""
    traits = core.device.world.costs.loop(loop)
    if not traits.varies or _waits_for_others(core, traits) or _is_paced(core, traits):
        return None
    return core.device.trips.setdefault((id(loop), core.call), Trips())


def _played_before(core: Core, trips: Trips) -> Generator[Event, Any, bool]:
    """Let the clock jump over a trip like which one was played before; return whether there is one."""
    choices: list[tuple[Loop | Branch, int]] = []
    ahead: Counter[int] = Counter()
    while trips.chooser is not None:
        number = core.device.chooser.ahead(trips.chooser, ahead[id(trips.chooser)])
        ahead[id(trips.chooser)] += 1
        choices.append((trips.chooser, number))
        after = trips.after(number)
        if after is None:
            return False
        trips = after
    if trips.visit is None:
        return False
    core.device.chooser.choose(choices)
    core.device.world.played.replay(len(choices))
    yield from _again(core, trips.visit)
    return True


def _enter(trips: Trips, choices: Choices, visit: Visit) -> None:
    """Enter a trip that was played, under what was chosen in it."""
    for chooser, number in choices:
        trips.chooser = chooser
        trips = trips.going_on(number)
    trips.visit = visit


@runs(Branch)
def run_branch(core: Core, branch: Branch) -> Holding:
    """Run the branch that is taken."""
    yield from _jump(core, branch)
    if branch.branches:
        yield branch.branches[core.device.chooser.chosen(branch, branch.taken)]


@runs(Call)
def run_call(core: Core, call: Call) -> Holding | None:
    """Run a called computation here, or beside the core on the sparse cores."""
    if call.is_async:
        # At the costs of this core: how long a sparse core takes for a kernel is published nowhere.
        beside = core.beside(SPARSECORE, call.name)
        played = core.device.world.played
        ended = core.start(call, beside.run(call.body) if played.takes_call() else at_once(), "a call")
        ended.callbacks.append(played.call_ended)
        return None
    return _visit(core, call.body)


def _visit(core: Core, steps: tuple[AnyStep, ...]) -> Holding:
    """Run steps that several calls share, once where one time tells all: then let the clock jump over the others.

    As with a loop's trips, nothing tells two visits apart if nothing was under way beside the core when they began and
    when they ended.
    """
    device, begin_ps = core.device, core.now_ps
    if id(steps) not in device.cohort.program.shared_lists:
        yield steps
        return
    before, was_alone, known = _Before(core), device.is_alone, device.visits.get((id(steps), core.call))
    if was_alone and known is not None:
        yield from _again(core, known)
        return
    mark = core.recorded.mark()
    yield steps
    traits = device.world.costs.traits(steps)
    may_differ = traits.varies or _is_paced(core, traits) or _waits_for_others(core, traits)
    if was_alone and device.is_alone and not (may_differ or before.has_landed()):
        device.visits[id(steps), core.call] = _visited(core, begin_ps, mark)


def _visited(core: Core, begin_ps: int, mark: int) -> Visit:
    """Return what has been played since a moment."""
    return Visit(core.now_ps - begin_ps, core.recorded.fold(mark, begin_ps))


def _again(core: Core, visit: Visit) -> Activity:
    """Let the clock jump over what was played before."""
    begin_ps = core.now_ps
    yield core.env.timeout(visit.duration_ps)
    core.recorded.replay(visit.recorded, begin_ps)
