"""Behind pass 2: what is summed over devices only to be added to another such sum is added first, and summed once.

Gradients of the weights that read one activation, as of queries, keys and values, are exchanged once for all of them.

Source: XLA, AllReduceReassociate, without what is converted between; 18 programs compiled ahead of time for v5e
(libtpu 0.0.52), of which those with a subtraction, a conversion or another operand between, with other groups or with
another user of one sum keep both.
"""

from __future__ import annotations

from tpusim.compiler.devices.kinds import kind_of
from tpusim.compiler.kernels.places import BEFORE
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.semantics.combining import sole_opcode


def reassociate(draft: Draft, target: Target) -> None:
    """Add up on each device what is the sum of sums over devices, however many; likewise the largest of maxima."""
    for graph in draft.running():
        # Operands before users: of a tree of additions the innermost first.
        for node in graph.order():
            if len(node.operands) == 2 and _are_alike(draft, node):
                _join(graph, node)


def _are_alike(draft: Draft, node: Node) -> bool:
    """Return whether both operands are sums over devices, for this node alone, of the kind that it is itself."""
    first, second = node.operands
    if first is second or any(list(each.users) != [node] or BEFORE in each.attributes for each in node.operands):
        return False
    kind = kind_of(draft, first)
    return (
        kind is not None
        and kind == kind_of(draft, second)
        and sole_opcode(draft.graphs, first.attributes["to_apply"]) == node.opcode
        and not any(each.is_dynamic for each in node.operands)
    )


def _join(graph: Graph, node: Node) -> None:
    sums = list(node.operands)
    parts = [each.operands[0] for each in sums]
    added = graph.add(node.opcode, parts[0].array, parts, like=node)
    graph.replace(node, graph.add(sums[0].opcode, node.array, [added], sums[0].attributes))
    graph.forget(sums)
    for each in sums:
        each.take([])
