"""Larger blocks of a hand-written kernel: which of them fit, and what it takes with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from tpusim.analysis.explained.blocks import TriedBlocks
from tpusim.cost.tile import alone_ps
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.lowering.grids import merging_of
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.lowering.pallas.merged import Merging, can_merge, larger_bounds, merged
from tpusim.program.steps import Kernel


class Larger(NamedTuple):
    """A kernel with other blocks."""

    kernel: Kernel
    tried: TriedBlocks


def larger_blocks(module: Module, chip: Chip, computation: str, name: str) -> list[Larger]:
    """Return a kernel with its own blocks and with larger ones, the fastest first; nothing where none can be told.

    From its own blocks on it doubles those that save most, along one dimension of the grid or two at once.
    """
    found = merging_of(module, chip, computation, name, DEFAULT_TRIPS)
    if found is None:
        return []
    known: dict[tuple[int, ...], Larger | None] = {}

    def at(counts: tuple[int, ...]) -> Larger | None:
        if counts not in known:
            known[counts] = _with(found, counts, chip)
        return known[counts]

    free = [dimension for dimension in range(len(found.grid)) if can_merge(found, dimension)]
    best = at((1,) * len(found.grid))
    while best is not None:
        next_ = [one for counts in _doubled(best.tried.counts, found.grid, free) if (one := at(counts))]
        fastest = min(next_, key=lambda one: one.tried.alone_ps, default=None)
        best = fastest if fastest and fastest.tried.alone_ps < best.tried.alone_ps else None
    return sorted((one for one in known.values() if one), key=lambda one: one.tried.alone_ps)


def _doubled(counts: tuple[int, ...], grid: tuple[int, ...], free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield counts twice as large along one or two ``free`` dimensions, where the grid can be cut so."""
    for pair in combinations_with_replacement(free, 2):
        wider = tuple(count * (2 if at in pair else 1) for at, count in enumerate(counts))
        if all(bound % count == 0 for bound, count in zip(grid, wider, strict=True)):
            yield wider


def _with(found: Merging, counts: tuple[int, ...], chip: Chip) -> Larger | None:
    kernel = merged(found, counts, chip) if max(counts) > 1 else found.kernel
    if kernel is None:
        return None
    tried = TriedBlocks(
        counts=counts,
        grid=tuple(bound // count for bound, count in zip(found.grid, counts, strict=True)),
        bounds=tuple(
            (stream.operand, larger_bounds(cut, counts))
            for cut, stream in zip(found.cuts, found.kernel.streams, strict=True)
        ),
        vmem_bytes=kernel.vmem_bytes,
        alone_ps=alone_ps(kernel, chip),
    )
    return Larger(kernel, tried)
