"""The Pareto front: of points by two figures those that are worth their price."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the numbers of the points that no other one beats in both figures, of which less is better, by the first.

    Equal points do not beat each other.
    """
    front: list[int] = []
    least = inf
    for number in sorted(range(len(points)), key=lambda number: points[number]):
        if points[number][1] < least or (front and points[number] == points[front[-1]]):
            front.append(number)
            least = points[number][1]
    return front
