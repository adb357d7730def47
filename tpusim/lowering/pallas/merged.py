"""A kernel with larger blocks: steps that are neighbours in its grid as one, with the blocks and the work of all.

What a body does with larger blocks is the same code on more registers: units have as much to do, but what waits for
each other does so once a step and not once for each, a step's own cost and the latency of its blocks are paid once, and
blocks that do not depend on a dimension are fetched once for what were several steps of it. Where a product is summed
over more at once the parts of sums are fewer; that is left out, so that the time errs on the side of too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import VMEM
from tpusim.lowering.pallas.blocks import Flags
from tpusim.lowering.pallas.classes import classes_of
from tpusim.lowering.pallas.walk import Times
from tpusim.program.steps import Kernel, TileLoop
from tpusim.program.work import Stream, sum_work


class Cut(NamedTuple):
    """An operand or result cut into blocks of ``bounds``, and which of them each step has, axis by axis.

    ``along`` is the dimension of the grid that goes along each axis, -1 where none does.
    """

    bounds: tuple[int, ...]
    indices: tuple[np.ndarray[Any, Any], ...]
    along: tuple[int, ...]
    is_output: bool

    def scales(self, dimension: int) -> list[int]:
        """Return the axes along which a dimension of the grid goes."""
        return [axis for axis, own in enumerate(self.along) if own == dimension]


def cut_of(
    grid: Sequence[int], bounds: tuple[int, ...], indices: tuple[np.ndarray[Any, Any], ...], *, is_output: bool
) -> Cut:
    """Return an operand or result with the dimension along each axis: whose index most steps have for their block's.

    Steps that do nothing may ask for another block, and few of what goes along an axis do as much as that.
    """
    steps = np.ogrid[tuple(slice(size) for size in grid)]
    along = []
    for index in indices:
        same = [float((index == own).mean()) if size > 1 else 0.0 for own, size in zip(steps, grid, strict=True)]
        own = max(range(len(grid)), key=lambda at: (same[at], at))
        along.append(own if 2 * same[own] > 1 else -1)
    return Cut(bounds, indices, tuple(along), is_output)


class Merging(NamedTuple):
    """What of a kernel it takes to merge its steps: ``touched`` are the cuts that the code of a part names.

    ``scratch_bytes`` of VMEM are its own buffers, ``value_bytes`` the largest vector that it computes. ``stream_of`` is
    given the number of a cut, its bounds, and how often such a block moves.
    """

    kernel: Kernel
    grid: tuple[int, ...]
    cuts: tuple[Cut, ...]
    times: tuple[Times, ...]
    touched: tuple[frozenset[int], ...]
    scratch_bytes: float
    value_bytes: float
    stream_of: Callable[[int, tuple[int, ...], int], Stream]


def merged(found: Merging, counts: Sequence[int], chip: Chip) -> Kernel | None:
    """Return a kernel of which ``counts`` neighbours along each dimension are one step, None if that does not fit."""
    kernel, grid = found.kernel, tuple(bound // count for bound, count in zip(found.grid, counts, strict=True))
    steps, size = prod(grid), prod(counts)
    streams, moves = list[Stream](), list[Flags]()
    for number, cut in enumerate(found.cuts):
        changed = _changed(cut, found.grid, counts)
        streams.append(found.stream_of(number, larger_bounds(cut, counts), int(changed.sum())))
        beside = changed.copy() if cut.is_output else np.roll(changed, -1)
        beside[0 if cut.is_output else -1] = False
        moves.append(beside)
    vmem_bytes = _vmem_bytes(found, streams, counts)
    if vmem_bytes > chip.vmem.kernel_bytes:
        return None
    times = [_runs(found, part, counts) for part in range(len(kernel.parts))]
    parts = tuple(structs.replace(p, stages=tuple(work * size for work in p.stages)) for p in kernel.parts)
    shares = [float(each.sum()) / steps for each in times]
    loops = zip([word for word, _ in _named(found)], grid, strict=True)
    return structs.replace(
        kernel,
        tiles=steps,
        loops=tuple(TileLoop(word, bound) for word, bound in loops if bound > 1),
        work=sum_work(sum_work(part.stages) * share for part, share in zip(parts, shares, strict=True)),
        parts=parts,
        classes=classes_of(grid, times, moves)[0],
        streams=tuple(streams),
        scoped_vmem_bytes=round(vmem_bytes),
    )


def _named(found: Merging) -> list[tuple[str, int]]:
    """Return the dimensions of a grid by what the kernel's loops call them; those of one step have no loop."""
    words = iter(loop.over for loop in found.kernel.loops)
    return [(next(words, "") if bound > 1 else "", bound) for bound in found.grid]


def can_merge(found: Merging, dimension: int) -> bool:
    """Return whether the code is the same for larger blocks along a dimension: it has more than one element of each."""
    axes = [cut.bounds[axis] for cut in found.cuts for axis in cut.scales(dimension)]
    known = all(
        own >= 0 or not index.ndim or index.shape[dimension] == 1
        for cut in found.cuts
        for own, index in zip(cut.along, cut.indices, strict=True)
    )
    return found.grid[dimension] > 1 and known and bool(axes) and min(axes) > 1


def larger_bounds(cut: Cut, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the bounds of a cut's larger blocks."""
    bounds = list(cut.bounds)
    for dimension, count in enumerate(counts):
        for axis in cut.scales(dimension):
            bounds[axis] *= count
    return tuple(bounds)


def _changed(cut: Cut, grid: Sequence[int], counts: Sequence[int]) -> Flags:
    """Return of each merged step whether its block is another one than the step's before."""
    # Of steps of which some ask for the block of another one, since they do nothing, the last one does something.
    rows = [_grouped(np.broadcast_to(index, grid), counts, np.max).reshape(-1) for index in cut.indices]
    found = np.zeros(prod(grid) // prod(counts), np.bool_)
    found[:1] = True
    for row in rows:
        found[1:] |= row[1:] != row[:-1]
    return found


def _grouped(numbers: np.ndarray[Any, Any], counts: Sequence[int], combine: Any) -> np.ndarray[Any, Any]:
    """Return one number for each group of neighbours."""
    shape = [size for bound, count in zip(numbers.shape, counts, strict=True) for size in (bound // count, count)]
    return np.asarray(combine(numbers.reshape(shape), axis=tuple(range(1, 2 * numbers.ndim, 2))))


def _runs(found: Merging, part: int, counts: Sequence[int]) -> Times:
    """Return how often the code of a part runs in each merged step, on blocks of all of it.

    Where it reads a block that is larger now it is done for all of that if it is for some; anything else is done for
    those steps that did it.
    """
    touched = [
        count if any(found.cuts[number].scales(dimension) for number in found.touched[part]) else 1
        for dimension, count in enumerate(counts)
    ]
    others = [count // own for count, own in zip(counts, touched, strict=True)]
    times = np.broadcast_to(found.times[part], found.grid).astype(float)
    return _grouped(_grouped(times, touched, np.max), others, np.mean)


def _vmem_bytes(found: Merging, streams: Sequence[Stream], counts: Sequence[int]) -> float:
    """Return the VMEM that a merged step needs: two of each block, its own buffers, and the largest vector on its way.

    Buffers are taken to be as large as results are: sums are kept in them.
    """

    def blocks(streams: Sequence[Stream]) -> float:
        return sum(s.block_bytes * (2 if s.fetches > 1 else 1) for s in streams if s.space != VMEM)

    of_result = prod(
        count
        for dimension, count in enumerate(counts)
        if any(cut.is_output and cut.scales(dimension) for cut in found.cuts)
    )
    own = blocks(found.kernel.streams)
    rest = max(0.0, found.kernel.vmem_bytes - own - found.scratch_bytes)
    return blocks(streams) + found.scratch_bytes * of_result + max(rest, found.value_bytes) * prod(counts)
