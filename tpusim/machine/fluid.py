"""What flows share: a fluid whose rates change only when a flow begins or ends, and a memory as the simplest one.

The cost is per flow, not per byte or cycle. Rates and what is left are floats; the moments at which flows end are
rounded up to whole picoseconds before they reach the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Generic, TypeVar

from simpy import Environment, Event

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

    ``on_end`` is called with the time at which it has ended.
    """

    __slots__ = ("left", "limit", "on_end", "rate")

    def __init__(self, left: float, limit: float, on_end: OnEnd) -> None:
        self.left = left
        self.limit = limit
        self.rate = 0.0
        self.on_end = on_end


F = TypeVar("F", bound=Flow)


class Fluid(ABC, Generic[F]):
    """Flows that share something, max-min fair; a subclass says at which rates."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._flows: list[F] = []
        self._updated_ps = 0
        self._version = 0

    @abstractmethod
    def _set_rates(self) -> None:
        """Set the rates of all flows, of which there is at least one."""

    def _begin(self, flow: F) -> None:
        self._flows.append(flow)
        self._changed()

    def _changed(self) -> None:
        """Some flows have begun or ended at this moment."""
        self._reschedule()

    def _advance(self) -> None:
        """Bring what is left of all flows up to now."""
        now_ps = int(self._env.now)
        passed_ps = now_ps - self._updated_ps
        if passed_ps:
            for flow in self._flows:
                flow.left -= flow.rate * passed_ps
            self._updated_ps = now_ps

    def _reschedule(self) -> None:
        """Share anew, and wake up when the first flow ends."""
        self._advance()
        if not self._flows:
            return
        self._set_rates()
        # Rounded up: a clock that woke a moment early would find something left and have to come back.
        wait_ps = ceil(min(max(0.0, flow.left) / flow.rate for flow in self._flows))
        # SimPy cannot take a timeout back: the number tells an outdated one.
        self._version += 1
        self._env.timeout(wait_ps, self._version).callbacks.append(self._on_wake)

    def _on_wake(self, wake: Event) -> None:
        """End the flows that have nothing left; a wake-up that something has overtaken does nothing."""
        if wake.value != self._version:
            return
        self._advance()
        ended = [flow for flow in self._flows if flow.left <= _ROUNDING]
        self._flows = [flow for flow in self._flows if flow.left > _ROUNDING]
        # In the order of arrival, so that flows that end together resume in one order on every run.
        for flow in ended:
            flow.on_end(self._updated_ps)
        self._changed()


class SharedMemory(Fluid[Flow]):
    """A memory (or link) of one bandwidth, in bytes per second; its flows are in bytes."""

    def __init__(self, env: Environment, bytes_per_second: float) -> None:
        super().__init__(env)
        self._bytes_per_ps = bytes_per_second / PS_PER_SECOND

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

    def _set_rates(self) -> None:
        fair_rates(self._flows, self._bytes_per_ps)


def fair_rates(flows: list[Flow], capacity: float) -> None:
    """Set the flows' rates to the max-min fair share of ``capacity`` (bytes per picosecond) under their limits."""
    if len(flows) == 1:
        flows[0].rate = min(flows[0].limit, capacity)
        return
    left = capacity
    # The most limited first: what it leaves unused raises the shares of the others.
    waiting = sorted(flows, key=lambda flow: flow.limit)
    for position, flow in enumerate(waiting):
        flow.rate = min(flow.limit, left / (len(waiting) - position))
        left -= flow.rate
