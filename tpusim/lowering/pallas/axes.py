"""The axes of what a kernel's body computes, and which dimension of the grid each goes along.

An axis of a block goes along a dimension of the grid where the next step has the next block, and so does each axis that
is made of it: it is as much larger as the block is. What a body counts or has as a constant is as large as what it is
used with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple

from msgspec import structs

from tpusim.ir.mosaic import Block, Operation, Type
from tpusim.semantics.mosaic import PRODUCTS, REDUCTIONS, product_axes, reduced_axes

Along = tuple[int, ...]
"""The dimension of the grid that each axis of a value goes along, -1 where none does."""


class _Flow(NamedTuple):
    """A value that is made of another one: ``axes`` are pairs of an axis of it and one of its source."""

    target: int
    source: int
    axes: tuple[tuple[int, int], ...]


def axes_along(block: Block, types: Sequence[Type], known: Mapping[int, Along]) -> dict[int, Along]:
    """Return the dimension along each axis of the values of a body, by number; ``known`` are those of its blocks."""
    found = {number: [-1] * len(kind.dimensions) for number, kind in enumerate(types)}
    found |= {number: list(along) for number, along in known.items()}
    flows = [flow for flow in _flows(block, types) if _is_sound(flow, types)]
    # What is kept in a buffer goes on to what is read of it above.
    while sum(_spread(found[flow.target], found[flow.source], flow.axes) for flow in flows):
        pass
    made = _made_up(block, types)
    for flow in reversed(flows):
        if flow.source in made:
            _spread(found[flow.source], found[flow.target], [(own, other) for other, own in flow.axes])
    return {number: tuple(along) for number, along in found.items()}


def grown(types: Sequence[Type], along: Mapping[int, Along], counts: Sequence[int]) -> tuple[Type, ...]:
    """Return the types of values of which each axis is larger by the count of its dimension of the grid."""
    every = (*counts, 1)
    dimensions = (zip(kind.dimensions, along[number], strict=True) for number, kind in enumerate(types))
    sizes = (tuple(size * every[at] for size, at in own) for own in dimensions)
    return tuple(structs.replace(kind, dimensions=own) for kind, own in zip(types, sizes, strict=True))


def _is_sound(flow: _Flow, types: Sequence[Type]) -> bool:
    """Return whether both values have the axes: nothing verifies that what a body says fits its types."""
    own, other = (types[number].dimensions for number in (flow.target, flow.source))
    return all(0 <= axis < len(own) and 0 <= behind < len(other) for axis, behind in flow.axes)


def _spread(target: list[int], source: Sequence[int], axes: Sequence[tuple[int, int]]) -> bool:
    """Give axes of a target what those of its source go along; return whether any is new."""
    new = [(own, source[other]) for own, other in axes if target[own] < 0 <= source[other]]
    for own, dimension in new:
        target[own] = dimension
    return bool(new)


def _flows(block: Block, types: Sequence[Type]) -> Iterator[_Flow]:
    for operation in block.operations:
        for target, source in _held(operation):
            yield _Flow(target, source, _alike(types[target], types[source]))
        if operation.name in PRODUCTS:
            yield from _of_product(operation)
        elif not operation.regions:
            yield from _plain(operation, types)
        for region in operation.regions:
            yield from _flows(region, types)


def _of_product(operation: Operation) -> Iterator[_Flow]:
    """Yield what the axes of a product are made of; one that names sides or axes which it has not tells no more."""
    with suppress(IndexError, ValueError):
        for own, (side, axis) in enumerate(product_axes(operation)):
            yield _Flow(operation.results[0], operation.operands[side], ((own, axis),))


def _held(operation: Operation) -> Iterator[tuple[int, int]]:
    """Yield what goes into regions and comes out of them: a loop's counter, and a condition, stand before the rest."""
    for region in operation.regions:
        yield from zip(reversed(region.arguments), reversed(operation.operands), strict=False)
        for handed in region.operations[-1:]:
            yield from zip(reversed(operation.results), reversed(handed.operands), strict=False)
            yield from zip(reversed(region.arguments), reversed(handed.operands), strict=False)


def _plain(operation: Operation, types: Sequence[Type]) -> Iterator[_Flow]:
    """Yield what an operation makes of each operand; what is stored is in the buffer, and a part of one is one."""
    for source in operation.operands:
        for result in operation.results:
            axes = _alike(types[result], types[source])
            if operation.name in REDUCTIONS and len(types[result].dimensions) < len(types[source].dimensions):
                rank = len(types[source].dimensions)
                axes = tuple(enumerate(sorted(set(range(rank)) - reduced_axes(operation, rank))))
            elif order := operation.attributes.get("permutation"):
                axes = tuple(enumerate(order))
            yield _Flow(result, source, axes)
            if types[result].kind == "memref":
                yield _Flow(source, result, tuple((other, own) for own, other in axes))
    if not operation.results and operation.operands and types[operation.operands[0]].kind == "vector":
        value, *rest = operation.operands
        for target in rest:
            yield _Flow(target, value, _alike(types[target], types[value]))


def _alike(one: Type, other: Type) -> tuple[tuple[int, int], ...]:
    """Return the pairs of axes of two types that have the same elements: in their order, or counted from the last."""
    sizes = one.dimensions, other.dimensions
    if len(sizes[0]) == len(sizes[1]) or prod(sizes[0]) != prod(sizes[1]):
        places = range(1, min(map(len, sizes)) + 1)
        return tuple((len(sizes[0]) - at, len(sizes[1]) - at) for at in places if sizes[0][-at] == sizes[1][-at])
    # Of an axis that is several in the other type the outermost is it; each of several that are one makes it larger.
    return tuple(
        (axis, at)
        for axis, behind, before in _steps(sizes[0])
        for at, other_behind, other_before in _steps(sizes[1])
        if before == other_before or (behind == other_behind and before > other_before)
    )


def _steps(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the axes longer than one, each with how many elements a step along it passes, and all of its steps."""
    return [(axis, prod(sizes[axis + 1 :]), prod(sizes[axis:])) for axis, size in enumerate(sizes) if size > 1]


def _made_up(block: Block, types: Sequence[Type]) -> set[int]:
    """Return the vectors that no memory and no product is behind: counters, constants, and what is made of them."""
    found = set[int]()
    for operation in block.walk():
        vectors = {n for n in operation.operands if types[n].kind != "scalar"}
        if not operation.regions and operation.name not in PRODUCTS and vectors <= found:
            found.update(operation.results)
    return found
