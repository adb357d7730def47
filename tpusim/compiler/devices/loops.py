"""Behind pass 2: what loops sum over devices only to add it up is added up on each device, and summed behind the loop.

So gradients of small batches are exchanged once for all of them, in the type in which they are added up. What becomes
of the sum on the way may move its elements and convert them, nothing else: where it is scaled it stays in the loop.

Source: XLA, WhileLoopAllReduceCodeMotion, without its slices; programs compiled ahead of time.
"""

from __future__ import annotations

from tpusim.compiler.kernels.places import BEFORE
from tpusim.compiler.simplify.rules import splat_text
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.module import Literal
from tpusim.ir.ops import RELAYOUTS
from tpusim.semantics.combining import sole_opcode
from tpusim.semantics.scalars import literal_number
from tpusim.shapes.shape import ArrayShape


def sum_behind_loops(draft: Draft, target: Target) -> None:
    """Take sums over devices that a loop only adds up out of it; inner loops first, whose sums others may add up."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "while" and node is not graph.root:
                _sum_behind(draft, graph, node)


def _sum_behind(draft: Draft, graph: Graph, loop: Node) -> None:
    body, condition = (draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    if loop.operands[0].opcode != "tuple" or body.root.opcode != "tuple":
        return
    inside, asked = body.parameters[0].takers(), condition.parameters[0].takers()
    for at, takers in enumerate(loop.takers()):
        are_known = takers and all(taker.opcode == "get-tuple-element" for taker in takers)
        if not are_known or asked[at]:
            continue
        summed = _added_up(body, at, inside[at])
        if summed is not None and sole_opcode(draft.graphs, summed.attributes["to_apply"]) == "add":
            _move(graph, loop, at, takers, summed)
            body.replace(summed, summed.operands[0])
            body.forget([summed])
            summed.take([])


def _added_up(body: Graph, at: int, inside: list[Node]) -> Node | None:
    """Return the sum over devices that a body adds to one element of its tuple, of which it does nothing else.

    ``inside`` are those that get that element in the body.
    """
    added = body.root.operands[at]
    if added.opcode != "add" or list(added.users) != [body.root] or body.root.operands.count(added) > 1:
        return None
    for before, other in (added.operands, reversed(added.operands)):
        if body.is_element(before) and inside == [before] and list(before.users) == [added]:
            return _summed(body, other, added)
    return None


def _summed(body: Graph, node: Node, user: Node) -> Node | None:
    """Return the sum over devices whose elements a node is, moved and converted for one user alone."""
    while list(node.users) == [user] and _keeps_elements(node):
        node, user = node.operands[0], node
    is_sum = node.opcode == "all-reduce" and isinstance(node.shape, ArrayShape) and list(node.users) == [user]
    # What a program wants behind others in the loop stays there.
    if not is_sum or BEFORE in node.attributes or node.is_dynamic:
        return None
    (own,) = node.operands
    # What is the same in each trip is summed before the loop.
    is_same = body.is_element(own) and body.root.operands[own.attributes["index"]] is own
    # Of truth values a sum is what any of them says.
    return node if not is_same and (_is_float(node) or node.array.dtype.is_integer) else None


def _keeps_elements(node: Node) -> bool:
    # An integer may have wrapped before it is converted, and a float be cut.
    is_converted = node.opcode == "convert" and _is_float(node) and _is_float(node.operands[0])
    return not node.is_dynamic and (is_converted or node.opcode in RELAYOUTS)


def _is_float(node: Node) -> bool:
    return node.array.dtype.is_float


def _move(graph: Graph, loop: Node, at: int, takers: list[Node], summed: Node) -> None:
    """Sum an element of a loop's result over devices; what the loop begins from is added to it behind that."""
    state = graph.own(loop.operands[0], loop)
    start, shape = state.operands[at], takers[0].array
    element = graph.add("get-tuple-element", shape, [loop], {"index": at}, like=takers[0])
    attributes = dict(summed.attributes)
    if shape.dtype != summed.array.dtype:
        attributes["to_apply"] = graph.draft.region("add", shape.dtype)
    total = graph.add("all-reduce", shape, [element], attributes)
    if literal_number(Literal(splat_text(start))) != 0:
        state.take([*state.operands[:at], _zeros(graph, start), *state.operands[at + 1 :]])
        total = graph.add("add", shape, [start, total], like=summed)
    for taker in takers:
        graph.replace(taker, total)


def _zeros(graph: Graph, like: Node) -> Node:
    zero = graph.add("constant", ArrayShape(like.array.dtype), like=like, immediate=Literal("0"))
    return graph.add("broadcast", like.array, [zero], {"dimensions": ()}, like=like) if like.array.rank else zero
