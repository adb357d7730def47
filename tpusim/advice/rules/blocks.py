"""Blocks of hand-written kernels that are too small."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.pipeline.answers.blocks import Larger, larger_blocks
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import TileClass, TilePart
from tpusim.timeline.records import DEPENDENT

_MOST_KERNELS = 4


@advises("block sizes")
def block_sizes(case: Case) -> Iterator[Trial]:
    """Propose the best blocks for each hand-written kernel: steps that are neighbours in its grid become one."""
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel) and step.basis == "body"]
    for kernel in sorted(kernels, key=lambda kernel: -case.share(kernel))[:_MOST_KERNELS]:
        if case.share(kernel) < LEAST_SHARE:
            return
        home = case.homes.get(kernel.name)
        found = larger_blocks(case.module, case.chip, home.name, kernel.name) if case.module and home else []
        if len(found) < 2 and kernel.tiles > 1:
            yield from _never_waiting(case, kernel)
        elif found and max(found[0].tried.counts) > 1:
            best, own = found[0], next(one for one in found if max(one.tried.counts) == 1)
            # What it was lowered to has its place in the program as well.
            better = structs.replace(best.kernel, needs=kernel.needs)
            yield Trial(
                what=f"{kernel.tiles:,} steps of small blocks ({_grid(own)}), each with a cost of its own",
                change=f"larger blocks: {_bounds(best)}; compare some with tpusim.jax.tune",
                alternative=with_steps(case.program, partial(_replaced, old=kernel, new=better)),
                **case.places([kernel]),
            )


def _never_waiting(case: Case, kernel: Kernel) -> Iterator[Trial]:
    """Propose to look for other blocks where none can be told, if a kernel mostly waits.

    The same operations take no less than all of them at once, each unit busy with its own.
    """
    record = next(one for one in case.result.timeline.records if one.name == kernel.name)
    if record.bound_by in (DEPENDENT, "latency"):
        share = record.parts[record.bound_by] / record.duration_ps
        whole = TilePart((kernel.work * (kernel.tiles / kernel.cores),))
        busy = {"tiles": 1, "loops": (), "streams": (), "parts": (whole,), "classes": (TileClass(1, runs=(1.0,)),)}
        better = structs.replace(kernel, **busy)
        yield Trial(
            what=f"{kernel.tiles:,} steps, held up by {record.bound_by} for {share:.0%} of their time; other blocks"
            " were not tried, since its grid and index maps do not say what they would be with them",
            change="larger blocks, or two independent ones a step: tpusim.jax.tune compiles and ranks some",
            alternative=with_steps(case.program, partial(_replaced, old=kernel, new=better)),
            is_bound=True,
            **case.places([kernel]),
        )


def _grid(found: Larger) -> str:
    return "a grid of " + "x".join(map(str, found.tried.grid))


def _bounds(found: Larger) -> str:
    return ", ".join(f"{name} in {'x'.join(map(str, bounds))}" for name, bounds in found.tried.bounds)


def _replaced(steps: Steps, old: Kernel, new: Kernel) -> Steps:
    return tuple(new if step is old else step for step in steps)
