"""Behind the order: what is gathered for a later kernel comes in while products run that do not need it.

Where the TPU compiler does so, one gather at a time begins before the first product that it can run beside, behind the
end of the one before it, and ends before its first user. Others are waited for.

Source: 43 programs with all-gathers of 32 KiB to 32 MiB, compiled ahead of time for v5e:2x4, v5p:2x2x2 and v6e:2x4
(libtpu 0.0.52): for v5e alone kernels with products take gathers along (AsyncCollectiveStart), whichever their sizes;
a start and an end stand for that here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf

from tpusim.compiler.collectives import names_of, split
from tpusim.compiler.kernels.places import let_wait, waits
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, FREE, PRODUCTS, USES_FAST_MEMORY, VIEWS
from tpusim.shapes.shape import ArrayShape


def hide_gathers(draft: Draft, target: Target) -> None:
    """Split all-gathers that run beside products into their starts and ends."""
    if not target.chip.ici.gathers_beside_products:
        return
    for graph in draft.running():
        order = graph.order()
        gathers = [node for node in order if node.opcode == "all-gather" and isinstance(node.shape, ArrayShape)]
        if gathers:
            _hide(draft, graph, order, gathers)


def _hide(draft: Draft, graph: Graph, order: list[Node], gathers: list[Node]) -> None:
    """Put the starts and ends of gathers into an order; nodes that are left out of it come before their first user."""
    place = {node: at for at, node in enumerate(order)}
    named = names_of(order, gathers)
    behind = waits(draft, order)
    awaited = {each for before in behind.values() for each in before}
    used: dict[Node, int] = {}
    for at, node in enumerate(order):
        for gather in (named[each] for each in (*node.operands, *behind.get(node, ())) if each in named):
            # What only names a result of a gather does not use it.
            if named.get(node) is not gather:
                used.setdefault(gather, at)
    products = [at for at, node in enumerate(order) if _has_product(draft, [node])]
    # Nothing runs beside all that a loop, a branch or a call runs.
    calls = [at for at, node in enumerate(order) if node.opcode in CONTROL_FLOW]
    hidden: dict[Node, tuple[float, int]] = {}
    moved: set[Node] = set()
    free = 0
    for gather in sorted(gathers, key=lambda each: used.get(each, len(order))):
        # What another node is to run behind stays where it is.
        made = [node for node in _made_for(draft, gather) if node not in awaited]
        taken = (each for node in (gather, *made) for each in (*node.operands, *behind.get(node, ())))
        needed = set(map(_maker, taken)) - set(made)
        end = used.get(gather, len(order) - 1)
        begin = max([free, _last_before(calls, end) + 1, *(place[each] + 1 for each in needed)])
        first = _first_from(products, begin)
        if first < end:
            hidden[gather], free = (first, end), end
            moved.update(made)
    starts = split(graph, hidden)
    for node, before in behind.items():
        # Names of what is there no more would be passed over.
        let_wait(starts.get(node, node), [end for each in before if each in starts for end in starts[each].users])
    begins = {first: starts[gather] for gather, (first, _) in hidden.items()}
    ends = {end: starts[gather] for gather, (_, end) in hidden.items()}
    sequence: list[Node] = []
    for at, node in enumerate(order):
        sequence += ends[at].users if at in ends else ()
        sequence += [begins[at]] if at in begins else ()
        if node not in moved and named.get(node) not in hidden:
            sequence.append(node)
    graph.sequence = sequence


def _last_before(places: Sequence[int], at: int) -> int:
    """Return the last of some places in order before another one, -1 if there is none."""
    return places[bisect_left(places, at) - 1] if places and places[0] < at else -1


def _first_from(places: Sequence[int], at: int) -> float:
    """Return the first of some places in order from another one on, infinity if there is none."""
    return places[bisect_left(places, at)] if places and places[-1] >= at else inf


def _made_for(draft: Draft, gather: Node) -> list[Node]:
    """Return the kernels without a product that make something for a gather alone."""
    made = (each.source for each in gather.operands)
    kernels = USES_FAST_MEMORY - FREE
    return [
        node for node in made if node.opcode in kernels and len(node.users) == 1 and not _has_product(draft, [node])
    ]


def _maker(node: Node) -> Node:
    """Return what makes the bytes of a node, which may be a part of it."""
    while node.opcode in VIEWS or node.opcode == "get-tuple-element":
        node = node.operands[0]
    return node


def _has_product(draft: Draft, nodes: Iterable[Node]) -> bool:
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node.opcode in PRODUCTS:
            return True
        if node.opcode == "fusion":
            todo += draft.graphs[node.attributes["calls"]].order()
    return False
