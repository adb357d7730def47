"""How time grows, measured on a machine on which others run as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from benchmarks.growth import exponent

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
