"""Collectives that the core waits for although there is work beside which they could run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.ir.module import Computation
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, Collective, Steps, Wait
from tpusim.shapes.address import physical_bytes

_FLAGS = {
    True: "--xla_tpu_enable_data_parallel_all_reduce_opt=true --xla_tpu_data_parallel_opt_different_sized_ops=true",
    False: "--xla_tpu_enable_async_collective_fusion=true",
}
"""What lets the TPU compiler do so: with an all-reduce, and with others (MaxText, benchmarks/xla_flags_library.py)."""


class _Move(NamedTuple):
    """A collective, or a ``part`` of one, that can begin before position ``start`` of its list and ends at ``end``."""

    step: Collective
    part: Collective
    start: int
    end: int
    is_ahead: bool


@advises("hide collectives")
def hide_collectives(case: Case) -> Iterator[Trial]:
    """Propose to run collectives beside the core: from where their operand is there to where their result is read.

    Of one that combines several arrays each begins by itself.
    """
    moves = {
        id(listed): [move for place in range(len(listed)) for move in _moves(case, listed, place)]
        for listed in case.program.every_list
    }
    every = [move for own in moves.values() for move in own]
    if not every:
        return
    found = {id(move.step): move.step for move in every}.values()
    split = any(move.part.name != move.step.name for move in every)
    first = "split what is combined, and " if split else ""
    trips = "; of a scan over layers one trip ahead, in its carry" if any(move.is_ahead for move in every) else ""
    early = f"start them earlier, with independent work between them and what reads them{trips}"
    flags = " ".join(_FLAGS[is_sum] for is_sum in sorted({step.kind == "all-reduce" for step in found}))
    yield Trial(
        what=f"the core waits for {len(found)} collectives beside which it could work",
        change=f"{first}{early} (LIBTPU_INIT_ARGS: {flags})",
        alternative=with_steps(case.program, lambda steps: _moved(steps, moves.get(id(steps), []))),
        **case.places(found),
    )


def _moves(case: Case, steps: Steps, place: int) -> list[_Move]:
    """Return where the parts of a collective could begin and would have to end, nothing where it has to stay."""
    step = steps[place]
    if not isinstance(step, Collective) or step.is_async or step.name not in case.homes:
        return []
    if case.share(step) < LEAST_SHARE:
        return []
    home = case.homes[step.name]
    readers = {one.name: n for n, one in enumerate(steps)}
    # What only moves its operand goes along with it.
    makers = {name: n for name, n in readers.items() if getattr(steps[n], "family", "") != "copy"}
    found = []
    for part, operands, results in _parts(home, step):
        behind = (({one} & makers.keys()) or _reached(home, one, makers, backwards=True) for one in operands)
        made_by = set[str]().union(*behind)
        start = max((makers[name] for name in made_by), default=-1) + 1
        read_by = {name for result in results for name in _reached(home, result, readers, backwards=False)}
        end = min((readers[name] for name in read_by), default=len(steps))
        is_ahead = steps is not case.program.steps and not made_by and end <= place + 1
        found.append(_Move(step, part, 0 if is_ahead else start, len(steps) if is_ahead else end, is_ahead))
    return found if any(move.start < place or move.end > place + 1 for move in found) else []


def _parts(home: Computation, step: Collective) -> Iterator[tuple[Collective, Sequence[str], Sequence[str]]]:
    """Yield a collective of each array that one combines, with what it reads and what has its result."""
    operands, users = home[step.name].operands, [user for user, _ in home.users.get(step.name, ())]
    taken = [one for one in users if one.opcode == "get-tuple-element"]
    # Fusions read other arrays than those that they send.
    if len(operands) == 1 or home[step.name].opcode != step.kind or len(taken) < len(users):
        yield step, operands, [step.name]
        return
    sizes = [physical_bytes(one.shape) for one in home.operands_of(home[step.name])]
    for number, (operand, size) in enumerate(zip(operands, sizes, strict=True)):
        share = size / max(1, sum(sizes))
        amounts = {name: getattr(step, name) * share for name in ("n_bytes", "hbm_bytes", "flops")}
        part = structs.replace(step, name=f"{step.name}.{number}", **amounts)
        yield part, [operand], [one.name for one in taken if one.attributes.get("index") == number]


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
        new += [structs.replace(move.part, is_async=True) for move in moves if move.start == place]
        new += [_end(move.part) for move in moves if move.end == place]
        new += [step] if step is not None and id(step) not in taken else []
    return tuple(new)


def _end(step: Collective) -> Wait:
    return Wait(name=f"{step.name}-wait", opcode="", needs=(step.name,))
