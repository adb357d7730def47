"""What a run did over its course: how busy every unit and memory was, and any other amount of its records.

A record says how long a unit was busy in it, not when; here its time is spread evenly over the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tpusim.timeline.records import Record, Timeline

Values = np.ndarray[Any, Any]
_Segments = list[tuple[float, float, float]]


def busy_over_time(timeline: Timeline, edges_ps: Values) -> dict[str, Values]:
    """Return by unit the share, 0 to 1, of the time from each edge to the next one that it was busy.

    What a loop repeats is as busy, on average, as the trip that it repeats.
    """
    widths = np.maximum(1.0, np.diff(edges_ps))
    busy = amounts_until(timeline, lambda record: record.units, edges_ps)
    return {unit: np.clip(np.diff(busy_ps) / widths, 0, 1) for unit, busy_ps in busy.items()}


def amounts_until(
    timeline: Timeline, amounts: Callable[[Record], Mapping[str, float]], at_ps: Values
) -> dict[str, Values]:
    """Return by name what the executions of records come to from the start of the run to each of some times."""
    return {name: _integral(segments, at_ps) for name, segments in _segments(timeline, amounts).items()}


def _segments(timeline: Timeline, amounts: Callable[[Record], Mapping[str, float]]) -> dict[str, _Segments]:
    """Return by name the stretches in which something was done: start, end, how much in a picosecond."""
    found: dict[str, _Segments] = defaultdict(list)
    for record in timeline.records:
        if record.duration_ps:
            for name, amount in amounts(record).items():
                found[name].append((record.start_ps, record.end_ps, amount / record.duration_ps))
    # Inner loops repeat within the trip of an outer one, and so come first.
    for repeat in sorted(timeline.repeats, key=lambda repeat: repeat.start_ps):
        window = np.array([repeat.trip_start_ps, repeat.start_ps], dtype=float)
        for segments in found.values():
            share = float(np.diff(_integral(segments, window))[0]) / max(1, repeat.trip_ps)
            segments.append((repeat.start_ps, repeat.end_ps, share))
    return found


def _integral(segments: _Segments, at: Values) -> Values:
    """Return what was done up to some times."""
    starts, ends, shares = (np.array(column, dtype=float) for column in zip(*segments, strict=True))
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    rates = np.cumsum(np.concatenate([shares, -shares])[order])
    times = times[order]
    busy = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    found: Values = np.interp(at, times, busy)
    return found
