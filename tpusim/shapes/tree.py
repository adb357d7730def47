"""The parts of a shape: a tuple and its elements, in the order of XLA's ShapeTree."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from tpusim.shapes.shape import TupleShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpusim.shapes.shape import Shape


def nodes(shape: Shape) -> Iterator[Shape]:
    """Yield the parts of a shape, each tuple before its elements."""
    yield shape
    for element in shape.elements if isinstance(shape, TupleShape) else ():
        yield from nodes(element)


def node_count(shape: Shape) -> int:
    """Return how many parts a shape has."""
    return sum(1 for _ in nodes(shape))


@lru_cache(maxsize=1024)
def element_begins(shape: TupleShape) -> tuple[int, ...]:
    """Return the number of the part that each element of a tuple begins at, and one past the last part."""
    # The tuple itself is part 0. Kept, since every element of a loop's state asks for it.
    return tuple(accumulate((node_count(element) for element in shape.elements), initial=1))


def node_number(shape: Shape, index: Sequence[int]) -> int | None:
    """Return which part of a shape the way ``index`` through nested tuples leads to, None if to none."""
    number = 0
    for step in index:
        if not isinstance(shape, TupleShape) or step >= len(shape.elements):
            return None
        number += element_begins(shape)[step]
        shape = shape.elements[step]
    return number
