"""Steps of a grid that are alike, put together: a grid of a million steps has few kinds of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.lowering.pallas.blocks import Flags
from tpusim.program.work import TileClass


def classes_of(
    grid: Sequence[int], times: Sequence[np.ndarray[Any, Any]], moves: Sequence[Flags]
) -> tuple[TileClass, ...]:
    """Return the classes of steps that run every part equally often and move the same blocks.

    ``times`` are those of the parts, which broadcast against the grid; ``moves`` say of each stream in which steps one
    of its blocks is under way.
    """
    key = np.zeros(tuple(grid), np.int64)
    values = []
    for part in times:
        distinct, codes = np.unique(part, return_inverse=True)
        values.append(distinct)
        key = key * len(distinct) + codes.reshape(part.shape)
    flat = key.reshape(-1)
    for move in moves:
        flat = flat * 2 + move
    found, counts = np.unique(flat, return_counts=True)
    classes = []
    for code, count in zip(found.tolist(), counts.tolist(), strict=True):
        moving, runs = [], []
        for _ in moves:
            code, flag = divmod(code, 2)
            moving.append(flag)
        for distinct in reversed(values):
            code, number = divmod(code, len(distinct))
            runs.append(float(distinct[number]))
        classes.append(TileClass(count, tuple(reversed(runs)), tuple(reversed(moving))))
    return tuple(classes)
