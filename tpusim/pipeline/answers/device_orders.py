"""Other orders of the devices of a mesh, tried by simulation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice, permutations

import numpy as np
from msgspec import structs

from tpusim.analysis.explained.facts import DeviceOrder
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import RING_CHIPS, Topology
from tpusim.machine.placement import meetings_of, pod_of
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import own_ps, run_program
from tpusim.program.device_order import moved_to
from tpusim.program.module import Program
from tpusim.program.steps import Collective, Loop, Wait

_Order = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A shape, the order of its axes, and the devices in that order; without a shape devices along a ring."""

RunTimes = dict[tuple[int, ...], int]
"""How long a program takes with its devices in some orders."""

_MOST_AXES = 3
_TRIED_DEVICES = 2**16
"""Devices of all orders together that are tried: of a mesh of thousands those of two axes before those of three."""

_APART = 16
"""How many devices one counts for where all are run one by one."""

_RUN = 3
"""Orders, the best for the collectives by themselves, that the whole program is run in."""


def by_itself(program: Program, *steps: Collective) -> Program:
    """Return a program of nothing but some of its collectives, one after the other, placed as the whole one is."""
    alone = tuple(structs.replace(step, needs=()) for step in steps)
    done = tuple(Wait(name=f"{step.name}-end", opcode="", needs=(step.name,)) for step in alone if step.is_async)
    # The others take no time and meet nothing, but say along which axes the devices are numbered.
    said = tuple(structs.replace(step, needs=(), is_async=False) for step in meetings_of(program))
    others = Loop(name="others", opcode="while", trips=0, body=said)
    return structs.replace(program, steps=(*alone, *done, others))


def better_orders(
    program: Program, chip: Chip, topology: Topology | None, step: Collective, run_ps: RunTimes
) -> tuple[DeviceOrder, ...]:
    """Return the orders of devices in which a collective by itself is faster, the fastest run first.

    The program is run in the best three, but for those in ``run_ps``, which takes in what is found: collectives of
    one program have mostly the same best ones.
    """
    best = orders_by_time(program, chip, topology, step)[:_RUN]
    for order in best:
        if order.devices not in run_ps:
            run_ps[order.devices] = run_program(moved_to(program, order.devices), chip, topology).total_ps
    tried = [structs.replace(order, run_ps=run_ps[order.devices]) for order in best]
    return tuple(sorted(tried, key=lambda order: order.run_ps))


def best_order(result: Result, topology: Topology | None, names: Collection[str]) -> DeviceOrder | None:
    """Return the order of devices in which the collectives of these names are fastest, if the run is faster as well."""
    program, chip = result.program, result.chip
    steps = [step for step in program.collectives if step.name in names]
    for order in orders_by_time(program, chip, topology, *steps)[:1] if steps else ():
        run_ps = run_program(moved_to(program, order.devices), chip, topology).total_ps
        if run_ps < result.timeline.total_ps:
            return structs.replace(order, run_ps=run_ps)
    return None


def orders_by_time(program: Program, chip: Chip, topology: Topology | None, *steps: Collective) -> list[DeviceOrder]:
    """Return the orders of devices in which some collectives by themselves are faster, the fastest first.

    Orders are tried that come from transposing the devices' numbers, in shapes of up to three axes (all of them for
    hundreds of devices, unless they send to each other without a pattern), and along a ring of neighbours. What the
    whole run takes is left open.
    """
    alone = by_itself(program, *steps)
    least_ps = own_ps(alone, chip, topology)
    found = []
    own = program.device_order or tuple(range(program.devices_needed))
    # Where no pattern is in what they send, no two devices are alike, and runs are dear: some orders have to do.
    each = len(own) * (1 if all(_has_pattern(step, len(own)) for step in steps) else _APART)
    few = islice(_orders(own), max(1, _TRIED_DEVICES // each))
    for shape, axes, devices in chain(few, _along_ring(program, chip, topology)):
        op_ps = own_ps(moved_to(alone, devices), chip, topology)
        if op_ps < least_ps:
            found.append(DeviceOrder(reshaped=shape, transposed=axes, devices=devices, op_ps=op_ps, run_ps=0))
    return sorted(found, key=lambda order: order.op_ps)


def _has_pattern(step: Collective, devices: int) -> bool:
    """Return whether targets lie as far from their sources as others: along axes, across a transposed mesh."""
    return len({(target - source) % devices for source, target in step.pairs}) <= devices // 2


def _orders(own: tuple[int, ...]) -> Iterator[_Order]:
    """Yield shapes of devices with an order of their axes, and the devices in that order, each once but for the own."""
    seen = {own}
    for shape in sorted(_shapes(len(own), _MOST_AXES), key=len):
        for axes in permutations(range(len(shape))):
            devices = tuple(int(n) for n in np.arange(len(own)).reshape(shape).transpose(axes).ravel())
            if devices not in seen:
                seen.add(devices)
                yield shape, axes, devices


def _along_ring(program: Program, chip: Chip, topology: Topology | None) -> Iterator[_Order]:
    """Yield the order along a ring of neighbours, where JAX makes it: of the chips of a small slice.

    A program that does not say how its devices are ordered is taken to have it where it can.
    """
    pod = pod_of([program], chip, topology)
    chips = tuple(range(pod.torus.chip_count))
    if len(chips) == len(program.device_order) <= RING_CHIPS and pod.torus.ring(chips) != program.device_order:
        yield (), (), pod.torus.ring(chips)


def _shapes(count: int, most_axes: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of so many devices with at least two on each axis."""
    if count > 1:
        yield (count,)
    for first in range(2, count):
        if count % first == 0 and most_axes > 1:
            yield from ((first, *rest) for rest in _shapes(count // first, most_axes - 1))
