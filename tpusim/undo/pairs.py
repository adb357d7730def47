"""Both ends of what runs beside the core. Each end has a short form and a long one, and they need not have the same."""

from __future__ import annotations

from tpusim.draft import Graph, Node
from tpusim.semantics.aliasing import Cut, cut_at
from tpusim.semantics.aliasing import begun as begun_by


def begun(node: Node) -> tuple[Node, list[Node]]:
    """Return the start that an update or a done goes on with, and all operands, those that came with updates too."""
    return begun_by(node, _operands)


def sliced(graph: Graph, node: Node) -> Cut | None:
    """Return of what array, and which part, an asynchronous slice is whose end a node is; None for any other."""

    def alone_in(name: str) -> Node | None:
        called = graph.draft.graphs[name]
        return called.root if called.root.operands == called.parameters else None

    return cut_at(node, _operands, alone_in)


def _operands(node: Node) -> list[Node]:
    return node.operands
