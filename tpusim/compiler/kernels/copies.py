"""Between fusion and tiles: what may not be written over is copied before it is updated in place.

That are arguments that the caller keeps, constants, what is still read afterwards, and what a loop carries twice. What
a loop carries on lies where it was before: what is still read when the new has been made is copied too.

Source: XLA, CopyInsertion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import ELEMENTWISE, FUSES_INTO_USERS, IN_PLACE, LAID_OUT_FREELY, VIEWS
from tpusim.shapes.shape import ArrayShape, TupleShape


def copy_what_is_kept(draft: Draft, target: Target) -> None:
    """Give every update in place a target of its own."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "while":
                _copy_what_is_read_late(draft, draft.graphs[node.attributes["body"]])
    for graph in draft.running():
        number = {node: at for at, node in enumerate(graph.order())}
        given = _kept_arguments(draft) if graph is draft.entry else set()
        for node in number:
            user, places = _updated(draft, node)
            operands = list(user.operands)
            # What is handed over twice is two arrays from then on.
            times = Counter(operands)
            for at in places:
                updated = operands[at]
                later = any(number.get(other, -1) > number[node] for other in updated.users if other is not user)
                if later or times[updated] > 1 or updated is graph.root or _is_kept(updated, given):
                    operands[at] = _another(graph, updated)
                    times[updated] -= 1
            if operands != user.operands:
                user.take(operands)
    _copy_results(draft)


def _copy_results(draft: Draft) -> None:
    """Copy what a program returns as it is: arguments that stay the caller's, constants, and one array twice."""
    graph = draft.entry
    is_tuple = graph.root.opcode == "tuple"
    results = list(graph.root.operands) if is_tuple else [graph.root]
    aliases = {alias.output_index: alias.parameter for alias in draft.attributes.get("input_output_alias", ())}
    donated = {donor.parameter for donor in draft.attributes.get("buffer_donor", ())}
    taken: set[Node] = set()
    for at, result in enumerate(results):
        if not isinstance(result.shape, ArrayShape) or not result.shape.dtype.is_array_type:
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
    """Return the node in whose memory an array lies: behind views, and behind loops that hand it on as it is."""
    while True:
        source = node.operands[0] if node.opcode in VIEWS | {"get-tuple-element"} else node
        if source.opcode == "while" and source.operands[0].opcode == "tuple":
            at = node.attributes["index"]
            if _changes(draft, source, at):
                return node
            source = source.operands[0].operands[at]
        elif node.opcode not in VIEWS:
            return node
        node = source


def _copy_what_is_read_late(draft: Draft, body: Graph) -> None:
    """Copy what a loop's body still reads when what it carries on instead, to the same place, has been made."""
    if body.root.opcode != "tuple":
        return
    number = {node: at for at, node in enumerate(body.order())}
    spoilt: dict[Node, set[Node]] = {}
    copied: dict[Node, Node] = {}
    for given in [user for user in body.parameters[0].users if user.opcode == "get-tuple-element"]:
        made = body.root.operands[given.attributes["index"]]
        if made is given or made.is_small or not isinstance(made.shape, ArrayShape):
            continue
        maker = made
        while maker.opcode in VIEWS | {"get-tuple-element"} and maker.operands[0] is not body.parameters[0]:
            maker = maker.operands[0]
        if maker not in spoilt:
            spoilt[maker] = _cannot_write_over(draft, maker)
        # What nobody needs has no place in the order.
        readers = [user for user in _readers(given) if user in number]
        late = [user for user in readers if user is not maker and not _is_made_of(maker, user, number)]
        if late or (maker in readers and given in spoilt[maker]):
            copied[given] = body.add("copy", given.shape, [given], like=given)
    for user in dict.fromkeys(user for given, copy in copied.items() for user in given.users if user is not copy):
        user.replace_operands(copied)


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


def _cannot_write_over(draft: Draft, maker: Node) -> set[Node]:
    """Return the arrays in whose place a node cannot write what it makes, since it reads them in another order."""
    if maker.opcode != "fusion":
        return set() if maker.opcode in ELEMENTWISE | IN_PLACE else {operand.source for operand in maker.operands}
    inner = draft.graphs[maker.attributes["calls"]]
    in_order = ELEMENTWISE | IN_PLACE | VIEWS | {"tuple"}
    spoilt: set[Node] = set()
    for node in reversed(inner.order()):
        if any(user.opcode not in in_order or user in spoilt for user in node.users):
            spoilt.add(node)
    pairs = zip(inner.parameters, maker.operands, strict=True)
    return {operand.source for parameter, operand in pairs if parameter in spoilt}


def _another(graph: Graph, node: Node) -> Node:
    """Return a copy of an array; what is made from nothing is made once more."""
    if node.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS:
        return graph.clone(node)
    return graph.add("copy", node.shape, [node], like=node)


def _kept_arguments(draft: Draft) -> set[Node]:
    """Return the parameters of the program whose memory stays the caller's."""
    aliases, donors = (draft.attributes.get(name, ()) for name in ("input_output_alias", "buffer_donor"))
    given = {alias.parameter for alias in aliases} | {donor.parameter for donor in donors}
    return {node for node in draft.entry.parameters if node.immediate not in given}


def _is_kept(node: Node, kept: set[Node]) -> bool:
    while node.opcode in VIEWS or node.opcode == "get-tuple-element":
        node = node.operands[0]
    return node in kept or node.opcode == "constant"


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
