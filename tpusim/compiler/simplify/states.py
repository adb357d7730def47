"""Part of pass 2: a loop carries what is read of it, and what is the same in every trip it carries once.

Gradients of recurrent networks keep what each step made, and so does the program where it returns that: two stacks.

Source: XLA, WhileLoopSimplifier (TryRemoveDeadWhileParams, TryRemoveRepeatedWhileTupleIndices); loops of programs
compiled ahead of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tpusim.compiler.simplify.merge import Alike, is_elided
from tpusim.draft import Draft, Graph, Node
from tpusim.shapes.shape import TupleShape

OF_ELEMENTS = frozenset({"origin", "sharding"})
"""Attributes that say something of each element of a tuple."""


def shrink_states(draft: Draft, alike: Alike) -> bool:
    """Let loops carry what is read, and once what is the same in every trip; return whether one carries less."""
    graphs = draft.reachable()
    loops = [(graph, node) for graph in graphs for node in graph.order() if node.opcode == "while"]
    if not loops:
        return False
    called = Counter(name for graph in graphs for node in graph.order() for name in node.called)
    changed = False
    for graph, loop in loops:
        if all(called[name] == 1 for name in loop.called):
            changed |= _shrink(graph, loop, alike)
    return changed


def _shrink(graph: Graph, loop: Node, alike: Alike) -> bool:
    body, condition = (graph.draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    state, result = loop.operands[0], body.root
    sides = [(graph, loop), *((inner, inner.parameters[0]) for inner in (body, condition))]
    if state.opcode != "tuple" or result.opcode != "tuple" or not all(_is_taken_apart(*side) for side in sides):
        return False
    # Elements of one number are the same; nothing has shown yet that those are not which begin as one.
    numbers = [state.operands.index(one) for one in state.operands]
    while (finer := _refined(body, numbers, alike)) != numbers:
        numbers = finer
    kept = _read(body, {**loop.users, **condition.parameters[0].users}, numbers)
    if len(kept) == len(numbers):
        return False
    places = {at: kept.index(number) for at, number in enumerate(numbers) if number in kept}
    for user in [user for _, node in sides for user in node.users]:
        user.attributes = user.attributes | {"index": places.get(user.attributes["index"])}
    assert isinstance(state.shape, TupleShape)
    shape = TupleShape(tuple(state.shape.elements[at] for at in kept))
    begun = graph.add("tuple", shape, [state.operands[at] for at in kept], like=state)
    loop.take([begun])
    body.root = body.add("tuple", shape, [result.operands[at] for at in kept], like=result)
    result.take([])
    for own, node in sides:
        node.shape = shape
        node.attributes = {key: value for key, value in node.attributes.items() if key not in OF_ELEMENTS}
        # What is read no more is dropped.
        own.order()
    return True


def _is_taken_apart(graph: Graph, node: Node) -> bool:
    """Return whether only elements of a tuple are used."""
    return node is not graph.root and all(user.opcode == "get-tuple-element" for user in node.users)


def _read(body: Graph, takers: Collection[Node], numbers: Sequence[int]) -> list[int]:
    """Return the elements that are taken behind a loop or by its condition, and those that these are made of."""
    found: set[int] = set()
    seen: set[Node] = set()
    todo = [*takers, *body.effects, *body.callers]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in takers or (node.opcode == "get-tuple-element" and node.operands == body.parameters):
            number = numbers[node.attributes["index"]]
            found.add(number)
            todo.append(body.root.operands[number])
        else:
            todo += node.operands
    return sorted(found)


def _refined(body: Graph, numbers: Sequence[int], alike: Alike) -> list[int]:
    """Return of each element the first that is the same after a trip, if those of one number are before it."""
    if len(set(numbers)) == len(numbers):
        return list(numbers)
    said: dict[object, int] = {}
    made: dict[Node, int] = {}
    for node in body.order():
        if node.opcode == "get-tuple-element" and node.operands == body.parameters:
            key: object = "element", numbers[node.attributes["index"]]
        elif node.opcode == "parameter" or body.acts(node) or is_elided(node):
            key = node
        else:
            key = node.opcode, node.shape, tuple([made[operand] for operand in node.operands]), alike.said(node)
        made[node] = said.setdefault(key, len(said))
    after = [(number, made[one]) for number, one in zip(numbers, body.root.operands, strict=True)]
    return [after.index(pair) for pair in after]
