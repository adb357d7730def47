"""Between fusion and tiles: what may not be written over is copied before it is updated in place.

That are arguments that the caller keeps, constants, what is still read afterwards, and what a loop carries twice. What
a loop carries on lies where it was before, and a result where the argument did that is given away for it: what is still
read when the new has been made is copied too. Whether something is read later is asked of one order; what writes over
an array then waits for what reads it, so that it is so in the order of the schedule as well.

Source: XLA, CopyInsertion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import inf

from tpusim.compiler.flatten import arrays_in, tuple_as
from tpusim.compiler.kernels.behind import put_writers_behind
from tpusim.compiler.kernels.branches import let_branches_write
from tpusim.compiler.kernels.kept import Kept, given_away, pair_donors
from tpusim.compiler.kernels.late import is_read_late
from tpusim.compiler.kernels.places import (
    Home,
    Order,
    Place,
    elements_of,
    handed,
    handed_over,
    has_place,
    home_of,
    let_wait,
    results_of,
    writers_of,
)
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, FUSES_INTO_USERS, LAID_OUT_FREELY
from tpusim.shapes.shape import ArrayShape, TupleShape


def take_apart(draft: Draft, target: Target) -> None:
    """Let what is returned, and what loops and branches are given, be tuples, whose elements have places."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode in CONTROL_FLOW:
                node.take([_as_tuple(graph, operand) for operand in node.operands])
        root = _as_tuple(graph, graph.root)
        # Where others have the tuple as well it is made before they are done: a result is what is there at the end.
        graph.root = graph.clone(root) if root.opcode == "tuple" and root.users else root


def _as_tuple(graph: Graph, whole: Node) -> Node:
    # What returns nothing would be lost.
    if not isinstance(whole.shape, TupleShape) or whole.opcode == "tuple" or not whole.shape.elements:
        return whole
    shapes = enumerate(whole.shape.elements)
    elements = [graph.add("get-tuple-element", shape, [whole], {"index": at}, like=whole) for at, shape in shapes]
    return graph.add("tuple", whole.shape, elements, like=whole)


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own; what is returned and carried has been taken apart."""
    pair_donors(draft)
    order, running = Order(draft), draft.running()
    loops = [node for graph in running for node in order.of(graph) if node.opcode == "while"]
    bodies = dict.fromkeys(draft.graphs[node.attributes["body"]] for node in loops)
    kept = Kept(order, bodies)
    for graph in running:
        put_writers_behind(order, kept, graph, _places(draft, graph, bodies))
    let_branches_write(order, kept)
    places: list[Place] = []
    for graph in running:
        for node in list(order.of(graph)):
            _copy_what_is_updated(order, graph, node, kept)
        if graph is not draft.entry and graph not in bodies:
            given = {at: home for home, at in order.given_to.get(graph, {}).items()}
            places += _copy_what_takes_arguments(order, graph, given, set())
    places += [place for body in bodies for place in _copy_state(order, body)]
    places += _copy_what_takes_arguments(order, draft.entry, *given_away(draft))
    for place in places:
        _wait_for_readers(order, place)


def _places(draft: Draft, graph: Graph, bodies: Collection[Graph]) -> list[Place]:
    """Return where results come to lie that were not made there: in what a loop carries, and in what is given away."""
    if graph is draft.entry:
        return [Place(graph, home, at) for at, home in given_away(draft)[0].items()]
    if graph not in bodies:
        return []
    (state,) = graph.parameters
    # One array alone is the state of some.
    count = len(results_of(graph)) if graph.root.opcode == "tuple" else 0
    return [Place(graph, Home(state, at), at) for at in range(count)] or [Place(graph, Home(state), 0)]


def _copy_what_is_updated(order: Order, graph: Graph, node: Node, kept: Kept) -> None:
    """Give what a node writes over memory of its own, where others need it as it is."""
    # What branches write over was asked before.
    places = {} if node.opcode == "conditional" else order.updates(node)
    user = handed_over(node)
    if places and user is not node and len(user.users) > 1:
        # Others, such as a second loop, take what it hands over as well.
        whole, user = user, graph.clone(user)
        order.of(graph)[user] = order.of(graph)[node] - 0.5
        node.replace_operand(whole, user)
    homes = [home_of(order, operand) for operand in user.operands] if places else []
    # What is handed over twice is two arrays from then on.
    times = Counter(homes)
    copied: list[int] = []
    before: list[Node] = []
    for at in places.values():
        is_kept = times[homes[at]] > 1 or kept.holds(graph, user.operands[at])
        readers = None if is_kept else kept.readers_before(graph, user.operands[at], node)
        if readers is None:
            copied.append(at)
            times[homes[at]] -= 1
        else:
            before += readers
    let_wait(node, before)
    if copied:
        _replace(order, graph, node, copied)


def _replace(order: Order, graph: Graph, node: Node, places: Iterable[int]) -> None:
    """Let a node write over copies of some of what it is handed."""
    if node.opcode == "conditional":
        _replace_for_branches(order, graph, node, places)
        return
    user = handed_over(node)
    operands = list(user.operands)
    for at in places:
        operands[at] = _another(order, graph, operands[at], order.of(graph)[node] - 0.5)
    user.take(operands)


def _replace_for_branches(order: Order, graph: Graph, conditional: Node, places: Iterable[int]) -> None:
    """Give all branches the same copies, under whatever names they get the arrays."""
    number = order.of(graph)[conditional]
    arrays = [handed(conditional)[at] for at in places]
    copies = {home_of(order, array): _another(order, graph, array, number - 0.5) for array in arrays}
    chosen, *operands = conditional.operands
    for at, operand in enumerate(operands):
        elements = [copies.get(home_of(order, element), element) for element in elements_of(operand)]
        if operand.opcode == "tuple":
            operands[at] = graph.clone(operand)
            operands[at].take(elements)
            order.of(graph)[operands[at]] = number - 0.5
        else:
            (operands[at],) = elements
    conditional.take([chosen, *operands])


def _copy_results(order: Order, graph: Graph, aliases: Mapping[int, Home], donated: set[Home]) -> None:
    """Copy what is returned as it is: what stays the caller's, constants, and one array twice."""
    results = results_of(graph)
    kept = _KeptResults(order, graph, _own_places(order, results, aliases), aliases, donated)
    for at, result in enumerate(results):
        if isinstance(result.shape, TupleShape) and result.shape.elements:
            # Nowhere but in what the caller gets are there tuples in tuples.
            whole = tuple_as(graph, result.shape, [kept.own(array, None) for array in arrays_in(graph, result)])
            order.of(graph)[whole] = inf
            results[at] = whole
        else:
            results[at] = kept.own(result, at)
    _return(graph, results)


class _KeptResults:
    """Gives each result memory of its own; ``places`` are those where arrays have to go that are returned again."""

    def __init__(
        self, order: Order, graph: Graph, places: dict[Home, int], aliases: Mapping[int, Home], donated: set[Home]
    ) -> None:
        self._order, self._graph = order, graph
        self._places, self._aliases, self._donated = places, aliases, donated
        self._taken: set[Home] = set()

    def own(self, result: Node, at: int | None) -> Node:
        """Return the array that is returned at a place, None if that is within a tuple: a copy where it must be."""
        is_array = isinstance(result.shape, ArrayShape) and result.shape.dtype.is_array_type
        if not is_array or (self._graph is not self._order.draft.entry and result.is_small):
            return result
        home = home_of(self._order, result)
        is_made = home.node.opcode != "constant" and not self._is_callers(home, at)
        if is_made and home not in self._taken and self._places.get(home, at) == at:
            self._taken.add(home)
            return result
        return _another(self._order, self._graph, result, self._order.of(self._graph).get(result, inf) + 0.5)

    def _is_callers(self, home: Home, at: int | None) -> bool:
        outermost = home.node
        while outermost.opcode == "get-tuple-element":
            outermost = outermost.operands[0].source
        if outermost.opcode != "parameter":
            return False
        if at is not None and at in self._aliases:
            return home != self._aliases[at]
        return self._donated.isdisjoint((home, Home(home.node)))


def _own_places(order: Order, results: Iterable[Node], given: Mapping[int, Home]) -> dict[Home, int]:
    """Return where arrays have to go that are written over what is ``given`` there, and are returned several times."""
    own: dict[Home, int] = {}
    for at, result in enumerate(results):
        if at in given and writers_of(order, result, given[at])[1] == given[at]:
            own.setdefault(home_of(order, result), at)
    return own


def _return(graph: Graph, results: list[Node]) -> None:
    """Let a graph return these, where it returned as many others."""
    if graph.root.opcode != "tuple":
        graph.root = results[0]
    elif results != graph.root.operands:
        graph.root.take(results)


def _copy_what_takes_arguments(
    order: Order, graph: Graph, aliases: Mapping[int, Home], donated: set[Home]
) -> list[Place]:
    """Copy results that cannot be what they are, and arguments that are still read where others come to lie."""
    _copy_results(order, graph, aliases, donated)
    places = [Place(graph, home, at) for at, home in aliases.items()]
    for place in places:
        writers, base = writers_of(order, place.made, place.given)
        if base not in (None, place.given):
            # Memory that is given away for one result is not that of another.
            node, at = writers[-1]
            _replace(order, graph, node, [order.updates(node)[at or 0]])
    _copy_what_is_read_late(order, graph, places)
    return places


def _copy_state(order: Order, body: Graph) -> list[Place]:
    """Give everything that a loop carries on a place of its own, which nothing reads any more when it is written."""
    places = _places(order.draft, body, [body])
    copied = _copy_what_is_read_late(order, body, places)
    _copy_what_changes_places(order, body, places, copied)
    return places


def _copy_what_changes_places(order: Order, body: Graph, places: Iterable[Place], copied: Mapping[Home, Node]) -> None:
    """Copy what is carried on to two places, or to one that it was not at; of what goes round one twice.

    In a circle each waits for the next one to be read: one has to lie elsewhere in the meantime.
    """
    results, taken = results_of(body), set[Home]()
    place_of = {place.given: place.at for place in places}
    own = _own_places(order, results, {place.at: place.given for place in places})
    came_from = {Home(copy): place_of[given] for given, copy in copied.items()}
    # Where it is updated on the way it has moved all the same.
    firsts = {at: writers_of(order, result)[0][-1] for at, result in enumerate(results) if has_place(result)}
    # What goes to several places goes to the first of them itself.
    broken = _least_of_circles({came_from[firsts[at]]: at for at in reversed(firsts) if firsts[at] in came_from})
    for at, result in enumerate(results):
        if not has_place(result):
            continue
        home = home_of(order, result)
        is_moved = place_of.get(home, at) != at or own.get(home, at) != at
        if is_moved or home in taken or home.node.opcode == "constant" or at in broken:
            results[at] = _another(order, body, result, inf)
        else:
            taken.add(home)
    _return(body, results)


def _least_of_circles(goes_to: Mapping[int, int]) -> set[int]:
    """Return a place of each circle that is gone round by those who go from place to place."""
    found, seen = set[int](), set[int]()
    for start in sorted(goes_to):
        at, way = start, set[int]()
        while at in goes_to and at not in seen:
            seen.add(at)
            way.add(at)
            at = goes_to[at]
        if at in way:
            found.add(at)
    return found


def _copy_what_is_read_late(order: Order, graph: Graph, places: Iterable[Place]) -> dict[Home, Node]:
    """Copy what is still read when what comes to lie at the same place has been made. Return the copies by of what."""
    names = {Home(parameter): [parameter] for parameter in graph.parameters}
    for node in order.of(graph):
        if node.opcode == "get-tuple-element" and node.operands[0].source.opcode == "parameter":
            names.setdefault(Home(node.operands[0].source, node.attributes["index"]), []).append(node)
    # What goes by no name is read by nobody.
    over: dict[Node, set[Home]] = {}
    late = [place.given for place in places if place.given in names and is_read_late(order, place, over)]
    copied = {given: _another(order, graph, names[given][0], -1) for given in late}
    instead = {name: copy for given, copy in copied.items() for name in names[given]}
    # Once for all of its operands, of which a user may have thousands.
    for user in dict.fromkeys(user for name, copy in instead.items() for user in name.users if user is not copy):
        user.replace_operands(instead)
    return copied


def _wait_for_readers(order: Order, place: Place) -> None:
    """Let what first writes at a place wait until nothing needs what was there."""
    given = place.given
    if not has_place(place.made) or home_of(order, place.made) == given:
        return
    first = writers_of(order, place.made, given)[0][-1].node
    let_wait(first, (reader for reader in order.readers(place.graph, given) if reader is not first))


def _another(order: Order, graph: Graph, node: Node, at: float) -> Node:
    """Return a copy of an array, which comes at a number of the order; what is made from nothing is made once more."""
    is_free = node.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS and not any(map(has_place, node.operands))
    made = graph.clone(node) if is_free else graph.add("copy", node.shape, [node], like=node)
    order.of(graph)[made] = at
    return made
