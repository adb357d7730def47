"""Kernels that do the same to one array after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.stacks import best_stack
from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises, are_made_of
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM
from tpusim.ir.ops import COPIES
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import Stream
from tpusim.shapes.shape import ArrayShape

_MOST_COUNTS = 4

_Group = list[Kernel]


class _Stacks(NamedTuple):
    """One kernel for each group, by the last name of that; the other steps of the groups, and copies, are ``gone``."""

    whole: dict[str, Kernel]
    gone: frozenset[str]


@advises("kernels alike")
def kernels_alike(case: Case) -> Iterator[Trial]:
    """Propose to make one kernel of those that do the same to other arrays, none of which waits for another one."""
    likes: dict[tuple[object, ...], _Group] = defaultdict(list)
    for step in case.program.steps:
        if isinstance(step, Kernel) and step.name in case.homes and step.basis != "body":
            likes[_likeness(case, step)].append(step)
    # What is done to each of so many arrays is one piece of code, in however many kernels.
    counts: dict[int, list[_Group]] = defaultdict(list)
    for group in _independent(case, [group for group in likes.values() if len(group) > 1]):
        counts[len(group)].append(group)
    ranked = sorted(counts.values(), key=lambda groups: -_share(case, groups))
    for groups in ranked[:_MOST_COUNTS]:
        if _share(case, groups) < LEAST_SHARE:
            return
        longest = max(groups, key=lambda group: case.share(*group))
        each = f", in {len(groups)} kernels each" if len(groups) > 1 else ""
        yield Trial(
            what=f"the same is done to {len(longest)} arrays one after another{each}",
            change="stack their operands and work on all at once (vmap, einsum, or one array instead of a list)",
            alternative=with_steps(case.program, partial(_stacked, stacks=_stacks(case, groups))),
            **case.places(longest),
        )


def _share(case: Case, groups: Sequence[_Group]) -> float:
    return case.share(*(kernel for group in groups for kernel in group))


def _likeness(case: Case, kernel: Kernel) -> tuple[object, ...]:
    """Return what kernels that do the same have in common: their code, and the shapes that it works on."""
    home = case.homes[kernel.name]
    shapes = [one.shape for one in (home[kernel.name], *home.operands_of(home[kernel.name]))]
    arrays = tuple((one.dimensions, one.dtype.name) for one in shapes if isinstance(one, ArrayShape))
    return (kernel.opcode, kernel.source, kernel.flops, arrays)


def _independent(case: Case, groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yield the groups of which no kernel is made of what another one makes."""
    homes: dict[str, list[_Group]] = defaultdict(list)
    for group in groups:
        homes[case.homes[group[0].name].name].append(group)
    waits = set[int]()
    for some in homes.values():
        names = [{kernel.name for kernel in group} for group in some]
        answers = are_made_of(case.homes[some[0][0].name], list(zip(names, names, strict=True)))
        waits |= {id(group) for group, does_wait in zip(some, answers, strict=True) if does_wait}
    return (group for group in groups if id(group) not in waits)


def _stacks(case: Case, groups: Sequence[_Group]) -> _Stacks:
    """Return one kernel for each group; what brings single arrays to VMEM for it, or takes them from there, goes."""
    whole, gone = dict[str, Kernel](), set[str]()
    for group in groups:
        copies = _copies(case, group)
        needs = {need for kernel in group for need in kernel.needs}
        best = _best_stack(group, copies, case.chip)
        whole[group[-1].name] = structs.replace(best, name=group[-1].name, needs=tuple(needs))
        gone |= copies | {kernel.name for kernel in group[:-1]}
    return _Stacks(whole, frozenset(gone))


def _copies(case: Case, group: _Group) -> set[str]:
    """Return the copies of what a group alone reads, and of what it makes."""
    home, names = case.homes[group[0].name], {kernel.name for kernel in group}
    users = {one.name: {user.name for user, _ in home.users.get(one.name, ())} for one in home}
    copies = {one.name for one in home if one.opcode in COPIES}
    read = {stream.operand for kernel in group for stream in kernel.streams if not stream.is_output}
    brought = {name for name in read & copies if users[name] <= names}
    brought |= {name for done in brought for name in home[done].operands} & copies
    taken = {user for name in names for user in users[name]} & copies
    return brought | taken | ({user for name in taken for user in users[name]} & copies)


def _best_stack(group: _Group, copies: set[str], chip: Chip) -> Kernel:
    """Return one kernel for some, with as many of them at a time as is fastest and fits, as a compiler would cut it."""
    # What reads most of HBM stands for all: others read there what was brought to VMEM for them.
    one, count = max(group, key=lambda kernel: kernel.hbm_bytes), len(group)
    room = chip.vmem.capacity_bytes - chip.vmem.kernel_bytes

    def spread(stream: Stream) -> Stream:
        stays = stream.operand not in copies and stream.total_bytes * count <= room
        return stream if stays else structs.replace(stream, space=HBM)

    return best_stack(structs.replace(one, streams=tuple(map(spread, one.streams))), count, chip)


def _stacked(steps: Steps, stacks: _Stacks) -> Steps:
    """Return steps with a stack at the place of the last kernel of each group."""
    kept = (stacks.whole.get(step.name, step) for step in steps if step.name not in stacks.gone)
    return tuple(structs.replace(s, needs=tuple(need for need in s.needs if need not in stacks.gone)) for s in kept)
