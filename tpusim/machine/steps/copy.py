"""Copies between the memories of a device, beside the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.cost.dma import run_cost
from tpusim.machine.core import Core, at_once, runs
from tpusim.machine.device import BOUND_NAMES, HOST_LINKS
from tpusim.machine.fluid import all_of
from tpusim.program.steps import Copy
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from tpusim.machine.core import Activity

_FAR_MEMORIES = ("hbm", "cmem", *HOST_LINKS)


@runs(Copy)
def start_copy(core: Core, copy: Copy) -> None:
    """Start a copy beside the core."""
    is_there_already = copy.is_prefetch and core.device.warm
    core.start(copy, at_once() if is_there_already else _copy(core, copy), "a copy")


def _copy(core: Core, copy: Copy) -> Activity:
    """Move a copy's bytes through every memory that it touches."""
    start_ps, device = core.now_ps, core.device
    n_bytes = copy.n_bytes * run_cost(copy.chunk_bytes, device.chip)
    over_pcie = "host" in (copy.source_space, copy.target_space)
    latency_seconds = device.chip.host.latency_seconds if over_pcie else device.chip.dma.fixed_latency_seconds
    yield core.env.timeout(seconds_to_ps(latency_seconds))
    yield all_of(core.env, [device.memories[s].transfer(n) for s, n in _loads(copy, n_bytes).items()])
    hbm_bytes = copy.n_bytes * ((copy.source_space == "hbm") + (copy.target_space == "hbm"))
    loads = _loads(copy, copy.n_bytes)
    busy = {space: bytes_to_ps(n, rate) for space, n in loads.items() if (rate := device.peak(space))}
    bound_by = BOUND_NAMES[max(busy, key=lambda space: busy[space])] if busy else "VMEM"
    device.recorder.add(copy, copy.through, start_ps, core.now_ps, hbm_bytes=hbm_bytes, units=busy, bound_by=bound_by)


def _loads(copy: Copy, n_bytes: float) -> dict[str, float]:
    """Return the memories that a copy loads, each with the bytes; within one memory it reads and writes."""
    source = "host_in" if copy.source_space == "host" else copy.source_space
    target = "host_out" if copy.target_space == "host" else copy.target_space
    # No rate is published for SMEM and sync flags, and what goes there is small: VMEM stands for them.
    spaces = [space if space in _FAR_MEMORIES else "vmem" for space in (source, target)]
    loads: dict[str, float] = {space: n_bytes * spaces.count(space) for space in spaces}
    if len(loads) > 1:
        # The core's own memory is never what holds up a transfer from or to a slower one.
        loads.pop("vmem", None)
    return loads
