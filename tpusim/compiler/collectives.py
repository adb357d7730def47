"""Pass 11: collectives begin as soon as what they send is there, and end where their result is first used.

Between the two the core goes on with what is ready. The order of kernels stays what it was.

Source: XLA, AsyncCollectiveCreator; LatencyHidingScheduler, by idea.
"""

from __future__ import annotations

from tpusim.compiler.fuse import running
from tpusim.compiler.graph import Draft, Graph, Node
from tpusim.compiler.target import Target
from tpusim.ir.ops import COLLECTIVES, OWN_ASYNC_OPCODES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape


def start_early(draft: Draft, target: Target) -> None:
    """Split every collective of one array that has an asynchronous form into its start and its end."""
    for graph in running(draft):
        order = graph.order()
        found = [node for node in order if _can_be_split(node)]
        starts = {node: _split(graph, node) for node in found}
        if starts:
            graph.sequence = _with_starts(order, starts)


def _can_be_split(node: Node) -> bool:
    has_form = node.opcode in COLLECTIVES & OWN_ASYNC_OPCODES
    return has_form and len(node.operands) == 1 and isinstance(node.shape, ArrayShape)


def _split(graph: Graph, node: Node) -> Node:
    """Put a start and an end in place of a collective; return the start."""
    start = graph.add(f"{node.opcode}-start", _start_shape(node), node.operands, node.attributes)
    done = graph.add(f"{node.opcode}-done", node.shape, [start], like=node)
    graph.replace(node, done)
    for gone in (node, start, done):
        graph.effects = [effect for effect in graph.effects if effect is not gone]
    node.take([])
    return start


def _start_shape(node: Node) -> Shape:
    # The start of a reduction has the shape of its result alone.
    return node.shape if "to_apply" in node.attributes else TupleShape((node.operands[0].shape, node.shape))


def _with_starts(order: list[Node], starts: dict[Node, Node]) -> list[Node]:
    """Return an order with each start right behind what it sends; ends are left to stand before their first users."""
    behind: dict[Node | None, list[Node]] = {}
    for start in starts.values():
        behind.setdefault(start.operands[0], []).append(start)
    found: list[Node] = []
    for node in order:
        if node not in starts:
            found += [node, *behind.get(node, ())]
    return found
