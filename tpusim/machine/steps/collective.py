"""Collectives: on the core or beside it, over the links, through HBM here, and the sums of what comes in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.machine.core import Core, runs
from tpusim.machine.rendezvous import Completion, split_late
from tpusim.program.steps import Collective
from tpusim.units import bytes_to_ps, cycles_to_ps

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from tpusim.cost.collectives import CommunicationPlan
    from tpusim.machine.core import Activity


@runs(Collective)
def run_collective(core: Core, step: Collective) -> Activity | None:
    """Run a collective on the core, or start it beside the core."""
    if step.is_async:
        core.start(step, _communicate(core, step, "ici"), "a collective")
        return None
    return _run_on_core(core, step)


def _run_on_core(core: Core, step: Collective) -> Activity:
    """Run a collective that the core waits for."""
    completions = yield from _communicate(core, step, core.row)
    core.device.world.compare(step, {number: one.end_ps for number, one in completions.items()})


def _communicate(core: Core, step: Collective, row: str) -> Generator[simpy.Event, Any, dict[int, Completion]]:
    """Take part in a collective; return how it went for each member of the cohort.

    Members that did not wait for it need not part for that, but their records differ.
    """
    start_ps, device = core.now_ps, core.device
    plan = device.world.collectives.plan(device.cohort, step)
    ended = device.world.collectives.join(device.cohort, step)
    hbm_bytes, vector_ps = _hbm_bytes(step, plan), _vector_ps(core, step)
    # What a collective reads and writes here slows the kernels beside it, so it takes its share of HBM.
    local = device.memories["hbm"].transfer(hbm_bytes)
    yield core.env.all_of([ended, core.env.all_of([local, core.env.timeout(vector_ps)])])
    here_ps = max(local.value or 0, start_ps + vector_ps)
    completions: dict[int, Completion] = ended.value or {}
    found = {number: one._replace(end_ps=max(one.end_ps, here_ps)) for number, one in completions.items()}
    own = found[device.number]
    record = device.recorder.add(
        step,
        row,
        start_ps,
        own.end_ps,
        **_figures(core, step, plan, own, start_ps),
        flops=step.flops,
        hbm_bytes=hbm_bytes,
        payload_bytes=step.n_bytes,
        group_size=step.group_size,
    )
    for number in device.cohort.members[1:]:
        other = device.world.costs.longest_plan(step, device.cohort.devices, number)
        if (found[number], other.hops, other.far_hops) != (own, plan.hops, plan.far_hops):
            figures = _figures(core, step, other, found[number], start_ps)
            device.recorder.vary(number, record, {"end_ps": found[number].end_ps, **figures})
    return found


def _hbm_bytes(step: Collective, plan: CommunicationPlan) -> float:
    """Return what a device reads and writes in HBM, what it passes on included."""
    # What is passed on was received into HBM, if the result lies there, and is read again.
    return step.hbm_bytes + (plan.relayed * step.n_bytes if step.hbm_bytes else 0.0)


def _figures(
    core: Core, step: Collective, plan: CommunicationPlan, completion: Completion, start_ps: int
) -> dict[str, Any]:
    """Return the fields of a record that say what bounds the collective of a device, and which units it keeps busy."""
    latency_ps, vector_ps = core.device.world.costs.latency_ps(plan), _vector_ps(core, step)
    # Hops of collectives that run beside each other overlap; only those that the core waits for add up.
    waited_ps = 0 if step.is_async else latency_ps
    links_ps = bytes_to_ps(plan.carried * step.n_bytes, core.device.peak("ici"))
    duration_ps, late_ps = completion.end_ps - start_ps, completion.late_ps(start_ps)
    if not len(plan.load.links):
        # Nobody else is in the group: what is left is the way through HBM, if it has one.
        bound_by = "HBM" if step.hbm_bytes else "latency"
    else:
        bound_by = "ICI latency" if 2 * latency_ps > duration_ps - late_ps else "ICI"
    return {
        **split_late(bound_by, duration_ps, late_ps),
        "units": {"ici": links_ps + waited_ps}
        | ({"vector": vector_ps} if vector_ps else {})
        | core.device.hbm_units(_hbm_bytes(step, plan)),
    }


def _vector_ps(core: Core, step: Collective) -> int:
    """Return how long the vector unit adds up what comes in: every element but one device's own."""
    chip = core.device.chip
    per_cycle = chip.vpu.lanes * chip.vpu.sublanes * chip.vpu.alu_slots * chip.cores_per_device
    share = (step.group_size - 1) / max(1, step.group_size)
    return cycles_to_ps(step.flops * share / per_cycle, chip.clock_hz)
