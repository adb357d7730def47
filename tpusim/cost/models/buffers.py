"""The buffers that ship: ``rotating`` ones, ``dma.buffers`` of each block, and ``ideal`` ones: nothing waits."""

from __future__ import annotations

from collections.abc import Mapping

from tpusim.cost.classes import Moving, block_seconds, class_cycles, class_moving
from tpusim.cost.dma import later_blocks
from tpusim.cost.models.checked import pace_fault
from tpusim.cost.models.protocols import Buffers, Pace
from tpusim.cost.models.registry import Registry
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import SMEM, VMEM
from tpusim.program.steps import Kernel
from tpusim.program.work import Stream
from tpusim.units import seconds_to_ps

BUFFERS: Registry[Buffers] = Registry("dma.model", pace=pace_fault)
"""By the name in a chip's file."""


def buffers_of(chip: Chip) -> Buffers:
    """Return the model of a chip's buffers."""
    return BUFFERS.of(chip.dma)


@BUFFERS.enter("rotating")
class Rotating:
    """Each block has ``dma.buffers`` places that take turns; a block is asked for one tile before it is needed."""

    def pace(self, kernel: Kernel, moving_ps: Mapping[str, int], compute_ps: int, chip: Chip) -> Pace:
        """Return the rounds of the places, and the bursts of the memory whose blocks come least evenly."""
        if kernel.classes:
            rounds_ps = _classes_ps(kernel, chip, latency_seconds=chip.dma.fixed_latency_seconds)
            return Pace(max(rounds_ps, _copied_ps(kernel, chip)), _classes_ps(kernel, chip, latency_seconds=0.0))
        most_ps = max(moving_ps.values(), default=0)
        bursts = (_bursts_ps(kernel, space, ps, compute_ps, chip) for space, ps in moving_ps.items())
        return Pace(_rounds_ps(kernel, most_ps, compute_ps, chip), max(bursts, default=0))


@BUFFERS.enter("ideal")
class Ideal:
    """As many places as it takes, filled long before: what a prefetcher without limits could gain."""

    def pace(self, kernel: Kernel, moving_ps: Mapping[str, int], compute_ps: int, chip: Chip) -> Pace:
        """Return that nothing waits."""
        return Pace(0, 0)


def _rounds_ps(kernel: Kernel, moving_ps: int, compute_ps: int, chip: Chip) -> int:
    """Return what the tiles take at least, as a block's buffer is free again only when it has been computed with."""
    waits = max((_later_fetches(stream, kernel) for stream in kernel.streams), default=0.0)
    return (seconds_to_ps(waits * chip.dma.fixed_latency_seconds) + moving_ps + compute_ps) // chip.dma.buffers


def _bursts_ps(kernel: Kernel, space: str, moving_ps: int, compute_ps: int, chip: Chip) -> int:
    """Return what the tiles take at least, as more comes in with some of them than with others."""
    later = later_blocks(kernel, space, chip)
    total = sum(count * n_bytes for count, n_bytes in later)
    if not total:
        return 0
    tiles = -(-kernel.tiles // kernel.cores)
    at_once, done, taken_ps = sum(n_bytes for _, n_bytes in later), 0.0, 0.0
    # What seldom changes does so together with all that changes oftener: loops are nested.
    for count, n_bytes in later:
        taken_ps += (count - done) * max(compute_ps / tiles, moving_ps * at_once / total)
        at_once, done = at_once - n_bytes, count
    return round(taken_ps + max(0.0, tiles - done) * compute_ps / tiles)


def _classes_ps(kernel: Kernel, chip: Chip, latency_seconds: float) -> int:
    """Return what the tiles take, each as long as the longer of its computation and of what moves beside it."""
    total = 0.0
    for tiles, moving in zip(kernel.classes, class_moving(kernel, chip), strict=True):
        computing = class_cycles(kernel, tiles, chip) / chip.clock_hz
        total += tiles.tiles * max(computing, moving.with_latency(latency_seconds))
    return seconds_to_ps(total / kernel.cores)


def _copied_ps(kernel: Kernel, chip: Chip) -> int:
    """Return what a kernel's own copies behind the first take: the next comes in when the one before it has."""
    # Those of its blocks stand first.
    first = len(kernel.classes[0].moves)
    own = list(zip(kernel.streams[first:], block_seconds(kernel, chip)[first:], strict=True))
    later = [(stream, (stream.fetches - 1) * seconds) for stream, (_, seconds) in own]
    moving = Moving(sum(s for _, s in later), sum(s for stream, s in later if not stream.is_output))
    waits = max((stream.fetches - 1 for stream, seconds in later if seconds), default=0)
    return seconds_to_ps(moving.with_latency(waits * chip.dma.fixed_latency_seconds) / kernel.cores)


def _later_fetches(stream: Stream, kernel: Kernel) -> float:
    """Return how often a core moves a block of a stream beside the first one; what lies in VMEM stays where it is."""
    return max(0.0, stream.fetches / kernel.cores - 1) if stream.space not in (VMEM, SMEM) else 0.0
