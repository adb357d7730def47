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
                with_steps(case.program, partial(_unrolled, loop=loop, times=times, once=_state_copies(case, loop))),
            )


def _state_copies(case: Case, loop: Loop) -> set[str]:
    """Return the steps of a body that only copy what a trip is handed: trips that are one hand it on as it is."""
    found = set()
    for step in loop.body:
        instruction = case.instruction(step)
        if instruction is not None and instruction.opcode == "copy":
            home = case.homes[step.name]
            made = home[instruction.operands[0]]
            while made.opcode == "get-tuple-element":
                made = home[made.operands[0]]
            found |= {step.name} if made.opcode == "parameter" else set()
    return found


def _unrolled(steps: Steps, loop: Loop, times: int, once: set[str]) -> Steps:
    def of(step: AnyStep) -> AnyStep:
        if step is not loop:
            return step
        again = tuple(inner for inner in loop.body if inner.name not in once)
        return structs.replace(loop, trips=loop.trips // times, body=loop.body + again * (times - 1))

    return tuple(map(of, steps))
