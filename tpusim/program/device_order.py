"""A program on devices in another order: as if a mesh had been laid on them otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Branch, Call, ChannelTransfer, Choice, Collective, Loop


def with_device_order(program: Program, devices: Sequence[int]) -> Program:
    """Return a program in which ``devices[n]`` does what device ``n`` did; ``devices`` names each of them once."""
    return structs.replace(program, steps=_moved(program.steps, devices))


def _moved(steps: tuple[AnyStep, ...], devices: Sequence[int]) -> tuple[AnyStep, ...]:
    return tuple(_moved_step(step, devices) for step in steps)


def _moved_step(step: AnyStep, devices: Sequence[int]) -> AnyStep:
    if isinstance(step, Collective):
        return structs.replace(step, groups=_numbers(step.groups, devices), pairs=_numbers(step.pairs, devices))
    if isinstance(step, ChannelTransfer):
        return step if step.pairs is None else structs.replace(step, pairs=_numbers(step.pairs, devices))
    if isinstance(step, Loop):
        lists = {"condition": _moved(step.condition, devices), "body": _moved(step.body, devices)}
        return structs.replace(step, choices=_chosen(step.choices, devices), **lists)
    if isinstance(step, Branch):
        branches = tuple(_moved(branch, devices) for branch in step.branches)
        return structs.replace(step, choices=_chosen(step.choices, devices), branches=branches)
    return structs.replace(step, body=_moved(step.body, devices)) if isinstance(step, Call) else step


def _numbers(groups: Sequence[tuple[int, ...]], devices: Sequence[int]) -> Any:
    return tuple(tuple(devices[number] for number in group) for group in groups)


def _chosen(choices: tuple[Choice, ...], devices: Sequence[int]) -> tuple[Choice, ...]:
    return tuple(
        structs.replace(choice, devices=tuple(devices[number] for number in choice.devices)) for choice in choices
    )
