"""After the order is chosen: what is moved to and from host memory moves beside the core.

A move begins as soon as what it moves is there, and ends where it is first needed. Of those that come in so many are
under way at once as ``MOST_UNDER_WAY`` says: each takes room on the device from then on.

Source: XLA, HostOffloader, and programs compiled ahead of time for v5e, in which slices of and updates in what lies in
host memory are asynchronous as well, and of eight arguments five are on their way before the first has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tpusim.compiler.host.held import Held, is_to_device, is_to_host
from tpusim.compiler.kernels.places import waits
from tpusim.compiler.place.spaces import in_space, set_spaces
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import FREE
from tpusim.semantics.infer.types import U32
from tpusim.shapes.layout import HOST_SPACE, SYNC_FLAG_SPACE
from tpusim.shapes.shape import TupleShape

MOST_UNDER_WAY = 5


def is_on_host(node: Node) -> bool:
    """Return whether a part of an array in host memory is written or read, which no kernel does."""
    if node.opcode == "dynamic-update-slice":
        return is_to_host(node.operands[1])
    return node.opcode == "dynamic-slice" and any(is_to_device(user) for user in node.users)


def start_moves(draft: Draft, target: Target) -> None:
    """State what lies in host memory, and split every move to and from it into its start and its end."""
    held = Held(draft, with_copies=True)
    if held.is_empty:
        return
    set_spaces(draft, held.parts, held.has, HOST_SPACE)
    for graph in draft.running():
        _Moves(graph, draft).run()


class _Move(NamedTuple):
    """What stands for a node that moves an array: its start, behind number ``begin`` of the order, and its end."""

    begin: int
    start: Node
    end: Node


class _Moves:
    """The moves of one graph, by the nodes in whose place they are."""

    def __init__(self, graph: Graph, draft: Draft) -> None:
        self.graph = graph
        self.order = graph.order()
        self.place = {node: number for number, node in enumerate(self.order)}
        self.earlier = waits(draft, self.order)
        self.moves: dict[Node, _Move] = {}
        # What is a part of a move of another node's, by that node where there is one.
        self.within: dict[Node, Node | None] = {}
        # Where what has come in is first used, and what has been sent.
        self.fetched: list[int] = []
        self.sent: set[Node] = set()

    def run(self) -> None:
        """Split the moves, and let them begin early."""
        for node in self.order:
            self._split(node)
        if not self.moves:
            return
        behind: dict[int, list[Node]] = {}
        for node, move in self.moves.items():
            behind.setdefault(move.begin, []).append(node)
        nodes = self._behind(behind.get(-1, ()))
        for number, node in enumerate(self.order):
            # What only names an array comes before its first user.
            if node not in self.moves and node not in self.within and node.opcode not in FREE:
                nodes += [*self._ends_before(node), node]
            nodes += self._behind(behind.get(number, ()))
        self.graph.sequence = nodes

    def _behind(self, moved: Iterable[Node]) -> list[Node]:
        return [each for node in moved for each in (*self._ends_before(node), self.moves[node].start)]

    def _ends_before(self, node: Node) -> list[Node]:
        """Return the ends of the moves for which a node waits, to write over what they move."""
        found = (self.within.get(one) or one for one in self.earlier.get(node, ()))
        return [self.moves[one].end for one in found if one in self.moves]

    def _split(self, node: Node) -> None:
        """Put a start and an end in place of a node that moves an array, if it does."""
        if node.opcode == "dynamic-update-slice" and is_on_host(node):
            stack, sent, *at = node.operands
            self.moves[node] = self._move(node, "dynamic-update-slice", [stack, sent.operands[0], *at])
        elif is_to_device(node):
            self.moves[node] = self._fetch(node)
        elif is_to_host(node):
            writers = [user for user in node.users if is_on_host(user)]
            if writers and len(writers) == len(node.users):
                # These write it there themselves.
                self.within[node] = writers[0]
                return
            self.moves[node] = self._move(node, "copy", node.operands)
            self.sent.add(self.moves[node].end)

    def _fetch(self, node: Node) -> _Move:
        """Return what stands for a node that brings an array, or a part of one, to the device."""
        (source,) = node.operands
        is_part = source.opcode == "dynamic-slice"
        if is_part:
            self.within[source] = node
        move = self._move(node, *("dynamic-slice", source.operands) if is_part else ("copy", node.operands))
        begin, use = move.begin, self._first_use(move.end)
        if source.source in self.sent:
            # Half of the time for the way there, half for the way back.
            begin = max(begin, (begin + use) // 2)
        if len(self.fetched) >= MOST_UNDER_WAY:
            begin = max(begin, min(use - 1, self.fetched[-MOST_UNDER_WAY]))
        self.fetched.append(use)
        return move._replace(begin=begin)

    def _move(self, node: Node, opcode: str, taken: list[Node]) -> _Move:
        given, flag = TupleShape(tuple(operand.shape for operand in taken)), in_space(U32, SYNC_FLAG_SPACE)
        shape = TupleShape((node.shape, taken[0].shape, flag) if opcode == "copy" else (given, node.shape, flag))
        sizes = {"dynamic_slice_sizes": node.array.dimensions} if opcode == "dynamic-slice" else {}
        start = self.graph.add(f"{opcode}-start", shape, taken, sizes, like=node)
        end = self.graph.add(f"{opcode}-done", node.shape, [start], like=node)
        self.graph.replace(node, end)
        # Where a part lies is worked out in time: the scalar core has little else to do.
        needed = [self._made(one) for one in taken if not one.is_small]
        return _Move(max([-1, *needed, *(self.place[one] for one in self.earlier.get(node, ()))]), start, end)

    def _made(self, node: Node) -> int:
        """Return where in the order an array is there."""
        if node in self.place and node.opcode not in FREE:
            return self.place[node]
        return max((self._made(operand) for operand in node.operands), default=-1)

    def _first_use(self, end: Node) -> int:
        """Return where in the order what has come in is first used."""
        todo, found = [end], [len(self.order) - 1]
        while todo:
            for user in todo.pop().users:
                if user.opcode in FREE:
                    todo.append(user)
                elif user in self.place:
                    found.append(self.place[user])
        return min(found)
