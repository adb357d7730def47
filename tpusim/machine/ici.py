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
    sides = group_sides(step, ici, topology)
    longest = max(sides)
    hops = max(1, _ROUNDS.get(step.kind, 1) * sum(side // 2 for side in sides))
    return Sending(
        hops_ps=hops * seconds_to_ps(ici.hop_latency_seconds),
        sent_bytes=step.n_bytes * _VOLUME[step.kind](step.group_size, len(sides), longest),
        ways=1 if step.kind == "collective-permute" else sum(links_along(side, ici) for side in sides),
    )


def group_sides(step: Collective, ici: Ici, topology: Topology | None) -> tuple[int, ...]:
    """Return how many chips a group has along each axis: those of the slice if all its devices take part."""
    if topology is not None and step.group_count == 1 and topology.extended_axes:
        return tuple(size for size in topology.sizes if size > 1)
    axes = max(1, min(ici.dimensions, int(log2(step.group_size))))
    return (ceil(step.group_size ** (1 / axes)),) * axes


def links_along(side: int, ici: Ici) -> int:
    """Return how many links a chip sends on along an axis: both ways round a ring, one where the axis does not wrap."""
    return 2 if side > 2 and _WRAPS[ici.wrap](side) else 1


# When an axis of so many chips closes to a ring: see ``Ici.wrap``.
_WRAPS: dict[str, Callable[[int], bool]] = {
    "always": lambda side: True,
    "cube4": lambda side: side % 4 == 0,
    "length16": lambda side: side == 16,
}
