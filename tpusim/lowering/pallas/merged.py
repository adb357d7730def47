"""A kernel with larger blocks: steps that are neighbours in its grid as one, with the blocks and the work of all.

What a body does with larger blocks is the same code on larger vectors: each axis that goes along the dimension of the
grid is longer, and what has no such axis, as what is done once for each row of attention, is done once and not for each
of the steps. So are a step's own cost, what waits for each other, and blocks that do not depend on the dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import VMEM
from tpusim.ir.mosaic import Operation, Type
from tpusim.lowering.pallas.axes import Along, grown
from tpusim.lowering.pallas.blocks import Flags, moves_beside
from tpusim.lowering.pallas.classes import code_of
from tpusim.lowering.pallas.walk import Times
from tpusim.lowering.pallas.work import costed, packed_registers
from tpusim.program.steps import Kernel, TileLoop, blocks_bytes
from tpusim.program.work import Stream


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


class Code(NamedTuple):
    """Code without a branch: how often it runs in each step, and of which ``cuts`` it names blocks."""

    operations: Sequence[Operation]
    times: Times
    cuts: Sequence[Cut]


class Merging(NamedTuple):
    """What of a kernel it takes to merge its steps: its values by their ``types``, and what their axes go ``along``.

    ``scratch`` are its own buffers. ``stream_of`` is given the number of a cut, its bounds, and how often such a block
    moves.
    """

    kernel: Kernel
    grid: tuple[int, ...]
    cuts: tuple[Cut, ...]
    code: tuple[Code, ...]
    types: tuple[Type, ...]
    along: Mapping[int, Along]
    scratch: Sequence[int]
    stream_of: Callable[[int, tuple[int, ...], int], Stream]


def merged(found: Merging, counts: Sequence[int], chip: Chip) -> Kernel | None:
    """Return a kernel of which ``counts`` neighbours along each dimension are one step, None if that does not fit."""
    kernel, grid = found.kernel, tuple(bound // count for bound, count in zip(found.grid, counts, strict=True))
    streams, moves = list[Stream](), list[Flags]()
    for number, cut in enumerate(found.cuts):
        changed = _changed(cut, found.grid, counts)
        streams.append(found.stream_of(number, larger_bounds(cut, counts), int(changed.sum())))
        moves.append(moves_beside(changed, is_output=cut.is_output))
    types = grown(found.types, found.along, counts)
    vmem_bytes = _vmem_bytes(found, streams, types, chip)
    if vmem_bytes > chip.vmem.kernel_bytes:
        return None
    # Dimensions of one step have no loop, and no name.
    words = iter(loop.over for loop in kernel.loops)
    named = [(next(words, "") if bound > 1 else "", left) for bound, left in zip(found.grid, grid, strict=True)]
    code = [costed(part.operations, types, chip) for part in found.code]
    return structs.replace(
        kernel,
        loops=tuple(TileLoop(word, left) for word, left in named if left > 1),
        streams=tuple(streams),
        scoped_vmem_bytes=round(vmem_bytes),
        **code_of(grid, code, [_runs(found, part, counts) for part in found.code], moves, chip),
    )


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


def _runs(found: Merging, part: Code, counts: Sequence[int]) -> Times:
    """Return how often the code of a part runs in each merged step: once for all of it, if it does for some.

    What reads a larger block piece by piece does so as many times more.
    """
    values = {n for operation in part.operations for n in (*operation.operands, *operation.results)}
    whole = {dimension for n in values if found.types[n].kind == "vector" for dimension in found.along[n]}
    times = _grouped(np.broadcast_to(part.times, found.grid).astype(float), counts, np.max)
    for dimension, count in enumerate(counts):
        if dimension not in whole and any(cut.scales(dimension) for cut in part.cuts):
            times *= count
    return times


def _vmem_bytes(found: Merging, streams: Sequence[Stream], types: Sequence[Type], chip: Chip) -> float:
    """Return the VMEM that a merged step needs: two of each block, its own buffers, and the largest vector on its way.

    What the kernel has on its way now says how much of that vector is.
    """

    def known(streams: Sequence[Stream], types: Sequence[Type]) -> float:
        return blocks_bytes(streams) + sum(held(types[n]) for n in found.scratch if types[n].space == VMEM)

    def held(kind: Type) -> float:
        return packed_registers(kind, chip) * chip.vpu.register_bytes

    def largest(types: Sequence[Type]) -> float:
        return max((held(kind) for kind in types if kind.kind == "vector"), default=0.0)

    value = largest(found.types)
    rest = max(value, found.kernel.vmem_bytes - known(found.kernel.streams, found.types))
    return known(streams, types) + rest * largest(types) / max(1.0, value)
