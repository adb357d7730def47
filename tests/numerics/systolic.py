"""A weight-stationary systolic array, cycle by cycle: the slow twin of the matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]


def stream(rows: Array, weights: Array) -> tuple[Array, int]:
    """Return ``rows @ weights`` in f32 and the cycles that the array took, both operands exact in bf16.

    Cell (k, n) holds ``weights[k, n]``. Activations enter at the left, one cycle later per line, and move right; sums
    move down, one product joining them in each cell.
    """
    count, (depth, columns) = len(rows), weights.shape
    activations, sums = np.zeros((2, depth, columns), np.float32)
    result = np.zeros((count, columns), np.float32)
    n_cycles = count + depth + columns - 2
    for cycle in range(n_cycles):
        entering = [rows[cycle - k, k] if 0 <= cycle - k < count else np.float32(0) for k in range(depth)]
        activations = np.column_stack([entering, activations[:, :-1]])
        sums = np.vstack([np.zeros((1, columns), np.float32), sums[:-1]]) + activations * weights
        for column in range(columns):
            row = cycle - (depth - 1) - column
            if 0 <= row < count:
                result[row, column] = sums[-1, column]
    return result, n_cycles


def product(lhs: Array, rhs: Array, depth: int) -> Array:
    """Return ``lhs @ rhs`` by one array of ``depth`` lines, partial results added in f32 outside of it."""
    blocks = [stream(lhs[:, k : k + depth], rhs[k : k + depth])[0] for k in range(0, len(rhs), depth)]
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total
