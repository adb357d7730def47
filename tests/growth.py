"""How long things take and how that grows, measured on a machine on which others run as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from time import process_time
from typing import TypeVar

from benchmarks.growth import exponent

Result = TypeVar("Result")

MOST = 1.5
"""A square would show an exponent of 2, what sorts hardly more than 1."""
_CLEARLY = 1.2
"""Over sizes that grow fourfold the smallest would have to take three times as long to hide a square behind this."""


def grows_by(seconds: Callable[[int], float], sizes: Sequence[int]) -> float:
    """Return the exponent of a round, or of the least of up to five while it may be too large: others only add time."""
    least, found = [inf] * len(sizes), inf
    # What is loaded and compiled once is no part of the smallest.
    seconds(sizes[0])
    for most in (_CLEARLY, MOST, MOST, MOST, MOST):
        least = [min(before, seconds(size)) for before, size in zip(least, sizes, strict=True)]
        if (found := exponent(sizes, least)) < most:
            break
    return found


def within(seconds: float, act: Callable[[], Result]) -> Result:
    """Return the result of ``act``, which must take less CPU time than ``seconds`` in one of three tries."""
    taken = []
    for _ in range(3):
        begin = process_time()
        result = act()
        taken.append(process_time() - begin)
        if taken[-1] < seconds:
            return result
    raise AssertionError(f"expected less than {seconds} s of CPU time, found {taken}")
