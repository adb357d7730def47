"""Both ends of what runs beside the core. Each end has a short form and a long one, and they need not have the same."""

from __future__ import annotations

from tpusim.draft import Graph, Node
from tpusim.ir.attributes import SliceDimension
from tpusim.ir.ops import async_parts, async_phase


def begun(node: Node) -> tuple[Node, list[Node]]:
    """Return the start that an update or a done goes on with, and all operands, those that came with updates too."""
    start, late = node, list[Node]()
    while async_phase(start.opcode) != "start":
        # What comes with an update comes behind the operands of the start.
        start, *more = start.operands
        late = more + late
    return start, [*start.operands, *late]


def sliced(graph: Graph, node: Node) -> tuple[Node, tuple[SliceDimension, ...]] | None:
    """Return of what array, and which part, an asynchronous slice is whose end a node is; None for any other."""
    if async_phase(node.opcode) != "done":
        return None
    start, operands = begun(node)
    short = async_parts(start.opcode)
    if short:
        return (operands[0], start.attributes["slice"]) if short[0] == "slice" else None
    called = graph.draft.graphs[start.attributes["calls"]]
    is_slice = called.root.opcode == "slice" and called.root.operands == called.parameters
    return (operands[0], called.root.attributes["slice"]) if is_slice else None
