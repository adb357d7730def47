"""Transfers to and from the host that the core waits for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, HostTransfer, Steps, Wait


@advises("host transfers")
def host_transfers(case: Case) -> Iterator[Trial]:
    """Propose to move what goes to or comes from the host beside the core, a step ahead."""
    found = [step for step in case.program.every_step if _is_waited_for(step)]
    if case.share(*found) < LEAST_SHARE:
        return
    yield Trial(
        what="the core waits while bytes move to or from the host",
        change="send the next batch while this one is worked on (jax.device_put before the step); read results later",
        alternative=with_steps(case.program, _beside),
        **case.places(found),
    )


def _beside(steps: Steps) -> Steps:
    """Return steps with what goes to or comes from the host beside all of them: the next trip's, or the next call's.

    The last step waits for it, since the link can carry no more than what one trip of it takes.
    """
    moved = [step for step in steps if _is_waited_for(step)]
    begun = [structs.replace(step, is_async=True) for step in moved if isinstance(step, HostTransfer)]
    ends = [Wait(name=f"{step.name}-wait", opcode="", needs=(step.name,)) for step in moved]
    return (*begun, *(step for step in steps if not _is_waited_for(step)), *ends)


def _is_waited_for(step: AnyStep) -> bool:
    return isinstance(step, HostTransfer) and not step.is_async
