"""Which reshapes, copies and transposes leave every element where it is, so that they are bitcasts."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.compiler.layouts.orders import Order
from tpusim.draft import Graph, Node
from tpusim.shapes.address import physical_bytes, physical_order_sizes
from tpusim.shapes.shape import ArrayShape, Shape


def is_bitcast(node: Node) -> bool:
    """Return whether a reshape, copy or transpose leaves every element where it is."""
    # A reshape to sizes that are known at run time only takes these as well.
    if len(node.operands) > 1:
        return False
    before, after = node.operands[0].array, node.array
    if before.layout is None or after.layout is None:
        return False
    # What there is of an array with a bound is moved, whatever else its buffer has room for.
    if any(before.dynamic) or any(after.dynamic):
        return False
    if node.opcode == "transpose":
        order = tuple(node.attributes["dimensions"][d] for d in after.layout.minor_to_major)
        return order == before.layout.minor_to_major and before.layout.tiles == after.layout.tiles
    return after.layout.minor_to_major in carried_orders(before, after.dimensions) and stays(before, after)


def named_anew(graph: Graph, operand: Node, shape: Shape, like: Node) -> Node:
    """Return a bitcast of an array; of one that is a bitcast itself it is another name of the array behind it."""
    named = operand.operands if operand.opcode == "bitcast" else [operand]
    return graph.add("bitcast", shape, named, like=like)


def stays(before: ArrayShape, after: ArrayShape) -> bool:
    """Return whether tiles leave the elements of an array where they are that its dimensions leave in their order."""
    assert before.layout is not None
    assert after.layout is not None
    if is_linear(before) and is_linear(after):
        return physical_bytes(before) == physical_bytes(after)
    if before.rank < 2 or after.rank < 2:
        return before.layout.tiles == after.layout.tiles and before.rank == after.rank
    if before.layout.tiles != after.layout.tiles:
        return before.layout.tiles[1:] == after.layout.tiles[1:] and _rows_of_tile(before) == _rows_of_tile(after) != 0
    (*_, one_rows, one_lanes), (*_, other_rows, other_lanes) = physical_order_sizes(before), physical_order_sizes(after)
    rows = before.layout.tiles[0][0]
    # Whole tiles of rows may be counted as one dimension or as several.
    return one_lanes == other_lanes and (one_rows == other_rows or one_rows % rows == other_rows % rows == 0)


def _rows_of_tile(array: ArrayShape) -> int:
    """Return how many elements are side by side where an array is whole tiles, one below the other, 0 where it is not.

    However high these are.
    """
    assert array.layout is not None
    (*_, rows, lanes), (height, width) = physical_order_sizes(array), array.layout.tiles[0]
    return lanes if rows % height == 0 and lanes <= width else 0


def is_linear(array: ArrayShape) -> bool:
    """Return whether an array's elements lie one after the other, as one row of tiles or as a vector."""
    assert array.layout is not None
    rows = physical_order_sizes(array)[:-1]
    return len(array.layout.tiles) == 1 and all(size == 1 for size in (*rows, *array.layout.tiles[0][:-1]))


def carried_orders(array: ArrayShape, sizes: Sequence[int]) -> list[Order]:
    """Return the orders in which an array of other sizes has the elements where this one has them, if there are any.

    Tiles left aside: dimensions that are joined must lie one round the other. Those of size 1 may lie beside what they
    stand beside, or outside of all.
    """
    assert array.layout is not None
    if 0 in array.dimensions:
        # No element lies anywhere: any order has them all.
        return [tuple(reversed(range(len(sizes))))]
    big = [d for d in reversed(array.layout.minor_to_major) if array.dimensions[d] != 1]
    place = {d: at for at, d in enumerate(big)}
    groups = []
    for before, after in _common_factors(array.dimensions, sizes):
        places = [place[d] for d in before if d in place]
        if places != list(range(places[0], places[0] + len(places)) if places else []):
            return []
        groups.append((places[0] if places else -1, after))
    major_to_minor = [d for _, after in sorted(groups, key=lambda group: group[0]) for d in after]
    outside = sorted(major_to_minor, key=lambda d: sizes[d] != 1)
    return [tuple(reversed(order)) for order in (major_to_minor, outside)]


def _common_factors(one: Sequence[int], other: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the dimensions of two shapes of as many elements in the least groups of equal products."""
    groups, at, to = [], 0, 0
    while at < len(one) or to < len(other):
        before: list[int] = []
        after: list[int] = []
        left = right = 1
        while (not before and not after) or left != right:
            if to >= len(other) or (at < len(one) and left <= right):
                before.append(at)
                left *= one[at]
                at += 1
            else:
                after.append(to)
                right *= other[to]
                to += 1
        groups.append((before, after))
    return groups
