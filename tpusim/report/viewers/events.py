"""The records of a run as the events of a profile or trace: every trip of a loop at its place on the clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tpusim.timeline.records import CORE, Record, Repeat, Timeline

MOST_EVENTS = 50_000
"""Viewers show so many within seconds; loops that would make more are drawn as one long trip."""


_MOST_TOGETHER = 2 * MOST_EVENTS
"""Of all devices of one file."""


def most_events(devices: int) -> int:
    """Return how many events each of some devices in one file may have."""
    return min(MOST_EVENTS, _MOST_TOGETHER // devices)


class Event(NamedTuple):
    """A stretch of the clock in which a record happened ``executions`` times, one after the other."""

    start_ps: int
    end_ps: int
    executions: int
    record: Record

    @property
    def duration_ps(self) -> int:
        """Length of all executions."""
        return self.end_ps - self.start_ps

    def busy_ps(self, unit: str) -> int:
        """Return how long a unit was busy in it; when is not known, and viewers draw it from the start."""
        return min(self.record.units.get(unit, 0) * self.executions, self.duration_ps)


def unrolled(timeline: Timeline, most: int = MOST_EVENTS) -> list[Event]:
    """Return the events of a run in order of their starts; a record of ``count`` executions happens so often.

    A loop that repeats has its trip drawn again for each repetition, or, where that would make more than ``most``
    events, one trip that is as much longer, of a single event for each record if even that is too much.
    """
    events = [Event(record.start_ps, record.end_ps, 1, record) for record in timeline.records]
    done = Counter({id(event.record): 1 for event in events})
    # Inner loops were recorded before outer ones, whose trips then contain what the inner ones have become.
    for repeat in timeline.repeats:
        trip = _trip(repeat, events, done)
        if len(events) + len(trip) * repeat.trips <= most:
            more = _again(repeat, trip)
        else:
            if len(events) + len(trip) > most:
                # Loops in loops double what a trip has.
                drawn = set(map(id, trip))
                trip = _merged(trip)
                events = [event for event in events if id(event) not in drawn] + trip
            more = _longer(repeat, trip)
        for record in {id(event.record): event.record for event in trip}.values():
            done[id(record)] *= 1 + repeat.trips
        events += more
    return sorted(events, key=lambda event: (event.start_ps, event.end_ps))


def _trip(repeat: Repeat, events: Sequence[Event], done: Counter[int]) -> list[Event]:
    """Return the events that ended in the trip before a repetition, as far as their records are to be repeated."""
    begin_ps = repeat.trip_start_ps
    times = 1 + repeat.trips
    due = [
        e
        for e in events
        if begin_ps <= e.end_ps <= repeat.start_ps and not e.record.count % (done[id(e.record)] * times)
    ]
    inside = [event for event in due if event.end_ps > begin_ps]
    # What ended on the very edge belongs to the trip if it happened as often as what is in it for sure, unless it is
    # the core's work before the trip.
    often = min((event.record.count for event in inside), default=times)
    edge = [e for e in due if e.end_ps == begin_ps and not e.record.count % often]
    return [e for e in edge if e.record.row != CORE or not e.duration_ps] + inside


def _again(repeat: Repeat, trip: Sequence[Event]) -> list[Event]:
    """Return the events of one trip at every repetition of it."""
    shifts = [number * repeat.trip_ps for number in range(1, repeat.trips + 1)]
    return [e._replace(start_ps=e.start_ps + s, end_ps=e.end_ps + s) for s in shifts for e in trip]


def _merged(trip: Sequence[Event]) -> list[Event]:
    """Return for each record of a trip one event, as long as all of its own, one after the other on each row."""
    of_each: dict[int, list[Event]] = defaultdict(list)
    for event in trip:
        of_each[id(event.record)].append(event)
    merged = []
    ends_ps: dict[str, int] = {}
    for events in of_each.values():
        first = events[0]
        start_ps = ends_ps.get(first.record.row, first.start_ps)
        end_ps = ends_ps[first.record.row] = start_ps + sum(event.duration_ps for event in events)
        merged.append(Event(start_ps, end_ps, sum(event.executions for event in events), first.record))
    return merged


def _longer(repeat: Repeat, trip: Sequence[Event]) -> list[Event]:
    """Return the events of one trip, drawn over all its repetitions."""

    def place(at_ps: int) -> int:
        # What came over from the trip before would begin before the loop does.
        return repeat.start_ps + (at_ps - repeat.trip_start_ps) * repeat.trips

    return [Event(place(e.start_ps), place(e.end_ps), e.executions * repeat.trips, e.record) for e in trip]
