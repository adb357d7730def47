"""Part of pass 2: a conditional that has one branch, or whose choice is known, is that branch.

Source: XLA, ConditionalSimplifier.
"""

from __future__ import annotations

from tpusim.compiler.kernels.places import BEFORE
from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.semantics.infer.control import branches
from tpusim.semantics.scalars import literal_number


@simplifies("conditional")
def _chosen(graph: Graph, node: Node) -> Node | None:
    selector, *given = node.operands
    names = branches(node.attributes)
    number = literal_number(selector.immediate) if selector.opcode == "constant" else None
    # What waits for others is to come behind them all at once.
    if (number is None and len(names) > 1) or BEFORE in node.attributes:
        return None
    if number is None or selector.array.dtype.is_pred:
        at = int(number is not None and not number)
    else:
        # Any other number is the last branch's.
        at = int(number) if 0 <= number < len(names) else len(names) - 1
    graph.forget([node])
    return graph.copy_in(graph.draft.graphs[names[at]], [given[at]])
