"""Part of pass 2: rules for what devices exchange and then make bf16 of: it crosses the links as bf16.

What only moves elements may stand between the two, as often as it likes; what computes may not. Values stay bit for
bit: an element is rounded once, wherever that is.

Source: XLA, BFloat16Propagation, for f32 and bf16, which it is about; programs compiled ahead of time, in which neither
f16 nor any integer does this, nor are sums sent so.
"""

from __future__ import annotations

from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.ir.ops import REARRANGES
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape

_WIDE, _NARROW = DTYPES["f32"], DTYPES["bf16"]


@simplifies("all-gather", "all-to-all", "collective-permute")
def _sent_narrow(graph: Graph, node: Node) -> Node | None:
    """What is sent only to become bf16 elsewhere becomes it before it is sent."""
    moving = _moving(graph, node)
    for one in moving:
        one.shape = ArrayShape(_NARROW, one.array.dimensions)
    for one in moving:
        one.take([_converted(graph, each, one) if _is_wide(each) else each for each in one.operands])
    return node if moving else None


def _converted(graph: Graph, node: Node, like: Node) -> Node:
    return graph.add("convert", ArrayShape(_NARROW, node.array.dimensions), [node], like=like)


def _is_wide(node: Node) -> bool:
    return isinstance(node.shape, ArrayShape) and node.shape.dtype == _WIDE


def _moving(graph: Graph, node: Node) -> list[Node]:
    """Return a collective and what moves the elements of its result; nothing if f32 is needed of any of them.

    They stay the nodes that they are: others may name them, to run behind them.
    """
    if not _is_wide(node) or len(node.operands) > 1:
        return []
    found, todo = {node: None}, [node]
    while todo:
        one = todo.pop()
        if one is graph.root or not one.users or one.is_dynamic:
            return []
        movers = [user for user in one.users if user.opcode in REARRANGES]
        if any(user.opcode != "convert" or user.array.dtype != _NARROW for user in one.users if user not in movers):
            return []
        todo += [user for user in movers if user not in found]
        found |= dict.fromkeys(movers)
    return list(found)
