"""After the decompositions: what only products take, which round it to bf16, is handed on and stored as that.

A value is narrow if all that uses it rounds it, or only moves it to a narrow value. What goes through loops and
branches is converted once, before it goes in. Arguments and results of the program keep their types.

Source: XLA, BFloat16Propagation; loops, branches, gathers and collectives of programs compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec import structs

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import (
    COLLECTIVES,
    CONTROL_FLOW,
    HANDED_IN,
    KEEPS_TYPE,
    PLAIN_PRODUCTS,
    TUPLES,
)
from tpusim.semantics.infer.control import branches
from tpusim.semantics.precision import pass_count
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

Place = tuple[Node, int]
"""A node that is a tuple, and the number of an element; or an array and ``_ALL``."""

_ALL = -1

_MOVES = {
    **dict.fromkeys(("abs", "all-gather", "all-to-all", "broadcast", "collective-permute", "convert"), (0,)),
    **dict.fromkeys(("copy", "dynamic-slice", "gather", "reshape", "reverse", "slice", "transpose"), (0,)),
    **dict.fromkeys(("dynamic-update-slice", "maximum", "minimum", "pad"), (0, 1)),
    "clamp": (0, 1, 2),
    "select": (1, 2),
}
"""Opcodes whose result is rounded where their operands are, and the numbers of those operands.

In programs compiled ahead of time sums over devices are none: see ``devices.sums``.
"""


def narrow(draft: Draft, target: Target) -> None:
    """Let values of 32 bits of which products take 16 be of 16."""
    if not target.narrows:
        return
    graphs = draft.running()
    found = _Uses(draft, graphs).narrow()
    if found:
        _Narrowing(draft, found).run(graphs)


def _is_wide(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and shape.dtype.name == "f32" and not shape.memory_space


def _wide_places(node: Node) -> list[Place]:
    """Return the places of a node in which there is an array of f32."""
    if isinstance(node.shape, TupleShape):
        return [(node, at) for at, element in enumerate(node.shape.elements) if _is_wide(element)]
    return [(node, _ALL)] if _is_wide(node.shape) else []


def _moved(node: Node) -> Sequence[int]:
    """Return the numbers of the operands that a node only moves or chooses from."""
    if node.opcode == "concatenate":
        return range(len(node.operands))
    # Collectives of several arrays give a tuple.
    return _MOVES.get(node.opcode, ()) if isinstance(node.shape, ArrayShape) else ()


class _Uses:
    """Where each value of f32 goes: to what rounds it, to other places that are narrow if it is, or elsewhere."""

    def __init__(self, draft: Draft, graphs: Sequence[Graph]) -> None:
        self._draft = draft
        self._same: dict[Place, Place] = {}
        self._sources: dict[Place, list[Place]] = {}
        self._targets: dict[Place, list[Place]] = {}
        self._rounded: list[Place] = []
        self._wide: list[Place] = []
        for graph in graphs:
            for node in graph.order():
                if node.opcode in CONTROL_FLOW:
                    self._enter_control(node)
        for graph in graphs:
            for node in graph.order():
                self._enter(node)
        ends = draft.entry.root, *draft.entry.parameters
        self._wide += chain.from_iterable(map(_wide_places, ends))

    def narrow(self) -> set[Place]:
        """Return the places that are to be narrow, of those that are the same each."""
        wide = self._reached(self._wide, self._sources)
        useful = self._reached([place for place in self._rounded if self._first(place) not in wide], self._sources)
        # What a narrow value goes to is narrow, though nothing may come of it.
        firsts = self._reached(useful - wide, self._targets)
        known = {*self._same, *firsts}
        return {place for place in known if self._first(place) in firsts}

    def _first(self, place: Place) -> Place:
        """Return the one place that stands for all that are the same."""
        while (other := self._same.get(place, place)) != place:
            self._same[place] = self._same.get(other, other)
            place = other
        return place

    def _reached(self, starts: Iterable[Place], steps: dict[Place, list[Place]]) -> set[Place]:
        todo = [self._first(place) for place in starts]
        found = set(todo)
        while todo:
            for place in steps.get(todo.pop(), ()):
                if (first := self._first(place)) not in found:
                    found.add(first)
                    todo.append(first)
        return found

    def _join(self, *nodes: Node) -> None:
        """Let the elements of tuples, or arrays, be the same each."""
        for node in nodes[1:]:
            for _, at in _wide_places(node):
                one, other = self._first((nodes[0], at)), self._first((node, at))
                self._same[one] = one
                self._same[other] = one

    def _goes(self, source: Place, target: Place) -> None:
        source, target = self._first(source), self._first(target)
        self._sources.setdefault(target, []).append(source)
        self._targets.setdefault(source, []).append(target)

    def _enter_control(self, node: Node) -> None:
        for state, value, _ in _handed_over(self._draft, node):
            if isinstance(state.shape, TupleShape):
                self._join(state, value)
        if node.opcode == "while":
            body, condition = (self._draft.graphs[node.attributes[name]] for name in ("body", "condition"))
            self._join(node, *body.parameters, *condition.parameters)

    def _enter(self, node: Node) -> None:
        if node.opcode != "get-tuple-element":
            for at, operand in enumerate(node.operands):
                for place in _wide_places(operand):
                    self._enter_use(place, node, at)
        elif _is_wide(node.shape):
            self._goes((node.operands[0], node.attributes["index"]), (node, _ALL))
        if node.opcode in CONTROL_FLOW:
            for state, value, _ in _handed_over(self._draft, node):
                if isinstance(state.shape, ArrayShape):
                    for place in _wide_places(value):
                        self._goes(place, (state, _ALL))
        if not _can_be_narrow(node):
            self._wide += _wide_places(node)

    def _enter_use(self, place: Place, user: Node, at: int) -> None:
        _, element = place
        if element != _ALL:
            if user.opcode not in CONTROL_FLOW:
                self._wide.append(place)
        elif _rounds(user):
            self._rounded.append(place)
        elif user.opcode == "tuple":
            self._goes(place, (user, at))
        elif at in _moved(user) and _wide_places(user):
            self._goes(place, (user, _ALL))
        elif user.opcode not in CONTROL_FLOW:
            self._wide.append(place)


def _handed_over(draft: Draft, node: Node) -> Iterator[tuple[Node, Node, int | Graph]]:
    """Yield what a loop or conditional hands over: what has it then, the value, and which operand or graph gives it."""
    if node.opcode == "while":
        body = draft.graphs[node.attributes["body"]]
        yield node, node.operands[0], 0
        yield node, body.root, body
    elif node.opcode == "conditional":
        for at, name in enumerate(branches(node.attributes), start=1):
            graph = draft.graphs[name]
            yield graph.parameters[0], node.operands[at], at
            yield node, graph.root, graph


def _rounds(user: Node) -> bool:
    """Return whether a node takes f32 as if it were bf16."""
    if user.opcode == "convert":
        return user.array.dtype.name == "bf16"
    if user.opcode not in PLAIN_PRODUCTS:
        return False
    f32 = DTYPES["f32"]
    # Of narrower operands there may be fewer passes, but then each is one.
    return all(one.array.dtype.is_float for one in user.operands) and pass_count(user, f32, f32) == 1


def _can_be_narrow(node: Node) -> bool:
    """Return whether it is known what makes a value, so that it can be of another type."""
    if isinstance(node.shape, TupleShape):
        # What is taken out of a tuple of tuples, as the host hands them in, is as its maker has it.
        return node.opcode in (CONTROL_FLOW | HANDED_IN | TUPLES) - {"get-tuple-element"}
    return node.opcode not in KEEPS_TYPE and not node.is_small


def _is_less_before(node: Node) -> bool:
    """Return whether a wide operand is to be converted before a node moves it."""
    if node.opcode == "gather":
        return node.operands[0].array.element_count <= node.array.element_count
    # Links are slower than anything that converts.
    return node.opcode in COLLECTIVES


class _Narrowing:
    """Makes places narrow."""

    def __init__(self, draft: Draft, places: set[Place]) -> None:
        self._draft = draft
        self._places = places
        # What each value is in 16 bits.
        self._made: dict[Node, Node] = {}

    def run(self, graphs: Iterable[Graph]) -> None:
        for graph in graphs:
            for node in graph.order():
                self._make(graph, node)

    def _make(self, graph: Graph, node: Node) -> None:
        if isinstance(node.shape, TupleShape):
            elements = enumerate(node.shape.elements)
            node.shape = TupleShape(
                tuple(_narrowed(each) if (node, at) in self._places else each for at, each in elements)
            )
        if node.opcode == "tuple":
            node.take([self._of(graph, o) if (node, at) in self._places else o for at, o in enumerate(node.operands)])
        elif node.opcode in CONTROL_FLOW:
            self._hand_over(graph, node)
        elif node.opcode in PLAIN_PRODUCTS:
            node.take([self._of(graph, o) if (o, _ALL) in self._places else o for o in node.operands])
        elif _rounds(node) and (known := self._known(node.operands[0])):
            graph.replace(node, known)
        if (node, _ALL) in self._places:
            self._make_array(graph, node)

    def _hand_over(self, graph: Graph, node: Node) -> None:
        """Let a loop or conditional hand over narrow arrays to what is narrow."""
        operands = list(node.operands)
        for state, value, source in list(_handed_over(self._draft, node)):
            if (state, _ALL) not in self._places:
                continue
            if isinstance(source, Graph):
                source.root = self._of(source, value)
            else:
                operands[source] = self._of(graph, value)
        node.take(operands)

    def _make_array(self, graph: Graph, node: Node) -> None:
        moved = _moved(node)
        is_known = any(self._known(node.operands[at]) for at in moved)
        if node.opcode == "convert":
            self._made[node] = self._known(node.operands[0]) or self._of(graph, node)
            return
        is_taken = node.opcode == "get-tuple-element" and (node.operands[0], node.attributes["index"]) in self._places
        if node.opcode not in (*CONTROL_FLOW, "parameter") and not is_taken:
            if not moved:
                self._of(graph, node)
                return
            # A kernel converts it as it moves it, where it is needed.
            if not is_known and not _is_less_before(node):
                return
            node.take([self._of(graph, o) if at in moved else o for at, o in enumerate(node.operands)])
        node.shape = _narrowed(node.shape)
        self._made[node] = node

    def _known(self, node: Node) -> Node | None:
        """Return what a value is in 16 bits, if there is that already."""
        if node.opcode == "convert" and node.operands[0].array.dtype.name == "bf16":
            return node.operands[0]
        return self._made.get(node)

    def _of(self, graph: Graph, node: Node) -> Node:
        """Return what a value is in 16 bits."""
        found = self._known(node)
        if found is None:
            found = self._made[node] = self._rounded(graph, node)
        return found

    def _rounded(self, graph: Graph, node: Node) -> Node:
        shape = _narrowed(node.shape)
        if node.opcode == "broadcast" and not node.operands[0].array.rank:
            # One number everywhere is laid out as those want it that take it: what converts it would not be.
            return graph.add("broadcast", shape, [self._of(graph, node.operands[0])], node.attributes, like=node)
        return graph.add("convert", shape, [node], like=node)


def _narrowed(shape: Shape) -> ArrayShape:
    assert isinstance(shape, ArrayShape)
    return structs.replace(shape, dtype=DTYPES["bf16"], layout=None)
