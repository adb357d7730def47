"""Before pass 2: what loops, branches and barriers hand on is a tuple of arrays, never of tuples.

What lies in what is then a question about places in one tuple. Only what the caller gives and gets keeps its form.

Source: XLA, WhileLoopSimplifier, which flattens the nested tuples of loops.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, VIEWS
from tpusim.shapes.shape import Shape, TupleShape, leaves, nodes


def flatten(draft: Draft, target: Target) -> None:
    """Take apart every tuple of tuples that goes into or comes out of a loop, a branch or a barrier.

    A copy of a tuple becomes one of each of its arrays.
    """
    for graph in draft.running():
        if graph is not draft.entry:
            for parameter in graph.parameters:
                _make_flat(graph, parameter)
            graph.root = _flat(graph, graph.root)
        for node in graph.order():
            if node.opcode in CONTROL_FLOW | VIEWS:
                node.take([_flat(graph, operand) for operand in node.operands])
                _make_flat(graph, node)
            elif node.opcode == "copy" and isinstance(node.shape, TupleShape):
                copies = [
                    graph.add("copy", array.shape, [array], like=node) for array in arrays_in(graph, *node.operands)
                ]
                graph.replace(node, tuple_as(graph, node.shape, copies))


def _is_nested(shape: Shape) -> bool:
    return isinstance(shape, TupleShape) and any(isinstance(element, TupleShape) for element in shape.elements)


def _flat(graph: Graph, whole: Node) -> Node:
    """Return the tuple of all arrays in a tuple of tuples; anything else as it is."""
    if not _is_nested(whole.shape):
        return whole
    return graph.add("tuple", TupleShape(leaves(whole.shape)), arrays_in(graph, whole), like=whole)


def _make_flat(graph: Graph, node: Node) -> None:
    """Let a node return all arrays in one tuple, and its users have them in tuples of tuples as before."""
    if not _is_nested(node.shape):
        return
    before, users, is_root = node.shape, list(node.users), graph.root is node
    node.shape = TupleShape(leaves(before))
    whole = tuple_as(graph, before, arrays_in(graph, node))
    for user in users:
        user.replace_operand(node, whole)
    graph.root = whole if is_root else graph.root


def arrays_in(graph: Graph, whole: Node) -> list[Node]:
    """Return the arrays in a node's result, whatever tuples they are in, from left to right."""
    found: list[Node] = []
    # A stack of our own, as for the leaves of shapes.
    stack = [whole]
    while stack:
        top = stack.pop()
        if not isinstance(top.shape, TupleShape):
            found.append(top)
        elif top.opcode == "tuple":
            stack.extend(reversed(top.operands))
        else:
            shapes = enumerate(top.shape.elements)
            elements = [graph.add("get-tuple-element", shape, [top], {"index": at}, like=top) for at, shape in shapes]
            stack.extend(reversed(elements))
    return found


def tuple_as(graph: Graph, shape: Shape, arrays: Iterable[Node]) -> Node:
    """Return arrays in the tuples of tuples that a shape is of, in their order."""
    left, made = list(arrays), list[Node]()
    # The last comes first, so that the elements of each tuple are there before it.
    for part in reversed(nodes(shape)):
        if isinstance(part, TupleShape):
            elements = [made.pop() for _ in part.elements]
            made.append(graph.add("tuple", part, elements))
        else:
            made.append(left.pop())
    (whole,) = made
    return whole
