"""Where arrays lie before they have addresses: what names them, and what reads and writes over them in one order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import InstructionName
from tpusim.ir.ops import FREE, IN_PLACE, USES_FAST_MEMORY, VIEWS
from tpusim.shapes.shape import ArrayShape

BEFORE = "control-predecessors"
"""The attribute that names what has to run before a node; after the order is chosen nothing needs it."""

_ELEMENT = "get-tuple-element"


class Home(NamedTuple):
    """What an array lies in: the result of a node, or an element of it."""

    node: Node
    at: int | None = None


class Place(NamedTuple):
    """Memory that a graph is given with something in it, and into which one of its results goes."""

    graph: Graph
    given: Home
    at: int

    @property
    def made(self) -> Node:
        """The result that comes to lie there."""
        root = self.graph.root
        return root.operands[self.at] if root.opcode == "tuple" else root


class Order:
    """The one order of each graph in which it is asked what is read before what. What is new is put in between."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        # By the body of a loop which of what it carries on is another array than it was given. Only these are copied.
        self._changed: dict[Graph, list[bool]] = {}
        self._find_what_loops_change()
        self._numbers: dict[Graph, dict[Node, float]] = {}
        # By node what it does not read element by element, as it writes whichever of its results.
        self.out_of_order: dict[Node, dict[Home, list[int]]] = {}
        self._elements: dict[Node, dict[int | None, list[Node]]] = {}
        self._updates: dict[Node, dict[int, int]] = {}
        # What conditionals write over, and by branch what it is given to write over, with the result that lies there.
        self.taken_over: dict[Node, dict[int, int]] = {}
        self.given_to: dict[Graph, dict[Home, int]] = {}

    def of(self, graph: Graph) -> dict[Node, float]:
        """Return the numbers of a graph's nodes, to which those of new ones are added."""
        if graph not in self._numbers:
            self._numbers[graph] = {node: float(at) for at, node in enumerate(graph.order())}
        return self._numbers[graph]

    def _find_what_loops_change(self) -> None:
        # Loops in loops come first: of those around them no more is asked than what these have in hand.
        graphs = self.draft.running()
        bodies = {node.attributes["body"] for graph in graphs for node in graph.order() if node.opcode == "while"}
        for body in [graph for graph in graphs if graph.name in bodies]:
            (state,) = body.parameters
            is_tuple = body.root.opcode == "tuple"
            self._changed[body] = [
                home_of(self, result) != Home(state, at if is_tuple else None)
                for at, result in enumerate(results_of(body))
            ]

    def changes(self, loop: Node, at: int) -> bool:
        """Return whether a loop carries something else on at one place than it was given."""
        return self._changed[self.draft.graphs[loop.attributes["body"]]][at]

    def renumber(self, graph: Graph, nodes: Iterable[Node]) -> None:
        """Number the nodes of a graph anew, in another order, before anything new is put in between."""
        self._numbers[graph] = {node: float(at) for at, node in enumerate(nodes)}

    def updates(self, node: Node) -> dict[int, int]:
        """Return by the results of a node the numbers of what it is handed that they are written over."""
        if node.opcode == "conditional":
            return self.taken_over.get(node, {})
        # Asked for each of its results, of which there may be thousands.
        if node not in self._updates:
            self._updates[node] = _updates(self, node)
        return self._updates[node]

    def updated(self, node: Node) -> list[Node]:
        """Return the arrays that a node writes its results over."""
        arrays = handed(node)
        return [arrays[number] for number in self.updates(node).values()]

    def readers(self, graph: Graph, home: Home) -> list[Node]:
        """Return what reads an array, under whatever name; what nothing needs has no place in the order."""
        number = self.of(graph)
        return [reader for reader in dict.fromkeys(self._readers(home)) if reader in number]

    def _readers(self, home: Home) -> Iterator[Node]:
        todo = [home]
        while todo:
            node, at = todo.pop()
            if at is not None:
                todo += map(Home, self._taken_from(node).get(at, ()))
            for user in node.users if at is None else self._taken_from(node).get(None, ()):
                if user.opcode in VIEWS:
                    todo.append(Home(user, at))
                    continue
                yield user
                if at is None and user.opcode == "tuple":
                    todo += [Home(user, index) for index in _places_among(user.operands, node)]
                elif user.opcode == "while" and not self.changes(user, at or 0):
                    todo.append(Home(user, at))

    def _taken_from(self, whole: Node) -> dict[int | None, list[Node]]:
        """Return the users of a tuple by the element that they are, those of the whole at None.

        They are kept, since each of thousands of elements asks; what a copy is made for is asked before.
        """
        if whole not in self._elements:
            found: dict[int | None, list[Node]] = {}
            for user in whole.users:
                found.setdefault(user.attributes["index"] if user.opcode == _ELEMENT else None, []).append(user)
            self._elements[whole] = found
        return self._elements[whole]


def _places_among(operands: list[Node], node: Node) -> list[int]:
    if operands.count(node) == 1:
        return [operands.index(node)]
    return [at for at, operand in enumerate(operands) if operand is node]


def let_wait(node: Node, others: Iterable[Node]) -> None:
    """Have a node run when others have."""
    names = [*node.attributes.get(BEFORE, ()), *(InstructionName(other.name) for other in others)]
    if names:
        node.attributes = {**node.attributes, BEFORE: tuple(dict.fromkeys(names))}


def waits(draft: Draft, nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Return those of a graph's nodes that are to run behind others, each with these.

    Others that were fused, rewritten or inlined are left out: data alone orders what was to come behind them.
    """
    by_name = {node.name: node for node in nodes}
    found: dict[Node, list[Node]] = {}
    for node in nodes:
        ones = [node]
        if node.opcode == "fusion":
            ones += (inner for name in node.called for inner in draft.graphs[name].order())
        names = dict.fromkeys(name for one in ones for name in one.attributes.get(BEFORE, ()))
        before = [by_name[name] for name in names if name in by_name and by_name[name] is not node]
        if before:
            found[node] = before
    return found


def home_of(order: Order, node: Node) -> Home:
    """Return what an array lies in: behind views and tuples, and loops that hand it on as it is."""
    while True:
        node = node.source
        if node.opcode == "while" and isinstance(node.shape, ArrayShape) and not order.changes(node, 0):
            node = node.operands[0]
            continue
        if node.opcode != _ELEMENT:
            return Home(node)
        whole, at = node.operands[0].source, node.attributes["index"]
        if whole.opcode == "while" and not order.changes(whole, at):
            whole = whole.operands[0].source
        if whole.opcode != "tuple":
            return Home(whole, at)
        node = whole.operands[at]


def writers_of(order: Order, made: Node, given: Home | None = None) -> tuple[list[Home], Home | None]:
    """Return what writes where an array comes to lie, the last first: what makes it, and what that updates in place.

    Beside them is what the first one updates, where that is ``given`` or not made here: an argument, a constant.
    """
    found: list[Home] = []
    while True:
        home = home_of(order, made)
        if found and (home == given or home.node.opcode in FREE):
            return found, home
        found.append(home)
        at = order.updates(home.node).get(home.at or 0)
        if at is None:
            return found, None
        made = handed(home.node)[at]


def base_of(order: Order, made: Node) -> Home | None:
    """Return the argument or constant that an array is, or is written over; None if it is made anew."""
    home = home_of(order, made)
    return home if home.node.opcode == "parameter" else writers_of(order, made)[1]


def handed(node: Node) -> list[Node]:
    """Return what a node gets: its operands, of loops and branches the elements of those that are tuples."""
    if node.opcode == "conditional":
        return [element for operand in node.operands[1:] for element in elements_of(operand)]
    return handed_over(node).operands


def elements_of(operand: Node) -> list[Node]:
    """Return the arrays of what a loop or a branch is given, where that is a tuple."""
    return operand.operands if operand.opcode == "tuple" else [operand]


def handed_over(node: Node) -> Node:
    """Return the node whose operands are what another one gets: the tuple that is a loop's state, or itself."""
    return node.operands[0] if node.opcode == "while" and node.operands[0].opcode == "tuple" else node


def results_of(graph: Graph) -> list[Node]:
    """Return what a graph returns: the elements of its root, if that is a tuple."""
    return list(elements_of(graph.root))


def is_made_for(graph: Graph, user: Node, at: int) -> bool:
    """Return whether an operand is all that a kernel makes, and ``user`` alone takes it, once."""
    operand = user.operands[at]
    if operand is graph.root:
        return False
    is_own = operand.opcode in (USES_FAST_MEMORY | IN_PLACE) - FREE and list(operand.users) == [user]
    return is_own and user.operands.count(operand) == 1


def has_place(node: Node) -> bool:
    """Return whether an array is large enough to be asked where it lies."""
    return isinstance(node.shape, ArrayShape) and not node.is_small


def _updates(order: Order, node: Node) -> dict[int, int]:
    if node.opcode in IN_PLACE:
        return {0: 0}
    if node.opcode == "fusion":
        body = order.draft.graphs[node.attributes["calls"]]
        number = {parameter: at for at, parameter in enumerate(body.parameters)}
        roots = enumerate(body.root.operands if body.root.opcode == "tuple" else [body.root])
        targets = ((at, root.source.operands[0].source) for at, root in roots if root.source.opcode in IN_PLACE)
        return {at: number[target] for at, target in targets if target in number}
    if node.opcode == "while":
        state = enumerate(handed_over(node).operands)
        arrays = [at for at, each in state if isinstance(each.shape, ArrayShape) and each.shape.rank]
        return {at: at for at in arrays if order.changes(node, at)}
    stated = node.attributes.get("output_to_operand_aliasing", ())
    whole = [alias for alias in stated if not alias.operand_index and len(alias.output_index) < 2]
    return {alias.output_index[0] if alias.output_index else 0: alias.operand for alias in whole}
