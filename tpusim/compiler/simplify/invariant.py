"""Behind pass 2: what is the same in every trip of a loop is computed before it, and carried through the loop.

Inner loops come first: what leaves one may leave the one around it as well. What is larger than what it is made of is
made anew in every trip, and with it what takes it: it would fill memory for as long as the loop runs. Only products,
sums, windows and gathers take such with them, where nothing that stays needs it. What only moves elements leaves a loop
with what takes it, never alone.

Source: XLA, WhileLoopInvariantCodeMotion and WhileLoopExpensiveInvariantCodeMotion; 70 loops compiled ahead of time for
v5e (libtpu 0.0.52): which operations take others with them, and that sizes count without padding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tpusim.compiler.flatten import arrays_in, tuple_as
from tpusim.compiler.kernels.places import BEFORE
from tpusim.compiler.simplify.loops import short_loops
from tpusim.compiler.simplify.states import calls_in, make_carry
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import HOISTED_WITH_OPERANDS, HOISTED_WITH_USERS
from tpusim.semantics.host_memory import states_memory
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.shapes.address import logical_bytes
from tpusim.shapes.shape import ArrayShape, TupleShape

_LEFT = "_xla_disable_loop_instr_hoisting"
"""The frontend attribute of a loop out of which nothing is to be moved."""


def move_invariants(draft: Draft, target: Target) -> None:
    """Compute before each loop what all of its trips would compute alike."""
    graphs = draft.reachable()
    if not any(node.opcode == "while" for graph in graphs for node in graph.order()):
        return
    called = calls_in(graphs)
    # What runs once at most gains nothing.
    short = {loop for counts in short_loops(draft).values() for loop in counts}
    for graph in graphs:
        for loop in [node for node in graph.order() if node.opcode == "while" and node not in short]:
            if all(called[name] == 1 for name in loop.called) and _may_be_left(draft, loop):
                _move_out(graph, loop)


def _may_be_left(draft: Draft, loop: Node) -> bool:
    """Return whether a program lets something be moved out of a loop."""
    if _LEFT in frontend_attributes(loop.attributes):
        return False
    body = draft.graphs[loop.attributes["body"]]
    if body.root.opcode != "tuple" or any(not isinstance(one.shape, ArrayShape) for one in body.root.operands):
        return False
    # Where arrays lie is said of a place in the program.
    return not any(states_memory(node.attributes) for node in body.order())


def _move_out(graph: Graph, loop: Node) -> None:
    body = graph.draft.graphs[loop.attributes["body"]]
    same = _invariant(body)
    needed = _needed(body, _leaving(body, same))
    if not needed:
        return
    given = arrays_in(graph, loop.operands[0])
    outside: dict[Node, Node] = {}
    for node in _made_of(needed, same):
        if body.is_element(node):
            outside[node] = given[node.attributes["index"]]
        else:
            outside[node] = graph.clone(node, [outside[operand] for operand in node.operands])
    _carry(graph, loop, given, {node: outside[node] for node in needed})


def _invariant(body: Graph) -> dict[Node, list[Node]]:
    """Return the nodes of a body that are the same in every trip, in their order, each with what it is made of."""
    found: dict[Node, list[Node]] = {}
    nodes = body.order()
    ordered = {name for node in nodes for name in node.attributes.get(BEFORE, ())}
    for node in nodes:
        if node.opcode == "parameter" or node is body.root or node.name in ordered:
            continue
        if not body.is_element(node):
            if all(operand in found for operand in node.operands) and _only_computes(body, node):
                found[node] = node.operands
            continue
        after = body.root.operands[node.attributes["index"]]
        if body.is_element(after) and after.attributes["index"] == node.attributes["index"]:
            found[node] = []
    return found


def _only_computes(body: Graph, node: Node) -> bool:
    does_something = body.acts(node) or any(body.draft.graphs[name].effects for name in node.called)
    return not (does_something or node.is_dynamic or BEFORE in node.attributes)


def _leaving(body: Graph, same: dict[Node, list[Node]]) -> dict[Node, int]:
    """Return what may leave a loop, in its order: what is not larger than what it is made of, and takes such alone.

    With each stand the bytes of the elements that it is made of, however far back; those of one count as often as it is
    taken.
    """
    found: dict[Node, int] = {}
    made_of: dict[Node, int] = {}
    for node, operands in same.items():
        size, taken = logical_bytes(node.shape), dict.fromkeys(operands)
        is_given = node.opcode == "constant" or body.is_element(node)
        made_of[node] = size if body.is_element(node) else sum(made_of[operand] for operand in taken)
        is_alone = all(operand in found for operand in operands)
        is_small = size <= sum(logical_bytes(operand.shape) for operand in operands)
        takes_others = node.opcode in HOISTED_WITH_OPERANDS and size <= made_of[node]
        if is_given or (is_alone and is_small) or (takes_others and _is_free(body, taken, same)):
            found[node] = made_of[node]
    return found


def _is_free(body: Graph, taken: Iterable[Node], same: Collection[Node]) -> bool:
    """Return whether nothing that changes from trip to trip takes some nodes."""
    return all(user in same or user is body.root for node in taken for user in node.users)


def _is_worth(body: Graph, node: Node) -> bool:
    """Return whether a node leaves a loop for itself: of what makes several arrays those that are taken out do."""
    if node.opcode == "get-tuple-element":
        return not body.is_element(node) and node.operands[0].opcode not in HOISTED_WITH_USERS
    # What a partitioner has been told is of no use by itself.
    is_mark = node.attributes.get("custom_call_target") == "Sharding"
    return node.opcode not in HOISTED_WITH_USERS and isinstance(node.shape, ArrayShape) and not is_mark


def _needed(body: Graph, leaving: dict[Node, int]) -> list[Node]:
    """Return those that leave a loop and are taken by what stays in it."""
    # What is made of constants alone is as well known inside.
    gone = {node for node, size in leaving.items() if size and _is_worth(body, node)}
    ends = {body.root, *body.effects, *body.callers}
    found: list[Node] = []
    stay: set[Node] = set()
    for node in reversed(body.order()):
        if node in ends or not stay.isdisjoint(node.users):
            if node in gone:
                found.append(node)
            else:
                stay.add(node)
    return found[::-1]


def _made_of(needed: Collection[Node], same: dict[Node, list[Node]]) -> list[Node]:
    """Return some nodes and all that they are made of, in their order."""
    found = set(needed)
    for node in reversed(same):
        if node in found:
            found.update(same[node])
    return [node for node in same if node in found]


def _carry(graph: Graph, loop: Node, given: list[Node], moved: dict[Node, Node]) -> None:
    """Let a loop carry what has been moved out of it, behind what it carries already."""
    body, condition = (graph.draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    before, result = loop.shape, body.root
    shape = TupleShape(tuple(node.shape for node in (*given, *moved.values())))
    for own, node in ((graph, loop), (body, body.parameters[0]), (condition, condition.parameters[0])):
        takers = [user for user in node.users if user.opcode != "get-tuple-element"]
        is_root = node is own.root
        make_carry(node, shape)
        if takers or is_root:
            elements = [
                own.add("get-tuple-element", one.shape, [node], {"index": at}, like=node)
                for at, one in enumerate(given)
            ]
            whole = tuple_as(own, before, elements)
            for user in takers:
                user.replace_operand(node, whole)
            own.root = whole if is_root else own.root
    loop.take([graph.add("tuple", shape, [*given, *moved.values()], like=loop.operands[0])])
    inside = [
        body.add("get-tuple-element", node.shape, body.parameters, {"index": at}, like=node)
        for at, node in enumerate(moved, start=len(given))
    ]
    for node, element in zip(moved, inside, strict=True):
        body.replace(node, element)
    body.root = body.add("tuple", shape, [*result.operands, *inside], like=result)
    result.take([])
    body.order()
