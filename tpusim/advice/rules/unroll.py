"""Loops of many short trips."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, Loop, Steps

_TIMES = (8, 5, 4, 3, 2)


@advises("unroll")
def unroll(case: Case) -> Iterator[Trial]:
    """Propose to take several trips of a loop at once, which saves what the scalar core takes to go on."""
    for loop in case.program.every_step:
        if not isinstance(loop, Loop) or case.share(loop) < LEAST_SHARE or loop.choices:
            continue
        times = next((count for count in _TIMES if loop.trips % count == 0), 0)
        if times:
            yield Trial(
                f"{loop.trips:,} trips, each of which jumps and tests",
                f"unroll the loop (unroll={times} of jax.lax.scan and fori_loop)",
                (loop.name,),
                loop.source,
                with_steps(case.program, partial(_unrolled, loop=loop, times=times)),
            )


def _unrolled(steps: Steps, loop: Loop, times: int) -> Steps:
    def of(step: AnyStep) -> AnyStep:
        return structs.replace(loop, trips=loop.trips // times, body=loop.body * times) if step is loop else step

    return tuple(map(of, steps))
