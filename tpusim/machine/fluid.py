"""What flows share: a fluid whose rates change only when a flow begins or ends, and a memory as the simplest one.

The cost is per flow, not per byte or cycle. Rates and what is left are floats; the moments at which flows end are
rounded up to whole picoseconds before they reach the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Generic, TypeAlias, TypeVar

from tpusim.machine.events import Environment, Event
from tpusim.units import PS_PER_SECOND

OnEnd = Callable[[int], object]

ROUNDING = 1e-3
"""A flow with less than this left has ended: what remains is rounding, not payload."""

_SLACK = 1e-9
"""A flow held at its limit stays so until its fair share is less by this part of the bandwidth: not for a rounding."""


def call_after(env: Environment, delay_ps: int, action: Callable[[], object]) -> None:
    """Do something later; lighter than a process of its own."""

    def call(_: Event) -> None:
        action()

    env.timeout(delay_ps).callbacks.append(call)


def all_of(env: Environment, events: Sequence[Event]) -> Event:
    """Return the event of the end of all of some; of one, which is the usual case, that one."""
    return events[0] if len(events) == 1 else env.all_of(events)


class Flow:
    """Something under way: how much there is to move.

    ``on_end`` is called with the time at which it has ended. ``number`` says which of its fluid's flows it is.
    """

    __slots__ = ("left", "number", "on_end")

    def __init__(self, left: float, on_end: OnEnd) -> None:
        self.left = left
        self.number = 0
        self.on_end = on_end


F = TypeVar("F", bound=Flow)


class Fluid(ABC, Generic[F]):
    """Flows that share something, max-min fair; a subclass says at which rates."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._count = 0
        self._updated_ps = 0
        self._version = 0

    @abstractmethod
    def _add(self, flow: F) -> None:
        """Let a flow be under way from now on."""

    @abstractmethod
    def _set_rates(self) -> None:
        """Set the rates of all flows."""

    @abstractmethod
    def _move(self, passed_ps: int) -> None:
        """Take off what has moved in so many picoseconds."""

    @abstractmethod
    def _until_first_end(self) -> float:
        """Return in how many picoseconds the first flow ends, at the rates that are set."""

    @abstractmethod
    def _take_ended(self) -> list[F]:
        """Return the flows that have nothing left, in the order of arrival, and keep the others."""

    def _begin(self, flow: F) -> None:
        self._count += 1
        flow.number = self._count
        self._add(flow)
        self._changed()

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


class MemoryFlow(Flow):
    """A flow of a memory, which shares what is left with others or is held at its limit (per picosecond).

    ``until`` is when it ends, as its kind counts: what those that share have moved, or the time of those that are held.
    ``turn`` counts how often it began, changed over or ended.
    """

    __slots__ = ("limit", "turn", "until")

    def __init__(self, left: float, limit: float, on_end: OnEnd) -> None:
        super().__init__(left, on_end)
        self.limit = limit
        self.turn = 0
        self.until = 0.0


_Queue: TypeAlias = "list[tuple[float, int, int, MemoryFlow]]"
"""A heap of flows by a key; those whose turn is over stay until they would come first."""


class SharedMemory(Fluid[MemoryFlow]):
    """A memory (or link) of one bandwidth, in bytes per second; its flows are in bytes.

    Those whose limit is no more than a fair share are held at it; all others move at one rate. Each kind ends in an
    order that is known when they begin, and none of them is touched before, unless it changes over. Any number of
    copies may be under way.
    """

    def __init__(self, env: Environment, bytes_per_second: float) -> None:
        super().__init__(env)
        self._bytes_per_ps = bytes_per_second / PS_PER_SECOND
        # By their ends, and by which of them changes over first.
        self._sharing: _Queue = []
        self._held: _Queue = []
        self._least_limited: _Queue = []
        self._most_held: _Queue = []
        self._sharers = self._holders = 0
        # The rate of each that shares, and what such a flow would have moved that began when there was none.
        self._rate = self._moved = 0.0
        # The rate of all that are held together, and the time since there was none.
        self._held_rate, self._passed_ps = 0.0, 0

    def least_ps(self, n_bytes: float) -> int:
        """Return how long ``n_bytes`` take at least, if nothing else is moved."""
        return int(n_bytes / self._bytes_per_ps)

    def transfer(self, n_bytes: float, at_most: float = inf) -> Event:
        """Begin to move ``n_bytes``, at most ``at_most`` bytes per picosecond; return the event of its end, whose value
        is when that was.
        """
        done = self._env.event()
        # Its limit may be 0 as well, and no end can be computed from that.
        if n_bytes <= 0:
            return done.succeed(int(self._env.now))
        self._begin(MemoryFlow(n_bytes, at_most, done.succeed))
        return done

    def _add(self, flow: MemoryFlow) -> None:
        # Not counting what moves before it begins.
        self._advance()
        # One that will be held is so at once: nothing of it is rounded by what the others have moved.
        share = (self._bytes_per_ps - self._held_rate) / (self._sharers + 1)
        (self._hold if flow.limit <= share else self._share)(flow, flow.left)

    def _share(self, flow: MemoryFlow, left: float) -> None:
        self._sharers += 1
        flow.turn += 1
        flow.until = self._moved + left
        _enter(self._sharing, flow.until, flow)
        # Nearly all flows are without a limit.
        if flow.limit < inf:
            _enter(self._least_limited, flow.limit, flow)

    def _hold(self, flow: MemoryFlow, left: float) -> None:
        self._holders += 1
        self._held_rate += flow.limit
        flow.turn += 1
        flow.until = self._passed_ps + left / flow.limit
        _enter(self._held, flow.until, flow)
        _enter(self._most_held, -flow.limit, flow)

    def _share_no_longer(self, flow: MemoryFlow) -> float:
        """Let a flow share no longer, and return what is left of it."""
        self._sharers -= 1
        flow.turn += 1
        return flow.until - self._moved

    def _hold_no_longer(self, flow: MemoryFlow) -> float:
        self._holders -= 1
        self._held_rate -= flow.limit
        flow.turn += 1
        return (flow.until - self._passed_ps) * flow.limit

    def _set_rates(self) -> None:
        """Let flows change over until those are held whose limit is no more than what each of the others gets."""
        while True:
            share = (self._bytes_per_ps - self._held_rate) / self._sharers if self._sharers else inf
            lowest = _first(self._least_limited) if self._least_limited else None
            highest = _first(self._most_held) if self._most_held else None
            # Either way the share of the others grows, so that this ends.
            if lowest and lowest.limit <= share:
                self._hold(lowest, self._share_no_longer(lowest))
            elif highest and highest.limit > share + _SLACK * self._bytes_per_ps:
                self._share(highest, self._hold_no_longer(highest))
            else:
                self._rate = share if self._sharers else 0.0
                return

    def _move(self, passed_ps: int) -> None:
        self._moved += self._rate * passed_ps
        self._passed_ps += passed_ps

    def _until_first_end(self) -> float:
        shared, held = _first(self._sharing), _first(self._held) if self._held else None
        ends = max(0.0, shared.until - self._moved) / self._rate if shared else inf
        return min(ends, max(0.0, held.until - self._passed_ps)) if held else ends

    def _take_ended(self) -> list[MemoryFlow]:
        ended: list[MemoryFlow] = []
        while (flow := _first(self._sharing)) and flow.until - self._moved <= ROUNDING:
            self._share_no_longer(flow)
            ended.append(flow)
        while (flow := _first(self._held)) and (flow.until - self._passed_ps) * flow.limit <= ROUNDING:
            self._hold_no_longer(flow)
            ended.append(flow)
        # So that sums stay exact: they begin anew with every stretch.
        if not self._sharers:
            self._moved = self._rate = 0.0
        if not self._holders:
            self._held_rate, self._passed_ps = 0.0, 0
        return sorted(ended, key=lambda flow: flow.number)


def _enter(queue: _Queue, key: float, flow: MemoryFlow) -> None:
    heappush(queue, (key, flow.number, flow.turn, flow))


def _first(queue: _Queue) -> MemoryFlow | None:
    while queue:
        _, _, turn, flow = queue[0]
        if turn == flow.turn:
            return flow
        heappop(queue)
    return None
