"""Between layouts and fusion: a stack that a loop fills, one part each trip, begins as memory that nobody has written.

What a front end gives it to begin with, zeros as a rule, is never read: the body only writes to it, and its trips write
to every place.

Source: programs compiled ahead of time, where such stacks begin as ``AllocateBuffer``.
"""

from __future__ import annotations

from itertools import islice

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.module import Instruction
from tpusim.ir.ops import LAID_OUT_FREELY
from tpusim.semantics.contexts import Context
from tpusim.semantics.scalars import Budget, Scalars, Unknown
from tpusim.semantics.trip_counts import MOST_TRIPS, count_trips, states_of


def allocate_stacks(draft: Draft, target: Target) -> None:
    """Replace the first values of stacks that loops fill."""
    found = [
        (graph, loop, filled)
        for graph in draft.running()
        for loop in graph.order()
        if loop.opcode == "while" and loop.operands[0].opcode == "tuple" and (filled := _filled(draft, loop))
    ]
    # What is replaced is never read: loops count as they do now.
    module, budget = draft.write() if found else draft.module, Budget()
    for graph, loop, filled in found:
        context = Context(module, module[graph.name], {}, budget)
        whole = _whole(context, loop, {place.name for place in filled.values()})
        first = loop.operands[0].operands
        _begin_unwritten(
            graph, loop, [at for at, place in filled.items() if (place.name, first[at].array.dimensions[0]) in whole]
        )


def _begin_unwritten(graph: Graph, loop: Node, stacks: list[int]) -> None:
    """Let some parts of a loop's tuple begin as memory that nobody has written."""
    if not stacks:
        return
    # Another loop may begin from the same tuple.
    first = graph.own(loop.operands[0], loop)
    operands = list(first.operands)
    for at in stacks:
        named = {"custom_call_target": _UNWRITTEN}
        operands[at] = graph.add("custom-call", operands[at].shape, (), named, like=loop)
    first.take(operands)


_UNWRITTEN = "AllocateBuffer"


def is_unwritten(made: Node | Instruction) -> bool:
    """Return whether a node or instruction is memory that nobody has written."""
    return made.attributes.get("custom_call_target") == _UNWRITTEN


def _filled(draft: Draft, loop: Node) -> dict[int, Node]:
    """Return which parts of a loop's tuple its body may fill, each with where it writes."""
    body, condition = (draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    inside, asked = body.parameters[0].takers(), condition.parameters[0].takers()
    unseen = (at for at in _stacks(body, loop.operands[0]) if not asked[at])
    places = {at: _place_written(body, at, inside[at]) for at in unseen}
    return {at: place for at, place in places.items() if place is not None}


def _stacks(body: Graph, first: Node) -> list[int]:
    """Return which parts of a loop's tuple are made of nothing, and updated in place by its body."""
    if body.root.opcode != "tuple":
        return []
    made = zip(first.operands, body.root.operands, strict=True)
    return [
        at
        for at, (given, last) in enumerate(made)
        if given.opcode in LAID_OUT_FREELY and last.opcode == "dynamic-update-slice"
    ]


def _place_written(body: Graph, at: int, inside: list[Node]) -> Node | None:
    """Return where a body writes in the first dimension of a part that it carries, if it does no more with it.

    ``inside`` are those that get that part in the body.
    """
    update = body.root.operands[at]
    stack, part, *places = update.operands
    if stack.opcode != "get-tuple-element" or inside != [stack] or list(stack.users) != [update]:
        return None
    if list(update.users) != [body.root] or body.root.operands.count(update) > 1 or stack is part:
        return None
    return places[0] if part.array.dimensions == (1, *stack.array.dimensions[1:]) else None


def _whole(context: Context, loop: Node, places: set[str]) -> set[tuple[str, int]]:
    """Return which places go through all numbers from 0 to some count while a loop runs, each with that count."""
    module, instruction, budget = context.module, context.computation[loop.name], context.budget
    body = module[loop.attributes["body"]]
    start = context.known_of(instruction.operands)
    counted = count_trips(module, instruction, start, budget)
    trips = counted.trips if counted else MOST_TRIPS
    if trips >= MOST_TRIPS:
        return set()
    try:
        states = list(islice(states_of(module, instruction, start, budget), trips))
        scalars = [Scalars(module, body, state, budget) for state in states]
        return {(place, trips) for place in places if {each.value(place) for each in scalars} == set(range(trips))}
    except Unknown:
        return set()
