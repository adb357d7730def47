"""Kernels that are mostly fixed cost, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import structs

from tpusim.advice.trials import Case, Trial, advises
from tpusim.cost.peaks import flops_by_type, typed
from tpusim.hardware.units import VMEM
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import Stream, sum_work

_MOSTLY = 0.5


@advises("small kernels")
def small_kernels(case: Case) -> Iterator[Trial]:
    """Propose to make one kernel of each run of kernels that are mostly latency, with what passes between them kept."""
    small = latency_bound(case)
    runs = [run for steps in case.program.every_list for run in _runs(steps, small)]
    if not runs:
        return
    merged = {id(run[0]): _merged(case, run) for run in runs}
    gone = {id(kernel) for run in runs for kernel in run[1:]}
    longest = max(runs, key=lambda kernels: case.share(*kernels))
    yield Trial(
        what=f"{sum(map(len, runs))} small kernels that are mostly launch and latency, {len(runs)} times some in a row",
        change="batch them (vmap, or stack their operands), or write those in a row as one Pallas kernel",
        alternative=with_steps(
            case.program, lambda steps: tuple(merged.get(id(step), step) for step in steps if id(step) not in gone)
        ),
        **case.places(longest),
    )


def _runs(steps: Steps, small: set[int]) -> Iterator[list[Kernel]]:
    """Yield the kernels of each run of small ones."""
    for is_small, group in groupby(steps, lambda step: id(step) in small):
        found = [step for step in group if isinstance(step, Kernel)]
        if is_small and len(found) > 1:
            yield found


def latency_bound(case: Case) -> set[int]:
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
    flops = Counter[str]()
    for kernel in kernels:
        flops.update(flops_by_type(kernel, kernel.product_flops) if kernel.product_flops else {})
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
        **typed(flops, case.chip),
        needs=tuple(dict.fromkeys(need for kernel in kernels for need in kernel.needs)),
    )


def _users(case: Case, name: str) -> set[str]:
    return {user.name for user, _ in case.homes[name].users.get(name, ())}
