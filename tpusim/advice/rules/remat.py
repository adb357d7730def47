"""Values that are computed again although there would be room to keep them."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.advice.trials import LEAST_SHARE, SHOWN, Case, Trial, advises
from tpusim.hardware.units import HBM
from tpusim.ir.frames import is_recomputed
from tpusim.program.edit import with_steps
from tpusim.program.module import walk
from tpusim.program.steps import Kernel


@advises("recomputation")
def recomputation(case: Case) -> Iterator[Trial]:
    """Propose to keep what is computed again, where the HBM has room for it."""
    kernels = (step for step in case.program.every_step if isinstance(step, Kernel))
    found = [step for step in kernels if is_recomputed(step.name, step.op_name)]
    if case.share(*found) < LEAST_SHARE:
        return
    own = set(map(id, found))
    counts = {id(step): count for step, count in walk(case.program.steps)}
    kept = sum(
        stream.total_bytes * counts.get(id(step), 1)
        for step in found
        for stream in step.streams
        if stream.is_output and stream.space == HBM
    )
    room = case.chip.hbm.available_bytes - case.result.summary.memory.peak_hbm_bytes
    if kept > room:
        return
    longest = sorted(found, key=lambda step: -case.share(step))
    yield Trial(
        what=f"{len(found)} kernels compute again what there is room to keep",
        change="take jax.checkpoint away, or save these values (policy=jax.checkpoint_policies.dots_saveable)",
        ops=tuple(step.name for step in longest[:SHOWN]),
        source=longest[0].source,
        alternative=with_steps(case.program, lambda steps: tuple(s for s in steps if id(s) not in own)),
        saved_bytes=-int(kept),
    )
