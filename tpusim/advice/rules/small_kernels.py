"""Kernels that are mostly fixed cost, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, SHOWN, Case, Trial, advises
from tpusim.cost.tile import alone_ps
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, VMEM
from tpusim.ir.module import Computation
from tpusim.ir.ops import COPIES
from tpusim.program.edit import with_steps
from tpusim.program.module import Program, inner_lists
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import Stream, sum_work
from tpusim.shapes.shape import ArrayShape

_MOSTLY = 0.5
_MOST_GROUPS = 4


@advises("small kernels")
def small_kernels(case: Case) -> Iterator[Trial]:
    """Propose to make one kernel of each run of kernels that are mostly latency, with what passes between them kept."""
    small = _small(case)
    lists = (case.program.steps, *(one for step in case.program.every_step for one in inner_lists(step)))
    runs = [run for steps in lists for run in _runs(steps, small)]
    if not runs:
        return
    merged = {id(run[0]): _merged(case, run) for run in runs}
    gone = {id(kernel) for run in runs for kernel in run[1:]}
    longest = max(runs, key=lambda kernels: case.share(*kernels))
    yield Trial(
        what=f"{sum(map(len, runs))} small kernels that are mostly launch and latency, {len(runs)} times some in a row",
        change="batch them (vmap, or stack their operands), or write those in a row as one Pallas kernel",
        ops=tuple(kernel.name for kernel in longest[:SHOWN]),
        source=next((kernel.source for kernel in longest if kernel.source), ""),
        alternative=with_steps(
            case.program, lambda steps: tuple(merged.get(id(step), step) for step in steps if id(step) not in gone)
        ),
    )


@advises("kernels alike")
def kernels_alike(case: Case) -> Iterator[Trial]:
    """Propose to make one kernel of those that do the same to other arrays, none of which waits for another one."""
    groups: dict[tuple[object, ...], list[Kernel]] = defaultdict(list)
    for step in case.program.steps:
        if isinstance(step, Kernel) and step.name in case.homes and step.basis != "body":
            groups[_likeness(case, step)].append(step)
    large = sorted((own for own in groups.values() if len(own) > 1), key=lambda own: -case.share(*own))
    for group in large[:_MOST_GROUPS]:
        if case.share(*group) < LEAST_SHARE:
            return
        if _is_independent(case, group):
            yield Trial(
                what=f"{len(group)} kernels do the same to other arrays, one after another",
                change="stack their operands and work on all at once (vmap, einsum, or one array instead of a list)",
                ops=tuple(kernel.name for kernel in group[:SHOWN]),
                source=next((kernel.source for kernel in group if kernel.source), ""),
                alternative=_stacked(case, group),
            )


def _likeness(case: Case, kernel: Kernel) -> tuple[object, ...]:
    """Return what kernels that do the same have in common: their code, and the shapes that it works on."""
    home = case.homes[kernel.name]
    shapes = tuple((str(one.shape.dimensions), one.shape.dtype) for one in _arrays(home, kernel.name))
    return (kernel.opcode, kernel.source, kernel.flops, shapes)


def _arrays(home: Computation, name: str) -> Iterator[Any]:
    return (one for one in (home[name], *home.operands_of(home[name])) if isinstance(one.shape, ArrayShape))


def _is_independent(case: Case, group: Sequence[Kernel]) -> bool:
    """Return whether no kernel of a group is made of what another one makes."""
    home, names = case.homes[group[0].name], {kernel.name for kernel in group}
    behind: set[str] = set()
    for one in home:
        if any(operand in behind or operand in names for operand in one.operands):
            behind.add(one.name)
    return not behind & names


def _stacked(case: Case, group: Sequence[Kernel]) -> Program:
    """Return a program with one kernel for a group of them, at the place of the last.

    A stack of what they read and write is as large as all of it, and lies in HBM: what brings or takes single arrays
    goes.
    """
    home = case.homes[group[0].name]
    names = {kernel.name for kernel in group}
    read = {stream.operand for kernel in group for stream in kernel.streams if not stream.is_output}
    brought = {name for name in read if home[name].opcode in COPIES and {u.name for u, _ in home.users[name]} <= names}
    brought |= {name for done in brought for name in home[done].operands if home[name].opcode in COPIES}
    taken = {user.name for name in names for user, _ in home.users.get(name, ()) if user.opcode in COPIES}
    taken |= {user.name for name in taken for user, _ in home.users.get(name, ()) if user.opcode in COPIES}
    gone = brought | taken
    needs = tuple({need for kernel in group for need in kernel.needs} - gone)
    whole = structs.replace(_best_stack(group, case.chip), name=group[-1].name, needs=needs)

    def change(steps: Steps) -> Steps:
        found = (whole if step is group[-1] else step for step in steps if step.name not in names - {whole.name} | gone)
        return tuple(structs.replace(s, needs=tuple(need for need in s.needs if need not in gone)) for s in found)

    return with_steps(case.program, change)


def _best_stack(group: Sequence[Kernel], chip: Chip) -> Kernel:
    """Return one kernel for some, with as many of them at a time as is fastest and fits, as a compiler would cut it."""
    # What reads most of HBM stands for all: others read there what was brought to VMEM for them.
    one, count = max(group, key=lambda kernel: kernel.hbm_bytes), len(group)
    stacks = [_stack(one, count, at_once) for at_once in range(1, count + 1) if count % at_once == 0]
    fits = [stack for stack in stacks if stack.vmem_bytes <= chip.vmem.kernel_bytes]
    return min(fits or stacks[:1], key=lambda stack: alone_ps(stack, chip))


def _stack(one: Kernel, count: int, at_once: int) -> Kernel:
    """Return a kernel that does a ``count`` of times what one does, some of them in each tile."""
    turns = one.vector_loop.turns * at_once
    return structs.replace(
        one,
        tiles=one.tiles * count // at_once,
        loops=(),
        work=one.work * at_once,
        stages=tuple(stage * at_once for stage in one.stages),
        vector_loop=structs.replace(one.vector_loop, turns=turns),
        streams=tuple(
            structs.replace(s, space=HBM, block_bytes=s.block_bytes * at_once, fetches=s.fetches * count // at_once)
            for s in one.streams
        ),
        flops=one.flops * count,
        product_flops=one.product_flops * count,
        scoped_vmem_bytes=0,
    )


def _runs(steps: Steps, small: set[int]) -> Iterator[list[Kernel]]:
    """Yield the kernels of each run of small ones."""
    for is_small, group in groupby(steps, lambda step: id(step) in small):
        found = [step for step in group if isinstance(step, Kernel)]
        if is_small and len(found) > 1:
            yield found


def _small(case: Case) -> set[int]:
    """Return the kernels, by identity, whose time is mostly latency."""
    parts: dict[int, list[int]] = {}
    for record in case.result.timeline.records:
        if record.is_kernel and record.step >= 0:
            sums = parts.setdefault(record.step, [0, 0])
            sums[0] += record.parts.get("latency", 0) * record.count
            sums[1] += record.total_ps
    steps = case.program.every_step
    return {id(steps[number]) for number, (latency_ps, total_ps) in parts.items() if latency_ps > _MOSTLY * total_ps}


def _merged(case: Case, kernels: Sequence[Kernel]) -> Kernel:
    """Return one kernel that does what some did, all of it at once; what only they read stays in VMEM."""
    names = {kernel.name for kernel in kernels}
    inner = {name for name in names if name in case.homes and _users(case, name) <= names}
    streams = dict[tuple[str, bool], Stream]()
    for kernel in kernels:
        for stream in kernel.streams:
            whole = structs.replace(stream, block_bytes=stream.total_bytes, fetches=1)
            streams.setdefault((stream.operand, stream.is_output), whole)
    kept = [
        structs.replace(one, space=VMEM) if one.operand in inner or (name in names and not is_output) else one
        for (name, is_output), one in streams.items()
    ]
    return structs.replace(
        kernels[-1],
        tiles=1,
        loops=(),
        work=sum_work(kernel.work * kernel.tiles for kernel in kernels),
        stages=(),
        parts=(),
        classes=(),
        streams=tuple(kept),
        flops=sum(kernel.flops for kernel in kernels),
        product_flops=sum(kernel.product_flops for kernel in kernels),
        needs=tuple(dict.fromkeys(need for kernel in kernels for need in kernel.needs)),
    )


def _users(case: Case, name: str) -> set[str]:
    return {user.name for user, _ in case.homes[name].users.get(name, ())}
