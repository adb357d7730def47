"""Copies between the memories of a device, beside the core."""

from __future__ import annotations

from tpusim.cost.dma import copy_activity, copy_loads
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM, HOST, UNITS, VMEM
from tpusim.machine.core import Core, at_once, runs
from tpusim.machine.device import HOST_LINKS, CopyCost, Device
from tpusim.machine.events import Event
from tpusim.machine.fluid import all_of, call_after
from tpusim.program.steps import Copy
from tpusim.units import seconds_to_ps

_FAR_MEMORIES = (HBM, CMEM, *HOST_LINKS)


@runs(Copy)
def start_copy(core: Core, copy: Copy) -> None:
    """Start a copy beside the core."""
    if copy.is_prefetch and core.device.warm:
        core.start(copy, at_once(), "a copy")
    else:
        core.note(copy, _begin(core.beside(copy.through), copy), "a copy")


def _begin(core: Core, copy: Copy) -> Event:
    """Move a copy's bytes through every memory that it touches; return the event of its end.

    By calls and not as a process: programs have more copies than kernels.
    """
    start_ps, device, cost, landed = core.now_ps, core.device, _cost(copy, core.device), core.env.event()
    over_pcie = HOST in (copy.source_space, copy.target_space)
    latency_ps = seconds_to_ps(device.chip.host.latency_seconds) if over_pcie else device.dma_latency_ps

    def move() -> None:
        moved = all_of(core.env, [device.memories[s].transfer(n) for s, n in cost.loads.items()])
        moved.callbacks.append(end)

    def end(_: Event) -> None:
        core.record(copy, start_ps, **cost.details)
        device.under_way.end(number)
        landed.succeed()

    number = device.under_way.begin()
    call_after(core.env, latency_ps, move)
    return landed


def _cost(copy: Copy, device: Device) -> CopyCost:
    """Return what a copy takes, which those share that move as many bytes between the same places."""
    ends = copy.source_space, copy.target_space, copy.source_address, copy.target_address
    key = copy.n_bytes, copy.chunk_bytes, *ends
    if key not in device.copies:
        done = copy_activity(copy, device.chip)
        busy = device.busy_ps(done)
        bound_by = UNITS[max(busy, key=lambda unit: busy[unit]) if busy else VMEM].bound
        details = {"activity": done, "units": busy, "bound_by": bound_by}
        device.copies[key] = CopyCost(_loads(copy, device.chip), details)
    return device.copies[key]


def _loads(copy: Copy, chip: Chip) -> dict[str, float]:
    """Return the memories that a copy loads, each with the bytes as it feels them."""
    loads: dict[str, float] = {}
    for space, n_bytes in copy_loads(copy, chip).items():
        # No rate is published for SMEM and sync flags, and what goes there is small: VMEM stands for them.
        memory = space if space in _FAR_MEMORIES else VMEM
        loads[memory] = loads.get(memory, 0.0) + n_bytes
    if len(loads) > 1:
        # The core's own memory is never what holds up a transfer from or to a slower one.
        loads.pop(VMEM, None)
    return loads
