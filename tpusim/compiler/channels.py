"""Sends and receives in an order in which no device waits for ever: a receive, its send, and only then the wait for it.

All devices run one order. In it a wait is for what another device does earlier, so that of all waits the earliest ends;
where a recv-done came before the send of its channel, the devices of a ring would all wait for each other.

Source: XLA, Operation Semantics, Scheduling of channel instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, TRANSFER_DONES, TRANSFERS

Ends: TypeAlias = "dict[int, dict[str, list[Node]]]"
"""By channel and opcode the nodes of a graph that are an end of it, or run one."""

_OPCODES = TRANSFERS | TRANSFER_DONES


def ends_of(draft: Draft) -> dict[Graph, Ends]:
    """Return the ends of channels in every graph that runs as a part of the program.

    A loop or a branch stands for what it runs, but for what meets in there.
    """
    found: dict[Graph, Ends] = {}
    for graph in draft.running():
        ends: Ends = {}
        for node in graph.order():
            for channel, opcode in _ends_at(node, draft, found):
                ends.setdefault(channel, {}).setdefault(opcode, []).append(node)
        found[graph] = ends
    return found


def _ends_at(node: Node, draft: Draft, found: Mapping[Graph, Ends]) -> Iterator[tuple[int, str]]:
    """Yield the channels and the opcodes that a node runs, each once."""
    if node.opcode in CONTROL_FLOW:
        inner = [found[draft.graphs[name]] for name in node.called]
        opened = ((channel, opcode) for ends in inner for channel in ends for opcode in _open(ends[channel]))
        yield from dict.fromkeys(opened)
    # What the host sends waits for nothing here.
    elif node.opcode in _OPCODES and "channel_id" in node.attributes and not node.attributes.get("is_host_transfer"):
        yield node.attributes["channel_id"], node.opcode


def _open(ends: Mapping[str, Sequence[Node]]) -> Iterable[str]:
    """Return the opcodes of what one channel has in a graph and what others outside meet: waits for their starts."""
    if not ends.keys() >= TRANSFERS or "recv-done" not in ends:
        return ends
    starts = set(ends["recv"])
    return ("recv-done",) if any(starts.isdisjoint(wait.operands) for wait in ends["recv-done"]) else ()


def earlier_ends(ends: Ends) -> dict[Node, list[Node]]:
    """Return by node which other ends of its channel come before it: of several messages each in its turn."""
    found: dict[Node, list[Node]] = {}
    for by_opcode in ends.values():
        receives, sends = by_opcode.get("recv", []), by_opcode.get("send", [])
        pairs = [*pairwise(receives), *pairwise(sends), *zip(receives, sends, strict=False)]
        pairs += _before_waits(sends, receives, by_opcode.get("recv-done", []))
        for earlier, later in pairs:
            if earlier is not later:
                found.setdefault(later, []).append(earlier)
    return found


def _before_waits(
    sends: Sequence[Node], receives: Sequence[Node], waits: Iterable[Node]
) -> Iterator[tuple[Node, Node]]:
    """Yield the send of each message, and what waits for its end."""
    turn = {receive: number for number, receive in enumerate(receives)}
    for number, wait in enumerate(waits):
        at = turn.get(wait.operands[0], number) if wait.operands else number
        if at < len(sends):
            yield sends[at], wait


def put_behind(nodes: Sequence[Node], earlier: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Return an order with each node behind those that are to be ``earlier``, otherwise as it was.

    Where what is earlier needs the node itself, as in a chain of devices that pass on what they were given, the node
    comes first.
    """
    return _Behind(nodes, earlier).run() if earlier else list(nodes)


class _Behind:
    """Nodes that wait for their operands, and are held until what is to be earlier has come or nothing else can."""

    def __init__(self, nodes: Sequence[Node], earlier: Mapping[Node, Sequence[Node]]) -> None:
        self.nodes = nodes
        self.place = {node: number for number, node in enumerate(nodes)}
        needed = {node: dict.fromkeys(node.operands) for node in nodes}
        before = {node: dict.fromkeys(earlier.get(node, ())) for node in nodes}
        self.missing = {node: len(found) for node, found in needed.items()}
        self.held = {node: len(found) for node, found in before.items()}
        self.users, self.holds = _turned(needed), _turned(before)
        self.ready: list[tuple[bool, int]] = []

    def run(self) -> list[Node]:
        """Return the nodes in their order."""
        for node in self.nodes:
            self._offer(node)
        done: dict[Node, None] = {}
        while self.ready:
            node = self.nodes[heappop(self.ready)[1]]
            # What is held no longer was offered again.
            if node not in done:
                done[node] = None
                self._take(node)
        return list(done)

    def _offer(self, node: Node) -> None:
        if not self.missing[node]:
            heappush(self.ready, (self.held[node] > 0, self.place[node]))

    def _take(self, node: Node) -> None:
        """Let a node come; offer those that can come now, or are held no longer."""
        for counts, waiting in ((self.missing, self.users), (self.held, self.holds)):
            for other in waiting.get(node, ()):
                counts[other] -= 1
                if not counts[other]:
                    self._offer(other)


def _turned(found: Mapping[Node, Iterable[Node]]) -> dict[Node, list[Node]]:
    """Return by node those that it was found for."""
    turned: dict[Node, list[Node]] = {}
    for node, others in found.items():
        for other in others:
            turned.setdefault(other, []).append(node)
    return turned
