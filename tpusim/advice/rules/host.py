"""Transfers to and from the host that the core waits for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.program.edit import with_steps
from tpusim.program.steps import HostTransfer, Steps


@advises("host transfers")
def host_transfers(case: Case) -> Iterator[Trial]:
    """Propose to move what goes to or comes from the host beside the core, a step ahead."""
    found = [step for step in case.program.every_step if isinstance(step, HostTransfer) and not step.is_async]
    if case.share(*found) < LEAST_SHARE:
        return
    yield Trial(
        what="the core waits while bytes move to or from the host",
        change="send the next batch while this one is worked on (jax.device_put before the step); read results later",
        alternative=with_steps(case.program, _beside),
        **case.places(found),
    )


def _beside(steps: Steps) -> Steps:
    """Return steps with what goes to or comes from the host beside the core, which never waits for it."""
    return tuple(structs.replace(step, is_async=True) if isinstance(step, HostTransfer) else step for step in steps)
