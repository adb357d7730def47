"""Pass 10: which arrays live in fast memory (VMEM, or CMEM where a chip has it) instead of HBM.

What must lie in one place moves as one. Of all places those come first that save the most HBM traffic over the square
root of their bytes, each as long as there is room during all of its life. What a loop reads again and again of an
argument is copied before the loop, what a loop makes for the result after it, if that pays.

Source: XLA, memory space assignment: its measure of benefit, and its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt

import numpy as np

from tpusim.compiler.borders import Border, copies_at_borders
from tpusim.compiler.graph import Draft
from tpusim.compiler.lives import Home, Lives
from tpusim.compiler.spaces import set_spaces
from tpusim.compiler.target import Target


def place(draft: Draft, target: Target) -> None:
    """Give arrays their places, and insert the copies that these need."""
    if target.fast_bytes <= 0:
        return
    borders = copies_at_borders(draft)
    lives = Lives(draft, target)
    room = Room(lives.length, target.fast_bytes)
    moved = {home for home in _by_benefit(lives, borders) if room.take(home)}
    set_spaces(draft, lives, moved, target.fast_space)
    for border in borders:
        if border.home(lives) not in moved:
            border.drop()


class Room:
    """The bytes of fast memory that are free at each position of the schedule."""

    def __init__(self, positions: int, n_bytes: int) -> None:
        self._free = np.full(positions, n_bytes, dtype=np.int64)

    def take(self, home: Home) -> bool:
        """Take what a home needs if there is so much during all of its life, and return whether there is."""
        for count, (first, last, n_bytes) in enumerate(home.stretches):
            if self._free[first : last + 1].min() < n_bytes:
                for first, last, n_bytes in home.stretches[:count]:
                    self._free[first : last + 1] += n_bytes
                return False
            self._free[first : last + 1] -= n_bytes
        return True


def _by_benefit(lives: Lives, borders: Sequence[Border]) -> list[Home]:
    """Return the homes that may move and that save traffic if they do, the best first."""
    saved: Counter[Home] = Counter({home: home.moved_bytes for home in lives.homes if not home.is_fixed})
    for border in borders:
        home = border.home(lives)
        if home in saved:
            # Without the copy neither its read nor its write would be.
            saved[home] -= 2 * home.n_bytes * lives.times[border.copy.name]
    found = [home for home in saved if saved[home] > 0]
    return sorted(found, key=lambda home: (-saved[home] / sqrt(home.n_bytes), home.number))
