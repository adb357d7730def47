"""Infeeds, outfeeds, and sends or receives whose other end is the host.

Without a stated pace the host is always ready, and a transfer takes the link's latency and its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.machine.core import Core, runs
from tpusim.machine.waits import HOST
from tpusim.program.steps import HostTransfer
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    import simpy

    from tpusim.machine.core import Activity


@runs(HostTransfer)
def run_host(core: Core, step: HostTransfer) -> Activity | None:
    """Move bytes over the link to the host, or to or from its queues."""
    queues = core.device.host
    if step.is_async:
        core.start(step, _transfer(core, step, "host"), "the host")
        return None
    if step.to_host and queues.outfeed is not None:
        return _queued(core, step, queues.outfeed.put(step.n_bytes), "outfeed full")
    if not step.to_host and queues.infeed is not None:
        return _queued(core, step, queues.infeed.get(), "infeed starved")
    return _transfer(core, step, core.row)


def _link(step: HostTransfer) -> str:
    """Return the link that a transfer goes over."""
    return "host_out" if step.to_host else "host_in"


def _queued(core: Core, step: HostTransfer, turn: simpy.Event, reason: str) -> Activity:
    """Wait for one's turn at a queue, and then for HBM; the wait is shown as what it is."""
    start_ps, device = core.now_ps, core.device
    with device.world.waits.noted(device.number, step, f"the host ({reason})", (HOST,)):
        yield turn
    if core.now_ps > start_ps:
        core.record(step, start_ps, bound_by=reason, is_wait=True)
        start_ps = core.now_ps
    yield device.memories["hbm"].transfer(step.hbm_bytes)
    units = {_link(step): bytes_to_ps(step.n_bytes, device.peak(_link(step)))} | device.hbm_units(step.hbm_bytes)
    core.record(step, start_ps, bound_by="host", units=units, hbm_bytes=step.hbm_bytes)


def _transfer(core: Core, step: HostTransfer, row: str) -> Activity:
    """Wait for the link's latency and then for the bytes."""
    start_ps, device, link = core.now_ps, core.device, _link(step)
    latency_ps = seconds_to_ps(device.chip.host.latency_seconds)
    yield core.env.timeout(latency_ps)
    local = device.memories["hbm"].transfer(step.hbm_bytes)
    yield core.env.all_of([local, device.memories[link].transfer(step.n_bytes)])
    # A transfer that the core waits for costs its latency too; others share theirs with what runs meanwhile.
    waited_ps = 0 if step.is_async else latency_ps
    device.recorder.add(
        step,
        row,
        start_ps,
        core.now_ps,
        bound_by="host",
        units={link: waited_ps + bytes_to_ps(step.n_bytes, device.peak(link))} | device.hbm_units(step.hbm_bytes),
        hbm_bytes=step.hbm_bytes,
    )
