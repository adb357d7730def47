"""Walks as deep as a program nests, on a stack of their own: Python's ends at a thousand calls."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

R = TypeVar("R")
V = TypeVar("V")


def walk_nested(begin: Callable[[R], Generator[R, V, V]], first: R) -> V:
    """Return what the walk of ``first`` returns.

    ``begin`` begins a walk: a generator that yields what is nested in it, and is sent what the walk of that returned.
    """
    under_way, found = [begin(first)], None
    while True:
        walk: Generator[R, Any, V] = under_way[-1]
        try:
            inner = walk.send(found)
        except StopIteration as ended:
            under_way.pop()
            found = ended.value
            if not under_way:
                return ended.value  # type: ignore[no-any-return]
        else:
            under_way.append(begin(inner))
            found = None
