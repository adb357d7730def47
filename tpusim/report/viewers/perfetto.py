"""A run as a trace file that Perfetto opens: Chrome's JSON trace format, one row per engine and functional unit,
counters for memory and power, and arrows from what is sent or fetched to what waits for it.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the format: times are
microseconds, here with picoseconds after the point.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tpusim.analysis.communication import classes
from tpusim.analysis.energy.run import record_energy
from tpusim.analysis.memory import memory_profile
from tpusim.cost.models.energies import energy_model
from tpusim.files import write_whole
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, UNITS, VMEM, MemorySpace
from tpusim.program.module import Program, walk
from tpusim.timeline.records import CORE, PodRun, Record, Repeat, Timeline
from tpusim.units import PS_PER_US, fj_to_watts

# One device is one process of the format, and its rows are the threads.
_PROCESS = 1
_SPACES: tuple[MemorySpace, ...] = (HBM, VMEM)
# Bytes per picosecond are a thousand GB/s.
_GB_PER_SECOND = 1e3


def write_trace(run: PodRun, path: str | Path, program: Program | None = None, chip: Chip | None = None) -> None:
    """Write the trace, gzip-compressed if the name ends in ``.gz``. The same run always gives the same bytes."""
    # Without blanks, and without the time of writing in the header, which would differ from run to run.
    data = json.dumps(pod_trace_json(run, program, chip), separators=(",", ":")).encode()
    write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def pod_trace_json(run: PodRun, program: Program | None = None, chip: Chip | None = None) -> dict[str, Any]:
    """Return a run of a pod: a process per class of equal devices, and an arrow from every send to its receive.

    ``program``, where it is known, tells what each op waits for, and how much memory is in use when; ``chip``, what
    power its devices draw.
    """
    alike = classes(run)
    events: list[dict[str, Any]] = []
    rows = {}
    for number, (timeline, devices) in enumerate(alike, start=1):
        shown = f" device {devices[0]}" + (f" and {len(devices) - 1} alike" if len(devices) > 1 else "")
        if len(alike) == 1:
            shown = f" on {run.device_count} devices alike" if run.device_count > 1 else ""
        rows[number] = _Rows()
        found = [*_process_events(timeline, shown, rows[number], program), *_power(timeline, chip)]
        events += [event | {"pid": number} for event in found]
    if len(alike) > 1:
        processes = {device: number for number, (_, devices) in enumerate(alike, start=1) for device in devices}
        events += _arrows(alike, processes, rows)
    # Arrows get numbers in place of names, as Perfetto takes no others.
    numbers: dict[str, int] = {}
    for event in events:
        if "id" in event:
            event["id"] = numbers.setdefault(event["id"], len(numbers) + 1)
    other = {"simulated": True, "program": run.last.program, "chip": run.last.chip}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _arrows(
    alike: list[tuple[Timeline, tuple[int, ...]]], processes: dict[int, int], rows: dict[int, _Rows]
) -> Iterator[dict[str, Any]]:
    """Yield the two events of an arrow for each send: where it starts, and where its receive has all."""
    for number, (timeline, _) in enumerate(alike, start=1):
        for serial, send in enumerate(record for record in timeline.records if record.peer in processes):
            peer = processes[send.peer]
            ends = [r for r in alike[peer - 1][0].records if r.opcode == "recv" and r.end_ps >= send.end_ps]
            receive = min(ends, key=lambda record: record.end_ps, default=None)
            if receive is None:
                continue
            mark = {"cat": "channel", "name": send.name, "id": f"{number}.{serial}"}
            yield {**mark, "ph": "s", "pid": number, "tid": rows[number].of[id(send)], "ts": send.start_ps / PS_PER_US}
            end = {"pid": peer, "tid": rows[peer].of[id(receive)], "ts": receive.end_ps / PS_PER_US}
            # Bound to the slice that it ends in, as the format's default is the next one that begins.
            yield {**mark, "ph": "f", "bp": "e", **end}


def _fetches(timeline: Timeline, program: Program | None, rows: _Rows) -> Iterator[dict[str, Any]]:
    """Yield the two events of an arrow from each transfer's end to the op of the core that waited for it."""
    if program is None or program.name != timeline.program:
        return
    needs = {step.name: step.needs for step, _ in walk(program.steps) if step.needs}
    beside: dict[str, Record] = {}
    # In the order of their ends: of a transfer that a loop repeats the last one is meant.
    for serial, record in enumerate(sorted(timeline.records, key=lambda record: record.end_ps)):
        if record.row != CORE:
            beside[record.name] = record
            continue
        for name in needs.get(record.name, ()):
            if name in beside:
                mark = {"cat": "fetch", "name": name, "id": f"{timeline.device}.{name}.{serial}", "pid": _PROCESS}
                yield {**mark, "ph": "s", "tid": rows.of[id(beside[name])], "ts": _inside(beside[name])}
                yield {**mark, "ph": "f", "bp": "e", "tid": rows.of[id(record)], "ts": _inside(record)}


def _inside(record: Record) -> float:
    """Return a time in microseconds just before the end of a record, which belongs to its slice as the end does not."""
    return max(record.start_ps, record.end_ps - PS_PER_US // 1000) / PS_PER_US


def _process_events(timeline: Timeline, shown: str, rows: _Rows, program: Program | None) -> list[dict[str, Any]]:
    """Return the events of one process: its names first."""
    events = [event for record in timeline.records for event in _events(record, rows)]
    for repeat in timeline.repeats:
        # The trips of a loop that equal the one drawn before them.
        name = f"{repeat.name}: {repeat.trips:,} more equal trips"
        events.append(_slice(name, rows.number("XLA ops"), repeat.start_ps, repeat.end_ps - repeat.start_ps, {}))
    more = [*_counters(timeline, program), *_fetches(timeline, program, rows)]
    return [*rows.names(f"{timeline.chip}{shown} (simulated): {timeline.program}"), *events, *more]


class _Rows:
    """Numbers for the rows of the trace, and a lane for each transfer that overlaps another on its row."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._busy_until: dict[str, int] = {}
        # By the identity of a record, as a loop has many of one name.
        self.of: dict[int, int] = {}

    def number(self, label: str) -> int:
        # From 1: number 0 is the thread that the name of the process hangs on.
        return self._numbers.setdefault(label, len(self._numbers) + 1)

    def lane(self, row: str, start_ps: int, end_ps: int) -> int:
        """Return the number of the first lane of ``row`` that is free from ``start_ps`` on, and take it."""
        # The format nests what overlaps on one row, as calls do; transfers only overlap.
        label = next(found for lane in count() if self._busy_until.get(found := f"{row} {lane}", 0) <= start_ps)
        self._busy_until[label] = end_ps
        return self.number(label)

    def names(self, process: str) -> Iterator[dict[str, Any]]:
        yield _meta("process_name", 0, {"name": process})
        # The core stands first, then its units, then what runs beside it.
        order = ("XLA ops", *(unit.label for unit in UNITS.values()))
        for label, number in self._numbers.items():
            yield _meta("thread_name", number, {"name": label})
            place = order.index(label) if label in order else len(order)
            yield _meta("thread_sort_index", number, {"sort_index": place})


def _events(record: Record, rows: _Rows) -> Iterator[dict[str, Any]]:
    """Yield a record's own event and one for each unit that it kept busy."""
    is_core = record.row == CORE
    row = rows.number("XLA ops") if is_core else rows.lane(record.row, record.start_ps, record.end_ps)
    rows.of[id(record)] = row
    yield _slice(record.name, row, record.start_ps, record.duration_ps, _details(record))
    if is_core:
        for unit, busy_ps in record.units.items():
            # From the start of the step: how long a unit was busy in it is known, when is not.
            length_ps = min(busy_ps, record.duration_ps)
            yield _slice(record.name, rows.number(UNITS[unit].label), record.start_ps, length_ps, {})


def _slice(name: str, row: int, start_ps: int, duration_ps: int, details: dict[str, Any]) -> dict[str, Any]:
    event = {"ph": "X", "pid": _PROCESS, "tid": row, "name": name, "ts": start_ps / PS_PER_US}
    return {**event, "dur": duration_ps / PS_PER_US, **({"args": details} if details else {})}


def _details(record: Record) -> dict[str, Any]:
    shown = {
        "opcode": record.opcode,
        "category": record.category,
        "bound_by": record.bound_by,
        "flops": record.flops,
        "hbm_bytes": record.hbm_bytes,
        "op_name": record.op_name,
        "source": record.source,
        "hlo_line": record.line,
        "executions": record.count if record.count > 1 else 0,
    }
    # Perfetto would show a row for each empty field.
    return {key: value for key, value in shown.items() if value}


def _meta(kind: str, row: int, details: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": row, "name": kind, "args": details}


def _counters(timeline: Timeline, program: Program | None) -> Iterator[dict[str, Any]]:
    """Yield the counters of a device; memory only if ``program`` is the one that it ran."""
    for at_ps, rate in _rates(timeline, lambda record: record.hbm_bytes):
        yield _counter(f"{UNITS[HBM].label} traffic", at_ps, {"GB/s": round(rate * _GB_PER_SECOND, 3)})
    if program is None or program.name != timeline.program:
        return
    for space in _SPACES:
        for at_ps, n_bytes in _in_use(timeline, program, space):
            yield _counter(f"{UNITS[space].label} in use", at_ps, {"bytes": n_bytes})


def _counter(name: str, at_ps: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": _PROCESS, "name": name, "ts": at_ps / PS_PER_US, "args": values}


def _in_use(timeline: Timeline, program: Program, space: MemorySpace) -> Iterator[tuple[int, int]]:
    """Yield the bytes in use from the start of each op of the core at which they change."""
    profile = memory_profile(program, space)
    if not profile.buffers:
        return
    alive = dict(zip(profile.schedule, profile.alive_bytes, strict=False))
    last = -1
    for record in sorted((r for r in timeline.records if r.row == CORE), key=lambda r: r.start_ps):
        now = alive.get(record.name, last)
        if now != last:
            yield record.start_ps, now
        last = now


def _power(timeline: Timeline, chip: Chip | None) -> Iterator[dict[str, Any]]:
    """Yield the counter of what a device draws, its share of the chip's idle power included."""
    if chip is None:
        return
    idle = energy_model(chip).idle_watts(chip)
    for at_ps, rate in _rates(timeline, record_energy(chip)):
        yield _counter("power", at_ps, {"W": round(idle + fj_to_watts(rate, 1), 3)})


def _rates(timeline: Timeline, amount: Callable[[Record], float]) -> Iterator[tuple[int, float]]:
    """Yield an amount per picosecond from each time at which it changes: each op's spread evenly over its length."""
    changes: dict[int, float] = defaultdict(float)
    for record in timeline.records:
        each = amount(record)
        if each and record.duration_ps:
            _add(changes, record.start_ps, record.end_ps, each / record.duration_ps)
    for repeat in timeline.repeats:
        # The trips that are not drawn one by one have the mean rate of the one that is.
        length_ps = max(1, repeat.end_ps - repeat.start_ps)
        _add(changes, repeat.start_ps, repeat.end_ps, _of_trip(timeline, repeat, amount) * repeat.trips / length_ps)
    rate = 0.0
    for at_ps in sorted(changes):
        rate += changes[at_ps]
        # Sums of many rates and their negatives end a little beside 0.
        yield at_ps, max(0.0, rate)


def _add(changes: dict[int, float], start_ps: int, end_ps: int, rate: float) -> None:
    changes[start_ps] += rate
    changes[end_ps] -= rate


def _of_trip(timeline: Timeline, repeat: Repeat, amount: Callable[[Record], float]) -> float:
    """Return the amount of the trip before a repetition, inner loops with all their trips."""
    begin_ps = repeat.start_ps - max(1, repeat.end_ps - repeat.start_ps) // repeat.trips
    times = 1 + repeat.trips
    inside = (r for r in timeline.records if begin_ps <= r.start_ps and r.end_ps <= repeat.start_ps)
    return sum(amount(record) * record.count / times for record in inside if record.count % times == 0)
