"""Counters under the slices of a trace: memory in use, and the traffic of HBM, over the time of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tpusim.analysis.memory import memory_profile
from tpusim.hardware.units import HBM, UNITS, VMEM, MemorySpace
from tpusim.program.module import Program
from tpusim.timeline.records import CORE, Repeat, Timeline
from tpusim.units import PS_PER_US

_SPACES: tuple[MemorySpace, ...] = (HBM, VMEM)
# Bytes per picosecond are a thousand GB/s.
_GB_PER_SECOND = 1e3


def counter_events(timeline: Timeline, program: Program | None) -> Iterator[dict[str, Any]]:
    """Yield the counters of a device; memory only if ``program`` is the one that it ran."""
    for at_ps, rate in _traffic(timeline):
        yield _counter(f"{UNITS[HBM].label} traffic", at_ps, {"GB/s": round(rate * _GB_PER_SECOND, 3)})
    if program is None or program.name != timeline.program:
        return
    for space in _SPACES:
        for at_ps, n_bytes in _in_use(timeline, program, space):
            yield _counter(f"{UNITS[space].label} in use", at_ps, {"bytes": n_bytes})


def _counter(name: str, at_ps: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "name": name, "ts": at_ps / PS_PER_US, "args": values}


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


def _traffic(timeline: Timeline) -> Iterator[tuple[int, float]]:
    """Yield the bytes per picosecond from each time at which they change: each op's spread evenly over its length."""
    changes: dict[int, float] = defaultdict(float)
    for record in timeline.records:
        if record.hbm_bytes and record.duration_ps:
            _add(changes, record.start_ps, record.end_ps, record.hbm_bytes / record.duration_ps)
    for repeat in timeline.repeats:
        # The trips that are not drawn one by one have the mean traffic of the one that is.
        length_ps = max(1, repeat.end_ps - repeat.start_ps)
        _add(changes, repeat.start_ps, repeat.end_ps, _bytes_of_trip(timeline, repeat) * repeat.trips / length_ps)
    rate = 0.0
    for at_ps in sorted(changes):
        rate += changes[at_ps]
        # Sums of many rates and their negatives end a little beside 0.
        yield at_ps, max(0.0, rate)


def _add(changes: dict[int, float], start_ps: int, end_ps: int, rate: float) -> None:
    changes[start_ps] += rate
    changes[end_ps] -= rate


def _bytes_of_trip(timeline: Timeline, repeat: Repeat) -> float:
    """Return the bytes of the trip before a repetition, inner loops with all their trips."""
    begin_ps = repeat.start_ps - max(1, repeat.end_ps - repeat.start_ps) // repeat.trips
    times = 1 + repeat.trips
    inside = (r for r in timeline.records if begin_ps <= r.start_ps and r.end_ps <= repeat.start_ps)
    return sum(record.hbm_bytes * record.count / times for record in inside if record.count % times == 0)
