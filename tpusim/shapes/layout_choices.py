"""The ways to lay an array out, side by side: what each pads, and what it is good for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.shapes.shape import ArrayShape


class LayoutChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One layout of an array. ``lanes`` is the dimension that varies fastest, ``sublanes`` the next, -1 for none.

    Sums over the dimension in lanes need the cross-lane unit, over that in sublanes a few steps within a register, and
    over all ``others`` additions alone; slices and updates of these move whole tiles. A product wants the dimensions
    that it sums over, and those of its result, in lanes or sublanes. ``is_default`` marks the one of arguments and
    results of which nobody says how they lie, ``is_present`` the one that the array has. ``users_ps`` is what a program
    takes in which the array is used so, None where nobody says how.
    """

    shape: str
    physical_bytes: int
    logical_bytes: int
    lanes: int
    sublanes: int
    others: tuple[int, ...]
    is_default: bool
    is_present: bool = False
    users_ps: int | None = None

    @property
    def wasted_share(self) -> float:
        """Share of its bytes that is padding."""
        return 1 - self.logical_bytes / self.physical_bytes if self.physical_bytes else 0.0


class UsedLayouts(NamedTuple):
    """The layouts of an array, the best first, and what uses it, by name or in words.

    ``compiled_ps`` is what that takes with the present layout as tpusim compiles it, where the choices have what it
    took in a run: other layouts are then in proportion. ``fixed_by`` is the custom call that leaves no choice.
    """

    choices: tuple[LayoutChoice, ...]
    users: tuple[str, ...] = ()
    compiled_ps: int = 0
    fixed_by: str = ""


def layout_choice(
    shape: ArrayShape, *, is_default: bool, is_present: bool = False, users_ps: int | None = None
) -> LayoutChoice:
    """Return what there is to say of one layout."""
    order = shape.actual_layout.minor_to_major
    return LayoutChoice(
        shape=str(shape),
        physical_bytes=physical_bytes(shape),
        logical_bytes=logical_bytes(shape),
        lanes=order[0] if order else -1,
        sublanes=order[1] if len(order) > 1 else -1,
        others=tuple(sorted(order[2:])),
        is_default=is_default,
        is_present=is_present,
        users_ps=users_ps,
    )


def ranked(choices: Sequence[LayoutChoice]) -> tuple[LayoutChoice, ...]:
    """Return layouts by what their users take, then by what they take themselves, the least first, or the usual one."""
    return tuple(sorted(choices, key=lambda one: (one.users_ps or 0, one.physical_bytes, not one.is_default)))
