"""Steps of a grid that are alike, put together: a grid of a million steps has few kinds of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tpusim.lowering.pallas.blocks import Flags
from tpusim.lowering.pallas.work import Costed
from tpusim.program.work import TileClass, sum_work

MOST_CLASSES = 512
"""Kinds of steps beyond which all are taken to be as their mean."""

_MOST_KEYS = 1 << 40

Order = np.ndarray[Any, np.dtype[np.intp]]
"""A number for each step: that of its class."""


def code_of(
    grid: Sequence[int], code: Sequence[Costed], times: Sequence[np.ndarray[Any, Any]], moves: Sequence[Flags]
) -> dict[str, Any]:
    """Return what a kernel has of its code, by field of ``Kernel``; arguments are those of ``classes_of``."""
    steps, parts = prod(grid), tuple(item.part for item in code)
    shares = [float(np.broadcast_to(each, grid).sum()) / steps for each in times]
    flops = sum(item.flops * share for item, share in zip(code, shares, strict=True)) * steps
    return {
        "tiles": steps,
        "work": sum_work(sum_work(part.stages) * share for part, share in zip(parts, shares, strict=True)),
        "parts": parts,
        "classes": classes_of(grid, times, moves)[0],
        "flops": flops,
        "product_flops": flops,
    }


def classes_of(
    grid: Sequence[int], times: Sequence[np.ndarray[Any, Any]], moves: Sequence[Flags]
) -> tuple[tuple[TileClass, ...], Order]:
    """Return the classes of steps that run every part equally often and move the same blocks, and that of each step.

    ``times`` are those of the parts, which broadcast against the grid; ``moves`` say of each stream in which steps one
    of its blocks is under way.
    """
    key, size = np.zeros(prod(grid), np.int64), 1
    # Parts of one block have one array of times.
    for part in {id(part): part for part in (*times, *moves)}.values():
        distinct, codes = np.unique(part, return_inverse=True)
        if len(distinct) > 1:
            key = key * len(distinct) + _flat(codes.reshape(part.shape), grid)
            size *= len(distinct)
        if size > _MOST_KEYS:
            kinds, key = np.unique(key, return_inverse=True)
            size = len(kinds)
    _, first, order, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    steps = [_flat(part, grid) for part in (*times, *moves)]
    if len(first) > MOST_CLASSES:
        return (_class(prod(grid), [step.mean() for step in steps], len(times)),), np.zeros_like(order)
    rows = (([step[at] for step in steps], count) for at, count in zip(first, counts.tolist(), strict=True))
    return tuple(_class(count, row, len(times)) for row, count in rows), order


def _flat(numbers: np.ndarray[Any, Any], grid: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return numbers that broadcast against a grid, or are one for each step of it, step by step."""
    return numbers if numbers.shape == (prod(grid),) else np.broadcast_to(numbers, grid).reshape(-1)


def _class(count: int, values: Sequence[Any], parts: int) -> TileClass:
    plain = [float(value) for value in values]
    return TileClass(count, tuple(plain[:parts]), tuple(plain[parts:]))
