"""Between fusion and tiles: what may not be written over is copied before it is updated in place.

That are arguments that the caller keeps, constants, what is still read afterwards, and what a loop carries twice. What
a loop carries on lies where it was before: what is still read when the new has been made is copied too.

Source: XLA, CopyInsertion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import InstructionName
from tpusim.ir.ops import ELEMENTWISE, FREE, FUSES_INTO_USERS, IN_PLACE, LAID_OUT_FREELY, VIEWS
from tpusim.shapes.shape import ArrayShape, TupleShape

_BEFORE = "control-predecessors"


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own."""
    branches: dict[Graph, _Branch] = {}
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "while":
                _copy_state(draft, draft.graphs[node.attributes["body"]])
            if node.opcode == "conditional":
                given = zip(node.called, node.operands[1:], strict=True)
                branches |= {draft.graphs[name]: _Branch(graph, node, operand) for name, operand in given}
    kept = _Kept(draft, branches)
    for graph in draft.running():
        for node in kept.number(graph):
            _copy_what_is_updated(draft, graph, node, kept)
        if graph in branches:
            _copy_results(draft, graph, {}, set())
    aliases = {alias.output_index: alias.parameter for alias in draft.attributes.get("input_output_alias", ())}
    donated = {donor.parameter for donor in draft.attributes.get("buffer_donor", ())}
    _copy_results(draft, draft.entry, aliases, donated)


def _copy_what_is_updated(draft: Draft, graph: Graph, node: Node, kept: _Kept) -> None:
    """Give what a node writes over memory of its own, where others need it as it is."""
    user, places = _updated(draft, node)
    if places and user is not node and len(user.users) > 1:
        # Others, such as a second loop, take what it hands over as well.
        whole, user = user, graph.clone(user)
        node.replace_operand(whole, user)
    operands = list(user.operands)
    # What is handed over twice is two arrays from then on.
    times = Counter(operands)
    for at in places:
        updated = operands[at]
        if times[updated] > 1 or kept.is_read_after(graph, updated, node, user) or kept.holds(graph, updated):
            operands[at] = _another(graph, updated)
            times[updated] -= 1
    if operands != user.operands:
        user.take(operands)


class _Branch(NamedTuple):
    """Where a branch is chosen: by which node of which graph, and what it is given there."""

    graph: Graph
    node: Node
    operand: Node


class _Kept:
    """Answers which memory must stay as it is: the caller's, that of constants, and what is read afterwards."""

    def __init__(self, draft: Draft, branches: Mapping[Graph, _Branch]) -> None:
        self._draft = draft
        self._branches = branches
        self._numbers: dict[Graph, dict[Node, int]] = {}
        aliases, donors = (draft.attributes.get(name, ()) for name in ("input_output_alias", "buffer_donor"))
        self._given = {alias.parameter for alias in aliases} | {donor.parameter for donor in donors}

    def number(self, graph: Graph) -> dict[Node, int]:
        """Return the places of a graph's nodes in its order, before anything was copied."""
        if graph not in self._numbers:
            self._numbers[graph] = {node: at for at, node in enumerate(graph.order())}
        return self._numbers[graph]

    def is_read_after(self, graph: Graph, array: Node, node: Node, user: Node) -> bool:
        """Return whether an array is read behind a node, but for a user; the result of a graph is."""
        number = self.number(graph)
        if array.source is graph.root.source:
            return True
        readers = [other for other in _readers(array.source) if other is not user]
        # What a tuple holds is read by those that take it.
        readers += [
            other for reader in readers if reader.opcode == "tuple" for other in reader.users if other is not node
        ]
        return any(number.get(other, -1) > number[node] for other in readers)

    def holds(self, graph: Graph, array: Node) -> bool:
        """Return whether the memory of an array has to stay as it is, whatever the graph still reads."""
        while True:
            home = _home(self._draft, array)
            owner = _owner(home)
            if owner.opcode != "parameter":
                return owner.opcode == "constant"
            if graph is self._draft.entry:
                return owner.immediate not in self._given
            if graph not in self._branches:
                return False
            # What a branch is given is of the graph that chooses it.
            graph, node, given = self._branches[graph]
            array = given.source
            if home is not owner:
                # Of a tuple that was made elsewhere nobody knows who else has its elements.
                if array.opcode != "tuple" or home.operands[0].source is not owner:
                    return True
                array = array.operands[home.attributes["index"]]
            if self.is_read_after(graph, array, node, node):
                return True


def _copy_results(draft: Draft, graph: Graph, aliases: Mapping[tuple[int, ...], int], donated: set[int]) -> None:
    """Copy what is returned as it is: what stays the caller's, constants, and one array twice."""
    is_tuple = graph.root.opcode == "tuple"
    results = list(graph.root.operands) if is_tuple else [graph.root]
    taken: set[Node] = set()
    for at, result in enumerate(results):
        is_array = isinstance(result.shape, ArrayShape) and result.shape.dtype.is_array_type
        if not is_array or (graph is not draft.entry and result.is_small):
            continue
        home = _home(draft, result)
        owner = home.operands[0] if home.opcode == "get-tuple-element" else home
        number = owner.immediate if owner.opcode == "parameter" else None
        is_kept = number is not None and number not in donated and aliases.get((at,) if is_tuple else ()) != number
        if is_kept or home.opcode == "constant" or home in taken:
            results[at] = _another(graph, result)
        taken.add(home)
    if is_tuple and results != graph.root.operands:
        graph.root.take(results)
    elif not is_tuple:
        graph.root = results[0]


def _home(draft: Draft, node: Node) -> Node:
    """Return the node in whose memory an array lies: behind views and tuples, and loops that hand it on as it is."""
    while True:
        if node.opcode in VIEWS:
            node = node.operands[0]
            continue
        if node.opcode != "get-tuple-element":
            return node
        whole, at = node.operands[0].source, node.attributes["index"]
        if whole.opcode == "while" and not _changes(draft, whole, at):
            whole = whole.operands[0].source
        if whole.opcode != "tuple":
            return node
        node = whole.operands[at]


def _owner(node: Node) -> Node:
    """Return what makes an array, or the tuple that it is an element of."""
    while node.opcode in VIEWS | {"get-tuple-element"}:
        node = node.operands[0]
    return node


def _copy_state(draft: Draft, body: Graph) -> None:
    """Give everything that a loop carries on a place of its own, which nothing reads any more when it is written."""
    if body.root.opcode == "tuple":
        copied = _copy_what_is_read_late(draft, body)
        _copy_what_changes_places(draft, body, copied)
        for given, copy in copied.items():
            writer = _owner(body.root.operands[given.attributes["index"]])
            # Else the new value may come first, where the old one still lies.
            if writer is not copy and writer.opcode != "parameter":
                before = writer.attributes.get(_BEFORE, ())
                writer.attributes = {**writer.attributes, _BEFORE: (*before, InstructionName(copy.name))}


def _copy_what_changes_places(draft: Draft, body: Graph, copied: Mapping[Node, Node]) -> None:
    """Copy what is carried on to two places, or to one that it was not at; of what goes round one twice.

    In a circle each waits for the next one to be read: one has to lie elsewhere in the meantime.
    """
    results, taken = list(body.root.operands), set[Node]()
    came_from = {copy: given.attributes["index"] for given, copy in copied.items()}
    broken = _least_of_circles({came_from[result]: at for at, result in enumerate(results) if result in came_from})
    for at, result in enumerate(results):
        if not isinstance(result.shape, ArrayShape) or result.is_small:
            continue
        home = _home(draft, result)
        is_given = home.opcode == "get-tuple-element" and home.operands[0] is body.parameters[0]
        is_moved = is_given and home.attributes["index"] != at
        if is_moved or home in taken or home.opcode == "constant" or at in broken:
            results[at] = _another(body, result)
        taken.add(home)
    if results != body.root.operands:
        body.root.take(results)


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


def _copy_what_is_read_late(draft: Draft, body: Graph) -> dict[Node, Node]:
    """Copy what a loop's body still reads when what it carries on instead, to the same place, has been made.

    Return the copies by what they are of.
    """
    number = {node: at for at, node in enumerate(body.order())}
    read: dict[Node, dict[Node, list[int]]] = {}
    copied: dict[Node, Node] = {}
    for given in [user for user in body.parameters[0].users if user.opcode == "get-tuple-element"]:
        made = body.root.operands[given.attributes["index"]]
        if made is given or made.is_small or not isinstance(made.shape, ArrayShape):
            continue
        at, writers = _writers(draft, made, given)
        for writer in writers:
            if writer not in read:
                read[writer] = _read_out_of_order(draft, writer)
        # What nobody needs has no place in the order. The first one that writes there makes an end of the old value.
        readers = [user for user in _readers(given) if user in number and user not in writers]
        late = any(not _is_made_of(writers[-1], user, number) for user in readers)
        if late or any(place != at for writer in writers for place in read[writer].get(given, ())):
            copied[given] = body.add("copy", given.shape, [given], like=given)
    for user in dict.fromkeys(user for given, copy in copied.items() for user in given.users if user is not copy):
        user.replace_operands(copied)
    return copied


def _readers(node: Node) -> Iterator[Node]:
    """Yield what reads an array, under whatever name."""
    todo = [*node.users]
    while todo:
        user = todo.pop()
        if user.opcode in VIEWS:
            todo += user.users
        else:
            yield user


def _is_made_of(node: Node, made: Node, number: Mapping[Node, int]) -> bool:
    """Return whether a node is made of another one; ``number`` is their place in the order."""
    todo, seen = [node], set[Node]()
    while todo and made not in seen:
        # What stands before it is not made of it.
        new = {operand for operand in todo.pop().operands if number[operand] >= number[made]} - seen
        seen |= new
        todo.extend(new)
    return made in seen


def _writers(draft: Draft, made: Node, given: Node) -> tuple[int, list[Node]]:
    """Return what writes where an array comes to lie, the last first: its maker, and what that updates in place.

    Before them the number of the array among what the maker makes, -1 if it makes nothing else.
    """
    at, maker = -1, made
    while maker.opcode in VIEWS | {"get-tuple-element"} and maker.operands[0].opcode != "parameter":
        at = maker.attributes["index"] if maker.opcode == "get-tuple-element" else at
        maker = maker.operands[0]
    found = [maker]
    while True:
        user, places = _updated(draft, found[-1])
        if user is not found[-1] or len(places) != 1:
            return at, found
        base = user.operands[places[0]].source
        if base is given or base.opcode in FREE:
            return at, found
        found.append(base)


def _read_out_of_order(draft: Draft, maker: Node) -> dict[Node, list[int]]:
    """Return the arrays in whose place a node cannot write what it makes, since it reads them in another order.

    With each are the numbers of the elements of a loop's state that it is, -2 of what is read elsewhere: what a loop
    makes of an element lies in its place.
    """
    found: dict[Node, list[int]] = {}
    for operand in _unordered(draft, maker):
        source = operand.source
        found.setdefault(source, []).append(-2)
        for at, element in enumerate(source.operands if source.opcode == "tuple" else ()):
            found.setdefault(element.source, []).append(at if maker.opcode == "while" else -2)
    return found


def _unordered(draft: Draft, maker: Node) -> list[Node]:
    """Return the operands that a node does not read element by element, as it writes its result."""
    if maker.opcode != "fusion":
        return [] if maker.opcode in ELEMENTWISE | IN_PLACE else maker.operands
    inner = draft.graphs[maker.attributes["calls"]]
    in_order = ELEMENTWISE | IN_PLACE | VIEWS | {"tuple"}
    spoilt: set[Node] = set()
    for node in reversed(inner.order()):
        if any(user.opcode not in in_order or user in spoilt for user in node.users):
            spoilt.add(node)
    return [operand for one, operand in zip(inner.parameters, maker.operands, strict=True) if one in spoilt]


def _another(graph: Graph, node: Node) -> Node:
    """Return a copy of an array; what is made from nothing is made once more."""
    if node.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS:
        return graph.clone(node)
    return graph.add("copy", node.shape, [node], like=node)


def _updated(draft: Draft, node: Node) -> tuple[Node, list[int]]:
    """Return what hands over the arrays that a node writes over, and the numbers of its operands that are these."""
    if node.opcode in IN_PLACE:
        return node, [0]
    if node.opcode == "fusion":
        body = draft.graphs[node.attributes["calls"]]
        number = {parameter: at for at, parameter in enumerate(body.parameters)}
        roots = body.root.operands if body.root.opcode == "tuple" else [body.root]
        targets = [root.operands[0] for root in roots if root.opcode in IN_PLACE]
        return node, [number[target] for target in targets if target in number]
    if node.opcode == "while" and node.operands[0].opcode == "tuple":
        carried = node.operands[0].operands
        arrays = [at for at, each in enumerate(carried) if isinstance(each.shape, ArrayShape) and each.shape.rank]
        return node.operands[0], [at for at in arrays if _changes(draft, node, at)]
    return node, []


def _changes(draft: Draft, loop: Node, at: int) -> bool:
    """Return whether a loop carries something else on at one place than it was given."""
    root = draft.graphs[loop.attributes["body"]].root
    if root.opcode != "tuple":
        return True
    passed = root.operands[at]
    return passed.opcode != "get-tuple-element" or passed.attributes["index"] != at or not _is_carried(passed)


def _is_carried(element: Node) -> bool:
    (whole,) = element.operands
    return whole.opcode == "parameter" and isinstance(whole.shape, TupleShape)
