"""Pass 10: which arrays live in fast memory (VMEM, or CMEM where a chip has it) instead of HBM.

What must lie in one place moves as one. Of all places those come first that save the most HBM traffic over the square
root of their bytes, each as long as there is room during all of its life. What a loop reads again and again of an
argument is copied before the loop, what a loop makes for the result after it, if that pays.

Source: XLA, memory space assignment: its measure of benefit, and its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tpusim.compiler.graph import Draft
from tpusim.compiler.place.borders import Border, copies_at_borders
from tpusim.compiler.place.lives import Home, Lives
from tpusim.compiler.place.prefetch import prefetch
from tpusim.compiler.place.room import Room
from tpusim.compiler.place.spaces import set_spaces
from tpusim.compiler.target import Target


def place(draft: Draft, target: Target) -> None:
    """Give arrays their places, and insert the copies that these need."""
    if target.fast_bytes <= 0:
        return
    borders = copies_at_borders(draft)
    lives = Lives(draft, target, {border.copy.name for border in borders})
    room = Room(lives.length, target.fast_bytes)
    moved = {home for home in _by_benefit(lives, borders, target.latency_bytes) if room.take(home.stretches)}
    set_spaces(draft, lives, moved, target.fast_space)
    kept = [border for border in borders if border.home(lives) in moved]
    for border in borders:
        if border not in kept:
            border.drop()
    prefetch(draft, target, lives, room, moved, kept)


def _by_benefit(lives: Lives, borders: Sequence[Border], latency_bytes: float) -> list[Home]:
    """Return the homes that may move and that save traffic if they do, the best first."""
    saved = {home: home.moved_bytes for home in lives.homes if not home.is_fixed}
    for border in borders:
        home = border.home(lives)
        if home in saved:
            # It is waited for, where what kernels read comes in beside their work: its bytes count twice.
            saved[home] -= (2 * home.n_bytes + latency_bytes) * lives.times[border.copy.name]
    found = [home for home in saved if saved[home] > 0]
    return sorted(found, key=lambda home: (-saved[home] / sqrt(home.n_bytes), home.number))
