"""Infeeds, outfeeds, and sends or receives whose other end is the host.

Without a stated pace the host is always ready, and a transfer takes the link's latency and its bytes.
"""

from __future__ import annotations

from tpusim.hardware.units import HBM, HOST, HOST_IN, HOST_OUT, UNITS
from tpusim.machine.core import Activity, Core, runs
from tpusim.machine.events import Event
from tpusim.machine.host.queues import WAIT_AT_QUEUE
from tpusim.machine.waits import HOST as HOST_END
from tpusim.program.steps import HostTransfer
from tpusim.units import seconds_to_ps


@runs(HostTransfer)
def run_host(core: Core, step: HostTransfer) -> Activity | None:
    """Move bytes over the link to the host, or to or from its queues."""
    queues = core.device.host
    if step.is_async:
        core.start(step, _transfer(core.beside("host"), step), "the host")
        return None
    if step.to_host and queues.outfeed is not None:
        return _queued(core, step, queues.send(queues.outfeed, step.n_bytes), WAIT_AT_QUEUE[True])
    if not step.to_host and queues.infeed is not None:
        return _queued(core, step, queues.infeed.get(), WAIT_AT_QUEUE[False])
    return _transfer(core, step)


def _done(step: HostTransfer) -> dict[str, float]:
    return {HOST_OUT if step.to_host else HOST_IN: step.n_bytes, HBM: step.hbm_bytes}


def _queued(core: Core, step: HostTransfer, turn: Event, reason: str) -> Activity:
    """Wait for one's turn at a queue, and then for HBM; the wait is shown as what it is."""
    start_ps, device = core.now_ps, core.device
    with device.world.waits.noted(device.number, step, f"the host ({reason})", (HOST_END,)):
        yield turn
    if core.now_ps > start_ps:
        core.record(step, start_ps, bound_by=reason, is_wait=True)
        start_ps = core.now_ps
    yield device.memories[HBM].transfer(step.hbm_bytes)
    core.record(step, start_ps, bound_by=UNITS[HOST].bound, units=device.busy_ps(_done(step)), activity=_done(step))


def _transfer(core: Core, step: HostTransfer) -> Activity:
    """Wait for the link's latency and then for the bytes."""
    start_ps, device, done = core.now_ps, core.device, _done(step)
    link = next(iter(done))
    yield core.env.timeout(seconds_to_ps(device.chip.host.latency_seconds))
    local = device.memories[HBM].transfer(step.hbm_bytes)
    yield core.env.all_of([local, device.memories[link].transfer(step.n_bytes)])
    core.record(step, start_ps, bound_by=UNITS[HOST].bound, units=device.busy_ps(done), activity=done)
