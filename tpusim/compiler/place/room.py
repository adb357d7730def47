"""The bytes of a memory that are free at each position of the schedule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Stretch = tuple[int, int, int]
"""First and last position of the schedule, inclusive, and bytes."""


class Room:
    """What is left of a memory, position by position."""

    def __init__(self, positions: int, n_bytes: int) -> None:
        self._free = np.full(positions, n_bytes, dtype=np.int64)

    def take(self, stretches: Sequence[Stretch]) -> bool:
        """Take the bytes of all these stretches if they are free, and return whether they were."""
        for count, (first, last, n_bytes) in enumerate(stretches):
            if not self.has(first, last, n_bytes):
                for before, until, taken in stretches[:count]:
                    self._free[before : until + 1] += taken
                return False
            self._free[first : last + 1] -= n_bytes
        return True

    def hold(self, stretches: Sequence[Stretch]) -> None:
        """Take bytes that are needed, whether or not they are free."""
        for first, last, n_bytes in stretches:
            self._free[first : last + 1] -= n_bytes

    def has(self, first: int, last: int, n_bytes: int) -> bool:
        """Return whether so many bytes are free from one position to another."""
        return last < first or bool(self._free[first : last + 1].min() >= n_bytes)
