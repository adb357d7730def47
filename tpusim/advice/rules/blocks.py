"""Blocks of hand-written kernels that are too small."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.pipeline.answers.blocks import Larger, larger_blocks
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps

_MOST_KERNELS = 4


@advises("block sizes")
def block_sizes(case: Case) -> Iterator[Trial]:
    """Propose the best blocks for each hand-written kernel: steps that are neighbours in its grid become one."""
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel) and step.basis == "body"]
    for kernel in sorted(kernels, key=lambda kernel: -case.share(kernel))[:_MOST_KERNELS]:
        if case.module is None or case.share(kernel) < LEAST_SHARE:
            return
        found = larger_blocks(case.module, case.chip, case.homes[kernel.name].name, kernel.name)
        if len(found) > 1 and max(found[0].tried.counts) > 1:
            best, own = found[0], next(one for one in found if max(one.tried.counts) == 1)
            # What it was lowered to has its place in the program as well.
            better = structs.replace(best.kernel, needs=kernel.needs)
            yield Trial(
                what=f"{kernel.tiles:,} steps of small blocks ({_grid(own)}), each with a cost of its own",
                change=f"larger blocks: {_bounds(best)}; compare some with tpusim.jax.tune",
                alternative=with_steps(case.program, partial(_replaced, old=kernel, new=better)),
                **case.places([kernel]),
            )


def _grid(found: Larger) -> str:
    return "a grid of " + "x".join(map(str, found.tried.grid))


def _bounds(found: Larger) -> str:
    return ", ".join(f"{name} in {'x'.join(map(str, bounds))}" for name, bounds in found.tried.bounds)


def _replaced(steps: Steps, old: Kernel, new: Kernel) -> Steps:
    return tuple(new if step is old else step for step in steps)
