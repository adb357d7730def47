"""What the branches of a conditional may write over: arrays of its operands that nothing reads behind it.

An array that goes in, and comes out as it was or updated in place, lies in one place throughout, whichever branch runs.
Where that cannot be, each branch has copies of its own.

Source: XLA, CopyInsertion. Of ``cond(p, update, lambda x: x, x)`` with ``x`` donated the TPU compiler copies nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from math import inf

from tpusim.compiler.kernels.kept import Kept
from tpusim.compiler.kernels.late import is_read_late
from tpusim.compiler.kernels.places import (
    Home,
    Order,
    Place,
    base_of,
    elements_of,
    handed,
    has_place,
    home_of,
    let_wait,
    results_of,
)
from tpusim.draft import Graph, Node
from tpusim.ir.ops import CONTROL_FLOW
from tpusim.shapes.shape import TupleShape


def let_branches_write(order: Order, kept: Kept) -> None:
    """Decide which results of conditionals lie in what their branches are given."""
    conditionals = list(_conditionals(order))
    for _, node in conditionals:
        order.taken_over[node] = _could_lie_in(order, node)
    # From outside: what a branch is not given those within it are not given.
    for graph, node in reversed(conditionals):
        order.taken_over[node] = _taken(order, kept, graph, node)
        arrays = handed(node)
        homes = {home_of(order, arrays[number]): at for at, number in order.taken_over[node].items()}
        for branch in _branches(order, node):
            order.given_to[branch.graph] = {
                inside: homes[home] for home, inside in branch.inside.items() if home in homes
            }
    # That was asked as if all were given that could be.
    order.out_of_order.clear()


def _conditionals(order: Order) -> Iterator[tuple[Graph, Node]]:
    """Yield conditionals with their graphs, those within others first; not those whose branches run elsewhere too."""
    graphs = order.draft.running()
    flow = [(graph, node) for graph in graphs for node in order.of(graph) if node.opcode in CONTROL_FLOW]
    named = Counter(name for _, node in flow for name in node.called)
    for graph, node in flow:
        if node.opcode == "conditional" and all(named[name] == 1 for name in node.called):
            yield graph, node


class _Branch:
    """A branch: what its arrays are outside, one after the other, and which of them lies in what inside."""

    def __init__(self, order: Order, graph: Graph, arrays: list[Node]) -> None:
        self.graph = graph
        self.results = results_of(graph)
        self.homes = [home_of(order, array) for array in arrays]
        (parameter,) = graph.parameters
        is_tuple = isinstance(parameter.shape, TupleShape)
        names = [Home(parameter, at if is_tuple else None) for at in range(len(arrays))]
        self.inside = dict(zip(self.homes, names, strict=True))
        self._over: dict[Node, set[Home]] = {}
        self._order = order

    def base_of(self, result: Node) -> Home | None:
        """Return what the branch is given that a result is, or is written over; None if the branch makes it anew."""
        base = base_of(self._order, result)
        return base if base is not None and base.node in self.graph.parameters else None

    def makes_late(self, at: int, home: Home) -> bool:
        """Return whether it makes a result anew while it still reads the array in whose place that would lie."""
        if home not in self.inside or self.base_of(self.results[at]) is not None:
            return False
        return is_read_late(self._order, Place(self.graph, self.inside[home], at), self._over)


def _branches(order: Order, conditional: Node) -> list[_Branch]:
    graphs = map(order.draft.graphs.__getitem__, conditional.called)
    given = map(elements_of, conditional.operands[1:])
    return [_Branch(order, graph, arrays) for graph, arrays in zip(graphs, given, strict=True)]


def _could_lie_in(order: Order, conditional: Node) -> dict[int, int]:
    """Return by result the number of what is handed over that it lies in, if it is one array for all branches."""
    found: dict[int, dict[Home, int]] = {}
    branches = _branches(order, conditional)
    firsts = accumulate((len(branch.homes) for branch in branches), initial=0)
    for branch, first in zip(branches, firsts, strict=False):
        for at, result in enumerate(branch.results):
            base = branch.base_of(result) if has_place(result) else None
            if base is not None:
                number = base.at or 0
                found.setdefault(at, {}).setdefault(branch.homes[number], first + number)
    return {at: number for at, homes in found.items() if len(homes) == 1 for number in homes.values()}


def _taken(order: Order, kept: Kept, graph: Graph, conditional: Node) -> dict[int, int]:
    """Return of what results could lie in what they may: no one else needs it, and no branch would have to copy it."""
    found: dict[Home, tuple[int, int]] = {}
    arrays, branches = handed(conditional), _branches(order, conditional)
    # Given to a branch twice, or as a view of it that has another shape.
    apart = {home for branch in branches for home, times in Counter(branch.homes).items() if times > 1}
    shapes = {(home_of(order, array), array.shape) for array in arrays}
    apart |= {home for home, times in Counter(home for home, _ in shapes).items() if times > 1}
    before: list[Node] = []
    for at, number in order.taken_over[conditional].items():
        array = arrays[number]
        home = home_of(order, array)
        if home in apart or home in found or kept.holds(graph, array):
            continue
        readers = kept.readers_before(graph, array, conditional)
        if readers is None or (graph is order.draft.entry and not _is_made_of(order, graph, conditional, readers)):
            continue
        if any(branch.makes_late(at, home) for branch in branches):
            continue
        found[home] = at, number
        before += readers
    let_wait(conditional, before)
    return dict(found.values())


def _is_made_of(order: Order, graph: Graph, conditional: Node, readers: list[Node]) -> bool:
    """Return whether a conditional comes behind all of these because it takes what they make.

    In an entry the TPU compiler does not have it wait for others: of four programs libtpu 0.0.52 copies the array in
    all, whichever result comes first. In a loop it does not copy.
    """
    number = order.of(graph)
    least = min(map(number.__getitem__, readers), default=inf)
    found, todo = {conditional}, [conditional]
    while todo:
        new = {operand for operand in todo.pop().operands if number[operand] >= least} - found
        found |= new
        todo.extend(new)
    return found.issuperset(readers)
