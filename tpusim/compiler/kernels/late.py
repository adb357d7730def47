"""Whether something is still read when what comes to lie at its place is written."""

from __future__ import annotations

from collections.abc import Iterable

from tpusim.compiler.kernels.places import (
    Home,
    Order,
    Place,
    elements_of,
    handed,
    has_place,
    home_of,
    results_of,
    writers_of,
)
from tpusim.draft import Draft, Node
from tpusim.ir.ops import ELEMENTWISE, FREE, IN_PLACE, RELAYOUTS, VIEWS


def is_read_late(order: Order, place: Place, over: dict[Node, set[Home]]) -> bool:
    """Return whether something needs what is given at a place when it is first written over.

    ``over`` is what readers write over, as far as that was asked for others.
    """
    number, given = order.of(place.graph), place.given
    if not has_place(place.made) or home_of(order, place.made) == given:
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
            over[reader] = {home_of(order, array) for array in order.updated(reader)}
    return any(given in over[reader] for reader in others)


def _reads_out_of_order(order: Order, maker: Node, at: int, home: Home) -> bool:
    """Return whether a node cannot write a result where an array lies, since it reads that in another order."""
    # Asked for each of a node's results, of which there may be thousands.
    if maker not in order.out_of_order:
        order.out_of_order[maker] = _homes(order, maker, _unordered(order.draft, maker))
    places = order.out_of_order[maker].get(home, ())
    if places and maker.opcode == "fusion":
        return home in _homes(order, maker, _unordered(order.draft, maker, at))
    # What a loop makes of an element lies in its place, and branches say which result lies where.
    return any(place != at for place in places)


def _homes(order: Order, maker: Node, operands: Iterable[tuple[int, Node]]) -> dict[Home, list[int]]:
    """Return what numbered operands lie in, with the result that each may lie under, -1 for what may lie under none."""
    found: dict[Home, list[int]] = {}
    arrays = handed(maker) if maker.opcode == "conditional" else []
    over = {home_of(order, arrays[number]): at for at, number in order.updates(maker).items() if arrays}
    under = _results_over(order, maker)
    for number, operand in operands:
        for index, element in enumerate(elements_of(operand.source)):
            home = home_of(order, element)
            place = index if maker.opcode == "while" else over.get(home, under.get(number, -1))
            found.setdefault(home, []).append(place)
    return found


def _results_over(order: Order, maker: Node) -> dict[int, int]:
    """Return by operand which result a node may write over it although it reads it in another order.

    A sort may share each array with its result (XLA, CanShareOperandBufferWithUser); of a kernel its author says it.
    """
    if maker.opcode == "sort":
        return {at: at for at in range(len(maker.operands))}
    return {number: at for at, number in order.updates(maker).items()} if maker.opcode == "custom-call" else {}


def _changed(update: Node) -> Node:
    """Return the array that an update, and those before it, are written to."""
    while update.opcode in IN_PLACE:
        update = update.operands[0].source
    return update


def _unordered(draft: Draft, maker: Node, at: int | None = None) -> list[tuple[int, Node]]:
    """Return the operands, by number, that a node does not read as it writes a result, or any of them."""
    if maker.opcode != "fusion":
        return [] if maker.opcode in ELEMENTWISE | IN_PLACE else list(enumerate(maker.operands))
    inner = draft.graphs[maker.attributes["calls"]]
    nodes, results = inner.order(), results_of(inner)
    # What it also reduces, or returns elsewhere, it has read when it writes.
    in_order = ELEMENTWISE | IN_PLACE | VIEWS | {"tuple"}
    way = set(nodes) if at is None else _made_of(results[at])
    spoilt: set[Node] = set()
    for node in reversed(nodes):
        users = ((user, in_order if user in way else in_order | RELAYOUTS | {"reduce"}) for user in node.users)
        if any(user in spoilt or user.opcode not in allowed for user, allowed in users):
            spoilt.add(node)
    # What it makes beside an update in place lies over nothing that it reads.
    updates = [result.source for result in results if result.source.opcode in IN_PLACE]
    if len(results) > 1 and updates:
        spoilt |= set(inner.parameters) - set(map(_changed, updates))
    return [(number, maker.operands[number]) for number, one in enumerate(inner.parameters) if one in spoilt]


def _made_of(node: Node) -> set[Node]:
    """Return a node and all that it is made of."""
    found, todo = {node}, [node]
    while todo:
        new = set(todo.pop().operands) - found
        found |= new
        todo.extend(new)
    return found
