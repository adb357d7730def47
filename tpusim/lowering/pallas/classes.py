"""Steps of a grid that are alike, put together: a grid of a million steps has few kinds of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tpusim.cost.peaks import typed
from tpusim.hardware.chip import Chip
from tpusim.lowering.pallas.blocks import Flags
from tpusim.lowering.pallas.work import Costed
from tpusim.program.work import TileClass, sum_work

MOST_CLASSES = 512
"""Kinds of steps beyond which all are taken to be as their mean."""

_MOST_KEYS = 1 << 40
_PIECE = 1 << 18

Order = np.ndarray[Any, np.dtype[np.intp]]
"""A number for each step: that of its class."""


def code_of(
    grid: Sequence[int],
    code: Sequence[Costed],
    times: Sequence[np.ndarray[Any, Any]],
    moves: Sequence[Flags],
    chip: Chip,
) -> dict[str, Any]:
    """Return what a kernel has of its code, by field of ``Kernel``; other arguments are those of ``classes_of``."""
    steps, parts = prod(grid), tuple(item.part for item in code)
    shares = [float(np.broadcast_to(each, grid).sum()) / steps for each in times]
    flops = sum(sum(item.flops.values(), 0.0) * share for item, share in zip(code, shares, strict=True)) * steps
    by_type: dict[str, float] = {}
    for item, share in zip(code, shares, strict=True):
        for name, count in item.flops.items():
            by_type[name] = by_type.get(name, 0.0) + count * share
    return {
        "tiles": steps,
        "work": sum_work(sum_work(part.stages) * share for part, share in zip(parts, shares, strict=True)),
        "parts": parts,
        "classes": classes_of(grid, times, moves)[0],
        "flops": flops,
        "product_flops": flops,
        **typed(by_type, chip),
    }


def classes_of(
    grid: Sequence[int], times: Sequence[np.ndarray[Any, Any]], moves: Sequence[Flags]
) -> tuple[tuple[TileClass, ...], Order]:
    """Return the classes of steps that run every part equally often and move the same blocks, and that of each step.

    ``times`` are those of the parts, which broadcast against the grid; ``moves`` say of each stream in which steps one
    of its blocks is under way.
    """
    order, size = np.zeros(prod(grid), np.intp), 1
    # Parts of one block have one array of times.
    for part in {id(part): part for part in (*times, *moves)}.values():
        kinds, codes = _coded(part)
        if kinds > 1:
            order *= kinds
            # In place: numbers that broadcast against the grid stay small.
            keys = order if codes.shape == order.shape else order.reshape(grid)
            keys += codes
            size *= kinds
        if size > _MOST_KEYS:
            size, order = _coded(order)
    first, counts = _numbered(order, size)
    if len(first) > MOST_CLASSES:
        means = [_flat(part, grid).mean() for part in (*times, *moves)]
        return (_class(prod(grid), means, len(times)),), np.zeros_like(order)
    whole = (part if part.shape == order.shape else np.broadcast_to(part, grid) for part in (*times, *moves))
    rows = [part.flat[first] for part in whole]
    classes = (_class(count, [row[n] for row in rows], len(times)) for n, count in enumerate(counts.tolist()))
    return tuple(classes), order


def _coded(numbers: np.ndarray[Any, Any]) -> tuple[int, np.ndarray[Any, Any]]:
    """Return how many numbers differ, and in place of each its rank among these."""
    if numbers.dtype == np.bool_:
        return 1 + int(numbers.any() and not numbers.all()), numbers
    distinct = np.unique(numbers)
    return len(distinct), np.searchsorted(distinct, numbers)


def _numbered(keys: Order, size: int) -> tuple[Order, Order]:
    """Put the rank of each key below ``size`` in its place; return where each rank is first, and how often it is."""
    if size > len(keys):
        _, first, keys[:], counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        return first, counts
    # A piece at a time, and in place: to sort millions of steps at once takes several times their memory.
    counts, first = np.bincount(keys, minlength=size), np.full(size, len(keys))
    for begin in range(0, len(keys), _PIECE):
        found, at = np.unique(keys[begin : begin + _PIECE], return_index=True)
        first[found] = np.minimum(first[found], begin + at)
    np.take(np.cumsum(counts > 0) - 1, keys, out=keys, mode="clip")
    return first[counts > 0], counts[counts > 0]


def _flat(numbers: np.ndarray[Any, Any], grid: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return numbers that broadcast against a grid, or are one for each step of it, step by step."""
    return numbers if numbers.shape == (prod(grid),) else np.broadcast_to(numbers, grid).reshape(-1)


def _class(count: int, values: Sequence[Any], parts: int) -> TileClass:
    plain = [float(value) for value in values]
    return TileClass(count, tuple(plain[:parts]), tuple(plain[parts:]))
