"""A lowered program with some of its steps changed."""

from __future__ import annotations

from collections.abc import Callable, Generator

from msgspec import structs

from tpusim.nesting import walk_nested
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Branch, Call, Loop, Steps


def with_steps(program: Program, change: Callable[[Steps], Steps]) -> Program:
    """Return a program in which each list of steps is what ``change`` makes of it; see ``changed_lists``."""
    return structs.replace(program, steps=changed_lists(program.steps, change))


def changed_lists(steps: Steps, change: Callable[[Steps], Steps]) -> Steps:
    """Return steps of which each list is what ``change`` makes of it, outer lists before inner ones.

    A list that several steps hold is changed once, and held by all of them again.
    """
    # Each list beside what came of it: its identity stands for it as long as it lives.
    found: dict[int, tuple[Steps, Steps]] = {}

    def changed(listed: Steps) -> Generator[Steps, Steps, Steps]:
        if id(listed) not in found:
            new: list[AnyStep] = []
            for step in change(listed):
                new.append((yield from _inside(step)))
            found[id(listed)] = listed, tuple(new)
        return found[id(listed)][1]

    return walk_nested(changed, steps)


def _inside(step: AnyStep) -> Generator[Steps, Steps, AnyStep]:
    """Return a step with the lists that it holds changed; yields each of these, to be sent what came of it."""
    if isinstance(step, Loop):
        return structs.replace(step, condition=(yield step.condition), body=(yield step.body))
    if isinstance(step, Branch):
        branches = []
        for branch in step.branches:
            branches.append((yield branch))
        return structs.replace(step, branches=tuple(branches))
    return structs.replace(step, body=(yield step.body)) if isinstance(step, Call) else step
