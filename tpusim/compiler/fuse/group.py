"""A kernel that is being made: the nodes that become it, and over which stretch of the order it goes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tpusim.draft import Node
from tpusim.ir.ops import PRODUCTS
from tpusim.shapes.shape import ArrayShape

LOOPS_OVER = {"custom-call": 0, "dynamic-update-slice": 1, "reduce": 0}
"""Opcodes whose loop goes over one of their operands, with its number."""


class Group:
    """Nodes that become one kernel.

    ``number`` is where the last of them stands in the order of the graph, ``earliest`` where the first output does.
    """

    __slots__ = ("earliest", "made", "nodes", "number", "outputs", "product", "reads", "space", "targets")

    def __init__(self, node: Node, number: int) -> None:
        self.nodes: dict[Node, None] = {}
        # What its nodes use, and what they update in place.
        self.reads: set[Node] = set()
        self.targets: set[Node] = set()
        self.outputs: dict[Node, None] = {}
        # The opcodes of its outputs.
        self.made: set[str] = set()
        self.number = self.earliest = number
        self.product: Node | None = None
        # The sizes that its loop goes over: those that a reduction takes in, of what is put in, or of the result.
        self.space = elements_of(node.operands[LOOPS_OVER[node.opcode]] if node.opcode in LOOPS_OVER else node)

    def uses(self, node: Node) -> bool:
        """Return whether something in this kernel uses a node."""
        return node in self.reads

    def join(self, node: Node) -> None:
        """Make a node in this kernel."""
        self.nodes[node] = None
        self.reads.update(node.operands)
        if node.opcode == "dynamic-update-slice":
            self.targets.add(node.operands[0])
        # Another one may feed it: what is stored is of the first that joins.
        if node.opcode in PRODUCTS and self.product is None:
            self.product = node

    def drop(self, node: Node) -> list[Node]:
        """Read a node of this kernel instead of making it, and return it with all that was made for it alone."""
        self.outputs.pop(node, None)
        dropped, todo = [], [node]
        while todo:
            one = todo.pop()
            del self.nodes[one]
            dropped.append(one)
            unused = [each for each in dict.fromkeys(one.operands) if self.nodes.keys().isdisjoint(each.users)]
            self.reads.difference_update(unused)
            todo += [each for each in unused if each in self.nodes and each not in self.outputs]
        return dropped

    def leave(self, node: Node, number: int) -> None:
        """Let a node of this kernel, which stands at a number, be one of its results."""
        self.outputs[node] = None
        self.earliest = min(self.earliest, number)
        self.made.add(node.opcode)


def elements_of(node: Node) -> tuple[int, ...]:
    """Return the sizes of a node's array, those of 1 left out."""
    return tuple(size for size in node.array.dimensions if size != 1) if isinstance(node.shape, ArrayShape) else ()


class Spans:
    """The stretches of a graph's order that single kernels go over, joined where they meet.

    Nodes need earlier ones only, but kernels may be led to earlier kernels, within a stretch.
    """

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        """Enter a kernel that goes from one number to another."""
        if low == high:
            return
        first, end = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if first < end:
            low, high = min(low, self._lows[first]), max(high, self._highs[end - 1])
        self._lows[first:end], self._highs[first:end] = [low], [high]

    def of(self, number: int) -> tuple[int, int]:
        """Return the first and last number of the stretch that a number is in."""
        at = bisect_left(self._highs, number)
        if at == len(self._highs) or self._lows[at] > number:
            return number, number
        return self._lows[at], self._highs[at]
