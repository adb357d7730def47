"""A run as a trace file that Perfetto opens: Chrome's JSON trace format, one row per engine and functional unit,
counters for memory and power, and arrows from what is sent or fetched to what waits for it.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the format: times are
microseconds, here with picoseconds after the point.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import structs

from tpusim.analysis.communication import classes
from tpusim.analysis.energy.run import record_energy
from tpusim.analysis.memory import memory_profile
from tpusim.analysis.path.critical import Stretch, critical_path
from tpusim.analysis.traffic import steady_rates
from tpusim.cost.models.energies import energy_model
from tpusim.files import write_whole
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, UNITS, VMEM, MemorySpace
from tpusim.program.module import Program, walk
from tpusim.report.lanes import Lanes
from tpusim.report.viewers.events import Event, most_events, unrolled
from tpusim.timeline.records import CORE, PodRun, Record, Timeline
from tpusim.units import PS_PER_US, fj_to_watts

# One device is one process of the format, and its rows are the threads.
_PROCESS = 1
_CORE_ROW = "XLA ops"
_PATH_ROW = "critical path"
_SPACES: tuple[MemorySpace, ...] = (HBM, VMEM)
# Bytes per picosecond are a thousand GB/s.
_GB_PER_SECOND = 1e3


def write_trace(run: PodRun, path: str | Path, program: Program | None = None, chip: Chip | None = None) -> None:
    """Write the trace, gzip-compressed if the name ends in ``.gz``. The same run always gives the same bytes."""
    # Without blanks, and without the time of writing in the header, which would differ from run to run. Event by event:
    # as Python's objects they take ten times the memory of their text.
    encode = json.JSONEncoder(separators=(",", ":")).encode
    events = ",".join(map(encode, _events(run, program, chip)))
    data = f'{{"traceEvents":[{events}],{encode(_about(run))[1:]}'.encode()
    write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def pod_trace_json(run: PodRun, program: Program | None = None, chip: Chip | None = None) -> dict[str, Any]:
    """Return a run of a pod: a process per class of equal devices, and an arrow from every send to its receive.

    Loops have all their trips; only where these would be too many one long trip, whose slices say of how many
    executions they are. ``program``, where it is known, tells what each op waits for, and how much memory is in use
    when; ``chip``, what power its devices draw.
    """
    return {"traceEvents": list(_events(run, program, chip)), **_about(run)}


def _about(run: PodRun) -> dict[str, Any]:
    other = {"simulated": True, "program": run.last.program, "chip": run.last.chip}
    return {"displayTimeUnit": "ns", "otherData": other}


def _events(run: PodRun, program: Program | None, chip: Chip | None) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace; arrows have numbers in place of names, as Perfetto takes no others."""
    numbers: dict[str, int] = {}
    for event in _named_events(run, program, chip):
        yield event | {"id": numbers.setdefault(event["id"], len(numbers) + 1)} if "id" in event else event


def _named_events(run: PodRun, program: Program | None, chip: Chip | None) -> Iterator[dict[str, Any]]:
    alike = classes(run)
    known = program is not None and program.name == run.last.program
    stretches = critical_path(program, run).stretches if program is not None and known else ()
    drawn: list[_Drawn] = []
    for number, (timeline, devices) in enumerate(alike, start=1):
        shown = f" device {devices[0]}" + (f" and {len(devices) - 1} alike" if len(devices) > 1 else "")
        if len(alike) == 1:
            shown = f" on {run.device_count} devices alike" if run.device_count > 1 else ""
        one = _Drawn(timeline, most_events(len(alike)))
        drawn.append(one)
        path = [stretch for stretch in stretches if stretch.device in devices]
        for event in chain(_process_events(one, shown, program, path), _power(one, chip)):
            yield event | {"pid": number}
    if len(alike) > 1:
        processes = {device: number for number, (_, devices) in enumerate(alike, start=1) for device in devices}
        yield from _arrows(drawn, processes)


class _Drawn:
    """A device's time line with all trips of its loops: events, each with the number of its row."""

    def __init__(self, timeline: Timeline, most: int) -> None:
        self.timeline = timeline
        self.most = most
        self.events = unrolled(timeline, most)
        self.rows = _Rows()
        self.placed = [(event, self.rows.row(event)) for event in self.events]
        self._details: dict[tuple[int, int], dict[str, Any]] = {}

    def details(self, event: Event) -> dict[str, Any]:
        """Return what is shown of an event; those of one record share it."""
        key = id(event.record), event.executions
        if key not in self._details:
            self._details[key] = _details(event)
        return self._details[key]


def _arrows(drawn: list[_Drawn], processes: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Yield the two events of an arrow for each send: where it starts, and where its receive has all."""
    ends = [sorted((e.end_ps, row) for e, row in one.placed if e.record.opcode == "recv") for one in drawn]
    for number, one in enumerate(drawn, start=1):
        for serial, (send, row) in enumerate(one.placed):
            peer = processes.get(send.record.peer)
            if peer is None:
                continue
            place = bisect_left(ends[peer - 1], (send.end_ps, 0))
            if place == len(ends[peer - 1]):
                continue
            end_ps, other = ends[peer - 1][place]
            mark = {"cat": "channel", "name": send.record.name, "id": f"{number}.{serial}"}
            yield {**mark, "ph": "s", "pid": number, "tid": row, "ts": send.start_ps / PS_PER_US}
            # Bound to the slice that it ends in, as the format's default is the next one that begins.
            yield {**mark, "ph": "f", "bp": "e", "pid": peer, "tid": other, "ts": end_ps / PS_PER_US}


def _fetches(drawn: _Drawn, program: Program) -> Iterator[dict[str, Any]]:
    """Yield the two events of an arrow from each transfer's end to the op of the core that waited for it."""
    needs = {step.name: step.needs for step, _ in walk(program.steps) if step.needs}
    beside: dict[str, tuple[Event, int]] = {}
    # In the order of their ends: of a transfer that a loop repeats the last one is meant.
    for serial, (event, row) in enumerate(sorted(drawn.placed, key=_end)):
        if event.record.row != CORE:
            beside[event.record.name] = event, row
            continue
        for name in needs.get(event.record.name, ()):
            if name in beside:
                fetch, begin = beside[name]
                mark = {"cat": "fetch", "name": name, "id": f"{drawn.timeline.device}.{name}.{serial}", "pid": _PROCESS}
                yield {**mark, "ph": "s", "tid": begin, "ts": _inside(fetch)}
                yield {**mark, "ph": "f", "bp": "e", "tid": row, "ts": _inside(event)}


def _end(placed: tuple[Event, int]) -> int:
    return placed[0].end_ps


def _inside(event: Event) -> float:
    """Return a time in microseconds just before the end of an event, which belongs to its slice as the end does not."""
    return max(event.start_ps, event.end_ps - PS_PER_US // 1000) / PS_PER_US


def _process_events(
    drawn: _Drawn, shown: str, program: Program | None, path: Iterable[Stretch]
) -> list[dict[str, Any]]:
    """Return the events of one process: its names first."""
    timeline = drawn.timeline
    events = [each for event, row in drawn.placed for each in _slices(event, row, drawn)]
    events += _path(drawn, path)
    more = list(_traffic(drawn))
    if program is not None and program.name == timeline.program:
        more += [*_memory(drawn, program), *_fetches(drawn, program)]
    return [*drawn.rows.names(f"{timeline.chip}{shown} (simulated): {timeline.program}"), *events, *more]


class _Rows:
    """Numbers for the rows of the trace, and a lane for each transfer that overlaps another on its row."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lanes: dict[str, Lanes] = defaultdict(Lanes)

    def row(self, event: Event) -> int:
        """Return the number of an event's row, of what overlaps that of a lane."""
        row = event.record.row
        return self.number(_CORE_ROW) if row == CORE else self.lane(row, event.start_ps, event.end_ps)

    def number(self, label: str) -> int:
        # From 1: number 0 is the thread that the name of the process hangs on.
        return self._numbers.setdefault(label, len(self._numbers) + 1)

    def lane(self, row: str, start_ps: int, end_ps: int) -> int:
        """Return the number of the first lane of ``row`` that is free from ``start_ps`` on, and take it."""
        # The format nests what overlaps on one row, as calls do; transfers only overlap.
        return self.number(f"{row} {self._lanes[row].take(start_ps, end_ps)}")

    def names(self, process: str) -> Iterator[dict[str, Any]]:
        yield _meta("process_name", 0, {"name": process})
        # What the end waits for stands first, then the core, then its units, then what runs beside it.
        order = (_PATH_ROW, _CORE_ROW, *(unit.label for unit in UNITS.values()))
        for label, number in self._numbers.items():
            yield _meta("thread_name", number, {"name": label})
            place = order.index(label) if label in order else len(order)
            yield _meta("thread_sort_index", number, {"sort_index": place})


def _slices(event: Event, row: int, drawn: _Drawn) -> Iterator[dict[str, Any]]:
    """Yield an event's own slice and one for each unit that it kept busy."""
    record = event.record
    yield _slice(record.name, row, event.start_ps, event.duration_ps, drawn.details(event))
    if record.row == CORE:
        for unit in record.units:
            yield _slice(record.name, drawn.rows.number(UNITS[unit].label), event.start_ps, event.busy_ps(unit), {})


def _slice(name: str, row: int, start_ps: int, duration_ps: int, details: dict[str, Any]) -> dict[str, Any]:
    event = {"ph": "X", "pid": _PROCESS, "tid": row, "name": name, "ts": start_ps / PS_PER_US}
    return {**event, "dur": duration_ps / PS_PER_US, **({"args": details} if details else {})}


def _details(event: Event) -> dict[str, Any]:
    record, times = event.record, event.executions
    shown = {
        "opcode": record.opcode,
        "category": record.category,
        "bound_by": record.bound_by,
        "flops": record.flops * times,
        "hbm_bytes": record.hbm_bytes * times,
        "op_name": record.op_name,
        "source": record.source,
        "hlo_line": record.line,
        "executions": times if times > 1 else 0,
    }
    # Perfetto would show a row for each empty field.
    return {key: value for key, value in shown.items() if value}


def _meta(kind: str, row: int, details: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": row, "name": kind, "args": details}


def _path(drawn: _Drawn, path: Iterable[Stretch]) -> Iterator[dict[str, Any]]:
    """Yield what the end of the run waits for, on a row of its own, with all trips of loops."""
    fields = ("name", "opcode", "category", "row", "start_ps", "end_ps", "count")
    records = tuple(Record(**{field: getattr(one, field) for field in fields}) for one in path)
    for event in unrolled(structs.replace(drawn.timeline, records=records), drawn.most):
        details = {"executions": event.executions} if event.executions > 1 else {}
        yield _slice(event.record.name, drawn.rows.number(_PATH_ROW), event.start_ps, event.duration_ps, details)


def _traffic(drawn: _Drawn) -> Iterator[dict[str, Any]]:
    """Yield the counter of HBM's traffic: the rate never passes what the memory can do."""
    moved = ((event.start_ps, event.end_ps, event.record.hbm_bytes * event.executions) for event in drawn.events)
    for at_ps, rate in steady_rates(moved):
        yield _counter(f"{UNITS[HBM].label} traffic", at_ps, {"GB/s": round(rate * _GB_PER_SECOND, 3)})


def _memory(drawn: _Drawn, program: Program) -> Iterator[dict[str, Any]]:
    """Yield the counters of memory in use, of the program that the device ran."""
    for space in _SPACES:
        for at_ps, n_bytes in _in_use(drawn, program, space):
            yield _counter(f"{UNITS[space].label} in use", at_ps, {"bytes": n_bytes})


def _counter(name: str, at_ps: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": _PROCESS, "name": name, "ts": at_ps / PS_PER_US, "args": values}


def _in_use(drawn: _Drawn, program: Program, space: MemorySpace) -> Iterator[tuple[int, int]]:
    """Yield the bytes in use from the start of each op of the core at which they change."""
    profile = memory_profile(program, space)
    if not profile.buffers:
        return
    alive = dict(zip(profile.schedule, profile.alive_bytes, strict=False))
    last = -1
    for event in (event for event in drawn.events if event.record.row == CORE):
        now = alive.get(event.record.name, last)
        if now != last:
            yield event.start_ps, now
        last = now


def _power(drawn: _Drawn, chip: Chip | None) -> Iterator[dict[str, Any]]:
    """Yield the counter of what a device draws, its share of the chip's idle power included: each op's energy is
    spread evenly over its length.
    """
    if chip is None:
        return
    idle, energy_of = energy_model(chip).idle_watts(chip), record_energy(chip)
    changes: dict[int, float] = defaultdict(float)
    for event in drawn.events:
        if event.duration_ps:
            rate = energy_of(event.record) * event.executions / event.duration_ps
            changes[event.start_ps] += rate
            changes[event.end_ps] -= rate
    rate = 0.0
    for at_ps in sorted(changes):
        rate += changes[at_ps]
        # Sums of many rates and their negatives end a little beside 0.
        yield _counter("power", at_ps, {"W": round(idle + fj_to_watts(max(0.0, rate), 1), 3)})
