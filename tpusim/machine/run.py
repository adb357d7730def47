"""Runs programs on a pod: which devices are simulated, and what each of them did.

The clock counts whole picoseconds. SimPy orders what happens at the same moment by priority and serial number, so a
program on a chip always gives the same time line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain, count
from typing import NamedTuple

from tpusim.errors import SimulationError, UnsupportedError
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Pod, Topology
from tpusim.limits import DEVICES_APART, EXECUTIONS
from tpusim.machine import steps  # noqa: F401 (fills the table of handlers)
from tpusim.machine.cohorts import (
    MOST_SIMPLE_SPLITS,
    ONE_FOR_ALL,
    Cohorts,
    Split,
    apart,
    cohorts_of,
    collapsed,
    may_collapse,
    refined,
)
from tpusim.machine.core import Core
from tpusim.machine.costs import Costs
from tpusim.machine.device import Device
from tpusim.machine.placement import (
    Assignment,
    Cohort,
    RunOptions,
    assign,
    devices_needed,
    is_order_open,
    moved_by_others,
    pod_of,
)
from tpusim.machine.recording import sent_in
from tpusim.machine.waits import Standing, deadlock_message, whereabouts
from tpusim.machine.world import World
from tpusim.program.module import Program, most_executions
from tpusim.timeline.records import CORE, LinkUse, PodRun, Record, Timeline, last_of
from tpusim.units import PS_PER_SECOND, PS_PER_US, seconds_to_ps

__all__ = ["DEFAULT_OPTIONS", "RunOptions", "simulate_pod", "simulate_program"]

DEFAULT_OPTIONS = RunOptions()


def simulate_program(
    program: Program,
    chip: Chip,
    topology: Topology | None = None,
    progress: Callable[[Record], None] | None = None,
    *,
    warm: bool = False,
) -> Timeline:
    """Run ``program`` on one device of ``chip`` and return what happened, in picoseconds.

    ``topology`` is the slice that the other devices of its collectives are on. ``progress`` is called with each record
    as it ends. A ``warm`` run is one of many: what the compiler prefetches across programs has come in during the run
    before. Where devices do different things all are run, and the one that ends last is shown. Raises SimulationError
    if the program waits for what never comes.
    """
    # Without what a pod's run tells beside: to try a hundred orders of its devices takes a hundred runs.
    ended = _ended([program], chip, topology, progress, RunOptions(warm=warm))
    timelines = ended.run.timelines()
    ended.forget()
    return last_of(timelines)


def simulate_pod(
    programs: Sequence[Program],
    chip: Chip,
    topology: Topology | None = None,
    progress: Callable[[Record], None] | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> PodRun:
    """Run one program on all devices of a pod, or several side by side, and return what each device did.

    Several programs run on as many devices as each is for, one after the other. A single program whose devices all do
    the same is simulated on one of them, under the traffic of all. Raises UnsupportedError where more devices differ
    than can be run one by one, or a step runs more often than figures can tell.
    """
    ended = _ended(programs, chip, topology, progress, options)
    pod, timelines, links = ended.pod, ended.run.timelines(), ended.run.links()
    ended.forget()
    return PodRun(
        sizes=pod.torus.sizes,
        slices=pod.slices,
        device_count=ended.device_count,
        timelines=timelines,
        program_count=len(programs),
        links=links,
        device_order="mesh" if any(program.device_order for program in programs) else pod.device_order,
        is_order_open=is_order_open(programs, pod),
        warnings=(*ended.warnings, *(() if topology else moved_by_others(programs, chip, pod))),
    )


class _Ended(NamedTuple):
    """A run that has ended."""

    run: _Run
    pod: Pod
    device_count: int
    warnings: tuple[str, ...]

    def forget(self) -> None:
        """Let go of all that it was made with."""
        self.run.world.costs.forget()
        self.run.world.forget()


def _ended(
    programs: Sequence[Program],
    chip: Chip,
    topology: Topology | None,
    progress: Callable[[Record], None] | None,
    options: RunOptions,
) -> _Ended:
    """Run programs until all their devices have ended, as ``simulate_pod`` says."""
    for program in programs:
        if fault := EXECUTIONS.fault(most_executions(program)):
            raise UnsupportedError(f"{program.name}: {fault}: loops and calls in each other multiply")
    pod = pod_of(programs, chip, topology)
    costs = Costs(chip, pod)
    needed = devices_needed(programs)
    # All devices of a stated slice, unless the program is for one.
    all_of_it = topology is not None and needed > 1
    assigned = assign(programs, pod.device_count if all_of_it else min(pod.device_count, needed))
    cohorts, warnings = cohorts_of(costs, assigned, options)
    simulated = 0
    for number in count():
        if fault := DEVICES_APART.fault(len(cohorts)):
            raise UnsupportedError(f"{programs[0].name}: {fault}: their messages, hosts or choices differ")
        run = _Run(costs, assigned, cohorts, progress, options)
        split = run.finish(options.timeout_seconds)
        if split is None:
            break
        simulated += len(cohorts)
        cohorts = refined(costs, assigned, cohorts, split, deep=number >= MOST_SIMPLE_SPLITS)
        # To begin again for every one that parts would take longer than to run each by itself.
        if DEVICES_APART.most >= len(assigned) < simulated and not may_collapse(costs, apart(assigned), assigned):
            cohorts = apart(assigned)
        # Not where every device is to be run, nor where devices wait for each other for ever.
        if split.step is not None and may_collapse(costs, cohorts, assigned):
            cohorts, warnings = collapsed(cohorts)
    return _Ended(run, pod, len(assigned), warnings)


class _Run:
    """A run of one device of every cohort."""

    def __init__(
        self,
        costs: Costs,
        assigned: Sequence[Assignment],
        cohorts: Cohorts,
        progress: Callable[[Record], None] | None,
        options: RunOptions,
    ) -> None:
        placed = [Cohort(members, *assigned[members[0]]) for members in cohorts]
        self.world = World(costs, placed, len(assigned), for_all=cohorts == ONE_FOR_ALL)
        devices = [Device(self.world, one, options, progress if one.number == 0 else None) for one in placed]
        self._cores = [Core(device, CORE, device.recorder.whole) for device in devices]
        self._ends = [self.world.env.process(core.run_program()) for core in self._cores]

    def finish(self, timeout_seconds: float | None) -> Split | None:
        """Run until nothing is left to do; return what splits a cohort, if something does.

        Raises SimulationError if some device has not ended by then.
        """
        # Not run(until=ended): SimPy would meet a deadlock with an error of its own, which does not say what waits.
        world = self.world
        limit_ps = seconds_to_ps(timeout_seconds) if timeout_seconds is not None else None
        if limit_ps is None:
            world.env.run()
        elif limit_ps > 0:
            world.env.run(until=limit_ps)
        if world.split or all(end.triggered for end in self._ends):
            return world.split
        if timeout_seconds is not None and world.env.peek() != float("inf"):
            limit_us = timeout_seconds * PS_PER_SECOND / PS_PER_US
            raise SimulationError(
                f"not done after the {limit_us:.12g} us of --timeout: {whereabouts(self._standings())}; allow more time"
            )
        are_shared = any(len(cohort.members) > 1 for cohort in world.cohorts)
        # A message about devices that wait for each other is of single ones.
        waits = world.collectives.waits_of_each() if are_shared else world.waits
        if waits is None:
            return Split(None, {number: number for cohort in world.cohorts for number in cohort.members})
        raise SimulationError(deadlock_message(self._standings(), waits, world.now_ps))

    def _standings(self) -> list[Standing]:
        """Return where each device stands, in their order."""
        found = [
            Standing(one, core.current, end.triggered, core.device.host.ended)
            for core, end in zip(self._cores, self._ends, strict=True)
            for one in core.device.cohort.each
        ]
        return sorted(found, key=lambda standing: standing.cohort.number)

    def links(self) -> Collection[LinkUse]:
        """Return what every link carried that carried anything."""
        return self.world.links(chain.from_iterable(sent_in(core.recorded) for core in self._cores))

    def timelines(self) -> tuple[Timeline, ...]:
        """Return the time lines of all devices in order; those of a cohort share their records."""
        found = {number: core for core in self._cores for number in core.device.cohort.members}
        return tuple(_timeline(found[number], number) for number in sorted(found))


def _timeline(core: Core, number: int) -> Timeline:
    """Return what a device did, as that of one of its cohort."""
    device = core.device
    return Timeline(
        program=device.cohort.program.name,
        chip=device.chip.name,
        # A copy that nothing waits for may outlast the last kernel; the program ends with the core.
        total_ps=core.ended_ps,
        records=device.recorder.records_of(number),
        repeats=device.recorder.repeats,
        device=number,
    )
