"""Copies where loops meet what has to lie in HBM: arguments that they take, and what they make for the result.

Where there are no loops, copies of what leaves fast memory for others to have its room. They are there to be chosen:
with one, what the loop carries may lie elsewhere. What stays in HBM needs none. That is so of what a loop makes in
place of an argument that is given away, or for a result that lies there.

Source: of 59 loops compiled ahead of time for v5e (libtpu 0.0.52), 64 KiB to 64 MiB, what is donated and changed in the
loop, or returned in place of that, is in HBM in all 25 of them; elsewhere it is in VMEM. In 46 others an argument that
the loop only reads is in VMEM where the kernels before the loop take as long as the copy, and in HBM where they do not.
What older versions turned before a loop, whose rows it takes, counts as such a kernel, though it is not turned: beside
that they fetched the weights of an LSTM, which the newest leaves in HBM (0.0.52: 3.2 times as slow on v5e).
All of 30 stacks that are returned as ``lax.scan`` fills them, 128 KiB to 128 MiB, are in HBM.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np

from tpusim.compiler.buffers import is_unwritten
from tpusim.compiler.kernels.places import Order
from tpusim.compiler.layouts.loops import rows_of
from tpusim.compiler.place.lives import Home, Lives
from tpusim.draft import Draft, Graph, Node
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


class Border:
    """A copy into what a loop carries or, ``is_after`` it, out of that; of one that ``leaves`` there is no loop.

    What ``is_read`` by the loop and not changed would need no copy.
    """

    __slots__ = ("copy", "graph", "is_after", "is_read", "leaves")

    def __init__(
        self, graph: Graph, operand: Node, *, is_after: bool, is_read: bool = False, leaves: bool = False
    ) -> None:
        self.graph = graph
        self.is_after = is_after
        self.is_read = is_read
        self.leaves = leaves
        self.copy = graph.add("copy", operand.shape, [operand], like=operand)

    def home(self, lives: Lives) -> Home:
        """Return where the loop's side lies."""
        carried = self.copy.operands[0] if self.is_after else self.copy
        home = lives.home(lives.parts[carried.name][0])
        assert home is not None
        return home

    def drop(self) -> None:
        """Let users of the copy use what it copies."""
        self.graph.replace(self.copy, self.copy.operands[0])


def copies_at_borders(draft: Draft) -> list[Border]:
    """Insert the copies that loops may need."""
    found: list[Border] = []
    order = Order(draft)
    aliases = draft.attributes.get("input_output_alias", ())
    given_away = {alias.parameter for alias in aliases}
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "while" and node.operands[0].opcode == "tuple":
                found += _before(order, graph, node, given_away)
    return [*found, *_after(draft.entry, {alias.output_index[:1] for alias in aliases})]


def _before(order: Order, graph: Graph, loop: Node, given_away: Container[int]) -> Iterator[Border]:
    """Yield copies, in a loop's first state, of the arguments and constants among it."""
    (state,) = loop.operands
    changed = {operand for at, operand in enumerate(state.operands) if order.changes(loop, at)}
    for operand in dict.fromkeys(state.operands):
        source = operand.source
        is_given = source.opcode == "constant" or (source.opcode == "parameter" and graph is order.draft.entry)
        stays = source.opcode == "parameter" and source.immediate in given_away and operand in changed
        if is_given and not stays and _is_large(operand):
            border = Border(graph, operand, is_after=False, is_read=operand not in changed)
            state.replace_operand(operand, border.copy)
            yield border


def _after(graph: Graph, in_place: Container[tuple[int, ...]]) -> Iterator[Border]:
    """Yield copies of what comes from loops to the program's result, but for those that lie in place of arguments."""
    root = graph.root
    results = {(at,): result for at, result in enumerate(root.operands)} if root.opcode == "tuple" else {(): root}
    stay = {result for at, result in results.items() if at in in_place}
    for result in dict.fromkeys(results.values()):
        source = result.source
        is_carried = source.opcode == "get-tuple-element" and source.operands[0].opcode == "while"
        if not is_carried or result in stay or not _is_large(result) or _is_stack(source):
            continue
        border = Border(graph, result, is_after=True)
        if result is root:
            graph.root = border.copy
        else:
            root.replace_operand(result, border.copy)
        yield border


def _is_stack(carried: Node) -> bool:
    """Return whether a loop fills an array row by row: rows go where the result is to lie, single numbers not."""
    if carried.array.rank < 2:
        return False
    loop = carried.operands[0]
    state = loop.operands[0].source
    first = state.operands[carried.attributes["index"]] if state.opcode == "tuple" else state
    return is_unwritten(first)


def hidden(wanted: Sequence[Home], borders: Iterable[Border], lives: Lives, hbm_rate: float) -> Iterator[Home]:
    """Yield the homes, in their order, but for those that a loop only reads and that no kernels before it hide."""
    read: dict[Home, list[Border]] = {}
    for border in (border for border in borders if border.is_read):
        read.setdefault(border.home(lives), []).append(border)
    draft = next((border.graph.draft for own in read.values() for border in own), None)
    beside = _beside(draft, lives, hbm_rate) if draft else {}
    for home in wanted:
        if all(beside[border.graph].hides(home.n_bytes, border.copy) for border in read.get(home, ())):
            yield home


class _Beside:
    """What HBM could move beside the nodes of a graph, whatever they move themselves."""

    def __init__(self, n_bytes: Mapping[Node, float]) -> None:
        self._at = {node: at for at, node in enumerate(n_bytes)}
        self._left = np.array(list(n_bytes.values()))

    def hides(self, n_bytes: float, copy: Node) -> bool:
        """Take the time of nodes before a copy for its bytes, the last ones first, and return whether it suffices."""
        before = self._left[: self._at[copy]][::-1]
        taken = np.minimum(before, np.maximum(0, n_bytes - (np.cumsum(before) - before)))
        if round(taken.sum()) < n_bytes:
            return False
        before -= taken
        return True


def _turned(graph: Graph, loop: Node) -> Iterator[Node]:
    """Yield what a loop takes row by row whose rows do not lie one behind the other."""
    for at, along in rows_of(graph, loop).taken.items():
        given = loop.operands[0].operands[at]
        if given.array.actual_layout.minor_to_major[-1] != along:
            yield given


def _beside(draft: Draft, lives: Lives, hbm_rate: float) -> dict[Graph, _Beside]:
    """Return what HBM could move beside each node that runs: nothing beside a loop."""
    found, totals = dict[Graph, _Beside](), dict[str, float]()
    for graph in draft.running():
        own = dict.fromkeys(graph.order(), 0.0)
        for node in own:
            kernel = lives.kernels.get(node.name)
            if kernel is not None:
                own[node] = max(kernel.compute_seconds * hbm_rate, sum(move.n_bytes for move in kernel.moves))
            elif node.opcode != "while":
                own[node] = max((totals.get(name, 0.0) for name in node.called), default=0.0)
        loops = [node for node in own if node.opcode == "while"]
        # Read and written, once however many loops take it.
        for given in {given for loop in loops for given in _turned(graph, loop)}:
            own[given] += 2 * physical_bytes(given.shape)
        found[graph], totals[graph.name] = _Beside(own), sum(own.values())
    return found


def copies_that_make_room(graph: Graph, lives: Lives, moved: set[Home], least_bytes: float) -> list[Border]:
    """Insert copies to HBM of what is read soon after it is made and then not for a long time.

    Source: XLA, memory space assignment: evictions; of 124 programs compiled ahead of time 21 have 414 of them.
    """
    order = graph.order()
    number = {node: at for at, node in enumerate(order)}
    found, after = [], dict[Node, list[Node]]()
    for node in number:
        home = lives.home(lives.parts[node.name][0]) if _is_large(node) else None
        if home is None or home.is_fixed or home in moved or home.n_bytes < least_bytes or node.source is not node:
            continue
        users = sorted(node.users, key=number.__getitem__)
        if any(user.name not in lives.kernels for user in users):
            continue
        gaps = [(number[late] - number[early], early) for early, late in pairwise(users)]
        gap, last = max(gaps, default=(0, node), key=itemgetter(0))
        if gap > _LONG:
            border = Border(graph, node, is_after=True, leaves=True)
            for user in users[users.index(last) + 1 :]:
                user.replace_operand(node, border.copy)
            after.setdefault(order[number[last] + _LONG // 8], []).append(border.copy)
            found.append(border)
    graph.sequence = [each for node in number for each in (node, *after.get(node, ()))]
    return found


_LONG = 32
"""Nodes of the schedule between two users of an array from which on it pays to bring it to HBM and back."""


def _is_large(node: Node) -> bool:
    return isinstance(node.shape, ArrayShape) and node.shape.layout is not None and not node.is_small
