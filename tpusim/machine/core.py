"""The core: issues the steps of a program in order, while copies, collectives and host transfers run beside it.

The clock counts whole picoseconds. SimPy orders what happens at the same moment by priority and serial number, so a
program on a chip always gives the same time line.
"""

from __future__ import annotations

from collections import Counter
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, NamedTuple

import simpy

from tpusim.cost.dma import memory_rates, run_cost
from tpusim.errors import SimulationError
from tpusim.machine.cohorts import (
    MOST_SIMPLE_SPLITS,
    cohorts_of,
    collapsed,
    may_collapse,
    meets_host,
    refined,
)
from tpusim.machine.communication import run_channel, run_collective
from tpusim.machine.completion import late_since, split_late
from tpusim.machine.costs import Costs, Team, chosen_values
from tpusim.machine.host import HostQueues, run_host
from tpusim.machine.loops import MOST_PLAYED_TRIPS, changes, waits_for_others, watch_of
from tpusim.machine.memory import SharedMemory, all_of
from tpusim.machine.recorder import Recorder
from tpusim.machine.world import World, assign, devices_needed, pod_of
from tpusim.program.module import every_step, walk
from tpusim.program.steps import (
    Branch,
    Call,
    ChannelTransfer,
    Collective,
    Copy,
    HostTransfer,
    Kernel,
    Loop,
    Wait,
)
from tpusim.timeline.records import CORE, SPARSECORE, PodRun, Record, Timeline
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tpusim.cost.tile import KernelTime
    from tpusim.hardware.chip import Chip
    from tpusim.hardware.pod import Pod, Topology
    from tpusim.program.feed import Feed
    from tpusim.program.module import Program
    from tpusim.program.steps import AnyStep

    Activity = Generator[simpy.Event, Any, None]

BOUND_NAMES = {
    "matrix": "matrix",
    "vector": "vector",
    "eup": "EUP",
    "xlu": "XLU",
    "load": "VMEM",
    "store": "VMEM",
    "scalar": "scalar",
    "hbm": "HBM",
    "cmem": "CMEM",
    "host_in": "host",
    "host_out": "host",
}
"""How reports name what bounds a step, by functional unit or memory."""

ROUNDING_PS = 1000
"""A nanosecond: below it who ends last is chance."""


class RunOptions(NamedTuple):
    """How to run: ``warm`` as in ``simulate_program``; every device by itself if ``apart``, or if they differ for None;
    ``timeout_seconds`` of simulated time; the host's pace at the queues of infeed and outfeed.
    """

    warm: bool = False
    apart: bool | None = None
    timeout_seconds: float | None = None
    infeed: Feed | None = None
    outfeed: Feed | None = None


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
    return simulate_pod([program], chip, topology, progress, RunOptions(warm=warm)).last


def simulate_pod(
    programs: Sequence[Program],
    chip: Chip,
    topology: Topology | None = None,
    progress: Callable[[Record], None] | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> PodRun:
    """Run one program on all devices of a pod, or several side by side, and return what each device did.

    Several programs run on as many devices as each is for, one after the other. A single program whose devices all do
    the same is simulated on one of them, under the traffic of all.
    """
    pod = pod_of(programs, chip, topology)
    costs = Costs(chip, pod)
    count = _devices_run(pod, devices_needed(programs), topology)
    assigned = assign(programs, count)
    cohorts, warnings = cohorts_of(costs, assigned, options)
    world = _run(costs, assigned, cohorts, progress, options)
    for run in count_from(1):
        if world.split is None:
            break
        cohorts = refined(costs, [team for _, team in assigned], cohorts, world.split, deep=run > MOST_SIMPLE_SPLITS)
        # Not those of who wants every device run, nor those who wait for each other for ever.
        if world.split.step is not None and may_collapse(cohorts, assigned):
            cohorts, warnings = collapsed(cohorts)
        world = _run(costs, assigned, cohorts, progress, options)
    return PodRun(
        sizes=pod.torus.sizes,
        slices=pod.slices,
        device_count=len(assigned) if world.apart else count,
        timelines=_timelines(world),
        links=world.links(),
        device_order=pod.device_order,
        warnings=warnings,
    )


def _run(
    costs: Costs,
    assigned: Sequence[tuple[Program, Team]],
    cohorts: Sequence[tuple[int, ...]],
    progress: Callable[[Record], None] | None,
    options: RunOptions,
) -> World:
    """Run one device of every cohort to its end, or until some of a cohort would have to part."""
    world = World(costs, len(assigned), apart=cohorts != [(0,)])
    for members in cohorts:
        program, team = assigned[members[0]]
        first = progress if members[0] == 0 else None
        world.devices.append(Device(world, (members, team), program, first, options))
    for device in world.devices:
        device.main = world.env.process(device.core.run(device.program.steps))
    world.run(options.timeout_seconds)
    return world


def _timelines(world: World) -> tuple[Timeline, ...]:
    """Return the time lines of all devices in order; those of a cohort share their records."""
    found = {number: device for device in world.devices for number in device.members}
    return tuple(found[number].timeline(number) for number in sorted(found))


def _devices_run(pod: Pod, needed: int, topology: Topology | None) -> int:
    """Return how many devices take part: all of a stated slice, unless the program is for one."""
    return pod.device_count if topology is not None and needed > 1 else min(pod.device_count, needed)


class Device:
    """One device: its shared memories, its core, and the core's neighbour for offloaded calls.

    It stands for all ``members`` of its cohort, which do the same at the same time; ``number`` is the first of them.
    """

    main: simpy.Event

    def __init__(
        self,
        world: World,
        identity: tuple[tuple[int, ...], Team],
        program: Program,
        progress: Callable[[Record], None] | None = None,
        options: RunOptions = DEFAULT_OPTIONS,
    ) -> None:
        chip = world.chip
        self.world = world
        self.members, self.team = identity
        self.number = self.members[0]
        self.program = program
        self.chip = chip
        self.warm = options.warm
        self.env = world.env
        self.recorder = Recorder(progress)
        # Advertised rates, so that shares of time can be held against the roofline.
        self._peaks = {
            "hbm": chip.hbm.bandwidth_bytes_per_second,
            "cmem": chip.cmem.read_bytes_per_second,
            "host_in": chip.host.bandwidth_bytes_per_second,
            "host_out": chip.host.bandwidth_bytes_per_second,
            "ici": max(1, chip.ici.links) * chip.ici.link_bytes_per_second,
        }
        # What overlaps shares the rate that transfers reach, so the efficiency stands here and not in each of them.
        rates = {**memory_rates(chip), "vmem": chip.dma.vmem_bytes_per_second}
        self.memories = {space: SharedMemory(self.env, space, rate) for space, rate in rates.items()}
        if _uses_host(program, options):
            self.memories |= {way: world.host_link(self, way) for way in ("host_in", "host_out")}
        self.in_flight = 0
        self.core = Core(self, CORE)
        self.host = HostQueues(self, options.infeed, options.outfeed)

    def timeline(self, number: int) -> Timeline:
        """Return what this device did, as that of one of those it stands for."""
        return Timeline(
            program=self.program.name,
            chip=self.chip.name,
            # A copy that nobody waits for may outlast the last kernel; the program ends with the core.
            total_ps=self.core.ended_ps,
            records=self.recorder.records_of(number),
            repeats=tuple(self.recorder.repeats),
            device=number,
        )

    def peak(self, space: str) -> float:
        """Return the advertised bytes per second of a memory that reports show, 0 for others."""
        return self._peaks.get(space, 0.0)

    def hbm_units(self, n_bytes: float) -> dict[str, int]:
        """Return how long bytes keep HBM busy at its peak, as records have it."""
        return {"hbm": bytes_to_ps(n_bytes, self.peak("hbm"))} if n_bytes else {}

    def launch(self, activity: Generator[simpy.Event, Any, Any]) -> simpy.Event:
        """Start something that runs beside the core; return the event of its end."""
        self.in_flight += 1
        return self.env.process(self._landed(activity))

    def _landed(self, activity: Generator[simpy.Event, Any, Any]) -> Generator[simpy.Event, Any, Any]:
        """Run ``activity``, count it out when it ends, and return what it does."""
        value = yield from activity
        self.in_flight -= 1
        return value


def _uses_host(program: Program, options: RunOptions) -> bool:
    """Tell whether a program has to do with its host."""
    fed = options.infeed is not None or options.outfeed is not None
    return fed or any(meets_host(step) for step in every_step(program.steps))


class Core:
    """A processor that issues steps in order. ``row`` is its row on the time line."""

    def __init__(self, device: Device, row: str) -> None:
        self.device = device
        self.env = device.env
        self.row = row
        self.current: AnyStep | None = None
        self.ended_ps = 0
        self._visits: Counter[object] = Counter()
        self._collectives: dict[str, Collective] = {}
        # One table for all computations: a loop may end what was started before it.
        self._started: dict[str, tuple[simpy.Event, str]] = {}

    def run(self, steps: tuple[AnyStep, ...]) -> Activity:
        """Issue ``steps`` in order; asynchronous ones are started, and looked for when somebody needs them."""
        for step in steps:
            self.current = step
            if step.needs:
                yield from self._wait(step)
            yield from _RUN[type(step)](self, step)
        self.ended_ps = self.now_ps

    def visit(self, what: object) -> int:
        """Return how often this core has come to something, this time included."""
        self._visits[what] += 1
        return self._visits[what]

    def chosen(self, step: Loop | Branch, usual: int) -> int:
        """Return the trips of a loop, or the branch, that this device chooses at this visit."""
        values = chosen_values(step, self.device.number, self.device.team)
        return values[(self.visit(id(step)) - 1) % len(values)] if values else usual

    @property
    def place(self) -> str:
        """Where the core is, as messages name it."""
        return self.place_of(self.current) if self.current is not None else "its start"

    def place_of(self, step: AnyStep) -> str:
        """Return a step's name with its file and line."""
        file = self.device.program.file or self.device.program.name
        return f"{step.opcode} {step.name!r} ({file}:{step.line})" if step.line else f"{step.opcode} {step.name!r}"

    @property
    def now_ps(self) -> int:
        """The clock: SimPy keeps it an integer as long as every delay is one."""
        return int(self.env.now)

    def record(self, step: AnyStep, start_ps: int, **details: Any) -> None:
        """Record that ``step`` held this core from ``start_ps`` until now."""
        self.device.recorder.add(step, self.row, start_ps, self.now_ps, **details)

    def start(self, step: AnyStep, activity: Generator[simpy.Event, Any, Any], what: str) -> None:
        """Start something beside the core under the name of its step; ``what`` is how a wait for it is called."""
        self._started[step.name] = (self.device.launch(activity), what)
        if isinstance(step, Collective):
            self._collectives[step.name] = step

    def _compare(self, name: str, before_ps: int) -> None:
        """See whether a wait for a collective ended at once for all that the device stands for."""
        met, collective = self._started[name][0].value, self._collectives.get(name)
        if collective is not None and met:
            ends_ps = {number: max(before_ps, one.end_ps) for number, one in met.items()}
            self.device.world.compare(collective, ends_ps)

    def _wait(self, step: AnyStep) -> Activity:
        """Wait until all that ``step`` needs has ended, and record the time lost."""
        start_ps, reason = self.now_ps, ""
        late_ps = Counter[int]()
        for name in step.needs:
            if name not in self._started:
                raise SimulationError(f"{step.name!r} waits for {name!r}, which has not been started")
            ended, what = self._started[name]
            reason, before_ps = f"waiting for {what}", self.now_ps
            if not ended.processed:
                yield ended
                self._compare(name, before_ps)
                late_ps.update(late_since(before_ps, ended.value))
        # A wait of the text is shown even if it was none: readers look for each of their instructions.
        if self.now_ps > start_ps or isinstance(step, Wait):
            self._record_wait(step, start_ps, reason, late_ps)

    def _record_wait(self, step: AnyStep, start_ps: int, reason: str, late_ps: Counter[int]) -> None:
        """Record a wait, and for each that the device stands for how much of it others had not come."""
        recorder, number, length_ps = self.device.recorder, self.device.number, self.now_ps - start_ps
        shown = split_late(reason, length_ps, late_ps[number])
        record = recorder.add(step, self.row, start_ps, self.now_ps, is_wait=not isinstance(step, Wait), **shown)
        for other in self.device.members[1:]:
            if late_ps[other] != late_ps[number]:
                recorder.vary(other, record, split_late(reason, length_ps, late_ps[other]))


def _run_kernel(core: Core, kernel: Kernel) -> Activity:
    """Run one kernel; one that nothing can disturb takes as long, and for the same reasons, as the last time."""
    start_ps, played = core.now_ps, core.device.world.costs.played
    traffic = core.device.world.costs.kernel(kernel).traffic
    alone = not traffic or (not core.device.in_flight and not any(t.space in _HOST_LINKS for t in traffic))
    if alone and id(kernel) in played:
        duration_ps, details = played[id(kernel)]
        yield core.env.timeout(duration_ps)
    else:
        details = yield from _play(core, kernel)
    if alone:
        played[id(kernel)] = core.now_ps - start_ps, details
    core.record(
        kernel,
        start_ps,
        is_kernel=not kernel.scalar,
        flops=kernel.flops,
        flops_type=kernel.flops_type,
        hbm_bytes=kernel.hbm_bytes,
        compiler_cycles=kernel.compiler_cycles,
        **details,
    )


def _play(core: Core, kernel: Kernel) -> Generator[simpy.Event, Any, dict[str, Any]]:
    """Play one kernel: first blocks in, tiles under traffic, last block out; return where its time went."""
    time = core.device.world.costs.kernel(kernel)
    parts = {"latency": time.fixed_ps}
    # Nothing overlaps this: the kernel's own code starts its first transfer.
    yield core.env.timeout(time.fixed_ps)
    yield from _move(core, kernel, time, "first_bytes", parts)
    yield from _steady(core, kernel, time, parts)
    yield from _move(core, kernel, time, "last_bytes", parts)
    bound_by = max(parts, key=lambda part: parts[part])
    return {"bound_by": bound_by, "units": time.unit_ps | _memory_ps(core, time), "parts": parts}


def _move(core: Core, kernel: Kernel, time: KernelTime, which: str, parts: dict[str, int]) -> Activity:
    """Wait for a kernel's first blocks to come in, or its last to go out, on all memories at once."""
    moving = [(t.space, getattr(t, which)) for t in time.traffic if getattr(t, which) > 0]
    if not moving:
        return
    latency_ps = seconds_to_ps(core.device.chip.dma.fixed_latency_seconds)
    # All operands set out together, so that the latency is paid once for them.
    parts["latency"] += latency_ps
    yield core.env.timeout(latency_ps)
    start_ps = core.now_ps
    yield all_of(core.env, [core.device.memories[s].transfer(kernel.name, n_bytes) for s, n_bytes in moving])
    memory = BOUND_NAMES[moving[0][0]]
    parts[memory] = parts.get(memory, 0) + core.now_ps - start_ps


def _steady(core: Core, kernel: Kernel, time: KernelTime, parts: dict[str, int]) -> Activity:
    """Compute the tiles while their traffic runs; the later of the two is what bounds the kernel here."""
    start_ps = core.now_ps
    flows = [_steady_flow(core, kernel, time, traffic) for traffic in time.traffic]
    yield core.env.timeout(time.compute_ps)
    last = time.slowest_unit
    for traffic, flow in zip(time.traffic, flows, strict=True):
        before_ps = core.now_ps
        if not flow.processed:
            yield flow
        # A flow held back to the tiles' own speed ends a rounding error after them.
        if core.now_ps > before_ps + ROUNDING_PS:
            last = traffic.space
    parts[BOUND_NAMES[last]] = parts.get(BOUND_NAMES[last], 0) + core.now_ps - start_ps


def _steady_flow(core: Core, kernel: Kernel, time: KernelTime, traffic: Any) -> simpy.Event:
    """Begin the traffic that runs under the tiles, no faster than the tiles compute."""
    # Double buffers hold one tile ahead: traffic faster than the tiles has nowhere to go.
    limit = traffic.steady_bytes / time.compute_ps if time.compute_ps else float("inf")
    return core.device.memories[traffic.space].transfer(kernel.name, traffic.steady_bytes, limit)


def _memory_ps(core: Core, time: KernelTime) -> dict[str, int]:
    """Return how long the kernel's traffic would keep each memory busy at its full rate."""
    totals = {t.space: t.first_bytes + t.steady_bytes + t.last_bytes for t in time.traffic}
    peaks = {space: core.device.peak(space) for space in totals}
    return {space: bytes_to_ps(totals[space], peak) for space, peak in peaks.items() if peak}


def _run_wait(core: Core, step: Wait) -> Activity:
    """Nothing is left to do once what the step needs has ended."""
    return
    yield


def _run_copy(core: Core, copy: Copy) -> Activity:
    """Start a copy beside the core."""
    is_here = copy.is_prefetch and core.device.warm
    core.start(copy, _nothing() if is_here else _copy(core, copy), "a copy")
    return
    yield


def _nothing() -> Activity:
    """End at once."""
    return
    yield


def _copy(core: Core, copy: Copy) -> Activity:
    """Move a copy's bytes through every memory that it touches."""
    start_ps = core.now_ps
    device = core.device
    n_bytes = copy.n_bytes * run_cost(copy.chunk_bytes, device.chip)
    over_pcie = "host" in (copy.source_space, copy.target_space)
    latency_seconds = device.chip.host.latency_seconds if over_pcie else device.chip.dma.fixed_latency_seconds
    yield core.env.timeout(seconds_to_ps(latency_seconds))
    yield all_of(core.env, [device.memories[s].transfer(copy.name, n) for s, n in copy_loads(copy, n_bytes)])
    hbm_bytes = copy.n_bytes * ((copy.source_space == "hbm") + (copy.target_space == "hbm"))
    busy = {space: bytes_to_ps(n, rate) for space, n in copy_loads(copy, copy.n_bytes) if (rate := device.peak(space))}
    bound_by = BOUND_NAMES[max(busy, key=lambda space: busy[space])] if busy else "VMEM"
    device.recorder.add(copy, copy.through, start_ps, core.now_ps, hbm_bytes=hbm_bytes, units=busy, bound_by=bound_by)


def copy_loads(copy: Copy, n_bytes: float) -> list[tuple[str, float]]:
    """Return the memories that a copy loads, each with the bytes; within one memory it reads and writes."""
    source = "host_in" if copy.source_space == "host" else copy.source_space
    target = "host_out" if copy.target_space == "host" else copy.target_space
    # No rate is published for SMEM and sync flags, and what goes there is small: VMEM stands for them.
    spaces = [space if space in _FAR_MEMORIES else "vmem" for space in (source, target)]
    loads = {space: n_bytes * spaces.count(space) for space in spaces}
    if len(loads) > 1:
        # The core's own memory is never what holds up a transfer from or to a slower one.
        loads.pop("vmem", None)
    return list(loads.items())


_HOST_LINKS = ("host_in", "host_out")
_FAR_MEMORIES = ("hbm", "cmem", *_HOST_LINKS)


def _run_loop(core: Core, loop: Loop) -> Activity:
    """Run trips until one repeats the one before it exactly, then let the clock jump over the rest.

    A trip repeats if nothing was under way beside the core when it began and when it ended: then nothing tells the next
    one from it. Where devices wait for each other in the loop, all have to agree to jump.
    """
    watch, done = watch_of(core.device, loop, core.visit(("loop", id(loop)))), 0
    trips = core.chosen(loop, loop.trips)
    while done < trips:
        # Asked before the trip as well: a copy that lands during it makes it slower than those to come.
        begin_ps, mark, alone = core.now_ps, core.device.recorder.mark(), not core.device.in_flight
        carried = core.device.world.carried()
        if watch:
            watch.begin(core.device.number, done + 1)
        yield from _one_trip(core, loop)
        done += 1
        left = trips - done
        if watch:
            watch.end(core.device.number, core.now_ps - begin_ps)
        if (done == watch.jump_after if watch else _repeats_alone(core, loop, alone, done)) and left:
            end_ps = core.now_ps + left * (core.now_ps - begin_ps)
            core.device.recorder.repeat(loop.name, mark, (core.now_ps, end_ps), left)
            # Once for all devices: in equal trips all of them send what was sent during this one's.
            if not core.device.world.apart or (watch and core.device.number == 0):
                core.device.world.repeat(carried, left)
            yield core.env.timeout(end_ps - core.now_ps)
            done = trips
    yield from core.run(loop.condition)


def _repeats_alone(core: Core, loop: Loop, alone: bool, done: int) -> bool:
    """Tell whether the trip that a device has just ended stands for all to come."""
    if waits_for_others(core.device, loop) or changes(loop):
        return False
    return (alone and not core.device.in_flight and not _meets_queue(core, loop)) or done >= MOST_PLAYED_TRIPS


def _meets_queue(core: Core, loop: Loop) -> bool:
    """Tell whether a loop has to do with a host that has a pace of its own: no trip then repeats another."""
    if core.device.host.infeed is None and core.device.host.outfeed is None:
        return False
    return any(isinstance(step, HostTransfer) for step, _ in walk((loop,)))


def _one_trip(core: Core, loop: Loop) -> Activity:
    """Evaluate the condition, branch, and run the body once."""
    yield from core.run(loop.condition)
    start_ps = core.now_ps
    yield core.env.timeout(seconds_to_ps(core.device.chip.fixed.loop_iteration_seconds))
    core.record(loop, start_ps, bound_by="latency")
    yield from core.run(loop.body)


def _run_branch(core: Core, branch: Branch) -> Activity:
    """Run the branch that is taken."""
    start_ps = core.now_ps
    yield core.env.timeout(seconds_to_ps(core.device.chip.fixed.loop_iteration_seconds))
    core.record(branch, start_ps, bound_by="latency")
    if branch.branches:
        yield from core.run(branch.branches[core.chosen(branch, branch.taken)])


def _run_call(core: Core, call: Call) -> Activity:
    """Run a called computation here, or beside the core on the sparse cores."""
    if call.is_async:
        # At the costs of this core: how long a sparse core takes for a kernel is published nowhere.
        neighbour = Core(core.device, SPARSECORE)
        core.start(call, neighbour.run(call.body), "a call")
        return
    yield from core.run(call.body)


_RUN: dict[type, Callable[[Core, Any], Activity]] = {
    Kernel: _run_kernel,
    Wait: _run_wait,
    Copy: _run_copy,
    Collective: run_collective,
    HostTransfer: run_host,
    ChannelTransfer: run_channel,
    Loop: _run_loop,
    Branch: _run_branch,
    Call: _run_call,
}
