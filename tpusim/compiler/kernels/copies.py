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

from tpusim.compiler.kernels.places import Home, Order, Place, handed_over, home_of, let_wait, writers_of
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, ELEMENTWISE, FREE, FUSES_INTO_USERS, IN_PLACE, LAID_OUT_FREELY, RELAYOUTS, VIEWS
from tpusim.shapes.shape import ArrayShape, TupleShape


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own."""
    for graph in draft.running():
        _take_apart(graph)
    order = Order(draft)
    loops = [node for graph in draft.running() for node in order.of(graph) if node.opcode == "while"]
    bodies = dict.fromkeys(draft.graphs[node.attributes["body"]] for node in loops)
    kept = _Kept(order, bodies)
    for graph in draft.running():
        for node in list(order.of(graph)):
            _copy_what_is_updated(order, graph, node, kept)
        if graph is not draft.entry and graph not in bodies:
            _copy_results(order, graph, {}, set())
    places = [place for body in bodies for place in _copy_state(order, body)]
    places += _copy_what_takes_arguments(order, draft.entry)
    for place in places:
        _wait_for_readers(order, place)


def _take_apart(graph: Graph) -> None:
    """Let what is returned, and what loops and branches are given, be tuples, whose elements have places."""
    for node in graph.order():
        if node.opcode in CONTROL_FLOW:
            node.take([_as_tuple(graph, operand) for operand in node.operands])
    graph.root = _as_tuple(graph, graph.root)


def _as_tuple(graph: Graph, whole: Node) -> Node:
    # What returns nothing would be lost.
    if not isinstance(whole.shape, TupleShape) or whole.opcode == "tuple" or not whole.shape.elements:
        return whole
    shapes = enumerate(whole.shape.elements)
    elements = [graph.add("get-tuple-element", shape, [whole], {"index": at}, like=whole) for at, shape in shapes]
    return graph.add("tuple", whole.shape, elements, like=whole)


def _copy_what_is_updated(order: Order, graph: Graph, node: Node, kept: _Kept) -> None:
    """Give what a node writes over memory of its own, where others need it as it is."""
    places = order.updates(node)
    user = handed_over(node)
    if places and user is not node and len(user.users) > 1:
        # Others, such as a second loop, take what it hands over as well.
        whole, user = user, graph.clone(user)
        order.of(graph)[user] = order.of(graph)[node] - 0.5
        node.replace_operand(whole, user)
    homes = [home_of(order.draft, operand) for operand in user.operands] if places else []
    # What is handed over twice is two arrays from then on.
    times = Counter(homes)
    copied: list[int] = []
    for at in places.values():
        taken = user.operands[at]
        if times[homes[at]] > 1 or kept.holds(graph, taken) or not kept.take_last(graph, taken, node):
            copied.append(at)
            times[homes[at]] -= 1
    if copied:
        _replace(order, graph, node, copied)


def _replace(order: Order, graph: Graph, node: Node, places: Iterable[int]) -> None:
    """Let a node write over copies of some of what it is handed."""
    user = handed_over(node)
    operands = list(user.operands)
    for at in places:
        operands[at] = _another(order, graph, operands[at], order.of(graph)[node] - 0.5)
    user.take(operands)


class _Kept:
    """Answers which memory must stay as it is: the caller's, that of constants, and what is read afterwards."""

    def __init__(self, order: Order, bodies: Collection[Graph]) -> None:
        self._order = order
        self._bodies = bodies
        aliases, donors = _given_away(order.draft)
        self._given_away = donors | set(aliases.values())

    def take_last(self, graph: Graph, array: Node, node: Node) -> bool:
        """Let a node wait for all that reads an array, and return True; False if something reads it behind the node."""
        number, draft = self._order.of(graph), self._order.draft
        home = home_of(draft, array)
        if home == home_of(draft, graph.root):
            return False
        readers = [reader for reader in self._order.readers(graph, home) if reader is not node]
        if any(number[reader] > number[node] for reader in readers):
            return False
        let_wait(node, readers)
        return True

    def holds(self, graph: Graph, array: Node) -> bool:
        """Return whether the memory of an array has to stay as it is, whatever the graph still reads."""
        home = home_of(self._order.draft, array)
        # Of a tuple in a tuple nobody knows who else has its elements.
        if home.node.opcode == "get-tuple-element":
            return True
        if home.node.opcode != "parameter":
            return home.node.opcode == "constant"
        if graph is self._order.draft.entry:
            return self._given_away.isdisjoint((home, Home(home.node)))
        # What one branch writes over another one may read, and so may all that comes after them.
        return graph not in self._bodies


def _given_away(draft: Draft) -> tuple[dict[int, Home], set[Home]]:
    """Return by result where the caller wants it, and beside that which arguments it gives away for whatever use.

    Results and arguments in tuples in tuples are left where they are.
    """
    arguments = {node.immediate: node for node in draft.entry.parameters}
    aliases: dict[int, Home] = {}
    for alias in draft.attributes.get("input_output_alias", ()):
        if alias.parameter in arguments and max(len(alias.output_index), len(alias.parameter_index)) < 2:
            at = alias.output_index[0] if alias.output_index else 0
            aliases[at] = Home(arguments[alias.parameter], *alias.parameter_index)
    donors = [donor for donor in draft.attributes.get("buffer_donor", ()) if donor.parameter in arguments]
    given = {Home(arguments[one.parameter], *one.parameter_index) for one in donors if len(one.parameter_index) < 2}
    return aliases, given - set(aliases.values())


def _copy_results(order: Order, graph: Graph, aliases: Mapping[int, Home], donated: set[Home]) -> None:
    """Copy what is returned as it is: what stays the caller's, constants, and one array twice."""
    results = _results(graph)
    own = _own_places(order, results, aliases)
    taken: set[Home] = set()
    for at, result in enumerate(results):
        is_array = isinstance(result.shape, ArrayShape) and result.shape.dtype.is_array_type
        if not is_array or (graph is not order.draft.entry and result.is_small):
            continue
        home = home_of(order.draft, result)
        is_kept = home.node.opcode == "parameter" and (
            home != aliases[at] if at in aliases else donated.isdisjoint((home, Home(home.node)))
        )
        if is_kept or home.node.opcode == "constant" or home in taken or own.get(home, at) != at:
            results[at] = _another(order, graph, result, order.of(graph)[result] + 0.5)
        else:
            taken.add(home)
    _return(graph, results)


def _own_places(order: Order, results: Iterable[Node], given: Mapping[int, Home]) -> dict[Home, int]:
    """Return where arrays have to go that are written over what is ``given`` there, and are returned several times."""
    own: dict[Home, int] = {}
    for at, result in enumerate(results):
        if at in given and writers_of(order, result, given[at])[1] == given[at]:
            own.setdefault(home_of(order.draft, result), at)
    return own


def _results(graph: Graph) -> list[Node]:
    return list(graph.root.operands) if graph.root.opcode == "tuple" else [graph.root]


def _return(graph: Graph, results: list[Node]) -> None:
    """Let a graph return these, where it returned as many others."""
    if graph.root.opcode != "tuple":
        graph.root = results[0]
    elif results != graph.root.operands:
        graph.root.take(results)


def _copy_what_takes_arguments(order: Order, entry: Graph) -> list[Place]:
    """Copy results that cannot be what they are, and arguments that are still read where others come to lie."""
    aliases, donated = _given_away(order.draft)
    _copy_results(order, entry, aliases, donated)
    places = [Place(entry, home, at) for at, home in aliases.items()]
    for place in places:
        writers, base = writers_of(order, place.made, place.given)
        if base not in (None, place.given):
            # Memory that is given away for one result is not that of another.
            node, at = writers[-1]
            _replace(order, entry, node, [order.updates(node)[at or 0]])
    _copy_what_is_read_late(order, entry, places)
    return places


def _copy_state(order: Order, body: Graph) -> list[Place]:
    """Give everything that a loop carries on a place of its own, which nothing reads any more when it is written."""
    (state,) = body.parameters
    # One array alone is the state of some.
    count = len(_results(body)) if body.root.opcode == "tuple" else 0
    places = [Place(body, Home(state, at), at) for at in range(count)] or [Place(body, Home(state), 0)]
    copied = _copy_what_is_read_late(order, body, places)
    _copy_what_changes_places(order, body, places, copied)
    return places


def _copy_what_changes_places(order: Order, body: Graph, places: Iterable[Place], copied: Mapping[Home, Node]) -> None:
    """Copy what is carried on to two places, or to one that it was not at; of what goes round one twice.

    In a circle each waits for the next one to be read: one has to lie elsewhere in the meantime.
    """
    results, taken = _results(body), set[Home]()
    place_of = {place.given: place.at for place in places}
    own = _own_places(order, results, {place.at: place.given for place in places})
    came_from = {Home(copy): place_of[given] for given, copy in copied.items()}
    # Where it is updated on the way it has moved all the same.
    firsts = {at: writers_of(order, result)[0][-1] for at, result in enumerate(results) if _has_place(result)}
    # What goes to several places goes to the first of them itself.
    broken = _least_of_circles({came_from[firsts[at]]: at for at in reversed(firsts) if firsts[at] in came_from})
    for at, result in enumerate(results):
        if not _has_place(result):
            continue
        home = home_of(order.draft, result)
        is_moved = place_of.get(home, at) != at or own.get(home, at) != at
        if is_moved or home in taken or home.node.opcode == "constant" or at in broken:
            results[at] = _another(order, body, result, inf)
        else:
            taken.add(home)
    _return(body, results)


def _has_place(node: Node) -> bool:
    """Return whether an array is large enough to be asked where it lies."""
    return isinstance(node.shape, ArrayShape) and not node.is_small


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
    late = [place.given for place in places if place.given in names and _is_read_late(order, place, over)]
    copied = {given: _another(order, graph, names[given][0], -1) for given in late}
    instead = {name: copy for given, copy in copied.items() for name in names[given]}
    # Once for all of its operands, of which a user may have thousands.
    for user in dict.fromkeys(user for name, copy in instead.items() for user in name.users if user is not copy):
        user.replace_operands(instead)
    return copied


def _is_read_late(order: Order, place: Place, over: dict[Node, set[Home]]) -> bool:
    """Return whether something needs what is given at a place when it is first written over.

    ``over`` is what readers write over, as far as that was asked for others.
    """
    number, given = order.of(place.graph), place.given
    if not _has_place(place.made) or home_of(order.draft, place.made) == given:
        return False
    writers, base = writers_of(order, place.made, given)
    first, at = writers[-1]
    readers = order.readers(place.graph, given)
    # What was given at another place is copied from there, as early as that has to be read.
    if first.opcode in FREE or base not in (None, given):
        return bool(readers)
    if _reads_out_of_order(order, first, at or 0, given):
        return True
    others = [reader for reader in readers if reader is not first]
    # Of two that are copied for one node neither comes first.
    if any(number[reader] >= number[first] for reader in others):
        return True
    for reader in others:
        if reader not in over:
            handed = handed_over(reader).operands
            over[reader] = {home_of(order.draft, handed[at]) for at in order.updates(reader).values()}
    return any(given in over[reader] for reader in others)


def _wait_for_readers(order: Order, place: Place) -> None:
    """Let what first writes at a place wait until nothing needs what was there."""
    given = place.given
    if not _has_place(place.made) or home_of(order.draft, place.made) == given:
        return
    first = writers_of(order, place.made, given)[0][-1].node
    let_wait(first, (reader for reader in order.readers(place.graph, given) if reader is not first))


def _reads_out_of_order(order: Order, maker: Node, at: int, home: Home) -> bool:
    """Return whether a node cannot write a result where an array lies, since it reads that in another order."""
    # Asked for each of a node's results, of which there may be thousands.
    if maker not in order.out_of_order:
        order.out_of_order[maker] = _homes(order.draft, maker, _unordered(order.draft, maker))
    places = order.out_of_order[maker].get(home, ())
    if places and maker.opcode == "fusion":
        return home in _homes(order.draft, maker, _unordered(order.draft, maker, at))
    # What a loop makes of an element lies in its place.
    return any(place != at for place in places)


def _homes(draft: Draft, maker: Node, operands: Iterable[Node]) -> dict[Home, list[int]]:
    """Return what operands lie in, with their places in the state of a loop, -1 for what is none."""
    found: dict[Home, list[int]] = {}
    for operand in operands:
        elements = operand.source.operands if operand.source.opcode == "tuple" else [operand]
        for index, element in enumerate(elements):
            found.setdefault(home_of(draft, element), []).append(index if maker.opcode == "while" else -1)
    return found


def _unordered(draft: Draft, maker: Node, at: int | None = None) -> list[Node]:
    """Return the operands that a node does not read element by element, as it writes a result, or any of them."""
    if maker.opcode != "fusion":
        return [] if maker.opcode in ELEMENTWISE | IN_PLACE else maker.operands
    inner = draft.graphs[maker.attributes["calls"]]
    nodes = inner.order()
    # What it also reduces, or returns elsewhere, it has read when it writes.
    in_order = ELEMENTWISE | IN_PLACE | VIEWS | {"tuple"}
    way = set(nodes) if at is None else _made_of(_results(inner)[at])
    spoilt: set[Node] = set()
    for node in reversed(nodes):
        users = ((user, in_order if user in way else in_order | RELAYOUTS | {"reduce"}) for user in node.users)
        if any(user in spoilt or user.opcode not in allowed for user, allowed in users):
            spoilt.add(node)
    return [operand for one, operand in zip(inner.parameters, maker.operands, strict=True) if one in spoilt]


def _made_of(node: Node) -> set[Node]:
    """Return a node and all that it is made of."""
    found, todo = {node}, [node]
    while todo:
        new = set(todo.pop().operands) - found
        found |= new
        todo.extend(new)
    return found


def _another(order: Order, graph: Graph, node: Node, at: float) -> Node:
    """Return a copy of an array, which comes at a number of the order; what is made from nothing is made once more."""
    is_free = node.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS
    made = graph.clone(node) if is_free else graph.add("copy", node.shape, [node], like=node)
    order.of(graph)[made] = at
    return made
