"""Activations that a loop keeps for the backward pass although there is no room for them."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.advice.trials import SHOWN, Case, Trial, advises
from tpusim.analysis.memory import memory_profile
from tpusim.hardware.units import HBM
from tpusim.ir.frames import is_kept_by_loop, is_recomputed
from tpusim.shapes.shape import ArrayShape


@advises("activations")
def activations(case: Case) -> Iterator[Trial]:
    """Propose to recompute, where a program does not fit, what is stacked at its peak: what one trip makes is left.

    Where something is computed again already, what is stacked may be no more than what it is computed from.
    """
    if case.room_bytes >= 0 or any(is_recomputed(step.name, step.op_name) for step in case.program.every_step):
        return
    profile = memory_profile(case.program, HBM)
    saved = {
        buffer.name: buffer.n_bytes - buffer.n_bytes // shape.dimensions[0]
        for buffer in profile.alive_at(profile.peak_position)
        if buffer.kind == "temporary"
        and is_kept_by_loop(case.op_names.get(buffer.name, ""))
        and isinstance(shape := case.homes[buffer.name][buffer.name].shape, ArrayShape)
        and shape.rank
        and buffer.n_bytes
    }
    if saved:
        yield Trial(
            what=f"{len(saved)} stacks of activations are kept for the backward pass of a loop",
            change="put jax.checkpoint around the body of lax.scan (without a policy): it is then run forward twice",
            ops=tuple(sorted(saved, key=lambda name: -saved[name])[:SHOWN]),
            source="",
            alternative=None,
            saved_bytes=sum(saved.values()),
        )
