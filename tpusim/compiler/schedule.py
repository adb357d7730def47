"""Pass 9: the kernels get an order, the one of two in which the fewest bytes live at once.

One goes from the result to what it is made of, first operands first. The other takes of all kernels that could run next
the one that frees most, and of equal ones the first; where as many bytes live it is the one.

Source: XLA, DefaultModuleScheduler: DFSMemoryScheduler and ListMemoryScheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from tpusim.compiler.channels import earlier_ends, ends_of, put_behind
from tpusim.compiler.kernels.kept import given_away
from tpusim.compiler.kernels.places import BEFORE, is_made_for, let_wait, results_of, waits
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import FREE, VIEWS
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


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


def _given_bytes(draft: Draft, graph: Graph) -> Counter[Node]:
    """Return by node how much of what it makes lies in arguments that are given away: that takes no other memory."""
    found = Counter[Node]()
    if graph is not draft.entry:
        return found
    results = results_of(graph)
    for result in (results[at] for at in given_away(draft)[0] if at < len(results)):
        made = result.source
        found[made.operands[0].source if made.opcode == "get-tuple-element" else made] += physical_bytes(result.shape)
    return found


class _Memory:
    """What the nodes of a graph make and keep: by node the bytes of its result and the results that it reads.

    Of those that lie elsewhere, as ``given`` says, so much takes none. A sum over devices lies where what it sums did.
    """

    def __init__(self, graph: Graph, given: Mapping[Node, int]) -> None:
        self.nodes = graph.order()
        self.root = graph.root
        self.place = {node: number for number, node in enumerate(self.nodes)}
        # A view is its operand under another name; what a tuple is made of lives as long as the tuple.
        self.holds: dict[Node, tuple[Node, ...]] = {}
        self.n_bytes: dict[Node, int] = {}
        for node in self.nodes:
            names_others = node.opcode in VIEWS or node.opcode == "tuple" or _is_sum_in_place(graph, node)
            behind = [held for operand in node.operands for held in self.holds[operand]] if names_others else [node]
            self.holds[node] = tuple(dict.fromkeys(behind))
            made = 0 if node.opcode in FREE or names_others else _made_bytes(node)
            self.n_bytes[node] = max(0, made - given.get(node, 0))
        self.reads = {
            node: tuple(dict.fromkeys(held for operand in node.operands for held in self.holds[operand]))
            for node in self.nodes
        }
        self.uses = Counter(held for node in self.nodes for held in self.reads[node])
        self.uses.update(self.holds[graph.root])

    def peak_bytes(self, sequence: Sequence[Node]) -> int:
        """Return the most bytes that live at once, arguments left out."""
        left, live, peak = self.uses.copy(), 0, 0
        for node in sequence:
            live += self.n_bytes[node]
            peak = max(peak, live)
            for held in self.reads[node]:
                left[held] -= 1
                live -= 0 if left[held] else self.n_bytes[held]
        return peak


class _ListOrder:
    """The order that takes next, of all nodes whose operands there are, the one that frees most."""

    def __init__(self, memory: _Memory) -> None:
        self.memory = memory
        self.left = memory.uses.copy()
        self.waiting = {node: len(dict.fromkeys(node.operands)) for node in memory.nodes}
        self.readers: dict[Node, list[Node]] = {}
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
        n_bytes = self.memory.n_bytes
        return n_bytes[node] - sum(n_bytes[held] for held in self.memory.reads[node] if self.left[held] == 1)

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


def _made_bytes(node: Node) -> int:
    return physical_bytes(node.shape) if isinstance(node.shape, ArrayShape) or node.opcode not in FREE else 0
