"""Part of pass 2: one node stands for all that compute the same of the same operands.

What they run may have other names: loops over the same are one, and branches. What does something besides computing is
never the same as another, nor is what runs it; but of collectives of the same array one is enough, on whatever channel.

Source: XLA, HloCSE, which compares what is called by what it says; programs compiled ahead of time for v5e, of equal
all-reduces, all-gathers and permutes on channels of their own.
"""

from __future__ import annotations

from typing import Any

from tpusim.draft import Graph, Node
from tpusim.ir.attributes import ComputationName
from tpusim.ir.module import Literal
from tpusim.ir.ops import CALLS, COLLECTIVES

_ABOUT = frozenset({"metadata", "frontend_attributes", "origin"})
"""Attributes that say where a node comes from, not what it computes."""

_CHANNEL = "channel_id"


class Alike:
    """Which computations say the same, of those that have been entered: each after what it calls."""

    def __init__(self) -> None:
        self._first: dict[object, ComputationName] = {}
        self._stands_for: dict[str, ComputationName] = {}

    def enter(self, graph: Graph) -> None:
        """Look what a computation says, and whether another one said it before."""
        nodes = graph.order()
        if graph.effects or graph.callers or any(map(is_elided, nodes)):
            return
        numbers = {node: number for number, node in enumerate(nodes)}
        said = tuple(
            (node.opcode, node.shape, tuple(numbers[operand] for operand in node.operands), self.said(node))
            for node in nodes
        )
        key = graph.execution_thread, numbers[graph.root], said
        self._stands_for[graph.name] = self._first.setdefault(key, ComputationName(graph.name))

    def share(self, graph: Graph) -> None:
        """Let a graph apply one computation to elements in place of all that say the same.

        Loops and branches keep those of their own: what they hand over may lie elsewhere than another's.
        """
        for node in graph.order():
            if node.opcode not in CALLS and any(name in self._stands_for for name in node.called):
                node.attributes = {key: self._first_of(value) for key, value in node.attributes.items()}

    def said(self, node: Node) -> tuple[object, ...]:
        """Return what a node says besides its operands, as far as it matters for what it computes."""
        text = node.immediate.text if isinstance(node.immediate, Literal) else node.immediate
        # That a collective has a channel says what its groups count; which one it is only where its devices meet.
        known = (
            (key, value if key != _CHANNEL else True) for key, value in node.attributes.items() if key not in _ABOUT
        )
        return text, *((key, repr(self._first_of(value))) for key, value in known)

    def _first_of(self, value: Any) -> Any:
        """Return the value of an attribute with the first of equal computations for each of them."""
        if isinstance(value, tuple) and value and isinstance(value[0], ComputationName):
            return tuple(map(self._first_of, value))
        return self._stands_for.get(value, value) if isinstance(value, ComputationName) else value


def merge_equal(graph: Graph, alike: Alike) -> bool:
    """Let one node stand for all that compute the same of the same operands; return whether there were any."""
    seen: dict[object, Node] = {}
    stands_for: dict[Node, Node] = {}
    for node in graph.order():
        # Once for all of its operands, of which a node may have thousands.
        if stands_for and any(operand in stands_for for operand in node.operands):
            node.take([stands_for.get(operand, operand) for operand in node.operands])
        if node.opcode == "parameter" or (graph.acts(node) and node.opcode not in COLLECTIVES):
            continue
        first = seen.setdefault((node.opcode, node.shape, tuple(map(id, node.operands)), alike.said(node)), node)
        if first is not node and not is_elided(node):
            stands_for[node] = first
    graph.forget(stands_for)
    graph.root = stands_for.get(graph.root, graph.root)
    return bool(stands_for)


def is_elided(node: Node) -> bool:
    """Return whether the text leaves out what a node's numbers are: two of them need not be the same."""
    return isinstance(node.immediate, Literal) and node.immediate.elided
