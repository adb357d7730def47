"""A module under change, for those that make one of another: nodes with operands and users, in graphs, in a draft.

Modules stay frozen. ``Draft(module)`` reads one into graphs, passes change these, and ``Draft.write`` makes a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tpusim.ir.attributes import ComputationName, Window
from tpusim.ir.module import Computation, Instruction, Literal, Module, called_in
from tpusim.ir.ops import CONTROL_FLOW, HAS_EFFECTS, VIEWS, may_call
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves


class Node:
    """An instruction whose operands and users are nodes. ``users`` are kept by ``Graph``, in the order of their use."""

    __slots__ = ("attributes", "graph", "immediate", "name", "opcode", "operands", "shape", "users")

    def __init__(
        self,
        graph: Graph,
        name: str,
        opcode: str,
        shape: Shape,
        operands: Iterable[Node] = (),
        attributes: dict[str, Any] | None = None,
        *,
        immediate: int | Literal | None = None,
    ) -> None:
        self.graph = graph
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands: list[Node] = []
        self.attributes = attributes or {}
        self.immediate = immediate
        self.users: dict[Node, None] = {}
        self.take(operands)

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}({', '.join(node.name for node in self.operands)})>"

    @property
    def array(self) -> ArrayShape:
        """Its shape, which must be an array's."""
        assert isinstance(self.shape, ArrayShape), self
        return self.shape

    @property
    def source(self) -> Node:
        """The node whose bytes it is: itself, or what it is a view of."""
        node = self
        while node.opcode in VIEWS:
            node = node.operands[0]
        return node

    def written(self) -> Instruction:
        """Return it as an instruction, which names its operands."""
        names = tuple([operand.name for operand in self.operands])
        return Instruction(self.name, self.shape, self.opcode, names, self.attributes, self.immediate)

    @property
    def is_small(self) -> bool:
        """Whether it is a scalar, which the scalar core keeps."""
        return isinstance(self.shape, ArrayShape) and self.shape.element_count <= 1

    @property
    def is_dynamic(self) -> bool:
        """Whether it, or what it takes, has sizes that are known at run time only."""
        # Of a tuple an element is all that is taken.
        taken = [self] if self.opcode == "get-tuple-element" else [self, *self.operands]
        return any(any(leaf.dynamic) for one in taken for leaf in leaves(one.shape))

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the computations that it calls or applies."""
        return called_in(self.attributes)

    def takers(self) -> list[list[Node]]:
        """Return by element of its tuple the users that get it: those that take it out, and those that take all."""
        assert isinstance(self.shape, TupleShape), self
        found: list[list[Node]] = [[] for _ in self.shape.elements]
        for user in self.users:
            for taken in [found[user.attributes["index"]]] if user.opcode == "get-tuple-element" else found:
                taken.append(user)
        return found

    def take(self, operands: Iterable[Node]) -> None:
        """Make these its operands, in place of those that it has."""
        for operand in self.operands:
            operand.users.pop(self, None)
        self.operands = list(operands)
        for operand in self.operands:
            operand.users[self] = None
        self.graph.forget_order()

    def replace_operand(self, old: Node, new: Node) -> None:
        """Use ``new`` wherever it uses ``old``."""
        self.replace_operands({old: new})

    def replace_operands(self, others: Mapping[Node, Node]) -> None:
        """Use other nodes in place of those of its operands that ``others`` has."""
        replaced = [operand for operand in self.operands if operand in others]
        self.operands = [others.get(operand, operand) for operand in self.operands]
        for operand in replaced:
            operand.users.pop(self, None)
            others[operand].users[self] = None
        if replaced:
            self.graph.forget_order()


class Graph:
    """A computation under change: its result, its parameters, and what runs for its effects."""

    def __init__(self, draft: Draft, name: str, execution_thread: str = "main") -> None:
        self.draft = draft
        self.name = name
        self.execution_thread = execution_thread
        self.parameters: list[Node] = []
        self.effects: list[Node] = []
        # Calls, loops and branches in which something does: nothing else need use them either.
        self.callers: list[Node] = []
        # The order that a schedule has chosen; what comes in later stands before its first user.
        self.sequence: list[Node] = []
        self.root: Node
        # What was last in order, and what that began from.
        self._ordered: list[Node] | None = None
        self._began: list[Node] = []

    def add(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Node] = (),
        attributes: dict[str, Any] | None = None,
        *,
        like: Node | None = None,
        immediate: int | Literal | None = None,
        name: str = "",
    ) -> Node:
        """Return a new node with a name of its own; what it is ``like`` says where in the source it comes from."""
        named = dict(attributes or {})
        if like is not None and "metadata" in like.attributes:
            named.setdefault("metadata", like.attributes["metadata"])
        node = Node(self, self.draft.fresh(name or opcode), opcode, shape, operands, named, immediate=immediate)
        self._note(node)
        return node

    def clone(self, node: Node, operands: Iterable[Node] | None = None) -> Node:
        """Return a copy of a node, with other operands if these are given."""
        taken = node.operands if operands is None else operands
        name, attributes = self.draft.fresh(node.name), dict(node.attributes)
        made = Node(self, name, node.opcode, node.shape, taken, attributes, immediate=node.immediate)
        self._note(made)
        return made

    def own(self, node: Node, user: Node) -> Node:
        """Return an operand that ``user`` alone has: the node itself or, where it has other users, a copy of it."""
        if list(node.users) == [user] and node is not self.root:
            return node
        made = self.clone(node)
        user.replace_operand(node, made)
        return made

    def forget(self, nodes: Collection[Node]) -> None:
        """Let nodes in whose place others stand run no longer for what they do."""
        self.effects = [node for node in self.effects if node not in nodes]
        self.callers = [node for node in self.callers if node not in nodes]

    def is_element(self, node: Node) -> bool:
        """Return whether a node is an element of the tuple that is the only parameter: one that a loop carries."""
        return node.opcode == "get-tuple-element" and node.operands == self.parameters

    def acts(self, node: Node) -> bool:
        """Return whether a node does something besides what it computes."""
        if node.opcode not in CONTROL_FLOW:
            return _acts(node)
        called = (self.draft.graphs[name] for name in node.called)
        return any(graph.effects or graph.callers for graph in called)

    def _note(self, node: Node) -> None:
        if self.acts(node):
            (self.callers if node.opcode in CONTROL_FLOW else self.effects).append(node)

    def copy_in(self, called: Graph, operands: Iterable[Node]) -> Node:
        """Return the result of a copy of another graph, with these operands for its parameters."""
        made = dict(zip(called.parameters, operands, strict=True))
        for node in called.order():
            if node not in made:
                made[node] = self.clone(node, [made[operand] for operand in node.operands])
        return made[called.root]

    def operands_of(self, node: Node) -> list[Node]:
        """Return the operands of a node, which a computation of a module has to look up."""
        return node.operands

    def replace(self, old: Node, new: Node) -> None:
        """Let all users of ``old`` use ``new``."""
        for user in list(old.users):
            if user is not new:
                user.replace_operand(old, new)
        if self.root is old:
            self.root = new

    def order(self) -> list[Node]:
        """Return the nodes that the result or an effect needs, each after its operands; drop all others.

        The order is the graph's schedule or, before it has one, depends on the graph alone: operands before users,
        first operands first.
        """
        # Passes go through graphs again and again, and change few of them.
        began = [self.root, *self.parameters, *self.effects, *self.callers, *self.sequence]
        if self._ordered is None or began != self._began:
            self._ordered, self._began = self._in_order(), began
        return list(self._ordered)

    def forget_order(self) -> None:
        """Take note that a node of it is new or has other operands than before."""
        self._ordered = None

    def _in_order(self) -> list[Node]:
        found = _post_order([*self.parameters, *self.effects, self.root])
        if any(node not in found for node in self.callers):
            found = _post_order([*self.parameters, *self.effects, *self.callers, self.root])
        if self.sequence:
            found = _post_order([*self.parameters, *(node for node in self.sequence if node in found), *found])
        for node in found:
            if any(user not in found for user in node.users):
                node.users = {user: None for user in node.users if user in found}
        return list(found)


def _post_order(starts: Iterable[Node]) -> dict[Node, None]:
    """Return some nodes and all that they are made of, each after its operands, first operands first."""
    found: dict[Node, None] = {}
    for start in starts:
        # A stack of our own: a chain may be longer than Python recurses.
        stack = [(start, iter(start.operands))]
        while stack:
            node, rest = stack[-1]
            if node in found:
                stack.pop()
                continue
            operand = next((item for item in rest if item not in found), None)
            if operand is None:
                found[node] = None
                stack.pop()
            else:
                stack.append((operand, iter(operand.operands)))
    return found


_UNSAID: Mapping[str, dict[str, Any]] = {
    "broadcast": {"dimensions": ()},
    "convolution": {"window": Window()},
    "reduce-window": {"window": Window()},
    "select-and-scatter": {"window": Window()},
}
"""What a text need not say of scalars, and of what has no spatial dimensions."""


class Draft:
    """A module under change: its graphs by name."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.attributes = dict(module.attributes)
        self.graphs: dict[str, Graph] = {}
        self._taken: dict[str, int] = {}
        for computation in module.computations:
            self.fresh(computation.name)
        callers: list[tuple[Graph, Node]] = []
        for computation in module.computations:
            self.graphs[computation.name] = self._read(computation, callers)
        acting = _reaching({graph.name for graph in self.graphs.values() if graph.effects}, callers)
        for graph, node in callers:
            if not acting.isdisjoint(node.called):
                graph.callers.append(node)

    @property
    def entry(self) -> Graph:
        """The graph that a run begins with."""
        return self.graphs[self.module.entry_name]

    def fresh(self, hint: str) -> str:
        """Return a name that nothing in the module has yet: ``hint`` itself, or with a number."""
        stem = hint
        if hint in self._taken:
            head, _, tail = hint.rpartition(".")
            stem = head if head and tail.isdigit() else hint
        number = self._taken.get(stem, -1)
        name = hint
        while name in self._taken:
            number += 1
            name = f"{stem}.{number}"
        self._taken[stem] = max(number, 0)
        self._taken.setdefault(name, 0)
        return name

    def region(self, opcode: str, dtype: DType) -> ComputationName:
        """Return the name of a new computation that combines two numbers of a type."""
        graph = Graph(self, self.fresh(f"{opcode}_of_two"))
        self.graphs[graph.name] = graph
        graph.parameters = [
            graph.add("parameter", ArrayShape(dtype), immediate=at, name=f"param_{at}") for at in range(2)
        ]
        graph.root = graph.add(opcode, ArrayShape(dtype), graph.parameters)
        return ComputationName(graph.name)

    def _read(self, computation: Computation, callers: list[tuple[Graph, Node]]) -> Graph:
        """Return a computation as a graph, and enter its calls, loops and branches."""
        graph = Graph(self, computation.name, computation.execution_thread)
        at: dict[str, Node] = {}
        for instruction in computation.instructions:
            operands = [at[name] for name in instruction.operands]
            # Names are unique in a computation only; here in all of the module.
            name = self.fresh(instruction.name)
            attributes = instruction.attributes
            # All others share the dicts of what they are read from.
            if instruction.opcode in _UNSAID:
                attributes = _UNSAID[instruction.opcode] | attributes
            node = Node(
                graph,
                name,
                instruction.opcode,
                instruction.shape,
                operands,
                attributes,
                immediate=instruction.immediate,
            )
            at[instruction.name] = node
            if node.opcode in CONTROL_FLOW:
                callers.append((graph, node))
            elif _acts(node):
                graph.effects.append(node)
        graph.parameters = [at[parameter.name] for parameter in computation.parameters]
        graph.root = at[computation.root_name]
        graph.sequence = list(at.values()) if self.module.is_scheduled else []
        return graph

    def reachable(self) -> list[Graph]:
        """Return the graphs that the entry needs, each after those that it calls."""
        found: dict[str, None] = {}

        def visit(name: str) -> Iterator[str]:
            for node in self.graphs[name].order():
                if may_call(node.opcode):
                    yield from node.called

        stack = [(self.module.entry_name, visit(self.module.entry_name))]
        while stack:
            name, rest = stack[-1]
            called = next((item for item in rest if item not in found), None)
            if called is None:
                found[name] = None
                stack.pop()
            else:
                stack.append((called, visit(called)))
        return [self.graphs[name] for name in found]

    def running(self) -> list[Graph]:
        """Return the graphs whose instructions are kernels: the entry's, and those of loops and branches."""
        names, graphs = {self.module.entry_name}, self.reachable()
        for graph in graphs:
            for node in graph.order():
                if node.opcode in CONTROL_FLOW:
                    names.update(node.called)
        return [graph for graph in graphs if graph.name in names]

    def drop(self, attribute: str) -> None:
        """Take an attribute from all nodes."""
        for graph in self.reachable():
            for node in graph.order():
                # Equal attributes are one object elsewhere: only what changes is another.
                if attribute in node.attributes:
                    node.attributes = {name: value for name, value in node.attributes.items() if name != attribute}

    def write(self) -> Module:
        """Return the module that the graphs are now."""
        computations = tuple(_write(graph) for graph in self.reachable())
        return Module(self.module.name, computations, self.module.entry_name, self.attributes, self.module.tables)


def _acts(node: Node) -> bool:
    return node.opcode in HAS_EFFECTS or bool(node.attributes.get("custom_call_has_side_effect"))


def _reaching(names: set[str], callers: Iterable[tuple[Graph, Node]]) -> set[str]:
    """Return the names of graphs, and of all that call these, however deep."""
    calling: dict[str, list[str]] = {}
    for graph, node in callers:
        for name in node.called:
            calling.setdefault(name, []).append(graph.name)
    found, todo = set(names), list(names)
    while todo:
        new = set(calling.get(todo.pop(), ())) - found
        found |= new
        todo.extend(new)
    return found


def _write(graph: Graph) -> Computation:
    instructions = tuple([node.written() for node in graph.order()])
    return Computation(graph.name, instructions, graph.root.name, graph.execution_thread)
