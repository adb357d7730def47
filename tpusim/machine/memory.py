"""A memory whose bandwidth is shared: a fluid, max-min fair among the flows that are under way.

Rates change only when a flow begins or ends, so the cost is per flow, not per byte or cycle. Rates and remaining bytes
are floats; the moments at which flows end are rounded up to whole picoseconds before they reach the clock.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from tpusim.units import PS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simpy import Environment, Event

_ROUNDING_BYTES = 1e-3
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
    """Bytes under way. ``limit`` is the rate, in bytes per picosecond, that the flow could use at most."""

    __slots__ = ("done", "limit", "name", "rate", "remaining_bytes")

    def __init__(self, name: str, n_bytes: float, limit: float, done: Event) -> None:
        self.name = name
        self.remaining_bytes = n_bytes
        self.limit = limit
        self.rate = 0.0
        self.done = done


class SharedMemory:
    """A memory (or link) of one bandwidth, in bytes per second, and the flows that share it."""

    def __init__(self, env: Environment, name: str, bytes_per_second: float) -> None:
        self.name = name
        self.flows: list[Flow] = []
        self._env = env
        self._bytes_per_ps = bytes_per_second / PS_PER_SECOND
        self._updated_ps = 0
        self._version = 0

    def transfer(self, name: str, n_bytes: float, at_most: float = inf) -> Event:
        """Begin to move ``n_bytes``, at most ``at_most`` bytes per picosecond; return the event of its end."""
        done = self._env.event()
        # Its limit may be 0 as well, and no end can be computed from that.
        if n_bytes <= 0:
            return done.succeed()
        self._advance()
        self.flows.append(Flow(name, n_bytes, at_most, done))
        self._reschedule()
        return done

    def _advance(self) -> None:
        """Bring the remaining bytes of all flows up to now."""
        now_ps = int(self._env.now)
        for flow in self.flows:
            flow.remaining_bytes -= flow.rate * (now_ps - self._updated_ps)
        self._updated_ps = now_ps

    def _reschedule(self) -> None:
        """Share the bandwidth anew and wake up when the first flow ends."""
        if not self.flows:
            return
        fair_rates(self.flows, self._bytes_per_ps)
        # Rounded up: a clock that woke a moment early would find bytes left and have to come back.
        wait_ps = min(ceil(max(0.0, flow.remaining_bytes) / flow.rate) for flow in self.flows)
        # SimPy cannot take a timeout back: the number tells an outdated one.
        self._version += 1
        wake = self._env.timeout(wait_ps, self._version)
        wake.callbacks.append(self._on_wake)

    def _on_wake(self, wake: Event) -> None:
        """End the flows that have nothing left; a wake-up that an arrival has overtaken does nothing."""
        if wake.value != self._version:
            return
        self._advance()
        ended = [flow for flow in self.flows if flow.remaining_bytes <= _ROUNDING_BYTES]
        self.flows = [flow for flow in self.flows if flow.remaining_bytes > _ROUNDING_BYTES]
        # In the order of arrival, so that flows that end together resume in one order on every run.
        for flow in ended:
            flow.done.succeed()
        self._reschedule()


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
