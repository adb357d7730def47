"""Before pass 2: what the program says of host memory gets one form. Before layouts: where it is moved is settled.

A move to the host goes behind reshapes, one to the device before them, so that what lies in host memory is only handed
on, updated or taken apart there. What else reads it, reads a copy on the device. Results are where the program says.

Source: XLA, ConvertMemoryPlacementToInternalAnnotations, HostOffloadLegalize and HostOffloader, by idea.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tpusim.compiler.host.held import Held, host_arguments, is_to_device, is_to_host
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.errors import UnsupportedError
from tpusim.ir.module import Literal
from tpusim.ir.ops import CONTROL_FLOW, IN_PLACE, LAID_OUT_FREELY, RELAYOUTS, TUPLES, VIEWS
from tpusim.semantics.host_memory import ARGUMENT_SPACES, RESULT_SPACES, TO_DEVICE, TO_HOST, move_of, stated_spaces
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.layout import HOST_SPACE
from tpusim.shapes.shape import ArrayShape

_S32 = ArrayShape(DTYPES["s32"])
_HANDS_ON = CONTROL_FLOW | VIEWS | TUPLES
_LIES_ALREADY = CONTROL_FLOW | IN_PLACE | LAID_OUT_FREELY | TUPLES
_RESULT_MARK = "xla.sdy.FuncResultSharding"


def name_moves(draft: Draft, target: Target) -> None:
    """Give what moves arrays to and from the host one form, without an effect; drop what only marks results."""
    for graph in draft.reachable():
        for node in [node for node in graph.order() if node.opcode == "custom-call"]:
            stands_for = _without_effect(graph, node)
            if stands_for is not None:
                graph.replace(node, stands_for)
                graph.forget([node])


def _without_effect(graph: Graph, node: Node) -> Node | None:
    move = move_of(node.attributes)
    if move:
        return _move(graph, node.operands[0], move)
    is_mark = node.attributes["custom_call_target"] == _RESULT_MARK and len(node.operands) == 1
    return node.operands[0] if is_mark and node.operands[0].shape == node.shape else None


def settle_moves(draft: Draft, target: Target) -> None:
    """Let what lies in host memory be moved wherever it is needed on the device, and only there."""
    _check_ends(draft)
    if not host_arguments(draft) and not _has_moves(draft) and HOST_SPACE not in _result_spaces(draft):
        return
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "tuple":
                _take_apart(graph, node)
        while sum(_pushed(graph, node) for node in graph.order()):
            pass
    held = Held(draft)
    for graph in draft.running():
        for node in graph.order():
            _settle(graph, node, held)
    _settle_results(draft, held)


def _check_ends(draft: Draft) -> None:
    """Refuse arguments and results in host memory of which it is not known which they are: those in tuples."""
    said = frontend_attributes(draft.attributes)
    known = {ARGUMENT_SPACES: len(draft.entry.parameters), RESULT_SPACES: len(_result_spaces(draft))}
    for which, count in known.items():
        spaces = said.get(which, "").split(";")
        if str(HOST_SPACE) in spaces and len(spaces) != count:
            raise UnsupportedError(
                f"{draft.module.name}: expected arguments and results in host memory to be in no tuple but that of all "
                f"results, found {which}={said[which]!r} for others"
            )


def _has_moves(draft: Draft) -> bool:
    return any(
        node.opcode == "custom-call" and move_of(node.attributes) for graph in draft.running() for node in graph.order()
    )


def _take_apart(graph: Graph, whole: Node) -> None:
    """Give each place of a tuple a value of its own where that is made of nothing: only one may be in host memory."""
    whole.take([graph.clone(each) if each.opcode in LAID_OUT_FREELY else each for each in whole.operands])


def _pushed(graph: Graph, node: Node) -> bool:
    """Bring a move to the other side of what rearranges; return whether there was something to do."""
    if node.opcode in RELAYOUTS and is_to_host(node.operands[0]):
        moved, *others = node.operands
        graph.replace(node, _move(graph, graph.clone(node, [*moved.operands, *others]), TO_HOST))
        return True
    if not is_to_device(node):
        return False
    source = node.operands[0]
    if source.opcode in RELAYOUTS:
        moved, *others = source.operands
        graph.replace(node, graph.clone(source, [_move(graph, moved, TO_DEVICE), *others]))
        return True
    return source.opcode == "get-tuple-element" and _pushed_over_barrier(graph, node, source)


def _pushed_over_barrier(graph: Graph, node: Node, element: Node) -> bool:
    """Bring a move to the device before a barrier of which all that use the array want it there."""
    barrier, at = element.operands[0], element.attributes["index"]
    if barrier.opcode != "opt-barrier" or barrier.operands[0].opcode != "tuple":
        return False
    if list(element.users) != [node] or barrier.takers()[at] != [element]:
        return False
    whole = graph.own(barrier.operands[0], barrier)
    whole.take([_move(graph, one, TO_DEVICE) if number == at else one for number, one in enumerate(whole.operands)])
    graph.replace(node, element)
    return True


def _settle(graph: Graph, node: Node, held: Held) -> None:
    if is_to_host(node) or is_to_device(node):
        (source,) = node.operands
        is_taken_out = source.opcode == "dynamic-slice" and held.holds(source.operands[0])
        if held.holds(source) == is_to_host(node) and not is_taken_out:
            graph.replace(node, source)
    elif node.opcode == "tuple":
        _bring(graph, node, [one for one in node.operands if held.holds(one)])
    elif node.opcode == "dynamic-update-slice":
        _settle_update(graph, node, held)
    elif _takes_part(node) and held.holds(node.operands[0]):
        _settle_part(graph, node)
    elif node.opcode not in _HANDS_ON:
        for operand in dict.fromkeys(one for one in node.operands if held.holds(one)):
            twin = next((user for user in operand.users if is_to_device(user)), None)
            node.replace_operand(operand, twin or _move(graph, operand, TO_DEVICE))


def _takes_part(node: Node) -> bool:
    """Return whether a node takes a block out of an array, as one transfer may."""
    if node.opcode == "slice":
        return all(each.stride == 1 for each in node.attributes["slice"])
    return node.opcode == "dynamic-slice"


def _settle_part(graph: Graph, node: Node) -> None:
    """Move a part of an array in host memory, and no more than that, to the device."""
    part = node
    if node.opcode == "slice":
        cut = node.attributes["slice"]
        starts = [graph.add("constant", _S32, immediate=Literal(str(each.start))) for each in cut]
        sizes = {"dynamic_slice_sizes": node.array.dimensions}
        part = graph.add("dynamic-slice", node.shape, [node.operands[0], *starts], sizes, like=node)
        graph.replace(node, part)
    users = [user for user in part.users if not is_to_device(user)]
    if users or part is graph.root:
        moved = _move(graph, part, TO_DEVICE)
        for user in users:
            user.replace_operand(part, moved)
        graph.root = moved if part is graph.root else graph.root


def _settle_update(graph: Graph, node: Node, held: Held) -> None:
    """Move what is written to where it is written."""
    stack, update, *places = node.operands
    if held.holds(update) and not is_to_host(update):
        update = _move(graph, update, TO_DEVICE)
    if held.holds(node) and not is_to_host(update):
        update = _move(graph, update, TO_HOST)
    node.take([stack, update, *places])
    _bring(graph, node, [stack] if held.holds(node) else [])


def _bring(graph: Graph, user: Node, operands: Iterable[Node]) -> None:
    """Move arrays to host memory that are made elsewhere, and that a user hands on there."""
    for operand in dict.fromkeys(operands):
        source = operand.source
        is_there = is_to_host(source) or source.opcode in _LIES_ALREADY
        if source.opcode == "parameter":
            is_there = graph is not graph.draft.entry or source in host_arguments(graph.draft)
        if not is_there:
            user.replace_operand(operand, _move(graph, operand, TO_HOST))


def _settle_results(draft: Draft, held: Held) -> None:
    """Move results to where the program says that they are."""
    graph, spaces = draft.entry, _result_spaces(draft)
    results = list(_results(graph.root))
    for result, space in zip(results, spaces, strict=False):
        is_there = held.holds(result) or is_to_host(result)
        if is_there == (space == HOST_SPACE) or not isinstance(result.shape, ArrayShape):
            continue
        moved = _move(graph, result, TO_HOST if space == HOST_SPACE else TO_DEVICE)
        if result is graph.root:
            graph.root = moved
        else:
            graph.root.replace_operand(result, moved)


def _results(root: Node) -> Iterator[Node]:
    yield from root.operands if root.opcode == "tuple" else [root]


def _result_spaces(draft: Draft) -> tuple[int, ...]:
    return stated_spaces(draft.attributes, RESULT_SPACES, len(list(_results(draft.entry.root))))


def _move(graph: Graph, moved: Node, target: str) -> Node:
    return graph.add("custom-call", moved.shape, [moved], {"custom_call_target": target}, like=moved)
