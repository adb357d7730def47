"""How time grows, measured on a machine on which others run as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from benchmarks.growth import exponent

MOST = 1.5
"""A square would show an exponent of 2, what sorts hardly more than 1."""


def grows_by(seconds: Callable[[int], float], sizes: Sequence[int]) -> float:
    """Return the exponent of the least of two rounds, or of up to five while it is too large: others only add time."""
    least, found = [inf] * len(sizes), inf
    for number in range(5):
        least = [min(before, seconds(size)) for before, size in zip(least, sizes, strict=True)]
        if number and (found := exponent(sizes, least)) < MOST:
            break
    return found
