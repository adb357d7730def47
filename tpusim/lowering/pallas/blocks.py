"""The blocks of a kernel's operands and results: which of them move in which steps of the grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tpusim.ir.mosaic import Function
from tpusim.lowering.pallas.scalars import Scalar, results_of

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def changes(transform: Function | None, grid: Sequence[int], contents: Mapping[int, Any]) -> Flags:
    """Return, for each step in its order, whether its block is another one than that of the step before.

    The first step's is; without a ``transform`` there is one block. Indices that only data decides are taken to differ
    where what they are looked up by does.
    """
    found = np.zeros(prod(grid), np.bool_)
    found[:1] = True
    indices = block_indices(transform, grid, contents)
    if not indices:
        return found
    # Dimensions inside of all that the block depends on go by while it stays.
    inner = min(_same_dimensions(index, len(grid)) for index in indices)
    outer = tuple(grid[: len(grid) - inner])
    changed = np.zeros(prod(outer), np.bool_)
    changed[:1] = True
    for index in indices:
        # As narrow as they may be: there is one for each of millions of steps.
        narrow = index.astype(np.result_type(*(np.min_scalar_type(end) for end in (index.min(), index.max()))))
        spread = np.broadcast_to(narrow.reshape(index.shape[: len(outer)]) if index.ndim else narrow, outer).reshape(-1)
        changed[1:] |= spread[1:] != spread[:-1]
    found.reshape(prod(outer), -1)[:, 0] = changed
    return found


def moves_beside(changed: Flags, *, is_output: bool) -> Flags:
    """Return beside which steps blocks move: the next one of an operand comes in, the last one of a result goes out."""
    beside = changed.copy() if is_output else np.roll(changed, -1)
    beside[0 if is_output else -1] = False
    return beside


def block_indices(
    transform: Function | None, grid: Sequence[int], contents: Mapping[int, Any]
) -> tuple[np.ndarray[Any, Any], ...]:
    """Return which block each step has, axis by axis, as numbers that broadcast against a grid; none of one block."""
    if transform is None:
        return ()
    steps = [Scalar(np.asarray(index)) for index in np.ogrid[tuple(slice(size) for size in grid)]]
    return tuple(index.numbers for index in results_of(transform, steps, contents))


def _same_dimensions(index: np.ndarray[Any, Any], rank: int) -> int:
    """Return along how many of the last dimensions of a grid an index is the same."""
    extents = index.shape if index.ndim else (1,) * rank
    count = 0
    while count < rank and extents[rank - 1 - count] == 1:
        count += 1
    return count
