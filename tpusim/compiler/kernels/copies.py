"""Between fusion and tiles: what may not be written over is copied before it is updated in place.

That are arguments that the caller keeps, constants, what is still read afterwards, and what a loop carries twice.

Source: XLA, CopyInsertion.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import FUSES_INTO_USERS, IN_PLACE, LAID_OUT_FREELY, VIEWS
from tpusim.shapes.shape import ArrayShape, TupleShape


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own."""
    for graph in draft.running():
        number = {node: at for at, node in enumerate(graph.order())}
        given = _kept_arguments(draft) if graph is draft.entry else set()
        for node in number:
            for user, at in list(_updated(draft, node)):
                updated = user.operands[at]
                later = any(number.get(other, -1) > number[node] for other in updated.users if other is not user)
                shared = updated in user.operands[:at]
                if later or shared or updated is graph.root or _is_kept(updated, given):
                    operands = list(user.operands)
                    operands[at] = _another(graph, updated)
                    user.take(operands)


def _another(graph: Graph, node: Node) -> Node:
    """Return a copy of an array; what is made from nothing is made once more."""
    if node.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS:
        return graph.clone(node)
    return graph.add("copy", node.shape, [node], like=node)


def _kept_arguments(draft: Draft) -> set[Node]:
    """Return the parameters of the program whose memory stays the caller's."""
    aliases, donors = (draft.attributes.get(name, ()) for name in ("input_output_alias", "buffer_donor"))
    given = {alias.parameter for alias in aliases} | {donor.parameter for donor in donors}
    return {node for node in draft.entry.parameters if node.immediate not in given}


def _is_kept(node: Node, kept: set[Node]) -> bool:
    while node.opcode in VIEWS or node.opcode == "get-tuple-element":
        node = node.operands[0]
    return node in kept or node.opcode == "constant"


def _updated(draft: Draft, node: Node) -> Iterator[tuple[Node, int]]:
    """Yield what a node writes over: the node that hands it over, and the number of its operand."""
    if node.opcode in IN_PLACE:
        yield node, 0
    elif node.opcode == "fusion":
        body = draft.graphs[node.attributes["calls"]]
        for root in body.root.operands if body.root.opcode == "tuple" else [body.root]:
            if root.opcode in IN_PLACE and root.operands[0] in body.parameters:
                yield node, body.parameters.index(root.operands[0])
    elif node.opcode == "while" and node.operands[0].opcode == "tuple":
        for at, carried in enumerate(node.operands[0].operands):
            if isinstance(carried.shape, ArrayShape) and carried.shape.rank and _changes(draft, node, at):
                yield node.operands[0], at


def _changes(draft: Draft, loop: Node, at: int) -> bool:
    """Return whether a loop carries something else on at one place than it was given."""
    root = draft.graphs[loop.attributes["body"]].root
    if root.opcode != "tuple":
        return True
    passed = root.operands[at]
    return passed.opcode != "get-tuple-element" or passed.attributes["index"] != at or not _is_carried(passed)


def _is_carried(element: Node) -> bool:
    (whole,) = element.operands
    return whole.opcode == "parameter" and isinstance(whole.shape, TupleShape)
