"""How fast bytes moved through a memory, from what each op moved and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate


def steady_rates(moved: Iterable[tuple[int, int, float]]) -> list[tuple[int, float]]:
    """Return the times at which traffic changes, in picoseconds, and its rate from then on, in bytes per picosecond.

    ``moved`` is what ops moved: from when to when, and how many bytes. Of all courses of traffic in which as many bytes
    have arrived by every moment as ops have ended with, and no more than ops have begun with, this is the steadiest. So
    its highest rate is at most that of the real one: no op's bytes are spread evenly while others take the memory.
    """
    due: dict[int, float] = defaultdict(float)
    ready: dict[int, float] = defaultdict(float)
    for start_ps, end_ps, n_bytes in moved:
        if n_bytes and end_ps > start_ps:
            ready[start_ps] += n_bytes
            due[end_ps] += n_bytes
    times = sorted(due.keys() | ready.keys())
    low = list(accumulate(due[at_ps] for at_ps in times))
    # What begins at a moment has moved nothing yet.
    high = [0.0, *accumulate(ready[at_ps] for at_ps in times)][:-1]
    return _taut(times, low, high)


def _taut(times: list[int], low: list[float], high: list[float]) -> list[tuple[int, float]]:
    """Return the slopes of a string pulled tight between two bounds that meet at both ends."""
    found: list[tuple[int, float]] = []
    place, level = 0, 0.0
    while place + 1 < len(times):
        # The string is straight as far as one slope stays above all lower and below all upper bounds.
        least, most = -1.0, float("inf")
        at_least = at_most = place + 1
        for ahead in range(place + 1, len(times)):
            length = times[ahead] - times[place]
            up, down = (low[ahead] - level) / length, (high[ahead] - level) / length
            if up > most or down < least:
                break
            if up >= least:
                least, at_least = up, ahead
            if down <= most:
                most, at_most = down, ahead
        else:
            up = least
        bend, bound = (at_most, high) if up > most else (at_least, low)
        found.append((times[place], (bound[bend] - level) / (times[bend] - times[place])))
        place, level = bend, bound[bend]
    return [*found, (times[-1], 0.0)] if times else []
