"""The host's queues: a producer that fills the infeed's, a consumer that empties the outfeed's, at their own paces.

Items come over the link ahead of time, as many as the queue holds; what is sent out waits in a queue until the host
takes it. Without a stated pace there is no queue: the host is always ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from tpusim.program.feed import intervals_ps

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tpusim.machine.fluid import SharedMemory
    from tpusim.program.feed import Feed
    from tpusim.program.steps import HostTransfer

    Activity = Generator[simpy.Event, Any, None]


class HostQueues:
    """The queues of one device; None where the host is always ready. ``latency_ps`` is that of the link."""

    def __init__(self, env: simpy.Environment, number: int, latency_ps: int) -> None:
        self.infeed: simpy.Store | None = None
        self.outfeed: simpy.Store | None = None
        # The ways, to the host or from it, whose feeds have no more to give or to take.
        self.ended: set[bool] = set()
        self._env = env
        self._number = number
        self._latency_ps = latency_ps

    def feed(self, pace: Feed, link: SharedMemory, feeds: Sequence[HostTransfer]) -> None:
        """Make items ready at a pace and bring them over a link; ``feeds`` are those of the program, in order."""
        self.infeed = simpy.Store(self._env, pace.depth)
        sizes = [step.n_bytes for step in feeds if not step.to_host]
        self._env.process(self._produce(pace, link, self.infeed, sizes))

    def drain(self, pace: Feed, link: SharedMemory) -> None:
        """Take items over a link at a pace."""
        self.outfeed = simpy.Store(self._env, pace.depth)
        self._env.process(self._consume(pace, link, self.outfeed))

    def _produce(self, pace: Feed, link: SharedMemory, queue: simpy.Store, sizes: Sequence[float]) -> Activity:
        """Make one item after the other ready and bring it over the link, as long as the queue has room."""
        for number, interval_ps in enumerate(intervals_ps(pace, self._number)):
            if not sizes:
                return
            yield self._env.timeout(interval_ps)
            # In the order of the text, again and again: a loop's infeeds come as often as it turns.
            size = sizes[number % len(sizes)]
            yield self._env.timeout(self._latency_ps)
            yield link.transfer(size)
            yield queue.put(size)
        self.ended.add(False)

    def _consume(self, pace: Feed, link: SharedMemory, queue: simpy.Store) -> Activity:
        """Take one item after the other, each in its time."""
        for interval_ps in intervals_ps(pace, self._number):
            size = yield queue.get()
            yield self._env.timeout(self._latency_ps)
            yield link.transfer(size)
            yield self._env.timeout(interval_ps)
        self.ended.add(True)
