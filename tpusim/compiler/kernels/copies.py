"""Between fusion and tiles: what may not be written over is copied before it is updated in place.

That are arguments that the caller keeps, constants, and what is still read afterwards.

Source: XLA, CopyInsertion.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.compiler.fuse import running
from tpusim.compiler.graph import Draft, Node
from tpusim.compiler.target import Target
from tpusim.ir.ops import IN_PLACE, VIEWS
from tpusim.shapes.shape import ArrayShape, TupleShape


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own."""
    for graph in running(draft):
        number = {node: at for at, node in enumerate(graph.order())}
        given = _kept_arguments(draft) if graph is draft.entry else set()
        for node in number:
            for user, updated in list(_updated(draft, node)):
                later = any(number.get(other, -1) > number[node] for other in updated.users if other is not user)
                if later or updated is graph.root or _is_kept(updated, given):
                    copied = graph.add("copy", updated.shape, [updated], like=updated)
                    user.replace_operand(updated, copied)


def _kept_arguments(draft: Draft) -> set[Node]:
    """Return the parameters of the program whose memory stays the caller's."""
    aliases, donors = (draft.attributes.get(name, ()) for name in ("input_output_alias", "buffer_donor"))
    given = {alias.parameter for alias in aliases} | {donor.parameter for donor in donors}
    return {node for node in draft.entry.parameters if node.immediate not in given}


def _is_kept(node: Node, kept: set[Node]) -> bool:
    while node.opcode in VIEWS or node.opcode == "get-tuple-element":
        node = node.operands[0]
    return node in kept or node.opcode == "constant"


def _updated(draft: Draft, node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield what a node writes over, each with the node that hands it over."""
    if node.opcode in IN_PLACE:
        yield node, node.operands[0]
    elif node.opcode == "fusion":
        body = draft.graphs[node.attributes["calls"]]
        for root in body.root.operands if body.root.opcode == "tuple" else [body.root]:
            if root.opcode in IN_PLACE and root.operands[0] in body.parameters:
                yield node, node.operands[body.parameters.index(root.operands[0])]
    elif node.opcode == "while" and node.operands[0].opcode == "tuple":
        for at, carried in enumerate(node.operands[0].operands):
            if isinstance(carried.shape, ArrayShape) and carried.shape.rank and _changes(draft, node, at):
                yield node.operands[0], carried


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
