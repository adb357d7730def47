"""Reshapes that put whole tiles elsewhere: bitcasts around a transpose, which kernels make as they read.

Rows of 4,096 positions in lanes that are cut into chunks of 128, say, with the chunks outside of what lies in sublanes.

Source: 15 reshapes of such dimensions compiled ahead of time for v5e (libtpu 0.0.52), by products, sums and element by
element.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from tpusim.compiler.layouts.bitcasts import named_anew
from tpusim.draft import Graph, Node
from tpusim.shapes.address import physical_order_sizes
from tpusim.shapes.shape import ArrayShape


class TileMove(NamedTuple):
    """The numbers of tiles of an array, from outermost to innermost, and the order in which another has them."""

    counts: tuple[int, ...]
    order: tuple[int, ...]


def moved_tiles(before: ArrayShape, after: ArrayShape) -> TileMove | None:
    """Return how a reshape moves the tiles of an array, None where it puts other elements beside each other."""
    if any((*before.dynamic, *after.dynamic)) or not before.element_count:
        return None
    factors = [_factors(before), _factors(after)]
    if None in factors or before.actual_layout.tiles != after.actual_layout.tiles:
        return None
    (one, own), (other, others) = ((found[:-2], found[-2:]) for found in factors if found)
    if own != others:
        return None
    cuts = {end for size, stride in (*one, *other) for end in (stride, stride * size)}
    source, target = (_refined(each, cuts) for each in (one, other))
    if source is None or target is None or set(source) != set(target):
        return None
    return TileMove(tuple(size for size, _ in source), tuple(map(source.index, target)))


def move_tiles(graph: Graph, reshape: Node) -> None:
    """Put a transpose of tiles in the place of a reshape, if that is what it is."""
    (operand,) = reshape.operands
    move = moved_tiles(operand.array, reshape.array)
    if move is None:
        return
    tile = operand.array.actual_layout.tiles[0]
    taken = named_anew(graph, operand, _of_tiles(operand.array, (*move.counts, *tile)), reshape)
    sizes = tuple(move.counts[place] for place in move.order)
    last = len(sizes)
    moved = graph.add(
        "transpose",
        _of_tiles(operand.array, (*sizes, *tile)),
        [taken],
        {"dimensions": (*move.order, last, last + 1)},
        like=reshape,
    )
    graph.replace(reshape, graph.add("bitcast", reshape.shape, [moved], like=reshape))


def _of_tiles(array: ArrayShape, sizes: tuple[int, ...]) -> ArrayShape:
    """Return an array of the tiles of another one."""
    order = tuple(reversed(range(len(sizes))))
    return ArrayShape(array.dtype, sizes).with_layout(structs.replace(array.actual_layout, minor_to_major=order))


Factor = tuple[int, int]
"""So many elements or tiles, so many elements from one to the next where an array is one row."""


def _factors(array: ArrayShape) -> list[Factor] | None:
    """Return what an array is made of, outermost first: tiles, then their rows and lanes; None if some are not full."""
    sizes, layout = physical_order_sizes(array), array.actual_layout
    if len(sizes) < 2 or not layout.tiles or len(layout.tiles[0]) != 2:
        return None
    strides, stride = [0] * array.rank, 1
    for d in reversed(range(array.rank)):
        strides[d] = stride
        stride *= array.dimensions[d]
    found = [(size, strides[d]) for size, d in zip(sizes, reversed(layout.minor_to_major), strict=True)]
    minor, tiles = found[-2:], layout.tiles[0]
    if any(size % most for (size, _), most in zip(minor, tiles, strict=True)):
        return None
    outer = [(size // most, stride * most) for (size, stride), most in zip(minor, tiles, strict=True)]
    return [*found[:-2], *outer, *((most, stride) for (_, stride), most in zip(minor, tiles, strict=True))]


def _refined(factors: list[Factor], cuts: set[int]) -> list[Factor] | None:
    """Return factors cut where others begin or end; None where one is no whole number of those."""
    found = []
    for size, stride in factors:
        inside = sorted(cut for cut in cuts if stride < cut < stride * size)
        ends = [stride, *inside, stride * size]
        if any(high % low for low, high in pairwise(ends)):
            return None
        parts = [(high // low, low) for low, high in pairwise(ends)]
        found += [part for part in reversed(parts) if part[0] > 1]
    return found
