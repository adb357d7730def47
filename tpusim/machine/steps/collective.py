"""Collectives: on the core or beside it, over the links, through HBM here, and the sums of what comes in.

An all-reduce has its rings in VMEM, where what comes in is added to what is there: its operand is brought in first and
the sums are written out last (the scoped memory that programs state for it). Nothing tells how much of that is hidden;
none is taken to be: 1.61 GB on v6e were published as 11.71 ms, which only 256 chips can reach, and take 9.3 ms there if
all is hidden, 11.3 if nothing is. All others read and write while the links move.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tpusim.hardware.units import HBM, ICI, LOAD, STORE, UNITS, VECTOR
from tpusim.machine.core import Activity, Core, runs
from tpusim.machine.events import Event
from tpusim.machine.rendezvous import Completion, split_late
from tpusim.program.steps import Collective
from tpusim.timeline.records import ICI_LATENCY
from tpusim.units import cycles_to_ps

if TYPE_CHECKING:
    from tpusim.cost.collectives import CommunicationPlan


@runs(Collective)
def run_collective(core: Core, step: Collective) -> Activity:
    """Run a collective on the core, or start it beside the core."""
    if step.is_async:
        core.start(step, _communicate(core.beside(ICI), step), "a collective")
        return
    completions = yield from _communicate(core, step)
    core.device.world.compare(step, {number: one.end_ps for number, one in completions.items()})


def _communicate(core: Core, step: Collective) -> Generator[Event, Any, dict[int, Completion]]:
    """Take part in a collective; return how it went for each member of the cohort."""
    # Members that did not wait for it need not part for that, but their records differ.
    start_ps, device = core.now_ps, core.device
    plan = device.world.collectives.plan(device.cohort, step)
    ended = device.world.collectives.join(device.cohort, step, core.recorded)
    done = _activity(core, step, plan)
    vector_ps = _vector_ps(core, done)
    # What a collective reads and writes here slows the kernels beside it, so it takes its share of HBM.
    local = device.memories[HBM].transfer(0 if _is_staged(step) else done[HBM])
    yield core.env.all_of([ended, local, core.env.timeout(vector_ps)])
    here_ps, moved_ps = max(local.value or 0, start_ps + vector_ps), core.now_ps
    if _is_staged(step):
        yield device.memories[HBM].transfer(done[HBM])
    staged_ps = core.now_ps - moved_ps
    completions: dict[int, Completion] = ended.value or {}
    # Most of a cohort's members share one, and there may be as many as devices.
    distinct = {id(one): one for one in completions.values()}
    shifted = {key: structs.replace(one, end_ps=max(one.end_ps, here_ps) + staged_ps) for key, one in distinct.items()}
    found = {number: shifted[id(one)] for number, one in completions.items()}
    own = found[device.number]
    record = core.record(
        step,
        start_ps,
        end_ps=own.end_ps,
        **_figures(core, step, plan, done, own, start_ps),
        flops=step.flops,
        payload_bytes=step.n_bytes,
        group_size=step.group_size,
    )
    others = device.world.costs.other_plans(step, device.cohort.devices, device.cohort.members)
    for number in device.cohort.members[1:]:
        if number in others or found[number] != own:
            other = others.get(number, plan)
            figures = _figures(core, step, other, _activity(core, step, other), found[number], start_ps)
            device.recorder.vary(number, record, {"end_ps": found[number].end_ps, **figures})
    return found


def _is_staged(step: Collective) -> bool:
    """Return whether a collective brings its operand in before it moves anything, and writes its result afterwards."""
    return step.kind == "all-reduce"


def _activity(core: Core, step: Collective, plan: CommunicationPlan) -> dict[str, float]:
    """Return what a device does: bytes over its links and through HBM, and the sums of what comes in."""
    # What is passed on was received into HBM, if the result lies there, and is read again.
    relayed_bytes = plan.relayed * step.n_bytes if step.hbm_bytes else 0.0
    # All but a device's own are added up: in two phases each its part of them, in a single one everybody everything.
    share = (step.group_size - 1) / (1 if plan.single_phase else max(1, step.group_size))
    registers = step.flops * share / core.device.chip.vpu.register_elements
    sums = {VECTOR: registers, LOAD: 2 * registers, STORE: registers} if registers else {VECTOR: 0.0}
    return {ICI: plan.carried * step.n_bytes, HBM: step.hbm_bytes + relayed_bytes, **sums}


def _figures(
    core: Core, step: Collective, plan: CommunicationPlan, done: dict[str, float], completion: Completion, start_ps: int
) -> dict[str, Any]:
    """Return the fields of a record that say what bounds the collective of a device, and which units it keeps busy."""
    latency_ps = core.device.world.costs.latency_ps(plan)
    duration_ps, late_ps = completion.end_ps - start_ps, completion.late_ps(start_ps)
    # Launch and hops keep no link busy, whoever waits for them: at the links' peak rate the bytes alone take time.
    # Bytes on the links of chips between the members are the members' doing, but keep the links of others busy.
    units = core.device.busy_ps(done | {ICI: plan.passing * step.n_bytes})
    if not len(plan.load.links):
        # No other device is in the group: what is left is the way through HBM, if it has one.
        bound_by = UNITS[HBM].bound if step.hbm_bytes else "latency"
    elif 2 * latency_ps > duration_ps - late_ps:
        bound_by = ICI_LATENCY
    else:
        is_memory = _is_staged(step) and 2 * units.get(HBM, 0) > duration_ps - late_ps
        bound_by = UNITS[HBM if is_memory else ICI].bound
    units |= _sums_ps(core, done)
    return {**split_late(bound_by, duration_ps, late_ps), "units": units, "activity": done}


def _vector_ps(core: Core, done: dict[str, float]) -> int:
    """Return how long all cores add up what comes in: two loads and a store beside each addition."""
    return max(_sums_ps(core, done).values(), default=0)


def _sums_ps(core: Core, done: dict[str, float]) -> dict[str, int]:
    """Return how long each of the slots that sums need is busy, on all cores alike."""
    chip = core.device.chip
    slots = {VECTOR: chip.vpu.alu_slots, LOAD: chip.vpu.load_slots, STORE: chip.vpu.store_slots}
    per_core = {unit: done[unit] / (count * chip.cores_per_device) for unit, count in slots.items() if done.get(unit)}
    return {unit: cycles_to_ps(cycles, chip.clock_hz) for unit, cycles in per_core.items()}
