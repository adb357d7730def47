"""Pass 1: calls are replaced by what they call.

A front end calls a function that it traced once from several places; each place gets a copy of its own. Computations
that are applied to elements (of a reduction, a sort) stay what they are. Every loop and branch has computations of its
own as well, since what it hands over may lie elsewhere than another's.

Source: XLA, CallInliner and FlattenCallGraph.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph
from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import ComputationName
from tpusim.ir.ops import CONTROL_FLOW
from tpusim.limits import INLINED

# Layers that a front end traces once and calls a hundred times are longer than what they are written as, but not so.
_MOST_TIMES = 4


def inline(draft: Draft, target: Target) -> None:
    """Replace every ``call`` by a copy of the computation that it calls, and copy what several loops or branches run.

    Raises UnsupportedError where calls of calls would make a program too long.
    """
    _check_length(draft)
    _inline_calls(draft)
    _separate(draft)


def _check_length(draft: Draft) -> None:
    """Refuse a program that would become many times as long as it is, before any of that is made."""
    orders = {graph.name: graph.order() for graph in draft.reachable()}
    most_times = _MOST_TIMES * sum(map(len, orders.values()))
    lengths: dict[str, int] = {}
    for name, nodes in orders.items():
        run = [called for node in nodes if node.opcode in CONTROL_FLOW for called in node.called]
        lengths[name] = len(nodes) + sum(lengths[called] for called in run)
        if lengths[name] > most_times and (fault := INLINED.fault(lengths[name])):
            raise UnsupportedError(f"{name}: its calls have calls: {fault}")


def _inline_calls(draft: Draft) -> None:
    # Callees come first, so that what is copied has no calls any more.
    for graph in draft.reachable():
        calls = {node: None for node in graph.order() if node.opcode == "call"}
        for node in calls:
            graph.replace(node, graph.copy_in(draft.graphs[node.attributes["to_apply"]], node.operands))
        graph.forget(calls)


def _separate(draft: Draft) -> None:
    """Give every loop and branch computations that no other one runs."""
    run: set[str] = set()
    graphs = [draft.entry]
    # Those that are found on the way have loops of their own.
    for graph in graphs:
        for node in [node for node in graph.order() if node.opcode in CONTROL_FLOW]:
            own = []
            for name in node.called:
                own.append(draft.graphs[name])
                if name in run:
                    own[-1] = _copy(draft, name)
                run.add(own[-1].name)
            graphs += own
            names = iter(own)
            node.attributes = {key: _renamed(value, names) for key, value in node.attributes.items()}


def _copy(draft: Draft, name: str) -> Graph:
    graph = draft.graphs[name]
    made = Graph(draft, draft.fresh(graph.name), graph.execution_thread)
    made.parameters = [made.clone(parameter) for parameter in graph.parameters]
    made.root = made.copy_in(graph, made.parameters)
    draft.graphs[made.name] = made
    return made


def _renamed(value: object, called: Iterator[Graph]) -> object:
    """Return the value of an attribute with the names of these graphs for those of the computations in it."""
    if isinstance(value, tuple):
        return tuple(_renamed(item, called) for item in value)
    return ComputationName(next(called).name) if isinstance(value, ComputationName) else value
