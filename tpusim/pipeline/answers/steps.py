"""Why anything but a kernel takes as long as it does, by the kind of its step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from msgspec import structs

from tpusim.analysis.explained.facts import AnyFacts, Awaited, CollectiveFacts, PlainFacts, StepExplanation, WaitFacts
from tpusim.analysis.explained.step import inside_facts, step_explanation, transfer_facts
from tpusim.cost.links import link_name
from tpusim.hardware.pod import Topology
from tpusim.hardware.units import HBM, HOST, HOST_IN, HOST_OUT, ICI
from tpusim.ir.module import Computation
from tpusim.machine.costs import Costs
from tpusim.machine.placement import devices_of, pod_of
from tpusim.pipeline.answers.device_orders import RunTimes, better_orders, by_itself
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import own_ps
from tpusim.program.module import every_step, walk
from tpusim.program.steps import (
    AnyStep,
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
from tpusim.timeline.records import CORE, Record
from tpusim.units import PS_PER_SECOND, seconds_to_ps

_Rule = Callable[["Case", Any], AnyFacts]
_R = TypeVar("_R", bound=_Rule)

_RULES: dict[type, tuple[str, _Rule]] = {}
"""By the kind of a step what it is called, and what is said of it."""


class Case:
    """An op of a run that is to be explained: its step, None of the launch, and its records.

    ``run_ps`` are the times of the run in other orders of devices, as far as they are known; it takes in more.
    """

    def __init__(
        self,
        result: Result,
        topology: Topology | None,
        name: str,
        step: AnyStep | None,
        run_ps: RunTimes | None = None,
    ) -> None:
        self.result = result
        self.topology = topology
        self.run_ps: RunTimes = {} if run_ps is None else run_ps
        self.step = step
        program = result.program
        self.number = -1 if step is None else program.step_numbers[id(step)]
        self.records: tuple[Record, ...] = result.timeline.records
        self.own = [r for r in self.records if r.step == self.number and r.name == name]
        # Steps that several calls share are numbered where the first one stands.
        inner = () if step is None else every_step((step,))
        numbers = {program.step_numbers[id(one)] for one in inner} - {self.number}
        self.inside = [r for r in self.records if r.step in numbers]

    @cached_property
    def waits(self) -> list[Record]:
        """The waits of the core for what this op started."""
        steps = self.result.program.every_step
        name = self.step.name if self.step is not None else ""
        return [
            r
            for r in self.records
            if r.row == CORE and name in steps[r.step].needs and (r.is_wait or isinstance(steps[r.step], Wait))
        ]

    @property
    def all_waits(self) -> list[Record]:
        """These, and those within it."""
        return [*self.waits, *(record for record in self.own if record.is_wait)]

    @property
    def moving(self) -> list[Record]:
        """Its own records but for those in which it waited."""
        return [record for record in self.own if not record.is_wait]

    @property
    def count(self) -> int:
        """How often it ran."""
        return max(1, sum(record.count for record in self.moving))

    def alone_ps(self, *steps: AnyStep) -> int:
        """Return what some steps take with nothing beside them."""
        result = self.result
        return own_ps(structs.replace(result.program, steps=steps), result.chip, self.topology)


def explain_step(case: Case) -> StepExplanation:
    """Return why an op takes as long as it does."""
    what, rule = _RULES[type(case.step)]
    if isinstance(case.step, Call) and id(case.step.body) in case.result.program.shared_lists:
        what = f"{what}, counted with the others of its computation"
    facts = rule(case, case.step)
    op = case.own[0] if case.step is None else case.step
    return step_explanation(op, what, facts, case.result.critical_path, [*case.own, *case.inside])


def _says(what: str, *kinds: type) -> Callable[[_R], _R]:
    """Enter a function as the one that says what there is to say of a kind of step."""

    def enter(rule: _R) -> _R:
        _RULES.update(dict.fromkeys(kinds, (what, rule)))
        return rule

    return enter


@_says("an instruction of the scalar core", Kernel)
@_says("the launch of the program", type(None))
def _plain(_case: Case, _step: Kernel | None) -> PlainFacts:
    return PlainFacts()


@_says("a loop", Loop)
def _loop(case: Case, loop: Loop) -> AnyFacts:
    # The scalar core jumps once in each trip.
    return inside_facts(case.own, case.inside, case.count, trips=loop.trips, trips_from=loop.trips_from)


@_says("a conditional", Branch)
def _branch(case: Case, branch: Branch) -> AnyFacts:
    return inside_facts(case.own, case.inside, case.count, branch=branch.taken, branches=len(branch.branches))


@_says("a call", Call)
def _call(case: Case, call: Call) -> AnyFacts:
    # A call has no record of its own, and what another one runs as well is recorded for both.
    runs = walk(case.result.program.steps)
    times = sum(count for step, count in runs if isinstance(step, Call) and step.body is call.body)
    return inside_facts(case.own, case.inside, times)


@_says("an asynchronous copy", Copy)
def _copy(case: Case, copy: Copy) -> AnyFacts:
    chip = case.result.chip
    over_pcie = HOST in (copy.source_space, copy.target_space)
    latency_seconds = chip.host.latency_seconds if over_pcie else chip.dma.fixed_latency_seconds
    alone = structs.replace(copy, needs=(), is_prefetch=False)
    alone_ps = case.alone_ps(alone, Wait(name="end", opcode="", needs=(copy.name,)))
    return transfer_facts(
        case.own,
        case.records,
        case.waits,
        memory=HBM,
        n_bytes=copy.n_bytes,
        ends=(copy.source_space, copy.target_space),
        latency_ps=seconds_to_ps(latency_seconds),
        run_bytes=copy.chunk_bytes,
        reachable_bytes_per_second=copy.n_bytes / max(1, alone_ps) * PS_PER_SECOND,
    )


@_says("a transfer to or from the host", HostTransfer)
def _host(case: Case, step: HostTransfer) -> AnyFacts:
    host = case.result.chip.host
    link = HOST_OUT if step.to_host else HOST_IN
    alone_seconds = host.latency_seconds + step.n_bytes / host.bandwidth_bytes_per_second
    return transfer_facts(
        case.moving,
        case.records,
        case.all_waits,
        memory=link,
        n_bytes=step.n_bytes,
        ends=(HBM, HOST) if step.to_host else (HOST, HBM),
        latency_ps=seconds_to_ps(host.latency_seconds),
        run_bytes=0,
        reachable_bytes_per_second=step.n_bytes / alone_seconds,
    )


@_says("a transfer between devices", ChannelTransfer)
def _channel(case: Case, step: ChannelTransfer) -> AnyFacts:
    ici = case.result.chip.ici
    peers = sorted({record.peer for record in case.own if record.peer >= 0})
    there = f"device {', '.join(map(str, peers))}" if peers else "another device"
    return transfer_facts(
        case.moving,
        case.records,
        case.all_waits,
        memory=ICI,
        n_bytes=step.n_bytes,
        ends=("this device", there) if step.is_send else (there, "this device"),
        latency_ps=seconds_to_ps(ici.launch_seconds + ici.step_seconds + ici.hop_latency_seconds),
        run_bytes=0,
        reachable_bytes_per_second=ici.link_bytes_per_second * ici.efficiency,
    )


@_says("a wait", Wait)
def _wait(case: Case, wait: Wait) -> WaitFacts:
    return WaitFacts(
        waited_ps=sum(record.total_ps for record in case.own) // case.count,
        awaited=tuple(found for name in wait.needs if (found := _awaited(case, name))),
    )


def _awaited(case: Case, name: str) -> Awaited | None:
    """Return what a wait says of the last thing of a name that ran beside the core and ended by then."""
    until_ps = case.own[-1].end_ps
    beside = [r for r in case.records if r.name == name and r.row != CORE and r.end_ps <= until_ps]
    if not beside:
        return None
    record = beside[-1]
    before = [r for r in case.records if r.row == CORE and r.end_ps <= record.start_ps]
    ready_after, ready_ps = _ready(case, record)
    return Awaited(
        name=name,
        opcode=record.opcode,
        took_ps=record.duration_ps,
        hidden_ps=max(0, record.duration_ps - case.own[-1].duration_ps),
        issued_after=before[-1].name if before else "",
        ready_ps=ready_ps,
        ready_after=ready_after,
    )


def _ready(case: Case, started: Record) -> tuple[str, int | None]:
    """Return which op an operand of a step was made by last before it started, and how long that had been there."""
    module = case.result.module
    home = None if module is None else module.homes.get(started.name)
    if module is None or home is None:
        return "", None
    ends = {r.name: r.end_ps for r in case.records if r.end_ps <= started.start_ps}
    made = [name for name in _makers(home, started.name, ends) if name in ends]
    if not made:
        # Parameters: of the program they are there from its start, of a loop's body from that of the trip.
        return "", started.start_ps if home is module.entry else None
    last = max(made, key=lambda name: ends[name])
    return last, started.start_ps - ends[last]


def _makers(computation: Computation, name: str, recorded: dict[str, int]) -> set[str]:
    """Return the instructions with records that an instruction's operands come from, through those without."""
    found: set[str] = set()
    seen, open_ = {name}, list(computation[name].operands)
    while open_:
        operand = open_.pop()
        if operand in recorded:
            found.add(operand)
        elif operand not in seen:
            seen.add(operand)
            open_ += computation[operand].operands
    return found


@_says("a collective", Collective)
def _collective(case: Case, step: Collective) -> CollectiveFacts:
    result, chip = case.result, case.result.chip
    pod = pod_of([result.program], chip, case.topology)
    costs = Costs(chip, pod)
    devices = devices_of(result.program, result.pod.device_count)
    groups = costs.groups(step, devices)
    own = next((n for n, group in enumerate(groups) if result.timeline.device in group), 0)
    plan = costs.plan_of_each(step, devices)[own] if groups else costs.plan(step, devices)
    link, sharers = _busiest(costs, step, devices)
    hops, steps, way, latency_ps = plan.hops, plan.steps, plan.way, costs.latency_ps(plan)
    # Before a hundred orders are run: plans of a large slice take megabytes.
    del plan
    costs.forget()
    alone_ps = own_ps(by_itself(result.program, step), chip, case.topology)
    own_numbers = tuple(tuple(map(devices.stated, group)) for group in groups[own : own + 1])
    one = structs.replace(step, **{"pairs" if step.pairs else "groups": own_numbers})
    unshared_ps = min(alone_ps, own_ps(by_itself(result.program, one), chip, case.topology))
    orders = better_orders(result.program, chip, case.topology, step, case.run_ps)
    least_ps = min([unshared_ps, *(order.op_ps for order in orders)])
    moved_ps = sum(r.duration_ps * r.count for r in case.own) / case.count
    return CollectiveFacts(
        payload_bytes=step.n_bytes,
        is_pairs=bool(step.pairs),
        groups=len(groups),
        group=groups[own] if groups else (),
        places=tuple(pod.place_of(number).coordinates for number in (groups[own] if groups else ())),
        sizes=pod.torus.sizes,
        slices=pod.slices,
        hops=hops,
        steps=steps,
        latency_ps=latency_ps,
        alone_ps=alone_ps,
        unshared_ps=unshared_ps,
        busiest_link=link,
        sharers=sharers,
        reached_bytes_per_second=step.n_bytes / max(1.0, moved_ps) * PS_PER_SECOND,
        reachable_bytes_per_second=step.n_bytes / max(1, least_ps) * PS_PER_SECOND,
        orders=orders,
        algorithm=way,
        # Of a program of ours the algorithm follows from the slice, and has no name.
        stated=step.algorithm.name if step.algorithm and not step.algorithm.by_slice else "",
        mesh=result.program.device_order,
    )


def _busiest(costs: Costs, step: Collective, devices: Any) -> tuple[str, int]:
    """Return the link that carries most of a collective, and how many of its groups use it."""
    load = costs.plan(step, devices).load
    if not len(load.links):
        return "", 0
    busiest = int(load.links[np.argmax(load.n_bytes)])
    chip, way = link_name(costs.pod, busiest)
    sharers = sum(busiest in plan.load.links for plan in costs.plan_of_each(step, devices))
    return f"chip {chip} {way}", sharers
