"""What lies in host memory, said as a front end says it: by moves there and back, and of arguments and results."""

from __future__ import annotations

from msgspec import structs

from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import HOST
from tpusim.ir.module import Module
from tpusim.semantics.host_memory import ARGUMENT_SPACES, RESULT_SPACES, TO_DEVICE, TO_HOST, with_stated_spaces
from tpusim.semantics.memory_spaces import space_of
from tpusim.semantics.verify.parts import entry_layout
from tpusim.shapes.layout import HOST_SPACE
from tpusim.shapes.shape import Shape, leaves


def name_moves(module: Module) -> Module:
    """Return a module that says without layouts what is in host memory; itself if nothing is."""
    layout = entry_layout(module)
    arguments = [
        _is_in_host(given) or _is_in_host(stated)
        for parameter, shape in zip(module.entry.parameters, layout.parameters, strict=True)
        for given, stated in zip(leaves(parameter.shape), leaves(shape), strict=True)
    ]
    results = [
        _is_in_host(made) or _is_in_host(stated)
        for made, stated in zip(leaves(module.entry.root.shape), leaves(layout.result), strict=True)
    ]
    shapes = (one.shape for computation in module.computations for one in computation)
    if not any((*arguments, *results)) and not any(map(_is_in_host, shapes)):
        return module
    draft = Draft(module)
    for graph in draft.reachable():
        for node in graph.order():
            _name(graph, node)
    for which, in_host in ((ARGUMENT_SPACES, arguments), (RESULT_SPACES, results)):
        draft.attributes = with_stated_spaces(draft.attributes, which, in_host)
    return draft.write()


def _name(graph: Graph, node: Node) -> None:
    if node.opcode.removesuffix("-done") == "copy":
        moved = node.operands[0] if node.opcode == "copy" else node.operands[0].operands[0]
        if _is_in_host(moved.shape) != _is_in_host(node.shape):
            graph.replace(node, _move(graph, moved, to_host=_is_in_host(node.shape)))
    elif node.opcode.removesuffix("-start") == "dynamic-update-slice":
        target, update, *places = node.operands
        if _is_in_host(target.shape) and not _is_in_host(update.shape):
            node.take([target, _move(graph, update, to_host=True), *places])


def _move(graph: Graph, moved: Node, *, to_host: bool) -> Node:
    """Return an array in the other memory, with its layout, by which others see that it is there."""
    layout = structs.replace(moved.array.actual_layout, memory_space=HOST_SPACE if to_host else 0)
    named = {"custom_call_target": TO_HOST if to_host else TO_DEVICE}
    return graph.add("custom-call", moved.array.with_layout(layout), [moved], named, like=moved)


def _is_in_host(shape: Shape) -> bool:
    return any(space_of(leaf) == HOST for leaf in leaves(shape))
