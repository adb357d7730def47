"""Walks as deep as a program nests, on a stack of their own: Python's ends at a thousand calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

R = TypeVar("R")
V = TypeVar("V")


def walk_nested(begin: Callable[[R], Generator[R, V, V]], first: R) -> V:
    """Return what the walk of ``first`` returns.

    ``begin`` begins a walk: a generator that yields what is nested in it, and is sent what the walk of that returned.
    """
    try:
        unanswered = next(on_one_stack(begin, begin(first)))
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError(unanswered)


def on_one_stack(
    begin: Callable[[Any], Generator[Any, Any, V] | None], first: Generator[Any, Any, V]
) -> Generator[Any, Any, V]:
    """Run a walk and those that ``begin`` begins of what it yields.

    Of what is no walk ``begin`` makes None: the caller is yielded it, and sends the answer.
    """
    under_way, answer = [first], None
    while True:
        try:
            # The first send starts a generator, for which Python demands None.
            wish = under_way[-1].send(answer)
        except StopIteration as ended:
            under_way.pop()
            answer = ended.value
            if not under_way:
                return ended.value  # type: ignore[no-any-return]
            continue
        inner = begin(wish)
        if inner is None:
            answer = yield wish
        else:
            under_way.append(inner)
            answer = None


def depth_first(first: Iterable[V], inside: Callable[[V], Mapping[Any, Iterable[V]]]) -> Iterator[V]:
    """Yield items, none of them None, each with all that is ``inside`` it behind it.

    What is inside are lists by what tells one from another: those that several items share are gone through once.
    """
    seen = set[Hashable]()
    waiting = [iter(first)]
    while waiting:
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
            continue
        yield item
        # Most hold nothing, and this is asked of every step of a program.
        if inner := inside(item):
            new = [listed for key, listed in inner.items() if key not in seen]
            seen.update(inner)
            waiting += [iter(listed) for listed in reversed(new)]
