"""Products that sum nothing up, and of a matrix and a vector, or of many such pairs; convolutions by groups."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Graph, Node
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.ops import ALIKE_IN_ANY_SHAPE
from tpusim.shapes.shape import ArrayShape


class _Side(NamedTuple):
    """An operand of a product, and which of its dimensions are of which kind."""

    node: Node
    batch: tuple[int, ...]
    summed: tuple[int, ...]

    @property
    def free(self) -> tuple[int, ...]:
        """The dimensions that the result has of this operand alone."""
        return tuple(d for d in range(self.node.array.rank) if d not in (*self.batch, *self.summed))

    @property
    def is_vector(self) -> bool:
        return prod(self.node.array.dimensions[d] for d in self.free) == 1


def _sides(node: Node) -> list[_Side]:
    """Return the operands of a dot, the left one first."""
    named = node.attributes
    return [
        _Side(operand, named.get(f"{side}_batch_dims", ()), named.get(f"{side}_contracting_dims", ()))
        for operand, side in zip(node.operands, ("lhs", "rhs"), strict=True)
    ]


@decomposes("dot", tolerance=1e-5, is_rounded=True)
def outer(build: Build, node: Node) -> Node | None:
    """Where nothing is summed up, elements are multiplied, each of one side with each of the other, without the MXU.

    The MXU would round them to bf16 first; here they stay as they are. Complex numbers come as their parts.

    Source: XLA, AlgebraicSimplifier (dot without contracting dimensions); 18 of 18 such products of programs compiled
    ahead of time for v5e, of floats, integers and complex numbers, eight of which sum over a dimension of size 1.
    """
    sides, wide = _sides(node), _common(node)
    if not wide or any(each.node.array.dimensions[d] != 1 for each in sides for d in each.summed):
        return None
    # The result's dimensions are those of the batch, then the rows, then the columns.
    batch, rows = tuple(range(len(sides[0].batch))), len(sides[0].free)
    behind = [len(batch), len(batch) + rows]
    terms = []
    for each, first in zip(sides, behind, strict=True):
        turned = build.turned(each.node, (*each.batch, *each.free, *each.summed))
        plain = build.reshape(turned, *(each.node.array.dimensions[d] for d in (*each.batch, *each.free)))
        places = (*batch, *range(first, first + len(each.free)))
        terms.append(build.broadcast(build.convert(plain, wide), node.array.dimensions, places))
    return build.convert(build.apply("multiply", *terms), node.array.dtype.name)


def _common(node: Node) -> str:
    """Return a type that holds the factors of a product and what it is rounded to; empty if there is no such."""
    types = [each.array.dtype for each in (node, *node.operands)]
    widest = max(types, key=lambda dtype: dtype.bits)
    if len(set(types)) == 1 and not widest.is_complex and widest.name != "pred":
        return widest.name
    if all(dtype.is_float for dtype in types):
        return "f64" if widest.bits > _WIDE else "f32"
    return widest.name if all(dtype.is_integer for dtype in types) else ""


@decomposes("dot", tolerance=1e-5)
def with_one_matrix(build: Build, node: Node) -> Node | None:
    """Where each of a batch is multiplied with copies of one matrix, the batch is more rows of one product.

    PyTorch exports a layer on a batch of sequences so. Source: XLA, AlgebraicSimplifier (dot of a broadcast).
    """
    named, (left, right) = node.attributes, node.operands
    batch = named.get("rhs_batch_dims", ())
    # Rows stand behind the batch, as they do in the result.
    in_order = named.get("lhs_batch_dims", ()) == tuple(range(len(batch)))
    if not batch or not in_order or right.opcode != "broadcast" or set(batch) & set(right.attributes["dimensions"]):
        return None
    kept = [d for d in range(right.array.rank) if d not in batch]
    if sorted(right.attributes["dimensions"]) != list(right.attributes["dimensions"]):
        return None
    (one,) = right.operands
    sizes = [right.array.dimensions[d] for d in kept]
    matrix = (
        one
        if list(one.array.dimensions) == sizes
        else build.broadcast(one, sizes, [kept.index(d) for d in right.attributes["dimensions"]])
    )
    summed = {"rhs_contracting_dims": tuple(kept.index(d) for d in named["rhs_contracting_dims"])}
    made = build.graph.clone(node, [left, matrix])
    made.attributes = {key: value for key, value in named.items() if not key.endswith("_batch_dims")} | summed
    return made


@decomposes("dot", tolerance=1e-5, is_rounded=True)
def vector(build: Build, node: Node) -> Node | None:
    """Where one operand has nothing that the other has not, products of elements are added up, without the MXU.

    The MXU would round them to bf16 first; here they stay as they are. Integers are added up so without a batch.

    Source: XLA, AlgebraicSimplifier (dot strength reduction); 14 of 14 such products of programs compiled ahead of
    time for v3 to v6e, and six that sum over several dimensions, for v5e, where sums of one term begin with -0; five of
    five of integers, none with a batch.
    """
    sides = _sides(node)
    small, large = sides if sides[0].is_vector else reversed(sides)
    dtype = _type_of_sum(node)
    if not small.is_vector or not dtype:
        return None
    terms = build.apply("multiply", _spread(build, small, large, dtype), build.convert(large.node, dtype))
    kept = [d for d in range(large.node.array.rank) if d not in large.summed]
    if large.summed:
        # One term is the sum as it is, of -0 also.
        start = -0.0 if prod(large.node.array.dimensions[d] for d in large.summed) == 1 else 0
        terms = build.reduce(terms, build.constant(start, terms.array.dtype), sorted(large.summed), "add")
    turned = build.transpose(terms, *(kept.index(d) for d in (*large.batch, *large.free)))
    return build.convert(build.reshape(turned, *node.array.dimensions), node.array.dtype.name)


_WIDE = 32
"""Bits of the numbers in which the sum is made; complex numbers have more."""


def _type_of_sum(node: Node) -> str:
    """Return the type in which products of elements are made and added up; empty if the MXU makes the product."""
    types = [each.array.dtype for each in (node, *node.operands)]
    if max(dtype.bits for dtype in types) > _WIDE:
        return ""
    if node.array.dtype.is_float:
        return "f32"
    is_batch = node.attributes.get("lhs_batch_dims", ())
    return _common(node) if node.array.dtype.is_integer and not is_batch else ""


def _spread(build: Build, small: _Side, large: _Side, dtype: str) -> Node:
    """Return the elements of the vectors where the matrices have those that they are multiplied with."""
    mine, its = small.batch + small.summed, large.batch + large.summed
    by_place = sorted(zip(its, mine, strict=True))
    turned = build.transpose(build.convert(small.node, dtype), *(d for _, d in by_place), *small.free)
    sizes = [small.node.array.dimensions[d] for _, d in by_place]
    return build.broadcast(build.reshape(turned, *sizes), large.node.array.dimensions, [place for place, _ in by_place])


@decomposes("convolution", tolerance=1e-5)
def grouped(build: Build, node: Node) -> Node | None:
    """Groups of features are one more dimension that a window goes along, each with the window's own kernel.

    Source: XLA, ConvolutionGroupConverter; programs compiled ahead of time, in which only groups of one feature stay.
    """
    named = dict(node.attributes)
    groups = named.pop("feature_group_count", 1)
    labels = named["dim_labels"]
    features = node.operands[0].array.dimensions[labels.lhs.index("f")]
    if groups == 1 or groups == features:
        return None
    along = str(len(labels.lhs) - 2)
    left, right = (
        build.reshape(operand, *_split(operand, text.index(mark), groups))
        for operand, text, mark in zip(node.operands, (labels.lhs, labels.rhs), "fo", strict=True)
    )
    apart = WindowDimension(groups, stride=groups - 1, lhs_dilate=groups)
    named["window"] = Window((*named["window"].dimensions, apart))
    named["dim_labels"] = ConvolutionLabels(
        *(
            text.replace(mark, along + mark)
            for text, mark in zip((labels.lhs, labels.rhs, labels.output), "fof", strict=True)
        )
    )
    sizes = _split(node, labels.output.index("f"), groups)
    made = build.graph.add("convolution", ArrayShape(node.array.dtype, sizes), [left, right], named, like=node)
    return build.reshape(made, *node.array.dimensions)


def _split(node: Node, at: int, groups: int) -> tuple[int, ...]:
    """Return an array's sizes with one of its dimensions taken apart into groups."""
    sizes = node.array.dimensions
    return (*sizes[:at], groups, sizes[at] // groups, *sizes[at + 1 :])


_MOST = 64
"""The most operations that are written anew, so that many products of a long chain take no more than so many each."""


@decomposes("dot", tolerance=1e-5, is_first=True)
def summed_last(build: Build, node: Node) -> Node | None:
    """What is made of broadcasts alone, and summed up with the numbers of a vector, has the summed dimensions last.

    What is broadcast is turned for that, which is smaller. What products become is no part of it: that comes later.

    Source: 12 of 12 such products of programs compiled ahead of time for v5e, of sums, differences, products,
    comparisons and functions of broadcasts and of ``iota``; five others, which also read an array of that size, stay.
    """
    sides = _sides(node)
    for at, large in enumerate(sides):
        order = (*large.batch, *large.free, *large.summed)
        if not sides[1 - at].is_vector or large.node.opcode not in ALIKE_IN_ANY_SHAPE or list(order) == sorted(order):
            continue
        if tree := _tree(large.node):
            operands = [_turned(build.graph, tree, order) if each is large else each.node for each in sides]
            name, rank, summed = ("lhs", "rhs")[at], len(order), len(large.summed)
            named = {f"{name}_contracting_dims": tuple(range(rank - summed, rank))}
            if large.batch:
                named[f"{name}_batch_dims"] = tuple(range(len(large.batch)))
            return build.graph.add("dot", node.shape, operands, dict(node.attributes) | named, like=node)
    return None


def _tree(root: Node) -> list[Node]:
    """Return what an array is made of by elements, operands first; nothing if that is not broadcasts alone."""
    order, todo, sizes = dict[Node, None](), [root], root.array.dimensions
    while todo:
        node = todo[-1]
        is_leaf = node.opcode in _LEAVES
        if node.is_dynamic or node.array.dimensions != sizes or not (is_leaf or node.opcode in ALIKE_IN_ANY_SHAPE):
            return []
        if len(order) + len(todo) > _MOST:
            return []
        # Scalars, as the bounds of a clamp, are the same for all.
        waits = [] if is_leaf else [each for each in node.operands if each.array.rank and each not in order]
        if waits:
            todo += dict.fromkeys(waits)
        else:
            order.setdefault(todo.pop())
    return list(order)


def _turned(graph: Graph, tree: list[Node], order: tuple[int, ...]) -> Node:
    """Return the last of some nodes with its dimension ``i`` that which was ``order[i]``."""
    made: dict[Node, Node] = {}
    for node in tree:
        shape = ArrayShape(node.array.dtype, tuple(node.array.dimensions[d] for d in order))
        if node.opcode in _LEAVES:
            made[node] = _LEAVES[node.opcode](graph, node, shape, order)
        else:
            made[node] = graph.clone(node, [made.get(operand, operand) for operand in node.operands])
            made[node].shape = shape
    return made[tree[-1]]


def _broadcast_turned(graph: Graph, node: Node, shape: ArrayShape, order: tuple[int, ...]) -> Node:
    """Return a broadcast in another order of its dimensions, its operand turned so that theirs is the same."""
    (operand,) = node.operands
    places = [order.index(d) for d in node.attributes.get("dimensions", ())]
    by_place = sorted(range(len(places)), key=places.__getitem__)
    if by_place != list(range(len(places))):
        sizes = tuple(operand.array.dimensions[d] for d in by_place)
        turned = {"dimensions": tuple(by_place)}
        operand = graph.add("transpose", ArrayShape(operand.array.dtype, sizes), [operand], turned, like=node)
    return graph.add("broadcast", shape, [operand], {"dimensions": tuple(sorted(places))}, like=node)


def _iota_turned(graph: Graph, node: Node, shape: ArrayShape, order: tuple[int, ...]) -> Node:
    """Return an ``iota`` in another order of its dimensions."""
    named = {"iota_dimension": order.index(node.attributes["iota_dimension"])}
    return graph.add("iota", shape, [], named, like=node)


_LEAVES: dict[str, Callable[[Graph, Node, ArrayShape, tuple[int, ...]], Node]] = {
    "broadcast": _broadcast_turned,
    "iota": _iota_turned,
}
"""How what is made of less than an array of its size is written in another order of its dimensions."""
