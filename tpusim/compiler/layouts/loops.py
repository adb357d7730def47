"""Behind the layouts: what a loop only reads in another order than it is handed is brought into that order before it.

Source: programs compiled ahead of time, in which loops carry such arrays in the order that their bodies want.
"""

from __future__ import annotations

from tpusim.draft import Draft, Graph, Node
from tpusim.shapes.shape import Shape, TupleShape


def copy_before_loops(draft: Draft) -> None:
    """Take copies of what loops do not change out of them; of inner loops first, whose copies the outer ones make."""
    loops = [(graph, node) for graph in draft.running() for node in graph.order() if node.opcode == "while"]
    for graph, loop in loops:
        # Pass 1 has given each loop computations of its own.
        if loop is not graph.root and loop.operands[0].opcode == "tuple":
            for at in range(len(loop.operands[0].operands)):
                _copy_before(draft, graph, loop, at)


def _copy_before(draft: Draft, graph: Graph, loop: Node, at: int) -> None:
    body, condition = (draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    inside, behind = body.parameters[0].takers(at), loop.takers(at)
    are_elements = all(taker.opcode == "get-tuple-element" for taker in (*inside, *behind))
    is_unchanged = body.root.opcode == "tuple" and body.root.operands[at] in inside
    if not (are_elements and is_unchanged) or condition.parameters[0].takers(at):
        return
    ways = [_way_to_copy(body, user) for taker in inside for user in taker.users if user is not body.root]
    if len({tuple(node.shape for node in way) for way in ways}) != 1 or not ways[0]:
        return
    if sum(operand in inside for operand in body.root.operands) > 1:
        return
    shape = ways[0][-1].shape
    state = graph.own(loop.operands[0], loop)
    made = before = state.operands[at]
    for taker in behind:
        graph.replace(taker, before)
    for node in ways[0]:
        made = graph.add(node.opcode, node.shape, [made], like=node)
    state.take([*state.operands[:at], made, *state.operands[at + 1 :]])
    for whole in (state, loop, body.root, body.parameters[0], condition.parameters[0]):
        whole.shape = _with_element(whole.shape, at, shape)
    for taker in inside:
        taker.shape = shape
        for way in [way for way in ways if way[0].operands == [taker]]:
            body.replace(way[-1], taker)


def _way_to_copy(body: Graph, node: Node) -> list[Node]:
    """Return bitcasts from a node on, each for the next alone, and the copy behind them; nothing if there is none."""
    way = [node]
    while way[-1].opcode == "bitcast" and len(way[-1].users) == 1 and way[-1] is not body.root:
        way += way[-1].users
    return way if way[-1].opcode == "copy" else []


def _with_element(whole: Shape, at: int, shape: Shape) -> TupleShape:
    assert isinstance(whole, TupleShape)
    return TupleShape((*whole.elements[:at], shape, *whole.elements[at + 1 :]))
