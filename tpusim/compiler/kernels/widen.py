"""Between fusion and tiles: a kernel widens numbers of 16 bits where they come in, and cuts them where they leave.

Nothing is rounded between. Source: programs compiled ahead of time, for chips with and without bf16 in their vector
unit alike; XLA, FloatNormalization and excess precision.
"""

from __future__ import annotations

from msgspec import structs

from tpusim.compiler.layouts.orders import laid_out
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.chip import Chip
from tpusim.ir.ops import ELEMENTWISE, SEES_BITS
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape


def widen(draft: Draft, target: Target) -> None:
    """Let the element-wise operations of every fusion compute in 32 bits."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "fusion":
                _Widening(draft.graphs[node.attributes["calls"]], target.chip).run()


class _Widening:
    """One kernel's body, and what its narrow values are in 32 bits."""

    def __init__(self, graph: Graph, chip: Chip) -> None:
        self.graph = graph
        self.chip = chip
        self.wide: dict[Node, Node] = {}

    def run(self) -> None:
        for node in self.graph.order():
            narrow = any(_is_narrow(each) for each in (node, *node.operands))
            if node.opcode == "convert" and node.array.dtype.name == "f32" and narrow:
                self.graph.replace(node, self._wide(node.operands[0]))
            # What calls a computation on its elements computes as that says.
            elif node.opcode in ELEMENTWISE - SEES_BITS and node.opcode != "convert" and narrow and not node.called:
                self._replace(node)

    def _replace(self, node: Node) -> None:
        made = self.graph.clone(node, [self._wide(operand) for operand in node.operands])
        if not _is_narrow(node):
            self.graph.replace(node, made)
            return
        made.shape = self._widened(node)
        narrow = self.graph.add("convert", node.shape, [made], like=node)
        self.graph.replace(node, narrow)
        self.wide[narrow] = made

    def _wide(self, node: Node) -> Node:
        """Return a value in 32 bits: what it was before it was cut, or converted."""
        if not _is_narrow(node):
            return node
        if node not in self.wide:
            self.wide[node] = self.graph.add("convert", self._widened(node), [node], like=node)
        return self.wide[node]

    def _widened(self, node: Node) -> ArrayShape:
        array = structs.replace(node.array, dtype=DTYPES["f32"])
        return laid_out(array, node.array.actual_layout.minor_to_major, self.chip)


def _is_narrow(node: Node) -> bool:
    return isinstance(node.shape, ArrayShape) and node.shape.dtype.name == "bf16"
