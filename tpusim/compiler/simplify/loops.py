"""Part of pass 2: a loop that runs once is its body, and one that never runs is what it is given.

Source: XLA, WhileLoopSimplifier (TryRemoveWhileLoop), with its conditions: a loop whose condition does something stays,
and so does one of one trip whose body does, since that must not come before what the loop waits for.
"""

from __future__ import annotations

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import COLLECTIVES
from tpusim.semantics.contexts import Context
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.scalars import Budget
from tpusim.semantics.trip_counts import trips_from

_WAIT_FOR_OPERANDS = COLLECTIVES - {"collective-broadcast"} | {"rng-bit-generator"}
"""What is kept without a user, and still only waits for what it is given (XLA, HasSideEffectNoRecurse)."""

_KEPT = "skip-simplify-while-loops_trip-count-one"
"""The frontend attribute that keeps a loop of one trip."""


def unroll_short_loops(draft: Draft) -> None:
    """Replace every loop that is known to run once or never."""
    # What is carried into an inner loop may be known where the outer one is gone.
    while found := _counts(draft):
        for graph, counts in found.items():
            _unroll_in(graph, counts)


def _counts(draft: Draft) -> dict[Graph, dict[Node, int]]:
    """Return the short loops that do not have to stay."""
    found = {
        graph: {loop: trips for loop, trips in counts.items() if _goes(draft, loop, trips)}
        for graph, counts in short_loops(draft).items()
    }
    return {graph: counts for graph, counts in found.items() if counts}


def short_loops(draft: Draft) -> dict[Graph, dict[Node, int]]:
    """Return how often loops run, by graph, of those that are known to run once or never."""
    loops = {graph: [node for node in graph.order() if node.opcode == "while"] for graph in draft.reachable()}
    if not any(loops.values()):
        return {}
    module, budget = draft.write(), Budget()
    found: dict[Graph, dict[Node, int]] = {}
    for graph, nodes in loops.items():
        context = Context(module, module[graph.name], {}, budget)
        for node in nodes:
            loop = context.computation[node.name]
            trips = trips_from(module, loop, context.known_of(loop.operands), budget, tried=2)
            # Where the text states another number it is kept for that.
            if trips in (0, 1) and loop.backend_config.known_trip_count in (None, trips):
                found.setdefault(graph, {})[node] = trips
    return found


def _goes(draft: Draft, loop: Node, trips: int) -> bool:
    """Return whether a loop that runs once or never may be replaced."""
    if _does_something(draft, loop.attributes["condition"]):
        return False
    is_stated = frontend_attributes(loop.attributes).get(_KEPT) == "true"
    return not trips or not (is_stated or _does_something(draft, loop.attributes["body"]))


def _does_something(draft: Draft, name: str) -> bool:
    """Return whether a computation, or one that it runs, does something for which nothing but its place says when."""
    todo = [name]
    while todo:
        graph = draft.graphs[todo.pop()]
        if any(node.opcode not in _WAIT_FOR_OPERANDS for node in graph.effects):
            return True
        todo += [called for node in graph.callers for called in node.called]
    return False


def _unroll_in(graph: Graph, counts: dict[Node, int]) -> None:
    for loop, trips in counts.items():
        body = graph.draft.graphs[loop.attributes["body"]]
        graph.replace(loop, graph.copy_in(body, loop.operands) if trips else loop.operands[0])
    graph.forget(counts)
