"""A graph's order is asked for again and again: it is always that of the graph as it is."""

from __future__ import annotations

from random import Random

import pytest

from tpusim.draft import Draft, Graph, Node
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape
from tpusim.source import SourceText
from tpusim.text import parse_module

_NUMBER = ArrayShape(DTYPES["f32"])
_TEXT = """
HloModule m
ENTRY main {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}
"""


def _walked(graph: Graph) -> list[Node]:
    """Return the order by its definition: operands before users, first operands first."""
    found: list[Node] = []

    def enter(node: Node) -> None:
        for operand in node.operands:
            if operand not in found:
                enter(operand)
        if node not in found:
            found.append(node)

    for start in [*graph.parameters, *graph.effects, graph.root]:
        enter(start)
    return found


def _change(graph: Graph, random: Random) -> None:
    """Change one thing of a graph, as passes do; what comes later never goes into what stands before it."""
    nodes = graph.order()
    at = random.randrange(len(nodes))
    node, before = nodes[at], nodes[:at] or graph.parameters
    kind = random.randrange(5)
    if kind == 0:
        made = graph.add("add", _NUMBER, random.choices(nodes[: at + 1], k=2))
        graph.root = graph.add("multiply", _NUMBER, [graph.root, made])
    elif kind == 1 and node.operands:
        node.take(random.choices(before, k=2))
    elif kind == 2 and node.operands:
        node.replace_operand(node.operands[0], random.choice(before))
    elif kind == 3 and node.opcode != "parameter":
        graph.replace(node, random.choice(before))
    else:
        # Made, and used by nobody.
        graph.clone(node)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_the_graph_after_every_change(seed: int) -> None:
    """The naive walk from the definition gives the same after each of sixty changes."""
    graph, random = Draft(parse_module(SourceText("m", _TEXT))).entry, Random(seed)
    for _ in range(60):
        _change(graph, random)
        expected = _walked(graph)
        assert graph.order() == expected
        # What was found once is kept, and whoever got it may change it.
        graph.order().clear()
        assert graph.order() == expected
        assert all(user in expected for node in expected for user in node.users)


def test_what_is_made_and_not_used_leaves_no_user_behind() -> None:
    """A node that is dropped is no user of what it took."""
    graph = Draft(parse_module(SourceText("m", _TEXT))).entry
    graph.order()
    p, q = graph.parameters
    graph.add("negate", _NUMBER, [p])
    graph.order()
    assert list(p.users) == [graph.root] == list(q.users)


def test_effects_and_a_schedule_count_as_soon_as_they_are_there() -> None:
    """Both are set from outside, without a change to any node that was there."""
    graph = Draft(parse_module(SourceText("m", _TEXT))).entry
    p, q = graph.parameters
    before = graph.order()
    made = graph.add("custom-call", _NUMBER, [q], {"custom_call_has_side_effect": True})
    assert graph.order() == [p, q, made, graph.root] != before
    graph.sequence = [p, q, graph.root, made]
    assert graph.order() == [p, q, graph.root, made]


def test_a_caller_changes_what_is_reachable_and_not_the_order_of_others() -> None:
    """Attributes say what is called, and change without any operand."""
    draft = Draft(parse_module(SourceText("m", _TEXT)))
    assert [graph.name for graph in draft.reachable()] == ["main"]
    name = draft.region("add", DTYPES["f32"])
    draft.entry.root = draft.entry.add("call", _NUMBER, draft.entry.parameters, {"to_apply": name})
    assert [graph.name for graph in draft.reachable()] == [name, "main"]
