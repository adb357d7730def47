"""Views of buffers said in terms of elements: a ``bitcast`` as slices, transposes and reshapes, joined buffers as one.

Both are defined by the bytes of tiled layouts, and mean nothing once the layouts are gone. Three kinds can be said so:
a view of fewer elements at the places where they lie, one whose elements follow each other in memory in the same order,
and one of whole tiles without padding, whose digits of position are dimensions of their own.

Source: XLA, ``ShapeUtil::DecomposeBitcast``, by idea.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tpusim.draft import Graph, Node
from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import SliceDimension
from tpusim.shapes.address import (
    element_bits,
    padded_element_count,
    physical_order_sizes,
    positions,
    split,
    tile_steps,
)
from tpusim.shapes.shape import ArrayShape

_SAMPLES = 1024


def plain_view(graph: Graph, node: Node) -> Node:
    """Return nodes that make what a bitcast does, by elements; raise UnsupportedError if there is no such way."""
    (operand,) = node.operands
    before, after = operand.array, node.array
    if element_bits(before) != element_bits(after):
        raise _not_plain(node)
    if prod(before.dimensions) != prod(after.dimensions):
        operand = _part(graph, node)
    elif _same_order(before, after):
        operand = _from_memory_order(graph, _in_memory_order(graph, operand), after)
    elif _is_full(before) and _is_full(after):
        operand = _from_tiles(graph, _in_tiles(graph, operand), after)
    else:
        raise _not_plain(node)
    # With its layout, by which views of it are read in their turn.
    return graph.add("copy" if before.dtype == after.dtype else "bitcast-convert", after, [operand], like=node)


def _not_plain(node: Node) -> UnsupportedError:
    return UnsupportedError(
        f"{node.name}: expected a bitcast that moves whole elements or tiles, found one from {node.operands[0].shape} "
        f"to {node.shape}: its layouts cannot be undone"
    )


def _part(graph: Graph, node: Node) -> Node:
    """Return the elements of a view that sees only some; they must lie where they would in an array by itself."""
    (operand,) = node.operands
    before, after = operand.array, node.array
    sizes = (1,) * before.rank if prod(after.dimensions) == 1 else after.dimensions
    if len(sizes) != before.rank or any(map(int.__gt__, sizes, before.dimensions)):
        raise _not_plain(node)
    counts = range(0, prod(sizes), max(1, prod(sizes) // _SAMPLES | 1))
    if len(sizes) == after.rank and any(_by_index(before, sizes, n) != _by_index(after, sizes, n) for n in counts):
        raise _not_plain(node)
    cut = tuple(SliceDimension(0, size, 1) for size in sizes)
    part = graph.add("slice", ArrayShape(before.dtype, sizes), [operand], {"slice": cut}, like=node)
    return _reshaped(graph, part, after.dimensions)


def joined(graph: Graph, node: Node) -> Node:
    """Return the concatenation that buffers one after the other are; raise UnsupportedError if they are none."""
    whole = node.array
    along = _order(whole)[-1] if whole.rank else 0
    parts = [operand.array for operand in node.operands]
    if not all(_fits(part, whole, along) for part in parts) or not _fill_tiles(whole, parts, along):
        listed = ", ".join(map(str, parts))
        raise UnsupportedError(
            f"{node.name}: expected buffers that are parts of {whole} along one dimension, found {listed}: "
            "its layouts cannot be undone"
        )
    return graph.add("concatenate", whole, node.operands, {"dimensions": (along,)}, like=node)


def _fits(part: ArrayShape, whole: ArrayShape, along: int) -> bool:
    """Return whether an array is as another but for its size along one dimension."""
    if part.rank != whole.rank or part.dtype != whole.dtype or _order(part) != _order(whole):
        return False
    return all(part.dimensions[d] == whole.dimensions[d] for d in range(whole.rank) if d != along)


def _fill_tiles(whole: ArrayShape, parts: list[ArrayShape], along: int) -> bool:
    """Return whether parts make the whole, and all but the last fill their tiles, so that nothing lies between them."""
    sizes = [part.dimensions[along] for part in parts]
    tile = whole.layout.tiles[0] if whole.layout and whole.layout.tiles else ()
    # The major dimension is tiled only if all are.
    height = tile[0] if len(tile) >= whole.rank > 0 else 1
    return sum(sizes) == whole.dimensions[along] and all(size % height == 0 for size in sizes[:-1])


# Elements in the order in which they lie in memory, tiles aside.


@lru_cache(maxsize=1024)
def _same_order(before: ArrayShape, after: ArrayShape) -> bool:
    """Return whether the elements of both, taken in the order of their dimensions in memory, lie at the same places."""
    # Inside kernels there are arrays without tiles: registers, of which only the order is said.
    if not tile_steps(before) or not tile_steps(after):
        return True
    count = prod(before.dimensions)
    # A stride that is odd reaches all digits of an index.
    numbers = (*range(0, count, max(1, count // _SAMPLES | 1)), count - 1)
    return all(_in_memory(before, number) == _in_memory(after, number) for number in numbers if count)


def _in_memory(shape: ArrayShape, number: int) -> int:
    """Return where the element lies that is the ``number``-th by the dimensions in memory, major to minor."""
    index = [0] * shape.rank
    for dimension, digit in zip(reversed(_order(shape)), split(number, physical_order_sizes(shape)), strict=True):
        index[dimension] = digit
    return int(positions(shape, index))


def _by_index(shape: ArrayShape, sizes: tuple[int, ...], number: int) -> int:
    """Return where the element lies that is the ``number``-th of the first ``sizes`` ones."""
    return int(positions(shape, split(number, sizes)))


def _in_memory_order(graph: Graph, node: Node) -> Node:
    """Return an array with its dimensions major to minor."""
    return _transposed(graph, node, tuple(reversed(_order(node.array))))


def _from_memory_order(graph: Graph, node: Node, shape: ArrayShape) -> Node:
    """Return the array of a shape whose elements ``node`` has in the order of memory."""
    major_first = _reshaped(graph, node, physical_order_sizes(shape))
    return _transposed(graph, major_first, _inverse(tuple(reversed(_order(shape)))))


# Elements by the digits of their places: a dimension for each of a tile's sizes.


def _is_full(shape: ArrayShape) -> bool:
    """Return whether an array fills its tiles, none of which combines or adds dimensions."""
    plain = all(not step.added and len(step.before) == len(step.combined) for step in tile_steps(shape))
    return plain and padded_element_count(shape) == shape.element_count


def _digits(shape: ArrayShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of all digits of an index, dimension by dimension in memory order, and the order of the digits
    in a position: each tile cuts the innermost digits of what it covers in two.
    """
    sizes = list(physical_order_sizes(shape))
    # By digit of the position, the dimension that it belongs to; inner digits of one come later.
    owners = list(range(len(sizes)))
    for step in tile_steps(shape):
        count = len(step.sizes)
        owners = [*owners, *owners[-count:]]
        sizes = list(step.after)
    order = sorted(range(len(owners)), key=owners.__getitem__)
    return tuple(sizes[d] for d in order), _inverse(tuple(order))


def _in_tiles(graph: Graph, node: Node) -> Node:
    """Return an array as the list of its elements in memory."""
    sizes, order = _digits(node.array)
    cut = _reshaped(graph, _in_memory_order(graph, node), sizes)
    return _reshaped(graph, _transposed(graph, cut, order), (prod(sizes),))


def _from_tiles(graph: Graph, node: Node, shape: ArrayShape) -> Node:
    """Return the array of a shape whose elements in memory ``node`` lists."""
    sizes, order = _digits(shape)
    cut = _reshaped(graph, node, tuple(sizes[d] for d in order))
    return _from_memory_order(graph, _transposed(graph, cut, _inverse(order)), shape)


def _order(shape: ArrayShape) -> tuple[int, ...]:
    return shape.actual_layout.minor_to_major


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _reshaped(graph: Graph, node: Node, sizes: tuple[int, ...]) -> Node:
    """Return a node with other dimensions; itself if it has them."""
    if node.array.dimensions == sizes:
        return node
    return graph.add("reshape", ArrayShape(node.array.dtype, sizes), [node], like=node)


def _transposed(graph: Graph, node: Node, order: tuple[int, ...]) -> Node:
    """Return a node with its dimensions in another order; itself if they are in it."""
    if order == tuple(range(len(order))):
        return node
    shape = ArrayShape(node.array.dtype, tuple(node.array.dimensions[d] for d in order))
    return graph.add("transpose", shape, [node], {"dimensions": order}, like=node)
