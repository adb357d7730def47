"""Part of pass 2: a loop carries what is read of it, and what is the same in every trip it carries once.

Gradients of recurrent networks keep what each step made, and so does the program where it returns that: two stacks.

Source: XLA, WhileLoopSimplifier (TryRemoveDeadWhileParams, TryRemoveRepeatedWhileTupleIndices); loops of programs
compiled ahead of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from tpusim.compiler.simplify.merge import Alike, is_elided
from tpusim.draft import Draft, Graph, Node
from tpusim.shapes.shape import TupleShape


def shrink_states(draft: Draft, alike: Alike) -> bool:
    """Let loops carry what is read, and once what is the same in every trip; return whether one carries less."""
    graphs = draft.reachable()
    loops = [(graph, node) for graph in graphs for node in graph.order() if node.opcode == "while"]
    if not loops:
        return False
    called = calls_in(graphs)
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
    numbers = _equal(body, state.operands, alike)
    # A loop that only does something carries on something as well.
    kept = _read(body, {**loop.users, **condition.parameters[0].users}, numbers) or [0]
    if len(kept) == len(numbers):
        return False
    new = {number: place for place, number in enumerate(kept)}
    places = {at: new[number] for at, number in enumerate(numbers) if number in new}
    for user in [user for _, node in sides for user in node.users]:
        user.attributes = user.attributes | {"index": places.get(user.attributes["index"])}
    assert isinstance(state.shape, TupleShape)
    shape = TupleShape(tuple(state.shape.elements[at] for at in kept))
    begun = graph.add("tuple", shape, [state.operands[at] for at in kept], like=state)
    loop.take([begun])
    body.root = body.add("tuple", shape, [result.operands[at] for at in kept], like=result)
    result.take([])
    for own, node in sides:
        make_carry(node, shape)
        # What is read no more is dropped.
        own.order()
    return True


def calls_in(graphs: Iterable[Graph]) -> Counter[str]:
    """Return how many nodes call or apply each computation."""
    return Counter(name for graph in graphs for node in graph.order() for name in node.called)


def make_carry(node: Node, shape: TupleShape) -> None:
    """Let a loop, or the parameter of one of its computations, be a tuple of other elements."""
    node.shape = shape
    # What its elements were in the program says something of each of them.
    node.attributes = {key: value for key, value in node.attributes.items() if key != "origin"}


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
        if node in takers or body.is_element(node):
            number = numbers[node.attributes["index"]]
            found.add(number)
            todo.append(body.root.operands[number])
        else:
            todo += node.operands
    return sorted(found)


def _equal(body: Graph, begun: Sequence[Node], alike: Alike) -> list[int]:
    """Return of each element the first that is the same in every trip: itself, if that takes many rounds to find."""
    numbers = _first_of(begun)
    if len(set(numbers)) == len(numbers):
        return numbers
    said = {node: _said(body, node, alike) for node in body.order()}
    # Those that begin as one are taken for the same until a trip makes a difference.
    for _ in range(_ROUNDS):
        after = _numbered(body, said, numbers)
        finer = _first_of([(number, after[one]) for number, one in zip(numbers, body.root.operands, strict=True)])
        if finer == numbers:
            return numbers
        numbers = finer
    return list(range(len(numbers)))


_ROUNDS = 8


def _first_of(keys: Sequence[Hashable]) -> list[int]:
    """Return of each of some keys where the first is that is equal."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(key, at) for at, key in enumerate(keys)]


def _said(body: Graph, node: Node, alike: Alike) -> Hashable:
    """Return what a node says besides its operands; what is never the same as another says itself."""
    if node.opcode == "parameter" or body.acts(node) or is_elided(node):
        return node
    return node.opcode, node.shape, alike.said(node)


def _numbered(body: Graph, said: Mapping[Node, Hashable], numbers: Sequence[int]) -> dict[Node, int]:
    """Return numbers that are equal for nodes that compute the same, if elements of one number are the same."""
    first: dict[Hashable, int] = {}
    made: dict[Node, int] = {}
    for node, own in said.items():
        is_element = body.is_element(node)
        key = numbers[node.attributes["index"]] if is_element else (own, *[made[one] for one in node.operands])
        made[node] = first.setdefault(key, len(first))
    return made
