"""Kernels: first blocks in, tiles under traffic, last block out, against whatever else uses the memories meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Any

from tpusim.cost.classes import CHAIN
from tpusim.cost.peaks import type_shares
from tpusim.cost.tile import KernelTime
from tpusim.hardware.units import UNITS
from tpusim.machine.core import Activity, Core, runs
from tpusim.machine.device import HOST_LINKS
from tpusim.machine.events import Event
from tpusim.machine.fluid import all_of
from tpusim.program.steps import Kernel
from tpusim.timeline.records import DEPENDENT

ROUNDING_PS = 1000
"""A nanosecond: below it, whether traffic or tiles end last is chance."""


@runs(Kernel)
def run_kernel(core: Core, kernel: Kernel) -> Activity:
    """Run one kernel; one that nothing can disturb takes as long, and for the same reasons, as the last time."""
    start_ps, device, cost = core.now_ps, core.device, core.device.kernels.kernel(kernel)
    traffic = cost.time.traffic
    alone = not traffic or (not device.under_way and not any(t.space in HOST_LINKS for t in traffic))
    if alone and cost.undisturbed is not None:
        duration_ps, details = cost.undisturbed
        yield core.env.timeout(duration_ps)
    else:
        details = yield from _play(core, cost.time)
        if alone:
            cost.undisturbed = core.now_ps - start_ps, details
    core.record(
        kernel,
        start_ps,
        is_kernel=not kernel.scalar,
        flops=kernel.flops,
        product_flops=kernel.product_flops,
        flops_type=kernel.flops_type,
        type_shares=type_shares(kernel),
        compiler_cycles=kernel.compiler_cycles,
        **details,
    )


def _play(core: Core, time: KernelTime) -> Generator[Event, Any, dict[str, Any]]:
    """Play one kernel; return the fields of its record that say where its time went."""
    parts = {"latency": time.fixed_ps + time.between_ps}
    # Nothing overlaps this: the kernel's own code starts its transfers, and waits for them.
    yield core.env.timeout(time.fixed_ps + time.between_ps)
    yield from _move(core, {t.space: t.first_bytes for t in time.traffic if t.first_bytes > 0}, parts)
    yield from _compute(core, time, parts)
    yield from _move(core, {t.space: t.last_bytes for t in time.traffic if t.last_bytes > 0}, parts)
    bound_by = max(parts, key=lambda part: parts[part])
    totals = {t.space: t.first_bytes + t.steady_bytes + t.last_bytes for t in time.traffic}
    units = time.unit_ps | core.device.busy_ps(totals)
    return {"bound_by": bound_by, "units": units, "activity": time.activity, "parts": parts}


def _move(core: Core, moving: dict[str, float], parts: dict[str, int]) -> Activity:
    """Wait for bytes that no tile hides, on all memories at once, and add the time to ``parts``."""
    if not moving:
        return
    latency_ps = core.device.dma_latency_ps
    # All operands set out together, so that the latency is paid once for them.
    parts["latency"] += latency_ps
    yield core.env.timeout(latency_ps)
    start_ps = core.now_ps
    yield all_of(core.env, [core.device.memories[space].transfer(n_bytes) for space, n_bytes in moving.items()])
    memory = UNITS[next(iter(moving))].bound
    parts[memory] = parts.get(memory, 0) + core.now_ps - start_ps


def _compute(core: Core, time: KernelTime, parts: dict[str, int]) -> Activity:
    """Compute the tiles while their traffic runs; the later of the two is what bounds the kernel here."""
    start_ps = core.now_ps
    flows = []
    least_ps = time.least_ps
    for traffic in time.traffic:
        # Double buffers hold one tile ahead: traffic faster than the tiles has nowhere to go.
        limit = traffic.steady_bytes / least_ps if least_ps else inf
        flows.append(core.device.memories[traffic.space].transfer(traffic.steady_bytes, limit))
    yield core.env.timeout(least_ps)
    held = time.held
    # Blocks that wait for a free buffer are waits for a memory's answer, whatever the tiles do meanwhile.
    waiting_ps = max(0, time.rounds_ps - max(time.compute_ps, time.moving_ps, time.bursts_ps))
    parts["latency"] += waiting_ps
    for traffic, flow in zip(time.traffic, flows, strict=True):
        before_ps = core.now_ps
        if not flow.processed:
            yield flow
        # A flow held back to the tiles' own speed ends a rounding error after them.
        if core.now_ps > before_ps + ROUNDING_PS:
            held = {traffic.space: 1.0}
    rest_ps, done_ps, done, whole = core.now_ps - start_ps - waiting_ps, 0, 0.0, sum(held.values())
    for name, weight in held.items():
        done += weight
        part_ps = round(rest_ps * done / whole) - done_ps
        bound = DEPENDENT if name == CHAIN else UNITS[name].bound
        parts[bound] = parts.get(bound, 0) + part_ps
        done_ps += part_ps
