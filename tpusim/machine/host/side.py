"""How far the host is ahead of a core at one of its queues."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.machine.events import Environment, Store
from tpusim.machine.fluid import SharedMemory


class HostSide:
    """One of the host's queues with the host behind it, which is ahead by what the core need not wait for.

    Of an infeed that are the items that are ready, of an outfeed the room that is left. ``latency_ps`` is that of
    the link, which every item takes beside the host's own time for it. That is ``recorded_ps`` for each item, or what
    it was on average so far.
    """

    def __init__(
        self,
        env: Environment,
        depth: int,
        latency_ps: int,
        link: SharedMemory,
        *,
        to_host: bool,
        recorded_ps: Sequence[int] = (),
    ) -> None:
        self.queue = Store(env, depth)
        self.link = link
        self._env = env
        self._latency_ps = latency_ps
        self._to_host = to_host
        self._since_ps = 0
        self._is_recorded = bool(recorded_ps)
        self._total_ps, self._count = sum(recorded_ps), len(recorded_ps)
        # What a jump has left of one item, which the queue cannot hold.
        self._rest_ps = 0

    def begin(self, interval_ps: int) -> None:
        """Note that the host begins with an item, for which it takes so long."""
        self._since_ps = int(self._env.now)
        if not self._is_recorded:
            self._total_ps += interval_ps
            self._count += 1

    def cycle_ps(self, n_bytes: float) -> int:
        """Return how long the host takes at least for an item of so many bytes, on average; 0 before its first."""
        own_ps = self._latency_ps + self.link.least_ps(n_bytes)
        return self._total_ps // self._count + own_ps if self._count else 0

    def ahead_ps(self, cycle_ps: int) -> int:
        """Return how long the host would take for what the core need not wait for, at ``cycle_ps`` for an item."""
        return self._held_ps(cycle_ps) + self._rest_ps

    def land(self, ahead_ps: int, cycle_ps: int, n_bytes: float) -> int:
        """Leave the host ahead by so much, when it has gone on by itself; return how many items change hands for it."""
        wanted_ps = max(0, min(ahead_ps, cycle_ps * (int(self.queue.capacity) + 1)))
        surplus = -((wanted_ps - self._ready * cycle_ps) // cycle_ps)
        count = max(0, min(self._ready, surplus))
        for _ in range(count):
            if self._to_host:
                self.queue.put(n_bytes)
            else:
                self.queue.get()
        self._rest_ps = wanted_ps - self._held_ps(cycle_ps)
        return count

    @property
    def _waits(self) -> bool:
        """Whether the host waits for the core."""
        return bool(self.queue.get_queue if self._to_host else self.queue.put_queue)

    @property
    def _ready(self) -> int:
        """How many items the core could take, or put, without a wait."""
        held = len(self.queue.items)
        return (int(self.queue.capacity) - held if self._to_host else held) + self._waits

    def _held_ps(self, cycle_ps: int) -> int:
        begun_ps = 0 if self._waits else min(cycle_ps, int(self._env.now) - self._since_ps)
        return self._ready * cycle_ps + begun_ps
