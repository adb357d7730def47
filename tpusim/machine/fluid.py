"""What flows share: a fluid whose rates change only when a flow begins or ends, and a memory as the simplest one.

The cost is per flow, not per byte or cycle. Rates and what is left are floats; the moments at which flows end are
rounded up to whole picoseconds before they reach the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Generic, TypeVar

from tpusim.machine.events import Environment, Event
from tpusim.units import PS_PER_SECOND

OnEnd = Callable[[int], object]

_ROUNDING = 1e-3
"""A flow with less than this left has ended: what remains is rounding, not payload."""


def call_after(env: Environment, delay_ps: int, action: Callable[[], object]) -> None:
    """Do something later; lighter than a process of its own."""

    def call(_: Event) -> None:
        action()

    env.timeout(delay_ps).callbacks.append(call)


def all_of(env: Environment, events: Sequence[Event]) -> Event:
    """Return the event of the end of all of some; of one, which is the usual case, that one."""
    return events[0] if len(events) == 1 else env.all_of(events)


class Flow:
    """Something under way: how much is left, at which rate it moves (per picosecond), and the most it could use.

    ``on_end`` is called with the time at which it has ended. ``number`` says which of its fluid's flows it is.
    """

    __slots__ = ("left", "limit", "number", "on_end", "rate")

    def __init__(self, left: float, limit: float, on_end: OnEnd) -> None:
        self.left = left
        self.limit = limit
        self.rate = 0.0
        self.number = 0
        self.on_end = on_end


F = TypeVar("F", bound=Flow)


class Fluid(ABC, Generic[F]):
    """Flows that share something, max-min fair; a subclass says at which rates."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._flows: list[F] = []
        self._count = 0
        self._updated_ps = 0
        self._version = 0

    @abstractmethod
    def _set_rates(self) -> None:
        """Set the rates of all flows."""

    def _begin(self, flow: F) -> None:
        self._count += 1
        flow.number = self._count
        self._add(flow)
        self._changed()

    def _add(self, flow: F) -> None:
        self._flows.append(flow)

    def _changed(self) -> None:
        """Some flows have begun or ended at this moment."""
        self._reschedule()

    def _advance(self) -> None:
        """Bring what is left of all flows up to now."""
        now_ps = int(self._env.now)
        passed_ps = now_ps - self._updated_ps
        if passed_ps:
            self._move(passed_ps)
            self._updated_ps = now_ps

    def _move(self, passed_ps: int) -> None:
        """Take off what has moved in so many picoseconds."""
        for flow in self._flows:
            flow.left -= flow.rate * passed_ps

    def _until_first_end(self) -> float:
        """Return in how many picoseconds the first flow ends, at the rates that are set."""
        return min([max(0.0, flow.left) / flow.rate for flow in self._flows], default=inf)

    def _take_ended(self) -> list[F]:
        """Return the flows that have nothing left, in the order of arrival, and keep the others."""
        ended = [flow for flow in self._flows if flow.left <= _ROUNDING]
        self._flows = [flow for flow in self._flows if flow.left > _ROUNDING]
        return ended

    def _reschedule(self) -> None:
        """Share anew, and wake up when the first flow ends."""
        self._advance()
        self._set_rates()
        wait = self._until_first_end()
        if wait == inf:
            return
        # SimPy cannot take a timeout back: the number tells an outdated one.
        self._version += 1
        # Rounded up: a clock that woke a moment early would find something left and have to come back.
        self._env.timeout(ceil(wait), self._version).callbacks.append(self._on_wake)

    def _on_wake(self, wake: Event) -> None:
        """End the flows that have nothing left; a wake-up that something has overtaken does nothing."""
        if wake.value != self._version:
            return
        self._advance()
        # In the order of arrival, so that flows that end together resume in one order on every run.
        for flow in self._take_ended():
            flow.on_end(self._updated_ps)
        self._changed()


class SharedMemory(Fluid[Flow]):
    """A memory (or link) of one bandwidth, in bytes per second; its flows are in bytes.

    Flows without a limit of their own all move at one rate: they end in an order that is known when they begin, and
    none of them is touched before. Any number of copies may be under way.
    """

    def __init__(self, env: Environment, bytes_per_second: float) -> None:
        super().__init__(env)
        self._bytes_per_ps = bytes_per_second / PS_PER_SECOND
        # By how much each flow without a limit will have moved when it ends, counted as ``_moved`` is.
        self._unlimited: list[tuple[float, int, Flow]] = []
        # What such a flow would have moved that began when there was none.
        self._moved = 0.0
        self._rate = 0.0

    def transfer(self, n_bytes: float, at_most: float = inf) -> Event:
        """Begin to move ``n_bytes``, at most ``at_most`` bytes per picosecond; return the event of its end, whose value
        is when that was.
        """
        done = self._env.event()
        # Its limit may be 0 as well, and no end can be computed from that.
        if n_bytes <= 0:
            return done.succeed(int(self._env.now))
        self._begin(Flow(n_bytes, at_most, done.succeed))
        return done

    def _add(self, flow: Flow) -> None:
        if flow.limit < inf:
            super()._add(flow)
            return
        # Not counting what moves before it begins.
        self._advance()
        heappush(self._unlimited, (self._moved + flow.left, flow.number, flow))

    def _set_rates(self) -> None:
        self._rate = fair_rates(self._flows, self._bytes_per_ps, len(self._unlimited))

    def _move(self, passed_ps: int) -> None:
        super()._move(passed_ps)
        self._moved += self._rate * passed_ps

    def _until_first_end(self) -> float:
        if not self._unlimited:
            return super()._until_first_end()
        unlimited = max(0.0, self._unlimited[0][0] - self._moved) / self._rate
        # Nearly all flows are without a limit.
        return min(super()._until_first_end(), unlimited) if self._flows else unlimited

    def _take_ended(self) -> list[Flow]:
        ended = super()._take_ended()
        while self._unlimited and self._unlimited[0][0] - self._moved <= _ROUNDING:
            ended.append(heappop(self._unlimited)[2])
        if not self._unlimited:
            # So that the sum stays exact: it begins anew with every stretch.
            self._moved = self._rate = 0.0
        return sorted(ended, key=lambda flow: flow.number)


def fair_rates(flows: list[Flow], capacity: float, unlimited: int = 0) -> float:
    """Set the flows' rates to the max-min fair share of ``capacity`` (bytes per picosecond) under their limits.

    Return the rate of each of so many ``unlimited`` flows beside them.
    """
    if not flows:
        return capacity / unlimited if unlimited else 0.0
    left, sharers = capacity, len(flows) + unlimited
    # The most limited first: what it leaves unused raises the shares of the others.
    for flow in sorted(flows, key=lambda flow: flow.limit):
        flow.rate = min(flow.limit, left / sharers)
        left -= flow.rate
        sharers -= 1
    return left / unlimited if unlimited else 0.0
