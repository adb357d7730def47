"""Part of pass 2: rules for dimensions of size 1, which are no part of any work: they are put back behind it.

Source: XLA, AlgebraicSimplifier and ReshapeMover, by idea.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.ir.ops import ALIKE_IN_ANY_SHAPE
from tpusim.shapes.shape import ArrayShape


def squeezed(graph: Graph, node: Node) -> Node:
    """Return a node without its dimensions of size 1."""
    if 1 not in node.array.dimensions:
        return node
    sizes = _large(node.array.dimensions)
    shape = ArrayShape(node.array.dtype, sizes)
    if node.opcode == "reshape" and node.operands[0].array.dimensions == sizes:
        return node.operands[0]
    return graph.add("reshape", shape, [node], like=node)


def _are_put_in(node: Node) -> bool:
    """Return whether a node is an array into which only dimensions of size 1 were put."""
    return node.opcode == "reshape" and node.operands[0].array.dimensions == _large(node.array.dimensions)


def _large(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size != 1)


def _places(node: Node) -> dict[int, int]:
    """Return by the dimensions of an array that have not the size 1 where they are without the others."""
    large = [d for d, size in enumerate(node.array.dimensions) if size != 1]
    return {d: at for at, d in enumerate(large)}


@simplifies("dot")
def _product(graph: Graph, node: Node) -> Node | None:
    """A product is one of what its operands are without dimensions of size 1.

    Source: XLA, RemoveDegenerateDimensionFromDot.
    """
    if node.is_dynamic or not any(1 in operand.array.dimensions for operand in node.operands):
        return None
    named = dict(node.attributes)
    for side, operand in zip(("lhs", "rhs"), node.operands, strict=True):
        places = _places(operand)
        for key in (f"{side}_batch_dims", f"{side}_contracting_dims"):
            if key in named:
                named[key] = tuple(places[d] for d in named[key] if d in places)
    shape = ArrayShape(node.array.dtype, _large(node.array.dimensions))
    plain = graph.add("dot", shape, [squeezed(graph, operand) for operand in node.operands], named, like=node)
    return graph.add("reshape", node.shape, [plain], like=node)


@simplifies("reduce")
def _combined(graph: Graph, node: Node) -> Node | None:
    """What is combined is an array before dimensions of size 1 were put in, unless nothing else is combined."""
    if len(node.operands) != 2 or node.is_dynamic or not _are_put_in(node.operands[0]):
        return None
    (array,), start, places = node.operands[0].operands, node.operands[1], _places(node.operands[0])
    along = tuple(places[d] for d in node.attributes["dimensions"] if d in places)
    if not along:
        return None
    shape = ArrayShape(node.array.dtype, _large(node.array.dimensions))
    plain = graph.add("reduce", shape, [array, start], node.attributes | {"dimensions": along}, like=node)
    return graph.add("reshape", node.shape, [plain], like=node)


@simplifies("transpose")
def _transposed(graph: Graph, node: Node) -> Node | None:
    """What is transposed is an array before dimensions of size 1 were put in."""
    (operand,) = node.operands
    if node.is_dynamic or not _are_put_in(operand):
        return None
    places = _places(operand)
    order = tuple(places[d] for d in node.attributes["dimensions"] if d in places)
    shape = ArrayShape(node.array.dtype, _large(node.array.dimensions))
    plain = graph.add("transpose", shape, operand.operands, node.attributes | {"dimensions": order}, like=node)
    return graph.add("reshape", node.shape, [plain], like=node)


def _without_ones(graph: Graph, node: Node) -> Node | None:
    """Element by element, dimensions of size 1 are no part of it: they are put back behind it.

    The TPU compiler keeps them where what a product leaves was transposed (9 attentions with scores of two products,
    the keys of one shared by all heads, libtpu 0.0.52).
    """
    shape = node.shape
    if not isinstance(shape, ArrayShape) or 1 not in shape.dimensions or any(shape.dynamic):
        return None
    if any(map(_is_transposed_product, node.operands)):
        return None
    sizes = _large(shape.dimensions)
    operands = []
    for operand in node.operands:
        if operand.opcode == "reshape" and operand.operands[0].array.dimensions == sizes:
            operands.append(operand.operands[0])
        elif not operand.array.rank:
            operands.append(operand)
        elif operand.opcode == "broadcast":
            operands.append(_without_ones_of_broadcast(graph, operand, sizes))
        else:
            return None
    plain = graph.clone(node, operands)
    plain.shape = ArrayShape(shape.dtype, sizes)
    return graph.add("reshape", shape, [plain], like=node)


def _is_transposed_product(node: Node) -> bool:
    (transpose,) = node.operands if node.opcode == "reshape" else (None,)
    return transpose is not None and transpose.opcode == "transpose" and transpose.operands[0].opcode == "dot"


def _without_ones_of_broadcast(graph: Graph, node: Node, sizes: tuple[int, ...]) -> Node:
    """Return a broadcast with its dimensions of size 1 left out."""
    places = _places(node)
    operand = squeezed(graph, node.operands[0]) if node.operands[0].array.rank else node.operands[0]
    dimensions = tuple(places[d] for d in node.attributes.get("dimensions", ()) if d in places)
    shape = ArrayShape(node.array.dtype, sizes)
    return graph.add("broadcast", shape, [operand], {"dimensions": dimensions}, like=node)


# A bitcast to a narrower type has one more dimension than its operand.
for _opcode in ALIKE_IN_ANY_SHAPE:
    simplifies(_opcode)(_without_ones)
