"""Pass 10: which arrays live in fast memory (VMEM, or CMEM where a chip has it) instead of HBM.

What must lie in one place moves as one. Of all places those come first that save the most HBM traffic over the square
root of their bytes, each as long as there is room during all of its life. What a loop reads again and again of an
argument is copied before the loop if kernels hide that, what a loop changes or makes for the result if it pays. One
argument comes before all of them: that which is fetched across programs.

Source: XLA, memory space assignment: its measure of benefit, and its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from tpusim.compiler.place.across import Fetched, argument_across_programs
from tpusim.compiler.place.borders import Border, copies_at_borders, copies_that_make_room, hidden
from tpusim.compiler.place.lives import Home, Lives
from tpusim.compiler.place.prefetch import prefetch
from tpusim.compiler.place.room import Room, Stretch
from tpusim.compiler.place.spaces import set_spaces
from tpusim.compiler.target import Target
from tpusim.draft import Draft


def place(draft: Draft, target: Target) -> None:
    """Give arrays their places, and insert the copies that these need."""
    if target.fast_bytes <= 0:
        return
    borders = copies_at_borders(draft)
    choice = _choose(draft, target, borders)
    leaving = copies_that_make_room(draft.entry, choice.lives, choice.moved, target.latency_bytes)
    if leaving:
        borders += leaving
        choice = _choose(draft, target, borders)
    lives, wanted, moved, fetched = choice
    room = Room(lives.length, target.fast_bytes)
    room.hold(_held(lives, fetched))
    for home in moved:
        room.take(home.stretches)
    _note(target, lives, wanted, moved)
    set_spaces(draft, lives.parts, lambda part: lives.home(part) in moved, target.fast_space)
    kept = dict.fromkeys(border for border in borders if border.home(lives) in moved)
    for border in borders:
        if border not in kept:
            border.drop()
    prefetch(draft, target, lives, room, moved, list(kept), argument=fetched.argument if fetched else None)


class _Choice(NamedTuple):
    """The lives of all arrays, which of them are worth moving, the best first, which move, and what is fetched."""

    lives: Lives
    wanted: list[Home]
    moved: set[Home]
    fetched: Fetched | None


def _choose(draft: Draft, target: Target, borders: Sequence[Border]) -> _Choice:
    lives = Lives(draft, target, {border.copy.name for border in borders})
    fetched = argument_across_programs(draft, target, lives)
    held, saved = _held(lives, fetched), _saved_bytes(lives, borders, target.latency_bytes)
    best = sorted(saved, key=lambda home: (-saved[home] / sqrt(home.n_bytes), home.number))
    wanted = list(hidden(best, borders, lives, target.hbm_rate))
    choices = [_fitting(wanted, lives, held, target, halvings) for halvings in range(_HALVINGS)]
    moved = set(max(choices, key=lambda homes: sum(saved[home] for home in homes)))
    return _Choice(lives, wanted, moved, fetched)


def _held(lives: Lives, fetched: Fetched | None) -> list[Stretch]:
    """Return what is not for arrays to choose: what hand-written kernels take, and what is fetched across programs."""
    return [*lives.held, *([fetched.room] if fetched else [])]


def _note(target: Target, lives: Lives, wanted: Sequence[Home], moved: set[Home]) -> None:
    """Note of all that kernels move where it lies, and why."""
    worth_it = set(wanted)
    for home in (home for home in lives.homes if home.moved_bytes):
        why = "is saved the way through HBM" if home in moved else "has no room for all of its life"
        if home.is_fixed:
            why = "comes from or goes to the caller, or its maker leaves it in HBM"
        elif home not in worth_it:
            why = "would be copied where a loop begins or ends, for more than that saves"
        target.note("place", is_done=home in moved, reason=why, name=home.name, n_bytes=home.n_bytes)


_HALVINGS = 4
"""Sizes of the memory to try, each half of the one before."""


def _fitting(
    wanted: Sequence[Home], lives: Lives, held: Sequence[Stretch], target: Target, halvings: int
) -> dict[Home, None]:
    """Return what finds room, the best first: in a smaller memory, and of all else what the larger ones have room for.

    A large array that is a little better than many small ones can shut them out, where there would be no room for it in
    a smaller memory; so more memory never saves less.
    """
    moved: dict[Home, None] = {}
    for times in reversed(range(halvings + 1)):
        room = Room(lives.length, target.fast_bytes_of(0.5**times))
        room.hold(held)
        for home in moved:
            room.take(home.stretches)
        moved |= {home: None for home in wanted if home not in moved and room.take(home.stretches)}
    return moved


def _saved_bytes(lives: Lives, borders: Sequence[Border], latency_bytes: float) -> dict[Home, float]:
    """Return what each home that may move saves of HBM's traffic if it does, where that is something."""
    saved = {home: home.moved_bytes for home in lives.homes if not home.is_fixed}
    for border in borders:
        home = border.home(lives)
        if border.leaves:
            # It goes beside kernels, and stays in HBM.
            stays = lives.home(lives.parts[border.copy.name][0])
            saved |= {home: saved[home] - home.n_bytes} | ({stays: 0.0} if stays else {})
        elif border.is_read and home in saved:
            saved[home] -= home.n_bytes * lives.times[border.copy.name]
        elif home in saved:
            # It is waited for, where what kernels read comes in beside their work: its bytes count twice.
            saved[home] -= (2 * home.n_bytes + latency_bytes) * lives.times[border.copy.name]
    return {home: n_bytes for home, n_bytes in saved.items() if n_bytes > 0}
