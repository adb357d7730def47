"""Pass 9: the kernels get an order, the one of two in which the fewest bytes live at once.

One goes from the result to what it is made of, first operands first. The other takes of all kernels that could run next
the one that frees most, and of equal ones the first; where as many bytes live it is the one.

Source: XLA, DefaultModuleScheduler: DFSMemoryScheduler and ListMemoryScheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import TypeAlias

from tpusim.compiler.channels import earlier_ends, ends_of, put_behind
from tpusim.compiler.kernels.kept import given_away
from tpusim.compiler.kernels.places import BEFORE, is_made_for, let_wait, results_of, waits
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import FREE, VIEWS
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import Shape, TupleShape


def schedule(draft: Draft, target: Target) -> None:
    """Give every computation that runs as a part of the program the better of the two orders, the second if it is."""
    for graph, ends in ends_of(draft).items():
        memory, earlier = _Memory(graph, _given_bytes(draft, graph)), earlier_ends(ends)
        for node, before in waits(draft, memory.nodes).items():
            earlier.setdefault(node, []).extend(before)
        orders = (put_behind(order, earlier) for order in (_ListOrder(memory).run(), memory.nodes))
        graph.sequence = min(orders, key=memory.peak_bytes)
    draft.attributes["is_scheduled"] = True


def follow_what_is_stated(draft: Draft) -> None:
    """Let what nodes are to come behind stand before them in a draft that is written before it has its order.

    A fusion waits for what one in it was to wait for; what is no longer there is named no more.
    """
    wanted = {graph: waits(draft, graph.order()) for graph in draft.reachable()}
    draft.drop(BEFORE)
    for graph, earlier in wanted.items():
        if earlier:
            graph.sequence = put_behind(graph.order(), earlier)
            place = {node: at for at, node in enumerate(graph.sequence)}
            for node, ones in earlier.items():
                let_wait(node, [one for one in ones if place[one] < place[node]])


_Buffer: TypeAlias = "tuple[Node, int]"
"""What a node makes: an array, or an element of a tuple by its number."""


def _given_bytes(draft: Draft, graph: Graph) -> Counter[_Buffer]:
    """Return how much of what nodes make lies in arguments that are given away: that takes no other memory."""
    found = Counter[_Buffer]()
    if graph is not draft.entry:
        return found
    results = results_of(graph)
    for result in (results[at] for at in given_away(draft)[0] if at < len(results)):
        made = result.source
        is_element = made.opcode == "get-tuple-element"
        buffer = (made.operands[0].source, made.attributes["index"]) if is_element else (made, 0)
        found[buffer] += physical_bytes(result.shape)
    return found


class _Memory:
    """What the nodes of a graph make and keep: the bytes of each result, and which of them a node reads.

    Of those that lie elsewhere, as ``given`` says, so much takes none. A sum over devices lies where what it sums did.
    """

    def __init__(self, graph: Graph, given: Mapping[_Buffer, int]) -> None:
        self.nodes = graph.order()
        self.root = graph.root
        self.place = {node: number for number, node in enumerate(self.nodes)}
        self._graph = graph
        # By node what its parts lie in: an array is one, a tuple has one for each element.
        self._parts: dict[Node, tuple[tuple[_Buffer, ...], ...]] = {}
        self.holds: dict[Node, tuple[_Buffer, ...]] = {}
        self.bytes_of: dict[_Buffer, int] = {}
        self.reads: dict[Node, tuple[_Buffer, ...]] = {}
        for node in self.nodes:
            parts = self._named(node)
            is_name = parts is not None
            if parts is None:
                made = {(node, at): _made_bytes(node, shape) for at, shape in enumerate(_elements(node.shape))}
                self.bytes_of.update({buffer: max(0, size - given.get(buffer, 0)) for buffer, size in made.items()})
                parts = tuple([(buffer,) for buffer in made])
            self._parts[node] = parts
            self.holds[node] = tuple(dict.fromkeys(chain.from_iterable(parts)))
            read = () if is_name else chain.from_iterable(self.holds[operand] for operand in node.operands)
            # A name of what lies somewhere reads nothing: who takes it by that name does.
            self.reads[node] = tuple(dict.fromkeys(read))
        self.uses = Counter(held for node in self.nodes for held in self.reads[node])
        self.uses.update(self.holds[graph.root])
        # What nobody reads takes no memory that another could have.
        self.n_bytes = {
            node: sum(self.bytes_of[held] for held in self.holds[node] if held[0] is node and self.uses[held])
            for node in self.nodes
        }

    def _named(self, node: Node) -> tuple[tuple[_Buffer, ...], ...] | None:
        """Return where the parts of a node lie if it makes none: what a tuple is made of lives as long as the tuple."""
        if node.opcode in VIEWS:
            return self._parts[node.operands[0]]
        if node.opcode == "get-tuple-element":
            taken = self._parts[node.operands[0]][node.attributes["index"]]
            # All elements of a tuple in a tuple live as long as one of them.
            return tuple([taken for _ in _elements(node.shape)])
        if node.opcode == "tuple" or _is_sum_in_place(self._graph, node):
            return tuple([self.holds[operand] for operand in node.operands])
        return None

    def peak_bytes(self, sequence: Sequence[Node]) -> int:
        """Return the most bytes that live at once, arguments left out."""
        left, live, peak = self.uses.copy(), 0, 0
        for node in sequence:
            live += self.n_bytes[node]
            peak = max(peak, live)
            for held in self.reads[node]:
                left[held] -= 1
                live -= 0 if left[held] else self.bytes_of[held]
        return peak


class _ListOrder:
    """The order that takes next, of all nodes whose operands there are, the one that frees most."""

    def __init__(self, memory: _Memory) -> None:
        self.memory = memory
        self.left = memory.uses.copy()
        self.waiting = {node: len(dict.fromkeys(node.operands)) for node in memory.nodes}
        self.readers: dict[_Buffer, list[Node]] = {}
        for node in memory.nodes:
            for held in memory.reads[node]:
                self.readers.setdefault(held, []).append(node)
        self.ready: list[tuple[int, int, Node]] = []

    def run(self) -> list[Node]:
        """Return the nodes in that order."""
        done: dict[Node, None] = {}
        self._offer(node for node in self.memory.nodes if not self.waiting[node])
        while self.ready:
            cost, _, node = heappop(self.ready)
            # What has become cheaper since was offered again.
            if node not in done and cost == self._cost(node):
                done[node] = None
                self._offer(user for user in self._take(node) if user not in done and not self.waiting[user])
        return list(done)

    def _offer(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            heappush(self.ready, (self._cost(node), self.memory.place[node], node))

    def _cost(self, node: Node) -> int:
        """Return the bytes that a node makes, less those that it frees as the last one that reads them."""
        memory = self.memory
        freed = sum(memory.bytes_of[held] for held in memory.reads[node] if self.left[held] == 1)
        return memory.n_bytes[node] - freed

    def _take(self, node: Node) -> Iterable[Node]:
        """Let a node run; return those that may have become ready or cheaper, each once."""
        changed = []
        for held in self.memory.reads[node]:
            self.left[held] -= 1
            changed += self.readers[held] if self.left[held] == 1 else []
        for user in (user for user in node.users if user in self.waiting):
            self.waiting[user] -= 1
            changed.append(user)
        return dict.fromkeys(changed)


def _is_sum_in_place(graph: Graph, node: Node) -> bool:
    return node.opcode == "all-reduce" and all(is_made_for(graph, node, at) for at in range(len(node.operands)))


def _elements(shape: Shape) -> tuple[Shape, ...]:
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def _made_bytes(node: Node, shape: Shape) -> int:
    return 0 if node.opcode in FREE else physical_bytes(shape)
