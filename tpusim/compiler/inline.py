"""Pass 1: calls are replaced by what they call.

A front end calls a function that it traced once from several places; each place gets a copy of its own. Computations
that are applied to elements (of a reduction, a sort) stay what they are, and so do loops and branches.

Source: XLA, CallInliner.
"""

from __future__ import annotations

from tpusim.compiler.graph import Draft, Graph, Node
from tpusim.compiler.target import Target


def inline(draft: Draft, target: Target) -> None:
    """Replace every ``call`` by a copy of the computation that it calls."""
    # Callees come first, so that what is copied has no calls any more.
    for graph in draft.reachable():
        for node in graph.order():
            if node.opcode == "call":
                graph.replace(node, copy_of(graph, draft.graphs[node.attributes["to_apply"]], node.operands))


def copy_of(graph: Graph, called: Graph, operands: list[Node]) -> Node:
    """Return the result of a copy of ``called`` inside ``graph``, with these operands for its parameters."""
    made = dict(zip(called.parameters, operands, strict=True))
    for node in called.order():
        if node not in made:
            made[node] = graph.clone(node, [made[operand] for operand in node.operands])
    return made[called.root]
