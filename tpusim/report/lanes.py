"""Lanes in which what overlaps on the clock is drawn side by side."""

from __future__ import annotations

from heapq import heappop, heappush


class Lanes:
    """Lanes from 0 on, given to stretches of the clock in the order of their starts."""

    def __init__(self) -> None:
        self._busy_until: list[tuple[int, int]] = []
        self._free: list[int] = []

    def take(self, start_ps: int, end_ps: int) -> int:
        """Return the lowest lane that is free from ``start_ps`` on, and take it until ``end_ps``."""
        # Heaps: of thousands of transfers under way each would else ask the lanes of all others.
        while self._busy_until and self._busy_until[0][0] <= start_ps:
            heappush(self._free, heappop(self._busy_until)[1])
        lane = heappop(self._free) if self._free else len(self._busy_until)
        heappush(self._busy_until, (end_ps, lane))
        return lane
