"""A lowered program with some of its steps changed."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Branch, Call, Loop

Steps = tuple[AnyStep, ...]


def with_steps(program: Program, change: Callable[[Steps], Steps]) -> Program:
    """Return a program in which each list of steps is what ``change`` makes of it, outer lists before inner ones."""
    return structs.replace(program, steps=_changed(program.steps, change))


def _changed(steps: Steps, change: Callable[[Steps], Steps]) -> Steps:
    return tuple(_inside(step, change) for step in change(steps))


def _inside(step: AnyStep, change: Callable[[Steps], Steps]) -> AnyStep:
    if isinstance(step, Loop):
        return structs.replace(step, condition=_changed(step.condition, change), body=_changed(step.body, change))
    if isinstance(step, Branch):
        return structs.replace(step, branches=tuple(_changed(branch, change) for branch in step.branches))
    return structs.replace(step, body=_changed(step.body, change)) if isinstance(step, Call) else step
