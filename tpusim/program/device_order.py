"""A program on devices in another order: as if a mesh had been laid on them otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tpusim.program.edit import with_steps
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Branch, ChannelTransfer, Collective, Loop


def moved_to(program: Program, devices: Sequence[int]) -> Program:
    """Return a program in which ``devices[n]`` does what device ``n`` did; ``devices`` names each of them once.

    In a program that says which devices its own are, device ``n`` is the one that it calls so.
    """
    # Groups may name more devices than the program counts; those stay where they are.
    order, moved = program.device_order, [*devices, *range(len(devices), program.devices_needed)]
    for own, device in zip(order, devices, strict=False):
        moved[own] = device
    found = with_steps(program, lambda steps: tuple(_moved(step, moved) for step in steps))
    return structs.replace(found, device_order=tuple(devices)) if order else found


def _moved(step: AnyStep, devices: Sequence[int]) -> AnyStep:
    if isinstance(step, Collective):
        groups = tuple([tuple(map(devices.__getitem__, group)) for group in step.groups])
        return structs.replace(step, groups=groups, pairs=_pairs(step.pairs, devices))
    if isinstance(step, ChannelTransfer):
        return step if step.pairs is None else structs.replace(step, pairs=_pairs(step.pairs, devices))
    if isinstance(step, Loop | Branch):
        own = (tuple(devices[number] for number in choice.devices) for choice in step.choices)
        moved = zip(step.choices, own, strict=True)
        return structs.replace(step, choices=tuple(structs.replace(choice, devices=new) for choice, new in moved))
    return step


def _pairs(pairs: Sequence[tuple[int, int]], devices: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((devices[source], devices[target]) for source, target in pairs)
