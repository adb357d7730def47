"""What each record of a run had to wait for, as a graph of events: ends of records, and meetings of devices.

The core issues steps in order, so that each of its records follows the one before. What runs beside the core follows
the record after which it was issued, and what needs it follows its end. A collective of several devices begins when
they have met: when the last of its group has come. Waits are elastic, all else lasts as long as it did. Played trips of
a loop stand for all of them: where the clock jumps over the others nothing may move.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tpusim.nesting import depth_first
from tpusim.program.module import Program, inner_lists
from tpusim.program.steps import AnyStep, Call, ChannelTransfer, Steps, Wait
from tpusim.timeline.records import CORE, SPARSECORE, PodRun, Record, Repeat, Timeline


class Edge(NamedTuple):
    """An event that another one is apart from by so much at least."""

    event: int
    lag_ps: int


class Issued(NamedTuple):
    """The records of steps that follow each other: their places in their order, and when they ended."""

    places: list[int]
    ends_ps: list[int]


_NOTHING = Issued([], [])


class Lane(NamedTuple):
    """One of the time lines of a run that differ: its records, the devices that it is of, what the core issued, and
    what each asynchronous call did.

    ``jumps_ps`` says by when the clock jumps to when it arrives. ``steps`` are those that its records number, and
    ``callers`` the calls that start a call; none of a program beside the first.
    """

    records: tuple[Record, ...]
    devices: tuple[int, ...]
    core: Issued
    calls: dict[str, Issued]
    repeats: tuple[Repeat, ...]
    jumps_ps: dict[int, set[int]]
    steps: tuple[AnyStep, ...]
    callers: dict[str, set[str]]

    def step_of(self, record: Record) -> AnyStep | None:
        """Return the step of a record, None where it is not known."""
        return self.steps[record.step] if 0 <= record.step < len(self.steps) else None

    def is_wait(self, record: Record) -> bool:
        """Return whether a record is of nothing but waiting."""
        return record.is_wait or isinstance(self.step_of(record), Wait)

    def issuer(self, record: Record) -> int | None:
        """Return the record after which something was issued beside the core, None at the start of the run.

        It is one of the same call, if that was under way, else of one that starts it, else the core's.
        """
        calls = [record.call]
        for call in calls:
            own = self._before(self.calls.get(call, _NOTHING), record)
            if own is not None and self._leads_to(self.records[own].end_ps, record.start_ps):
                return own
            # It may have been the first thing that a caller did.
            calls += [caller for caller in sorted(self.callers.get(call, ())) if caller not in calls]
        return self._before(self.core, record)

    def _leads_to(self, end_ps: int, start_ps: int) -> bool:
        """Return whether the clock goes from one moment to another at once: they are one, or it jumps there."""
        todo = [end_ps]
        while todo and start_ps not in todo:
            todo += [until_ps for until_ps in self.jumps_ps.get(todo.pop(), ()) if until_ps <= start_ps]
        return bool(todo)

    def _before(self, issued: Issued, record: Record) -> int | None:
        """Return the last of some records that had ended when another one began."""
        for number in reversed(range(bisect_right(issued.ends_ps, record.start_ps))):
            before = self.records[issued.places[number]]
            # A wait that took no time may stand later in the program and end at the same moment.
            if not before.start_ps == before.end_ps == record.start_ps or before.step < record.step:
                return issued.places[number]
        return None


class Graph:
    """The events of a run by number: when each was, what came after it, and what before.

    ``ends`` has the event of the end of each record by lane, ``records`` the other way round; none of a meeting.
    ``starts`` has the event that a record had to begin after: where devices met, else None.
    """

    def __init__(self, program: Program, run: PodRun) -> None:
        self.lanes = _lanes(program, run)
        self.times_ps: list[int] = []
        self.after: list[list[Edge]] = []
        self.before: list[list[Edge]] = []
        self.records: list[tuple[int, int] | None] = []
        self.meetings: dict[int, int] = {}
        self._fixed: set[int] = set()
        self._shared: dict[tuple[object, ...], int] = {}
        self._lane_of = {device: number for number, lane in enumerate(self.lanes) for device in lane.devices}
        self.ends = [
            [self._event(record.end_ps, (number, place)) for place, record in enumerate(lane.records)]
            for number, lane in enumerate(self.lanes)
        ]
        self._beside = [self._started(number, lane) for number, lane in enumerate(self.lanes)]
        self._arrivals: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, lane in enumerate(self.lanes):
            for place, before in _followed(lane):
                self._add(number, place, before)
        self._join_partners()

    def _event(self, time_ps: int, record: tuple[int, int] | None) -> int:
        self.times_ps.append(time_ps)
        self.records.append(record)
        self.after.append([])
        self.before.append([])
        return len(self.times_ps) - 1

    def _started(self, number: int, lane: Lane) -> dict[str, list[int]]:
        """Return the ends of what ran beside a core in order, by the name under which it was started."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, record in enumerate(lane.records):
            if record.row != CORE:
                # What a call starts beside itself is waited for in the call, by its own name.
                found[record.call if record.row == SPARSECORE else record.name].append(self.ends[number][place])
        return found

    def _add(self, number: int, place: int, before: int | None) -> None:
        """Let a record follow the one before it and what it needs, or the meeting that they lead to."""
        lane, end = self.lanes[number], self.ends[number][place]
        record = lane.records[place]
        lag_ps = 0 if lane.is_wait(record) else record.duration_ps - record.late_ps
        target = end
        meeting = self._meeting(number, lane, record)
        if meeting is not None:
            self.meetings[end] = meeting
            self._join(meeting, end, lag_ps)
            target, lag_ps = meeting, 0
        sources = [] if before is None else [self.ends[number][before]]
        for source in sources:
            # The core is never idle without a record that says so, but in trips and visits that are counted elsewhere.
            may_jump = record.row == CORE or self.times_ps[source] in lane.jumps_ps
            if may_jump and record.start_ps > self.times_ps[source]:
                self._fixed.add(source)
        for source in (*sources, *self._needed(number, lane, record)):
            self._join(source, target, lag_ps)
        if record.group_size:
            self._arrivals[_meeting_of(record, record.start_ps)] += sources

    def _join_partners(self) -> None:
        """Let a meeting follow the partner that came last, where that one has another moment for its own.

        Who sends to one device and receives from another has met both when the later one has come.
        """
        for key, meeting in self._shared.items():
            meets_ps = self.times_ps[meeting]
            if all(self.times_ps[edge.event] + edge.lag_ps < meets_ps for edge in self.before[meeting]):
                for source in self._arrivals.get(key, ()):
                    self._join(source, meeting, 0)

    def _join(self, source: int, target: int, lag_ps: int) -> None:
        self.after[source].append(Edge(target, lag_ps))
        self.before[target].append(Edge(source, lag_ps))

    def _meeting(self, number: int, lane: Lane, record: Record) -> int | None:
        """Return the event at which devices have met for a record, None where it has to meet nobody."""
        if len(self.lanes) < 2 or lane.is_wait(record):
            return None
        meets_ps = record.start_ps + record.late_ps
        if record.group_size:
            # Groups that were complete at the same moment are taken for one.
            key = _meeting_of(record, meets_ps)
        elif record.peer >= 0:
            key = ("message", self._lane_of[record.peer], meets_ps)
        elif isinstance(step := lane.step_of(record), ChannelTransfer) and not step.is_send:
            key = ("message", number, meets_ps)
        else:
            return None
        if key not in self._shared:
            self._shared[key] = self._event(meets_ps, None)
        return self._shared[key]

    def _needed(self, number: int, lane: Lane, record: Record) -> Iterator[int]:
        """Yield the ends of what ran beside the core and had to end before a record could."""
        step = lane.step_of(record)
        for name in step.needs if step is not None else ():
            ended = [event for event in self._beside[number].get(name, ()) if self.times_ps[event] <= record.end_ps]
            if ended:
                yield ended[-1]

    def latest_ps(self, end_ps: int) -> list[int]:
        """Return how late each event may be for the run to end at ``end_ps`` all the same."""
        latest = [end_ps] * len(self.times_ps)
        left = [len(edges) for edges in self.after]
        ready = [event for event, count in enumerate(left) if not count]
        while ready:
            event = ready.pop()
            if event in self._fixed:
                latest[event] = self.times_ps[event]
            for edge in self.after[event]:
                latest[event] = min(latest[event], latest[edge.event] - edge.lag_ps)
            for edge in self.before[event]:
                left[edge.event] -= 1
                if not left[edge.event]:
                    ready.append(edge.event)
        return latest

    def cause(self, event: int) -> int | None:
        """Return the event that another one had to wait for longest, None at the start of the run."""
        edges = self.before[event]
        if not edges:
            return None
        return max(edges, key=lambda edge: (self.times_ps[edge.event] + edge.lag_ps, -edge.event)).event


def _meeting_of(record: Record, time_ps: int) -> tuple[object, ...]:
    return "collective", record.step, record.name, time_ps


def _followed(lane: Lane) -> Iterator[tuple[int, int | None]]:
    """Yield the place of each record of a lane with that of the one that it follows, None at the start of the run."""
    before: int | None = None
    for place in lane.core.places:
        yield place, before
        before = place
    for place, record in enumerate(lane.records):
        if record.row != CORE:
            yield place, lane.issuer(record)


def _lanes(program: Program, run: PodRun) -> list[Lane]:
    shared: dict[int, list[Timeline]] = defaultdict(list)
    for timeline in run.timelines:
        # Devices that were simulated as one share their records.
        shared[id(timeline.records)].append(timeline)
    return [_lane(program, timelines) for timelines in shared.values()]


def _lane(program: Program, timelines: Sequence[Timeline]) -> Lane:
    records = timelines[0].records
    issued: dict[str, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        if record.row in (CORE, SPARSECORE):
            issued[record.call].append(place)
    found = {call: _in_order(records, places) for call, places in issued.items()}
    is_own = timelines[0].program == program.name
    jumps_ps: dict[int, set[int]] = defaultdict(set)
    for repeat in timelines[0].repeats:
        if repeat.end_ps > repeat.start_ps:
            jumps_ps[repeat.start_ps].add(repeat.end_ps)
    return Lane(
        records=records,
        devices=tuple(timeline.device for timeline in timelines),
        core=found.pop("", _NOTHING),
        calls=found,
        repeats=timelines[0].repeats,
        jumps_ps=jumps_ps,
        steps=program.every_step if is_own else (),
        callers=_callers(program) if is_own else {},
    )


def _callers(program: Program) -> dict[str, set[str]]:
    """Return by the name of each asynchronous call the names of those that start it."""
    found: dict[str, set[str]] = defaultdict(set)
    for call in program.every_step:
        if not isinstance(call, Call) or not call.is_async:
            continue
        for step in depth_first(call.body, _own_lists):
            if isinstance(step, Call) and step.is_async:
                found[step.name].add(call.name)
    return found


def _own_lists(step: AnyStep) -> dict[int, Steps]:
    """Return the lists of steps that a step holds, but for those that it starts beside itself, by identity."""
    if isinstance(step, Call) and step.is_async:
        return {}
    return {id(listed): listed for listed in inner_lists(step)}


def _in_order(records: Sequence[Record], places: list[int]) -> Issued:
    places.sort(key=lambda place: (records[place].end_ps, place))
    return Issued(places, [records[place].end_ps for place in places])
