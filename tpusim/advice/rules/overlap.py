"""Collectives that the core waits for although there is work beside which they could run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.ir.module import Computation
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, Collective, Steps, Wait


class _Move(NamedTuple):
    """A collective that can begin before position ``start`` of its list, and has to be waited for at ``end``."""

    step: Collective
    start: int
    end: int
    is_ahead: bool


@advises("hide collectives")
def hide_collectives(case: Case) -> Iterator[Trial]:
    """Propose to run collectives beside the core: from where their operand is there to where their result is read."""
    moves: dict[int, list[_Move]] = {}
    ahead, within = list[_Move](), list[_Move]()
    for listed in case.program.every_list:
        for place, step in enumerate(listed):
            if isinstance(step, Collective) and not step.is_async and case.share(step) >= LEAST_SHARE:
                move = _move(case, listed, place, step, is_inner=listed is not case.program.steps)
                if move is not None:
                    moves.setdefault(id(listed), []).append(move)
                    (ahead if move.is_ahead else within).append(move)
    if not moves:
        return
    found = [move.step for move in (*ahead, *within)]
    trips = "; of a scan over layers one trip ahead, in its carry" if ahead else ""
    yield Trial(
        what=f"the core waits for {len(found)} collectives beside which it could work",
        change=f"start them earlier, with independent work between them and what reads them{trips}",
        alternative=with_steps(case.program, lambda steps: _moved(steps, moves.get(id(steps), []))),
        **case.places(found),
    )


def _move(case: Case, steps: Steps, place: int, step: Collective, *, is_inner: bool) -> _Move | None:
    """Return where a collective could begin and would have to end, None where it has to stay."""
    if step.name not in case.homes:
        return None
    home = case.homes[step.name]
    readers = {one.name: n for n, one in enumerate(steps)}
    # What only moves its operand goes along with it.
    makers = {name: n for name, n in readers.items() if getattr(steps[n], "family", "") != "copy"}
    works = [makers[name] for name in _reached(home, step.name, makers, backwards=True)]
    read_by = [readers[name] for name in _reached(home, step.name, readers, backwards=False)]
    start, end = max(works, default=-1) + 1, min(read_by, default=len(steps))
    is_ahead = is_inner and not works and end <= place + 1
    if is_ahead:
        return _Move(step, 0, len(steps), is_ahead=True)
    return _Move(step, start, end, is_ahead=False) if start < place or end > place + 1 else None


def _reached(home: Computation, name: str, stops: dict[str, int], *, backwards: bool) -> set[str]:
    """Return the steps that an instruction is made from, or is read by, through instructions that are no steps."""
    found, seen, open_ = set[str](), {name}, [name]
    while open_:
        here = open_.pop()
        there = home[here].operands if backwards else [user.name for user, _ in home.users.get(here, ())]
        for one in there:
            if one in stops:
                found.add(one)
            elif one not in seen:
                seen.add(one)
                open_.append(one)
    return found


def _moved(steps: Steps, moves: list[_Move]) -> Steps:
    """Return a list of steps with some collectives beside the core."""
    taken = {id(move.step) for move in moves}
    new: list[AnyStep] = []
    for place, step in enumerate((*steps, None)):
        new += [structs.replace(move.step, is_async=True) for move in moves if move.start == place]
        new += [_end(move.step) for move in moves if move.end == place]
        new += [step] if step is not None and id(step) not in taken else []
    return tuple(new)


def _end(step: Collective) -> Wait:
    return Wait(name=f"{step.name}-wait", opcode="", needs=(step.name,))
