"""Products that are computed again although there would be room to keep them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.hardware.units import HBM, VMEM
from tpusim.ir.frames import is_differentiated, is_recomputed
from tpusim.program.edit import with_steps
from tpusim.program.module import walk
from tpusim.program.steps import AnyStep, Copy, Kernel, Steps, Wait
from tpusim.program.work import Stream


class _Kept(NamedTuple):
    """What comes ``instead`` of products that are kept, and ``behind`` those that they are copies of, by identity."""

    instead: Mapping[int, Steps]
    behind: Mapping[int, Steps]


class _Pair(NamedTuple):
    """A product that is computed again, its ``twin`` before or else itself, and behind what its copy may ``start``."""

    step: Kernel
    twin: Kernel
    start: Kernel | None


@advises("recomputation")
def recomputation(case: Case) -> Iterator[Trial]:
    """Propose to keep products that are computed again, where the HBM has room for them.

    They go out to HBM in the forward pass and come back where they were computed again. In a loop they go through a
    stack, which the core does itself, and what is made of them is made again; elsewhere copies run beside the core.
    """
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel)]
    again = [step for step in kernels if is_recomputed(step.name, step.op_name)]
    counts = {id(step): count for step, count in walk(case.program.steps)}
    in_loops = {id(step) for step in again if counts.get(id(step), 1) > 1}
    products = [step for step in kernels if step.product_flops]
    found = [step for step in again if step.product_flops]
    if case.share(*found) < LEAST_SHARE:
        return
    kept_bytes = sum(out.total_bytes * counts.get(id(step), 1) for step in found for out in _results(step))
    if kept_bytes > case.chip.hbm.available_bytes - case.result.summary.memory.peak_hbm_bytes:
        return
    kept = _kept(products, found, in_loops)
    made: dict[int, Steps] = {id(step): () for step in again if id(step) not in in_loops}
    policy = "give jax.checkpoint policy=jax.checkpoint_policies.dots_saveable: these alone are then kept"
    yield Trial(
        what=f"{len(found)} products are computed again that there is room to keep",
        change=policy if in_loops else "take jax.checkpoint away",
        alternative=with_steps(case.program, partial(_changed, kept=_Kept({**made, **kept.instead}, kept.behind))),
        saved_bytes=-int(kept_bytes),
        **case.places(found),
    )


def _results(kernel: Kernel) -> list[Stream]:
    return [stream for stream in kernel.streams if stream.is_output]


def _kept(products: Sequence[Kernel], again: Sequence[Kernel], in_loops: set[int]) -> _Kept:
    """Return the change that keeps what some of a program's products compute ``again``."""
    behind, instead = defaultdict[int, Steps](tuple), dict[int, Steps]()
    for step, twin, start in _paired(products, set(map(id, again))):
        if id(step) in in_loops:
            behind[id(twin)] += (_stacked(step, VMEM, HBM),)
            instead[id(step)] = (_stacked(step, HBM, VMEM),)
        elif start is None or twin is step:
            instead[id(step)] = ()
        else:
            n_bytes = sum(stream.total_bytes for stream in _results(step))
            out = Copy(
                name=f"{step.name}-out", opcode="copy-start", n_bytes=n_bytes, source_space=VMEM, target_space=HBM
            )
            back = Copy(name=f"{step.name}-in", opcode="copy-start", n_bytes=n_bytes, needs=(out.name,))
            behind[id(twin)] += (out,)
            behind[id(start)] += (back,)
            instead[id(step)] = (Wait(name=step.name, opcode="copy-done", needs=(back.name,)),)
    return _Kept(instead, behind)


def _paired(products: Sequence[Kernel], again: set[int]) -> Iterator[_Pair]:
    """Yield the products that are computed ``again``, by identity, in their order."""
    left = defaultdict[tuple[str, float], list[Kernel]](list)
    for one in products:
        if id(one) not in again and not is_differentiated(one.op_name):
            left[one.source, one.product_flops].append(one)
    start, is_behind = None, False
    for one in products:
        if id(one) in again:
            # The backward pass goes the other way.
            twins = left[one.source, one.product_flops]
            yield _Pair(one, twins.pop() if twins else one, start)
            is_behind = True
        elif is_behind:
            # Behind this one a copy does not hold up what is waited for first.
            start, is_behind = one, False


def _stacked(kernel: Kernel, source: str, target: str) -> Kernel:
    """Return a kernel that copies the results of one instead of computing them."""
    into = (structs.replace(stream, space=source, is_output=False) for stream in _results(kernel))
    out = (structs.replace(stream, space=target) for stream in _results(kernel))
    return Kernel(
        name=kernel.name, opcode="copy", needs=kernel.needs, tiles=kernel.tiles, streams=(*into, *out), family="copy"
    )


def _changed(steps: Steps, kept: _Kept) -> Steps:
    """Return steps where products are kept."""
    new: list[AnyStep] = []
    for step in steps:
        new += (*kept.instead.get(id(step), (step,)), *kept.behind.get(id(step), ()))
    return tuple(new)
