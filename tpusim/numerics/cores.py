"""Deals the parts of an array out to threads, as many as BLAS would use; what the parts are does not depend on them.

Python's lock is free while NumPy, BLAS and compiled code work. BLAS itself is held to one thread meanwhile: products
that are cut at the depth of the matrix unit are so small that its threads would mostly wait for each other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")

Index = tuple[int | slice, ...]


class _Crew(NamedTuple):
    """The threads that an evaluation may have beside its own; none of them begins before there is work for it."""

    pool: ThreadPoolExecutor
    n_threads: int


_CREW: ContextVar[_Crew | None] = ContextVar("crew", default=None)
"""None where parts are worked on, so that none is dealt out again."""


@contextmanager
def on_all_cores() -> Iterator[None]:
    """Let ``deal`` use several threads; what they compute is not warned of, as if by ``np.errstate(all="ignore")``."""
    count = _threads()
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(max(1, count - 1), "exec", _hold) as pool:
        # One thread of a process decides how many BLAS has; in any other it keeps what it has.
        is_held = count > 1 and _threads() == 1
        token = _CREW.set(_Crew(pool, count - 1) if is_held else None)
        try:
            yield
        finally:
            _CREW.reset(token)


def _hold() -> None:
    """Hold BLAS to one thread in a thread, where each has a number of its own (OpenMP)."""
    _controller().limit(limits=1, user_api="blas")


def deal(work: Callable[[Iterator[T]], None], parts: Sequence[T], least: int = 2) -> None:
    """Have ``work`` go through some parts, in this thread or in several at once, each of which takes the next one.

    Fewer than ``least`` parts are not worth waking a thread for.
    """
    crew, left = _CREW.get(), iter(parts)
    if crew is None or len(parts) < least:
        work(left)
        return
    others: list[Future[None]] = []
    # A system that allows no further thread leaves all of it to this one.
    with suppress(RuntimeError):
        others.extend(crew.pool.submit(_unwarned, work, left) for _ in range(min(crew.n_threads, len(parts) - 1)))
    # What this thread has begun it does not deal out again: the others are busy, and what waits is kept in memory.
    token = _CREW.set(None)
    try:
        work(left)
    finally:
        _CREW.reset(token)
        # Nothing is left but where this thread has failed, or was interrupted; no part is begun then.
        deque(left, maxlen=0)
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()


def cuts(shape: tuple[int, ...], most: int) -> Iterator[Index]:
    """Return the indices that cut an array into parts: whole trailing dimensions, and a stretch of the one before."""
    if 0 in shape:
        return
    if not shape:
        yield ()
        return
    # Leading dimensions one index at a time, so that each part is one stretch of the whole.
    axis = next(k for k in range(len(shape)) if prod(shape[k + 1 :]) <= most)
    step = most // prod(shape[axis + 1 :])
    for leading in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], step):
            yield (*leading, slice(start, start + step))


def _unwarned(work: Callable[[Iterator[T]], None], left: Iterator[T]) -> None:
    with np.errstate(all="ignore"):
        work(left)


@lru_cache(maxsize=1)
def _controller() -> Any:
    """Return what knows the libraries of this process; to find them takes longer than a small program."""
    return ThreadpoolController()


def _threads() -> int:
    """Return how many threads BLAS has, which users choose by OMP_NUM_THREADS and the like; all cores if unknown."""
    counts = [each["num_threads"] for each in _controller().info() if each["user_api"] == "blas"]
    return max(counts) if counts else os.cpu_count() or 1
