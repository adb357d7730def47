"""The links between chips: how long a collective takes, in closed form.

Large messages go round rings in every dimension of the torus and in both directions at once; small ones pay the hops.
"""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import msgspec

from tpusim.units import seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.hardware.chip import Ici
    from tpusim.hardware.pod import Topology
    from tpusim.program.steps import Collective

# Bytes that one chip sends, as a multiple of the larger side's bytes, for a group of n on a torus of that many axes and
# chips along each: every byte of an all-to-all travels a quarter of each ring on average (jax-ml/scaling-book,
# sharding).
_VOLUME: dict[str, Callable[[int, int, int], float]] = {
    "all-gather": lambda n, axes, side: (n - 1) / n,
    "reduce-scatter": lambda n, axes, side: (n - 1) / n,
    "all-reduce": lambda n, axes, side: 2 * (n - 1) / n,
    "all-to-all": lambda n, axes, side: (n - 1) / n * max(1.0, axes * side / 4),
    "ragged-all-to-all": lambda n, axes, side: (n - 1) / n * max(1.0, axes * side / 4),
    "collective-permute": lambda n, axes, side: 1.0,
    "collective-broadcast": lambda n, axes, side: 1.0,
}

# How many times round the rings the data goes before everybody has it; a permute is one hop.
_ROUNDS = {"all-reduce": 2, "collective-permute": 0}


class Sending(msgspec.Struct, frozen=True, gc=False):
    """What a collective asks of one chip's links: a wait for hops, then bytes over ``ways`` one-way links at once."""

    hops_ps: int
    sent_bytes: float
    ways: int


def plan_collective(step: Collective, ici: Ici, topology: Topology | None = None) -> Sending:
    """Return what a collective asks of the links; without ``topology`` its group is as compact as the torus allows."""
    if step.group_size <= 1:
        return Sending(0, 0.0, 1)
    axes = ring_dimensions(step, ici, topology)
    side = ceil(step.group_size ** (1 / axes))
    hops = max(1, _ROUNDS.get(step.kind, 1) * axes * (side // 2))
    return Sending(
        hops_ps=hops * seconds_to_ps(ici.hop_latency_seconds),
        sent_bytes=step.n_bytes * _VOLUME[step.kind](step.group_size, axes, side),
        # A ring is run in both directions at once, on every axis; a permute knows one target and one way.
        ways=1 if step.kind == "collective-permute" else min(ici.links, 2 * axes),
    )


def ring_dimensions(step: Collective, ici: Ici, topology: Topology | None) -> int:
    """Return along how many axes a group's rings run: those of the slice if all its devices take part."""
    # Two chips span one axis, four span two: a group has no more axes than halvings.
    compact = min(ici.dimensions, int(log2(step.group_size)))
    if topology is not None and step.group_count == 1:
        return max(1, min(compact, topology.extended_axes))
    return max(1, compact)
