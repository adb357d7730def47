"""Another compiler's fusions, layouts, placement and asynchronous copies, undone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import (
    ASYNC_DONES,
    COMPILED,
    COPIES,
    OWN_ASYNC_OPCODES,
    TRANSFER_DONES,
    TRANSFERS,
    async_parts,
    async_phase,
    long_form,
)
from tpusim.semantics.aliasing import JOIN
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape
from tpusim.undo.collectives import make_at_end, unwritten, with_scatters
from tpusim.undo.pairs import begun
from tpusim.undo.slices import put_together
from tpusim.undo.unmix import unmix
from tpusim.undo.views import joined, plain_view

_KEPT_CONFIG = frozenset({"known_trip_count", "custom_call_config"})
"""What ``backend_config`` says of the program, not of how it was compiled."""

_OF_SCHEDULE = frozenset({"is_scheduled", "entry_computation_layout"})
_OF_PLACEMENT = frozenset({"control-predecessors", "output_to_operand_aliasing", "async_execution_thread"})


def is_plain(module: Module) -> bool:
    """Return whether a module is as front ends make it: not scheduled, without fusions and views of buffers."""
    return not module.is_scheduled and not any(i.opcode in COMPILED for c in module.computations for i in c)


def defuse(module: Module) -> Module:
    """Return a module without fusions, layouts, memory spaces and asynchronous copies: what a front end might make.

    What the compiler rewrote stays rewritten: products are convolutions, maxima of rows are windows. Raises
    UnsupportedError for views that take tiles apart.
    """
    draft = Draft(with_scatters(module))
    for graph in draft.graphs.values():
        graph.sequence = []
    make_at_end(draft)
    for graph in draft.reachable():
        for node in graph.order():
            whole = put_together(graph, node)
            if whole is not None:
                graph.replace(node, whole)
        for node in graph.order():
            plain = _plain(graph, node)
            if plain is not None:
                graph.replace(node, plain)
    for graph in draft.reachable():
        for node in graph.order():
            _forget(node)
    unmix(draft)
    draft.attributes = {key: value for key, value in draft.attributes.items() if key not in _OF_SCHEDULE}
    return draft.write()


def made_at_once(module: Module) -> Module:
    """Return an unscheduled module in which the core starts nothing: what runs beside what the compiler decides.

    What other threads run, and transfers, stay as they are.
    """
    if not any(_is_wait(i.opcode) for computation in module.computations for i in computation):
        return module
    draft = Draft(module)
    for graph in draft.reachable():
        for node in [node for node in graph.order() if _is_wait(node.opcode) and _thread(node) == "main"]:
            plain = _plain(graph, node)
            if plain is not None:
                graph.replace(node, plain)
    return draft.write()


def _is_wait(opcode: str) -> bool:
    return opcode in ASYNC_DONES - TRANSFER_DONES or long_form(opcode) == "async-done"


def _thread(wait: Node) -> str:
    """Return the thread on which that runs for which a node waits."""
    start = begun(wait)[0] if async_phase(wait.opcode) else wait.operands[0]
    return str(start.attributes.get("async_execution_thread", "main"))


def _plain(graph: Graph, node: Node) -> Node | None:
    """Return what stands for a node in a plain form, None if it stays as it is."""
    rule = _UNDO.get(long_form(node.opcode))
    return rule(graph, node) if rule else None


def _forget(node: Node) -> None:
    """Leave of a node what it computes."""
    node.shape = _without_layouts(node.shape)
    # What a kernel by hand writes over its author says.
    said = {"output_to_operand_aliasing"} if node.opcode == "custom-call" else set()
    named = {key: value for key, value in node.attributes.items() if key not in _OF_PLACEMENT - said}
    config = named.pop("backend_config", None)
    fields = _fields(config)
    # What a hand-written kernel may take of VMEM is asked for by its author; for others the compiler says it.
    names = _KEPT_CONFIG | ({"scoped_memory_configs"} if "custom_call_config" in fields else set())
    kept = {key: value for key, value in fields.items() if key in names}
    node.attributes = named | ({"backend_config": Raw(json.dumps(kept))} if kept else {})


def _fields(config: Any) -> dict[str, Any]:
    from_text = Instruction("", TupleShape(()), "tuple", attributes={"backend_config": config} if config else {})
    return from_text.backend_config.fields


def _without_layouts(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_without_layouts(element) for element in shape.elements))
    return shape.with_layout(None) if isinstance(shape, ArrayShape) else shape


def _inlined(graph: Graph, node: Node) -> Node:
    """Return the result of a fusion, made by a copy of what is inside."""
    return graph.copy_in(graph.draft.graphs[node.attributes["calls"]], node.operands)


def _copied(graph: Graph, node: Node) -> Node:
    """Return a copy that is made at once."""
    (start,) = node.operands
    return graph.add("copy", node.shape, start.operands, like=node)


def _done(graph: Graph, node: Node) -> Node:
    """Return the collective that a pair of start and done is."""
    (start,) = node.operands
    opcode = start.opcode.removesuffix("-start")
    named = {key: value for key, value in start.attributes.items() if key not in _OF_PLACEMENT}
    # Neither half stays for its effect, or it would be done twice.
    graph.forget([start, node])
    return graph.add(opcode, node.shape, start.operands, named)


def _ended(graph: Graph, node: Node) -> Node:
    """Return what a wait for an operation waits for, made at once."""
    start, operands = begun(node)
    short = async_parts(start.opcode)
    if short is None:
        return graph.copy_in(graph.draft.graphs[start.attributes["calls"]], operands)
    named = {key: value for key, value in start.attributes.items() if key not in _OF_PLACEMENT}
    made = graph.add(short[0], node.shape, operands, named)
    # What a start calls has been undone before, and is so here.
    return _plain(graph, made) or made


def _without_arrays(graph: Graph, node: Node) -> None:
    """Let a token come after tokens only: in a schedule it may come after whatever stands before it."""
    node.take(operand for operand in node.operands if operand.array.dtype.name == "token")


def _custom_call(graph: Graph, node: Node) -> Node | None:
    rule = _CUSTOM_CALLS.get(str(node.attributes["custom_call_target"]))
    return rule(graph, node) if rule else None


_CUSTOM_CALLS: dict[str, Callable[[Graph, Node], Node | None]] = {
    "AllocateBuffer": lambda graph, node: unwritten(graph, node.array),
    "AssumeGatherIndicesInBound": lambda graph, node: node.operands[0],
    JOIN: joined,
}

_UNDO: dict[str, Callable[[Graph, Node], Node | None]] = {
    "bitcast": plain_view,
    "fusion": _inlined,
    "add-dependency": lambda graph, node: node.operands[0],
    "after-all": _without_arrays,
    "copy-done": _copied,
    "custom-call": _custom_call,
    "async-done": _ended,
    **{f"{opcode}-done": _done for opcode in OWN_ASYNC_OPCODES - COPIES - TRANSFERS},
}
