"""A kernel that is being made: the nodes that become it, and over which stretch of the order it goes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tpusim.draft import Node
from tpusim.ir.ops import PRODUCTS
from tpusim.shapes.shape import ArrayShape

LOOPS_OVER = {"custom-call": 0, "dynamic-update-slice": 1, "reduce": 0}
"""Opcodes whose loop goes over one of their operands, with its number."""

_MOST_ARRAYS = 102
"""The most arrays that a kernel reads and leaves. Source: 14 programs compiled ahead of time (libtpu 0.0.52): sums of
arrays, each of which is left or the last alone, chains of 150 and 300 results, and 120 products of one array."""


class Group:
    """Nodes that become one kernel.

    ``number`` is where the last of them stands in the order of the graph, ``earliest`` where the first output does.
    """

    __slots__ = ("earliest", "made", "n_read", "nodes", "number", "outputs", "product", "reads", "space", "targets")

    def __init__(self, node: Node, number: int) -> None:
        self.nodes: dict[Node, None] = {}
        # What its nodes use, and what they update in place.
        self.reads: set[Node] = set()
        self.targets: set[Node] = set()
        # The arrays that it uses and does not make.
        self.n_read = 0
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
        self.n_read += self._more_to_read(node)
        self.nodes[node] = None
        self.reads.update(node.operands)
        if node.opcode == "dynamic-update-slice":
            self.targets.add(node.operands[0])
        # Another one may feed it: what is stored is of the first that joins.
        if node.opcode in PRODUCTS and self.product is None:
            self.product = node

    def has_room_for(self, node: Node, *, is_result: bool = False) -> bool:
        """Return whether it may make a node as well, and leave it as a result: it reads and leaves so many arrays."""
        return self.n_read + self._more_to_read(node) + len(self.outputs) + is_result <= _MOST_ARRAYS

    def has_room_beside(self, other: Group) -> bool:
        """Return whether it may make what another kernel makes as well."""
        n_read = _count_arrays(self.reads | other.reads, self.nodes, other.nodes)
        return n_read + len(self.outputs) + len(other.outputs) <= _MOST_ARRAYS

    def _more_to_read(self, node: Node) -> int:
        """Return how many arrays more it reads if it makes a node as well."""
        others = {one for one in node.operands if not one.is_small} - self.reads
        return len(others) - (node in self.reads and not node.is_small)

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
        self.n_read = _count_arrays(self.reads, self.nodes)
        return dropped

    def merge(self, other: Group) -> None:
        """Make all that another kernel does, and leave all that it leaves."""
        self.nodes.update(other.nodes)
        self.reads |= other.reads
        self.targets |= other.targets
        self.outputs.update(other.outputs)
        self.number = max(self.number, other.number)
        self.earliest = min(self.earliest, other.earliest)
        self.n_read = _count_arrays(self.reads, self.nodes)

    def leave(self, node: Node, number: int) -> None:
        """Let a node of this kernel, which stands at a number, be one of its results."""
        self.outputs[node] = None
        self.earliest = min(self.earliest, number)
        self.made.add(node.opcode)


def _count_arrays(read: set[Node], *made: Iterable[Node]) -> int:
    """Return how many arrays kernels take from others: what the scalar core has is none."""
    return sum(not node.is_small for node in read.difference(*made))


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
