"""In which order loops carry arrays: those that they take or write row by row, and those that they only read.

What a loop takes row by row it takes as it is handed, and what it writes row by row it writes as it is wanted behind
it, unless rows would be narrow parts of tiles. Behind the layouts, what a loop only reads in another order than it is
handed is brought into that order before it.

Source: programs compiled ahead of time for v5e (libtpu 0.0.52), 170 of them small ones with ``lax.scan``.
"""

from __future__ import annotations

from typing import NamedTuple

from tpusim.compiler.layouts.orders import Order, boundary_order, fullest_order
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.chip import Chip
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_FEW = 128
"""Elements up to which a row is turned before its loop and not in it. Source: programs compiled ahead of time."""


class Rows(NamedTuple):
    """What a loop takes and what it writes row by row: by the place in what it carries, along which dimension."""

    taken: dict[int, int]
    written: dict[int, int]


def rows_of(graph: Graph, loop: Node) -> Rows:
    """Return what a loop does row by row with arrays that it is handed in a tuple made for it alone."""
    draft = graph.draft
    state, body = loop.operands[0], draft.graphs[loop.attributes["body"]]
    rows = Rows({}, {})
    if state.opcode != "tuple" or list(state.users) != [loop] or body.root.opcode != "tuple":
        return rows
    # Whoever takes all of what it carries takes it in its usual order.
    if loop is graph.root or any(user.opcode != "get-tuple-element" for user in loop.users):
        return rows
    asked = draft.graphs[loop.attributes["condition"]].parameters[0].takers()
    for at, inside in enumerate(body.parameters[0].takers()):
        if not isinstance(state.operands[at].shape, ArrayShape) or asked[at]:
            continue
        ways = (rows.taken, _taken_along(body, at, inside)), (rows.written, _written_along(body, at, inside))
        for found, along in ways:
            if along is not None:
                found[at] = along
    return rows


def _taken_along(body: Graph, at: int, inside: list[Node]) -> int | None:
    """Return the dimension of which a body takes one number, if it does nothing else with a part that it carries.

    ``inside`` are those that get that part in the body.
    """
    root = body.root
    if any(taker.opcode != "get-tuple-element" for taker in inside) or root.operands[at] not in inside:
        return None
    if sum(operand in inside for operand in root.operands) > 1:
        return None
    users = {user for taker in inside for user in taker.users if user is not root}
    along = {_single(user.array, user.operands[0].array) for user in users if user.opcode == "dynamic-slice"}
    return along.pop() if len(along) == 1 and all(user.opcode == "dynamic-slice" for user in users) else None


def _written_along(body: Graph, at: int, inside: list[Node]) -> int | None:
    """Return the dimension of which a body writes one number, if it does nothing else with a part that it carries."""
    update = body.root.operands[at]
    if update.opcode != "dynamic-update-slice" or inside != update.operands[:1] or list(inside[0].users) != [update]:
        return None
    if list(update.users) != [body.root] or body.root.operands.count(update) > 1:
        return None
    # What is made with that dimension is made in the order of what it is written to.
    if update.operands[1].opcode != "reshape":
        return None
    return _single(update.operands[1].array, update.array)


def _single(row: ArrayShape, whole: ArrayShape) -> int | None:
    """Return the dimension of which a row has one number of several, if it has all of the others."""
    sizes = zip(row.dimensions, whole.dimensions, strict=True)
    cut = [(d, size) for d, (size, all_of_it) in enumerate(sizes) if size != all_of_it]
    return cut[0][0] if len(cut) == 1 and cut[0][1] == 1 else None


def order_of_taken(handed: Order, array: ArrayShape, along: int, chip: Chip, *, inside: bool, fills: bool) -> Order:
    """Return the order in which a loop carries what it takes row by row: as a rule that in which it is handed.

    With that dimension in lanes it is copied before a loop that is ``inside`` of another one. Before others, if it is
    handed as arguments are, where rows would have to be turned in the loop, and are small, or the loop ``fills`` a
    stack with others. So it is where a row could as well lie with its lanes as they are and its sublanes full.
    """
    if handed[0] != along or not (inside or handed == boundary_order(array, chip)):
        return handed
    row, left = _row(array, along)
    found, usual = tuple(left.index(d) for d in handed if d != along), boundary_order(row, chip)
    best = fullest_order(row, chip)
    fills_better = best != usual and found[:1] == best[:1]
    if inside or (found != best and (fills or row.element_count <= _FEW or fills_better)):
        return (*(left[d] for d in usual), along)
    return handed


def order_of_written(wanted: Order, array: ArrayShape, along: int, chip: Chip) -> Order:
    """Return the order in which a loop carries what it writes row by row and is ``wanted`` behind it in some order.

    That, unless a row is a part of each lane, or of each word: then row by row.
    """
    is_part = wanted[0] == along or (along in wanted[:2] and array.dtype.packed_bits < 32)
    row, left = _row(array, along)
    return (*(left[d] for d in boundary_order(row, chip)), along) if is_part else wanted


def _row(array: ArrayShape, along: int) -> tuple[ArrayShape, list[int]]:
    """Return a row of an array, one number of a dimension, and which dimensions of the array it has."""
    left = [d for d in range(array.rank) if d != along]
    return ArrayShape(array.dtype, tuple(array.dimensions[d] for d in left)), left


def copy_before_loops(draft: Draft) -> None:
    """Take copies of what loops do not change out of them; of inner loops first, whose copies the outer ones make."""
    loops = [(graph, node) for graph in draft.running() for node in graph.order() if node.opcode == "while"]
    for graph, loop in loops:
        # Pass 1 has given each loop computations of its own.
        if loop is not graph.root and loop.operands[0].opcode == "tuple":
            body, condition = (draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
            inside, behind, asked = (one.takers() for one in (body.parameters[0], loop, condition.parameters[0]))
            for at, takers in enumerate(zip(inside, behind, strict=True)):
                if not asked[at]:
                    _copy_before(graph, loop, at, *takers)


def _copy_before(graph: Graph, loop: Node, at: int, inside: list[Node], behind: list[Node]) -> None:
    """Copy before a loop what is taken ``inside`` of it, and ``behind`` it, at a place, if it is only copied."""
    body, condition = (graph.draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    are_elements = all(taker.opcode == "get-tuple-element" for taker in (*inside, *behind))
    is_unchanged = body.root.opcode == "tuple" and body.root.operands[at] in inside
    if not (are_elements and is_unchanged):
        return
    ways = [_way_to_copy(body, user) for taker in inside for user in taker.users if user is not body.root]
    if len({tuple(node.shape for node in way) for way in ways}) != 1 or not ways[0]:
        return
    if sum(operand in inside for operand in body.root.operands) > 1:
        return
    shape = ways[0][-1].shape
    state = graph.own(loop.operands[0], loop)
    made = before = state.operands[at]
    for taker in behind:
        graph.replace(taker, before)
    for node in ways[0]:
        made = graph.add(node.opcode, node.shape, [made], like=node)
    state.take([*state.operands[:at], made, *state.operands[at + 1 :]])
    for whole in (state, loop, body.root, body.parameters[0], condition.parameters[0]):
        whole.shape = _with_element(whole.shape, at, shape)
    for taker in inside:
        taker.shape = shape
        for way in [way for way in ways if way[0].operands == [taker]]:
            body.replace(way[-1], taker)


def _way_to_copy(body: Graph, node: Node) -> list[Node]:
    """Return bitcasts from a node on, each for the next alone, and the copy behind them; nothing if there is none."""
    way = [node]
    while way[-1].opcode == "bitcast" and len(way[-1].users) == 1 and way[-1] is not body.root:
        way += way[-1].users
    return way if way[-1].opcode == "copy" else []


def _with_element(whole: Shape, at: int, shape: Shape) -> TupleShape:
    assert isinstance(whole, TupleShape)
    return TupleShape((*whole.elements[:at], shape, *whole.elements[at + 1 :]))
