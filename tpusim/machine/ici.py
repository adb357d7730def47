"""The links between chips: how long a collective takes, in closed form.

Large messages go round rings in every dimension of the torus and in both directions at once; small ones pay the hops.
"""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from tpusim.hardware.chip import Ici
    from tpusim.hardware.pod import Topology
    from tpusim.program.steps import Collective

# Bytes that the busiest chip sends or receives, as a multiple of the larger side's bytes, for a group of n.
_VOLUME = {
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n * max(1.0, n / 8),
    "ragged-all-to-all": lambda n: (n - 1) / n * max(1.0, n / 8),
    "collective-permute": lambda n: 1.0,
    "collective-broadcast": lambda n: 1.0,
}

# How many times round the ring the data goes before everybody has it.
_PHASES = {"all-reduce": 2, "collective-permute": 0, "collective-broadcast": 1}


def collective_ps(step: Collective, ici: Ici, topology: Topology | None = None) -> int:
    """Return the picoseconds of a collective among ``step.group_size`` devices with nothing else on the links.

    Without a ``topology`` the group is taken to be as compact as the chip's torus allows.
    """
    if step.group_size <= 1:
        return 0
    dimensions = ring_dimensions(step, ici, topology)
    ways = 1 if step.kind == "collective-permute" else 2 * dimensions
    rate = ici.link_bytes_per_second * ici.efficiency * ways
    side = ceil(step.group_size ** (1 / dimensions))
    hops = max(1, _PHASES.get(step.kind, 1) * dimensions * (side // 2))
    volume_bytes = step.n_bytes * _VOLUME[step.kind](step.group_size)
    return hops * seconds_to_ps(ici.hop_latency_seconds) + bytes_to_ps(volume_bytes, rate)


def ring_dimensions(step: Collective, ici: Ici, topology: Topology | None) -> int:
    """Return along how many axes a group's rings run: those of the slice if all its devices take part."""
    compact = min(ici.dimensions, int(log2(step.group_size)))
    if topology is not None and step.group_count == 1:
        return max(1, min(compact, topology.extended_axes))
    return max(1, compact)
