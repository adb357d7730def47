"""Behind the order: sums over devices take bf16 and give bf16 where kernels did nothing but convert for them.

A sum of f32 adds up f32 in any case: it takes bf16 as it is, and rounds its result once. What another kernel widens as
it makes it stays f32. Before there is an order floats of two precisions may not meet.

Source: XLA, BFloat16ConversionFolding; programs compiled ahead of time, in which products and slices are sent as f32,
and arguments, results of collectives and what has other users as bf16.
"""

from __future__ import annotations

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import COMBINES
from tpusim.semantics.combining import sole_opcode
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape


def narrow_sums(draft: Draft, target: Target) -> None:
    """Leave out kernels that only convert what is summed over devices, or the sum."""
    for graph in draft.running():
        for node in graph.order():
            # Of any other computation nothing says that it adds up f32 and rounds at most once.
            if node.opcode == "all-reduce" and sole_opcode(draft.graphs, node.attributes["to_apply"]) in COMBINES:
                node.take([each.operands[0] if _converts(each, "bf16", "f32") else each for each in node.operands])
                _narrow_results(graph, node)


def _converts(node: Node, given: str, made: str) -> bool:
    types = [each.array.dtype.name for each in (*node.operands, node)] if node.opcode == "convert" else []
    return types == [given, made]


def _narrow_results(graph: Graph, node: Node) -> None:
    """Let a sum, or several that are one, be bf16 where that is all that becomes of it."""
    if isinstance(node.shape, ArrayShape):
        node.shape = _wanted(graph, node)
    elif all(user.opcode == "get-tuple-element" for user in node.users) and node is not graph.root:
        shapes = list(node.shape.elements) if isinstance(node.shape, TupleShape) else []
        for user in node.users:
            shapes[user.attributes["index"]] = user.shape = _wanted(graph, user)
        node.shape = TupleShape(tuple(shapes))


def _wanted(graph: Graph, node: Node) -> Shape:
    """Return the shape that all users make of an array, which they are then left out for, or its own."""
    users = list(node.users)
    if node is graph.root or not users or not all(_converts(user, "f32", "bf16") for user in users):
        return node.shape
    for user in users:
        graph.replace(user, node)
    return users[0].shape
