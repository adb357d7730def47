"""The critical path of a run: what its end waits for; the slack of everything else; and what hides behind what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
from msgspec import structs

from tpusim.analysis.answers.caveats import NO_CAVEATS, Caveats
from tpusim.analysis.path.graph import Graph
from tpusim.analysis.path.hidden import Hidden, HiddenRest, hidden_behind
from tpusim.program.module import Program
from tpusim.timeline.records import PodRun, Record


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the critical path: what one device did from ``start_ps`` to ``end_ps``, ``count`` times in all.

    ``start_ps`` is when all that it needs had come. ``row`` is the core's or that of what runs beside it.
    """

    name: str
    opcode: str
    category: str
    line: int
    source: str
    device: int
    row: str
    start_ps: int
    end_ps: int
    count: int
    bound_by: str

    @property
    def total_ps(self) -> int:
        """What it adds to the time of the run."""
        return (self.end_ps - self.start_ps) * self.count


class OnPath(msgspec.Struct, frozen=True, kw_only=True):
    """An op on the critical path: what it adds to the time of the run, and how often."""

    name: str
    opcode: str
    category: str
    line: int
    source: str
    row: str
    time_ps: int
    count: int


class Slack(msgspec.Struct, frozen=True, kw_only=True):
    """How much later an op may start, one execution of it, without moving the end of the run.

    Of several executions it is that of the tightest. Everything else is taken to last as long as it did; what nothing
    waits for may end with the run.
    """

    name: str
    opcode: str
    line: int
    source: str
    row: str
    time_ps: int
    slack_ps: int


class CriticalPath(Caveats, frozen=True, kw_only=True):
    """What the end of a run waits for, back to its start.

    ``stretches`` follow each other and add up to ``total_ps`` with their counts. ``slacks`` are those of the device
    that ended last, the largest first; ``hidden`` is what ran behind what on it, and ``hidden_rest`` what more of each
    transfer, where there is too much to tell apart.
    """

    program: str
    chip: str
    device: int
    total_ps: int
    stretches: tuple[Stretch, ...]
    slacks: tuple[Slack, ...]
    hidden: tuple[Hidden, ...]
    hidden_rest: tuple[HiddenRest, ...] = ()

    @property
    def ops(self) -> tuple[OnPath, ...]:
        """The path by op, what adds most first."""
        found: dict[tuple[str, int], list[Stretch]] = defaultdict(list)
        for stretch in self.stretches:
            found[stretch.name, stretch.line].append(stretch)
        ops = [_on_path(stretches) for stretches in found.values()]
        return tuple(sorted((op for op in ops if op.time_ps), key=lambda op: -op.time_ps))

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that the path goes through, in order; one comes again where it does."""
        numbers = [stretch.device for stretch in self.stretches]
        return tuple(n for place, n in enumerate(numbers) if not place or numbers[place - 1] != n)


def critical_path(program: Program, run: PodRun, caveats: Caveats = NO_CAVEATS) -> CriticalPath:
    """Return what the end of a run of ``program`` waits for, and what could have come later for nothing."""
    graph, last = Graph(program, run), run.last
    hidden, rest = hidden_behind(last.records)
    own = next(number for number, lane in enumerate(graph.lanes) if last.device in lane.devices)
    return CriticalPath(
        program=program.name,
        chip=last.chip,
        device=last.device,
        total_ps=last.total_ps,
        stretches=_counted(graph, _stretches(graph, own), last.total_ps),
        slacks=_slacks(graph, own, last.total_ps),
        hidden=hidden,
        hidden_rest=rest,
        **structs.asdict(caveats),
    )


def _stretches(graph: Graph, lane: int) -> tuple[Stretch, ...]:
    """Return the path that ends with the last record of a lane's core, the first stretch first."""
    core = graph.lanes[lane].core.places
    event: int | None = graph.ends[lane][core[-1]] if core else None
    found = []
    while event is not None:
        place, cause = graph.records[event], graph.cause(event)
        if place is not None:
            record = graph.lanes[place[0]].records[place[1]]
            since_ps = record.start_ps if cause is None else max(record.start_ps, graph.times_ps[cause])
            if record.end_ps > since_ps:
                found.append(_stretch(record, graph.lanes[place[0]].devices[0], since_ps))
        event = cause
    return tuple(reversed(found))


def _counted(graph: Graph, found: tuple[Stretch, ...], total_ps: int) -> tuple[Stretch, ...]:
    """Return the stretches of a path with counts by which they add up to the time of the run.

    As a rule these are their records'. Where a path leaves a device in the middle of a trip that is counted, the one
    that it goes on with may be in another trip: then what lies in a trip before the clock jumps is counted by the jump.
    """
    if sum(stretch.total_ps for stretch in found) == total_ps:
        return found
    repeats = {(one.start_ps, one.end_ps): one for lane in graph.lanes for one in lane.repeats}
    jumps = [repeats.get((before.end_ps, after.start_ps)) for before, after in pairwise(found)]
    trips = [(one.trip_start_ps, one.start_ps, 1 + one.trips) for one in jumps if one is not None]
    pieces = [piece for stretch in found for piece in _cut(stretch, [at for trip in trips for at in trip[:2]])]
    counts = [
        prod(count for begin_ps, end_ps, count in trips if begin_ps <= piece.start_ps < end_ps) for piece in pieces
    ]
    counted = tuple(structs.replace(piece, count=count) for piece, count in zip(pieces, counts, strict=True))
    return counted if sum(stretch.total_ps for stretch in counted) == total_ps else found


def _cut(stretch: Stretch, places_ps: Sequence[int]) -> Iterator[Stretch]:
    """Yield a stretch in pieces, cut at those places that lie in it."""
    inside = sorted({at for at in places_ps if stretch.start_ps < at < stretch.end_ps})
    for start_ps, end_ps in pairwise((stretch.start_ps, *inside, stretch.end_ps)):
        yield structs.replace(stretch, start_ps=start_ps, end_ps=end_ps)


def _stretch(record: Record, device: int, since_ps: int) -> Stretch:
    return Stretch(device=device, start_ps=since_ps, **_same(record, "end_ps", "count", "bound_by", "category"))


def _same(record: Record, *fields: str) -> dict[str, Any]:
    """Return what a part of a path takes over from a record."""
    return {name: getattr(record, name) for name in ("name", "opcode", "line", "source", "row", *fields)}


def _on_path(stretches: list[Stretch]) -> OnPath:
    first = stretches[0]
    return OnPath(
        **{name: getattr(first, name) for name in ("name", "opcode", "category", "line", "source", "row")},
        time_ps=sum(stretch.total_ps for stretch in stretches),
        count=sum(stretch.count for stretch in stretches),
    )


def _slacks(graph: Graph, lane: int, end_ps: int) -> tuple[Slack, ...]:
    """Return the slack of each op of a lane, the largest first."""
    latest, found = graph.latest_ps(end_ps), dict[tuple[str, int], list[tuple[Record, int]]]()
    for place, record in enumerate(graph.lanes[lane].records):
        if graph.lanes[lane].is_wait(record):
            continue
        end = graph.ends[lane][place]
        meeting = graph.meetings.get(end)
        slack_ps = latest[end] - record.end_ps if meeting is None else latest[meeting] - record.start_ps
        found.setdefault((record.name, record.line), []).append((record, slack_ps))
    slacks = [
        Slack(
            **_same(executions[0][0]),
            time_ps=sum(record.total_ps for record, _ in executions),
            slack_ps=min(slack_ps for _, slack_ps in executions),
        )
        for executions in found.values()
    ]
    return tuple(sorted(slacks, key=lambda slack: (-slack.slack_ps, -slack.time_ps)))
