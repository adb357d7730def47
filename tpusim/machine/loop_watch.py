"""Loops in which devices wait for each other: when all repeat themselves, they agree to skip the rest together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tpusim.program.module import every_step
from tpusim.program.steps import Branch, ChannelTransfer, Collective, HostTransfer, Loop

if TYPE_CHECKING:
    from tpusim.program.steps import AnyStep

MOST_PLAYED_TRIPS = 4096
"""Where something is always under way beside a loop, its trips never repeat exactly: then the last one played stands
for the rest, so that a loop of ten million trips costs no more than one of a few thousand."""


class LoopTraits(NamedTuple):
    """What of a loop may keep one trip from standing for the others.

    Devices wait for each other in it (``communicates``), it meets the host (``meets_host``), or something in it is
    chosen anew at each visit (``varies``).
    """

    communicates: bool
    meets_host: bool
    varies: bool


def loop_traits(loop: Loop) -> LoopTraits:
    """Return the traits of a loop, whichever of its branches are taken."""
    inner = list(every_step((loop,)))
    return LoopTraits(
        communicates=any(isinstance(step, Collective | ChannelTransfer) for step in inner),
        meets_host=any(isinstance(step, HostTransfer) for step in inner),
        varies=any(_varies(step) for step in every_step(loop.body)),
    )


def _varies(step: AnyStep) -> bool:
    """Return whether a step goes another way at each visit."""
    return isinstance(step, Loop | Branch) and any(len(choice.values) > 1 for choice in step.choices)


class LoopWatch:
    """One visit of all devices to a loop.

    If a trip took all of them equally long, and the one before as well, no device has moved against another, so that
    the next will be the same. Groups of devices that have nothing to do with each other may each keep a time of their
    own: but a delay passes on by at least one device with each trip, so that after as many trips without a change there
    is none to come.
    """

    def __init__(self, cohorts: int, devices: int) -> None:
        self._count = cohorts
        self._patience = devices
        self._trip: dict[int, int] = {}
        self._length_ps: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self.jump_after = 0

    def begin(self, number: int, trip: int) -> None:
        """Note that a device begins a trip."""
        self._trip[number] = trip

    def end(self, number: int, length_ps: int) -> None:
        """Note how long a device's trip was; if it was the last to repeat itself, all may jump."""
        trip = self._trip[number]
        if self._length_ps.get(number) != length_ps:
            self._length_ps[number], self._since[number] = length_ps, trip
        self._ended[trip] = self._ended.get(trip, 0) + 1
        if not self.jump_after and self._ended[trip] == self._count and self._repeats(trip):
            # No device has ended the trip after those that have begun: all will see the mark in time.
            self.jump_after = max(self._trip.values()) + 1

    def _repeats(self, trip: int) -> bool:
        """Return whether the trips up to one that all have ended stand for those to come."""
        alike = len(set(self._length_ps.values())) == 1
        steady = trip - max(self._since.values())
        return steady >= (1 if alike else self._patience) or trip >= MOST_PLAYED_TRIPS
