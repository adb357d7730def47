"""An order of a graph in which what writes over an array stands behind what reads it, as far as that can be.

In which order a graph names what it returns says nothing of when that is made. Where two each write over what the other
reads, one has to be copied: the smaller one. Source: of ten programs, seven of them with their results in two orders,
libtpu 0.0.52 copies the large array in none: a row written into an argument, or into a product, that is also summed up
or read from, once or in a loop, and into what a loop carries. Of two it does (a row written into what an elementwise
kernel has made, of which another is read), which is not followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush

from tpusim.compiler.kernels.kept import Kept
from tpusim.compiler.kernels.places import Home, Order, Place, handed, has_place, home_of, waits, writers_of
from tpusim.draft import Graph, Node
from tpusim.shapes.address import logical_bytes
from tpusim.shapes.shape import TupleShape


def put_writers_behind(order: Order, kept: Kept, graph: Graph, places: Iterable[Place]) -> None:
    """Number the nodes of a graph anew; ``places`` are those that its results come to lie at."""
    # One that has a schedule keeps it.
    if graph.sequence:
        return
    written = _written(order, kept, graph, places)
    if written:
        order.renumber(graph, _Turns(order, graph, written).run())


def _written(order: Order, kept: Kept, graph: Graph, places: Iterable[Place]) -> dict[Node, set[Home]]:
    """Return by node the arrays that it may write over: not those that stay as they are whatever reads them."""
    found: dict[Node, set[Home]] = defaultdict(set)
    for node in order.of(graph):
        over = _written_over(order, graph, node)
        for home in {home_of(order, array) for array in over if has_place(array)}:
            if home.node.opcode != "constant" and not kept.is_callers(graph, home):
                found[node].add(home)
    for place in places:
        if has_place(place.made) and home_of(order, place.made) != place.given:
            found[writers_of(order, place.made, place.given)[0][-1].node].add(place.given)
    return found


def _written_over(order: Order, graph: Graph, node: Node) -> list[Node]:
    if node.opcode == "conditional":
        # Which arrays branches write over is asked later; those of an entry wait for nothing.
        return [] if graph is order.draft.entry else handed(node)
    return order.updated(node)


class _Turns:
    """Takes the nodes of a graph one by one: in their order, but writers not before their arrays have been read."""

    def __init__(self, order: Order, graph: Graph, written: dict[Node, set[Home]]) -> None:
        self._number, self._root = order.of(graph), graph.root
        behind = waits(order.draft, list(self._number))
        self._needs = {node: {*node.operands, *behind.get(node, ())} for node in self._number}
        self._users: dict[Node, list[Node]] = defaultdict(list)
        for node, needs in self._needs.items():
            for need in needs:
                self._users[need].append(node)
        # What is still to come: by array those that read it, and by writer the arrays that others read.
        homes = set[Home]().union(*written.values())
        self._readers = {home: set(order.readers(graph, home)) for home in homes}
        self._unread = {node: {home for home in own if self._readers[home] - {node}} for node, own in written.items()}
        self._reads: dict[Node, list[Home]] = defaultdict(list)
        for home, readers in self._readers.items():
            for reader in readers:
                self._reads[reader].append(home)
        self._writers: dict[Home, list[Node]] = defaultdict(list)
        for node, own in self._unread.items():
            for home in own:
                self._writers[home].append(node)
        self._free: list[tuple[float, Node]] = []
        self._held: list[tuple[int, float, Node]] = []

    def run(self) -> list[Node]:
        """Return all nodes, each behind what it needs."""
        for node in [node for node, needs in self._needs.items() if not needs]:
            self._enter(node)
        taken: dict[Node, None] = {}
        # What is returned is what is there at the end, whatever else runs for its effect.
        root = self._root if not self._users.get(self._root) else None
        while self._free or self._held:
            # Where all write over what others still have to read, the one of which a copy costs least.
            node = heappop(self._free)[-1] if self._free else heappop(self._held)[-1]
            if node not in taken and node is not root:
                taken[node] = None
                self._take(node)
        return [*taken, root] if root is not None else list(taken)

    def _enter(self, node: Node) -> None:
        """Let a node come whose needs have."""
        unread = self._unread.get(node)
        if unread:
            heappush(self._held, (sum(map(_bytes_of, unread)), self._number[node], node))
        else:
            heappush(self._free, (self._number[node], node))

    def _take(self, node: Node) -> None:
        for user in self._users.get(node, ()):
            self._needs[user].discard(node)
            if not self._needs[user]:
                self._enter(user)
        for home in self._reads.get(node, ()):
            left = self._readers[home]
            left.discard(node)
            if len(left) < 2:
                # The last that reads an array may write over it.
                for writer in left or self._writers[home]:
                    self._let(writer, home)

    def _let(self, writer: Node, home: Home) -> None:
        """Note that nothing but itself reads an array any more that a node writes over."""
        unread = self._unread.get(writer, set())
        if home in unread:
            unread.discard(home)
            if not unread and not self._needs[writer]:
                self._enter(writer)


def _bytes_of(home: Home) -> int:
    shape = home.node.shape
    if home.at is not None and isinstance(shape, TupleShape):
        shape = shape.elements[home.at]
    return logical_bytes(shape)
