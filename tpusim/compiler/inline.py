"""Pass 1: calls are replaced by what they call.

A front end calls a function that it traced once from several places; each place gets a copy of its own. Computations
that are applied to elements (of a reduction, a sort) stay what they are, and so do loops and branches.

Source: XLA, CallInliner.
"""

from __future__ import annotations

from tpusim.compiler.target import Target
from tpusim.draft import Draft
from tpusim.errors import UnsupportedError
from tpusim.limits import INLINED


def inline(draft: Draft, target: Target) -> None:
    """Replace every ``call`` by a copy of the computation that it calls.

    Raises UnsupportedError where calls of calls would make a computation too long.
    """
    sizes: dict[str, int] = {}
    # Callees come first, so that what is copied has no calls any more.
    for graph in draft.reachable():
        nodes = graph.order()
        calls = {node: node.attributes["to_apply"] for node in nodes if node.opcode == "call"}
        inlined = sum(sizes[name] for name in calls.values())
        sizes[graph.name] = len(nodes) + inlined
        if fault := INLINED.fault(inlined):
            raise UnsupportedError(f"{graph.name}: its calls have calls: {fault}")
        for node, name in calls.items():
            graph.replace(node, graph.copy_in(draft.graphs[name], node.operands))
