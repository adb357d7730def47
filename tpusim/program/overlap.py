"""Which collectives of a program may be under way beside each other."""

from __future__ import annotations

from tpusim.program.module import Program, inner_lists
from tpusim.program.steps import AnyStep, Call, Collective, Steps


def overlapping_collectives(program: Program) -> tuple[Collective, ...]:
    """Return the collectives that may be under way beside others of the program.

    All of them where one is in a call beside the core, outlasts the steps of a loop, a branch or a call, or is under
    way beside such steps with others in them: what meets it there is not followed up.
    """
    if not program.collectives:
        return ()
    sending = _sending_lists(program)
    found: dict[int, Collective] = {}
    for listed in {id(listed): listed for listed in program.every_list}.values():
        pending: dict[str, Collective] = {}
        for step in listed:
            for name in step.needs:
                pending.pop(name, None)
            is_beside = bool(pending) or (isinstance(step, Call) and step.is_async)
            if is_beside and _holds(step, sending):
                return program.collectives
            if isinstance(step, Collective):
                found |= {id(one): one for one in (*pending.values(), step) if pending}
                pending |= {step.name: step} if step.is_async else {}
        if pending and listed is not program.steps:
            return program.collectives
    return tuple(found.values())


def _sending_lists(program: Program) -> set[int]:
    """Return the lists of steps that have a collective somewhere in them, by identity."""
    sending = set[int]()
    # Inner ones first.
    for listed in reversed(program.every_list):
        if _sends(listed, sending):
            sending.add(id(listed))
    return sending


def _sends(listed: Steps, sending: set[int]) -> bool:
    return any(isinstance(step, Collective) or _holds(step, sending) for step in listed)


def _holds(step: AnyStep, sending: set[int]) -> bool:
    return any(id(inner) in sending for inner in inner_lists(step))
