"""Pass 1: calls are replaced by what they call.

A front end calls a function that it traced once from several places; each place gets a copy of its own. Computations
that are applied to elements (of a reduction, a sort) stay what they are, and so do loops and branches.

Source: XLA, CallInliner.
"""

from __future__ import annotations

from tpusim.compiler.target import Target
from tpusim.draft import Draft


def inline(draft: Draft, target: Target) -> None:
    """Replace every ``call`` by a copy of the computation that it calls."""
    # Callees come first, so that what is copied has no calls any more.
    for graph in draft.reachable():
        for node in graph.order():
            if node.opcode == "call":
                graph.replace(node, graph.copy_in(draft.graphs[node.attributes["to_apply"]], node.operands))
