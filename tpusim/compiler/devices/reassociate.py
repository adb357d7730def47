"""Behind pass 2: what is summed over devices only to be added to another such sum is added first, and summed once.

Gradients of the weights that read one activation, as of queries, keys and values, are exchanged once for all of them.

Source: XLA, AllReduceReassociate, without what is converted between; 18 programs compiled ahead of time for v5e
(libtpu 0.0.52), of which those with a subtraction, a conversion or another operand between, with other groups or with
another user of one sum keep both.
"""

from __future__ import annotations

from tpusim.compiler.devices.kinds import kind_of
from tpusim.compiler.kernels.places import waits
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import SUMS
from tpusim.semantics.combining import sole_opcode


def reassociate(draft: Draft, target: Target) -> None:
    """Add up on each device what is the sum of sums over devices, however many; likewise the largest of maxima."""
    for graph in draft.running():
        order = graph.order()
        ordered = {each for node, before in waits(draft, order).items() for each in (node, *before)}
        joined: set[Node] = set()
        # Operands before users: of a tree of additions the innermost first.
        for node in order:
            if node not in ordered and ordered.isdisjoint(node.operands) and _are_alike(draft, node):
                joined.update(node.operands)
                _join(graph, node)
        graph.forget(joined)


def _are_alike(draft: Draft, node: Node) -> bool:
    """Return whether both operands are sums over devices, for this node alone, of the kind that it is itself."""
    if len(node.operands) != 2 or not all(_is_for_one(each) for each in node.operands):
        return False
    first, second = node.operands
    kind = kind_of(draft, first)
    return (
        first is not second
        and kind is not None
        and kind == kind_of(draft, second)
        and sole_opcode(draft.graphs, first.attributes["to_apply"]) == node.opcode
        and not any(each.is_dynamic for each in node.operands)
    )


def _is_for_one(node: Node) -> bool:
    """Return whether a node is a sum over devices that one other node takes, and that is no result."""
    return node.opcode in SUMS and len(node.users) == 1 and node is not node.graph.root


def _join(graph: Graph, node: Node) -> None:
    """Put the sum over devices of what two sums are of in place of what adds these up."""
    sums = list(node.operands)
    parts = [each.operands[0] for each in sums]
    added = graph.add(node.opcode, parts[0].array, parts, like=node)
    graph.replace(node, graph.add(sums[0].opcode, node.array, [added], sums[0].attributes))
    for each in sums:
        each.take([])
