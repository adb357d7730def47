"""Loops in which devices wait for each other: when all repeat themselves, they agree to skip the rest together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.program.module import every_step, walk
from tpusim.program.steps import Branch, ChannelTransfer, Collective, Loop

if TYPE_CHECKING:
    from tpusim.machine.core import Device
    from tpusim.machine.world import World

MOST_PLAYED_TRIPS = 4096
"""Where something is always under way beside a loop, its trips never repeat exactly: then the last one played stands
for the rest, so that a loop of ten million trips costs no more than one of a few thousand."""


class LoopWatch:
    """One visit of all devices to a loop.

    If a trip took all of them equally long, and the one before as well, nobody has moved against anybody else, so that
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
            # Nobody has ended the trip after those that have begun: all will see the mark in time.
            self.jump_after = max(self._trip.values()) + 1

    def _repeats(self, trip: int) -> bool:
        """Tell whether the trips up to one that all have ended stand for those to come."""
        alike = len(set(self._length_ps.values())) == 1
        steady = trip - max(self._since.values())
        return steady >= (1 if alike else self._patience) or trip >= MOST_PLAYED_TRIPS


def watch_of(device: Device, loop: Loop, visit: int) -> LoopWatch | None:
    """Return the watch over a visit to a loop, None where each device goes through it by itself."""
    world = device.world
    if not waits_for_others(device, loop) or len({id(other.program) for other in world.devices}) > 1 or changes(loop):
        return None
    # Who turns longer than others would have to count what the links carry in the trips that these skip.
    if any(choice.devices for choice in loop.choices):
        return None
    return world.loops.setdefault((id(loop), visit), LoopWatch(len(world.devices), _members(world)))


def changes(loop: Loop) -> bool:
    """Tell whether something in a loop is chosen anew at each visit: then no trip stands for another."""
    return any(
        len(choice.values) > 1
        for step in every_step(loop.body)
        if isinstance(step, Loop | Branch)
        for choice in step.choices
    )


def waits_for_others(device: Device, loop: Loop) -> bool:
    """Tell whether a device waits for others in a loop: then it must not jump unless they do."""
    return device.world.apart and _members(device.world) > 1 and _communicates(loop)


def _members(world: World) -> int:
    """Return how many devices those of a world stand for."""
    return sum(len(device.members) for device in world.devices)


def _communicates(loop: Loop) -> bool:
    """Tell whether devices wait for each other in a loop."""
    return any(isinstance(step, Collective | ChannelTransfer) for step, _ in walk((loop,)))
