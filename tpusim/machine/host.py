"""The host: a producer that fills the infeed's queue, a consumer that empties the outfeed's, and the link to both.

Without a stated pace the host is always ready, and a transfer takes the link's latency and its bytes. With one, items
come over the link ahead of time, as many as the queue holds; what is sent out waits in a queue until the host takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from tpusim.machine.world import HOST
from tpusim.program.feed import intervals_ps
from tpusim.program.module import every_step
from tpusim.program.steps import HostTransfer
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Generator

    from tpusim.machine.core import Core, Device
    from tpusim.program.feed import Feed

    Activity = Generator[simpy.Event, Any, None]


class HostQueues:
    """The queues of one device; None where the host is always ready."""

    def __init__(self, device: Device, infeed: Feed | None, outfeed: Feed | None) -> None:
        self._device = device
        self.infeed = simpy.Store(device.env, infeed.depth) if infeed else None
        self.outfeed = simpy.Store(device.env, outfeed.depth) if outfeed else None
        # The ways, to the host or from it, whose feeds have no more to give or to take.
        self.ended: set[bool] = set()
        if infeed:
            device.env.process(self._produce(infeed))
        if outfeed:
            device.env.process(self._consume(outfeed))

    def _produce(self, feed: Feed) -> Activity:
        """Make one item after the other ready and bring it over the link, as long as the queue has room."""
        device, queue = self._device, self.infeed
        assert queue is not None
        sizes = [step.n_bytes for step in _feeds(device) if not step.to_host]
        for number, interval_ps in enumerate(intervals_ps(feed, device.number)):
            if not sizes:
                return
            yield device.env.timeout(interval_ps)
            # In the order of the text, again and again: a loop's infeeds come as often as it turns.
            size = sizes[number % len(sizes)]
            yield device.env.timeout(seconds_to_ps(device.chip.host.latency_seconds))
            yield device.memories["host_in"].transfer("infeed", size)
            yield queue.put(size)
        self.ended.add(False)

    def _consume(self, feed: Feed) -> Activity:
        """Take one item after the other, each in its time."""
        device, queue = self._device, self.outfeed
        assert queue is not None
        for interval_ps in intervals_ps(feed, device.number):
            size = yield queue.get()
            yield device.env.timeout(seconds_to_ps(device.chip.host.latency_seconds))
            yield device.memories["host_out"].transfer("outfeed", size)
            yield device.env.timeout(interval_ps)
        self.ended.add(True)


def _feeds(device: Device) -> list[HostTransfer]:
    """Return the infeeds and outfeeds of a device's program, in order."""
    steps = every_step(device.program.steps)
    return [step for step in steps if isinstance(step, HostTransfer) and not step.is_async]


def run_host(core: Core, step: HostTransfer) -> Activity:
    """Move bytes over the link to the host, or to or from its queues."""
    queues = core.device.host
    if step.is_async:
        core.start(step, _host_transfer(core, step, "host"), "the host")
    elif step.to_host and queues.outfeed is not None:
        yield from _queued(core, step, queues.outfeed.put(step.n_bytes), "outfeed full")
    elif not step.to_host and queues.infeed is not None:
        yield from _queued(core, step, queues.infeed.get(), "infeed starved")
    else:
        yield from _host_transfer(core, step, core.row)


def _queued(core: Core, step: HostTransfer, turn: simpy.Event, reason: str) -> Activity:
    """Wait for one's turn at a queue, and then for HBM; the wait is shown as what it is."""
    start_ps, world = core.now_ps, core.device.world
    blocked = world.block(core.device.number, step, f"the host ({reason})", (HOST,))
    yield turn
    world.blocked[core.device.number].remove(blocked)
    if core.now_ps > start_ps:
        core.record(step, start_ps, bound_by=reason, is_wait=True)
        start_ps = core.now_ps
    yield core.device.memories["hbm"].transfer(step.name, step.hbm_bytes)
    way = "host_out" if step.to_host else "host_in"
    units = {way: bytes_to_ps(step.n_bytes, core.device.peak(way))} | core.device.hbm_units(step.hbm_bytes)
    core.record(step, start_ps, bound_by="host", units=units, hbm_bytes=step.hbm_bytes)


def _host_transfer(core: Core, step: HostTransfer, row: str) -> Activity:
    """Wait for the link's latency and then for the bytes."""
    start_ps = core.now_ps
    latency_ps = seconds_to_ps(core.device.chip.host.latency_seconds)
    yield core.env.timeout(latency_ps)
    way = "host_out" if step.to_host else "host_in"
    local = core.device.memories["hbm"].transfer(step.name, step.hbm_bytes)
    yield core.env.all_of([local, core.device.memories[way].transfer(step.name, step.n_bytes)])
    # A transfer that the core waits for costs its latency too; others share theirs with what runs meanwhile.
    waited_ps = 0 if step.is_async else latency_ps
    busy_ps = waited_ps + bytes_to_ps(step.n_bytes, core.device.peak(way))
    core.device.recorder.add(
        step,
        row,
        start_ps,
        core.now_ps,
        bound_by="host",
        units={way: busy_ps} | core.device.hbm_units(step.hbm_bytes),
        hbm_bytes=step.hbm_bytes,
    )
