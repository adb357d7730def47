"""Collectives that another compiler put into fusions, as a front end has them: made once, each for what it is.

One that runs beside the core is in three fusions or more, whole each time: its start, kernels under which it goes on,
and its end. Only the end has its result. A sum of which each device keeps its own part is a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.custom_calls import ASYNC_DONE, ASYNC_START
from tpusim.ir.module import Computation, Instruction, Literal, Module
from tpusim.ir.ops import COLLECTIVES
from tpusim.semantics.device_groups import are_turns, device_groups
from tpusim.semantics.infer.types import one_or_tuple
from tpusim.semantics.scalars import Budget, Scalars, State
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_EMITTER = "AllReduceScatterFusion"
"""What the TPU compiler calls the emitter of a reduce-scatter in a fusion, or how it ends."""


def make_at_end(draft: Draft) -> None:
    """Let collectives that run beside the core be made where they end: starts and kernels hand on what they take."""
    graphs = draft.graphs.values()
    starts = [(graph, node) for graph in graphs for node in _calls(graph, ASYNC_START)]
    begun = {node.operands[0].attributes.get("channel_id") for _, node in starts}
    for graph, node in starts:
        _hand_on(graph, node)
    for graph in graphs if starts else ():
        for done in _calls(graph, ASYNC_DONE):
            made = next((operand for operand in done.operands if operand.opcode in COLLECTIVES), None)
            if made is not None:
                graph.replace(done, made)
        if graph.root.opcode == "tuple":
            _leave_out(graph, begun)


def _calls(graph: Graph, target: str) -> list[Node]:
    return [node for node in graph.order() if node.attributes.get("custom_call_target") == target]


def _hand_on(graph: Graph, start: Node) -> None:
    """Let a start return what its collective takes, and room for what is not there yet."""
    (collective,) = start.operands
    shapes = start.shape.elements if isinstance(start.shape, TupleShape) else ()
    if collective.opcode not in COLLECTIVES:
        return
    taken = collective.operands
    rest = [unwritten(graph, shape) for shape in shapes[len(taken) :] if isinstance(shape, ArrayShape)]
    graph.replace(start, graph.add("tuple", start.shape, [*taken, *rest]))
    graph.forget([collective])


def _leave_out(graph: Graph, begun: set[object]) -> None:
    """Let a kernel under which collectives go on not make them: until they end nothing may read what they give."""
    for part in list(graph.root.operands):
        going_on = part.opcode in COLLECTIVES and part.attributes.get("channel_id") in begun
        if going_on and list(part.users) == [graph.root] and isinstance(part.shape, ArrayShape):
            graph.replace(part, unwritten(graph, part.shape))
            graph.forget([part])


def unwritten(graph: Graph, shape: ArrayShape) -> Node:
    """Return an array for one that was only given room."""
    zero = Literal("false" if shape.dtype.name == "pred" else "0")
    return graph.add(
        "broadcast", shape, [graph.add("constant", ArrayShape(shape.dtype), immediate=zero)], {"dimensions": ()}
    )


class _Part(NamedTuple):
    """A slice of a sum over devices: of which of its results, along which dimension, and how much of all it is."""

    kept: Instruction
    summed: Instruction
    number: int
    along: int
    size: int
    whole: int


def with_scatters(module: Module) -> Module:
    """Return a module in which fusions of sums, of which each device keeps its part, are of reduce-scatters."""
    fusions = {i.attributes["calls"]: i for c in module.computations for i in c if i.opcode == "fusion"}
    budget, changed = Budget(), dict[str, Computation]()
    for name, fusion in fusions.items():
        called = module[name]
        parts = _parts(called) if "all-reduce" in called.opcodes else []
        if parts and all(_is_own(module, called, part, budget, _is_scatter(fusion)) for part in parts):
            changed[name] = _scattered(called, parts)
    return replace(module, computations=tuple(changed.get(c.name, c) for c in module.computations))


def _parts(called: Computation) -> list[_Part]:
    """Return all results of a computation if they are slices of one sum, or of several made at once; else nothing."""
    root = called.root
    kept = called.operands_of(root) if root.opcode == "tuple" else (root,)
    found = [part for one in kept if (part := _part(called, one)) is not None]
    if len(found) < len(kept) or len({part.summed.name for part in found}) != 1:
        return []
    # What else reads the sum needs all of it.
    taken = {name for part in found for name in (part.summed.name, part.kept.operands[0])}
    others = {part.kept.name for part in found} | taken
    is_alone = all(user.name in others for name in taken for user, _ in called.users[name])
    numbers = [part.number for part in found]
    return found if is_alone and numbers == list(range(len(found[0].summed.operands))) else []


def _part(called: Computation, kept: Instruction) -> _Part | None:
    """Return what a slice along one dimension of a sum is; None for anything else."""
    if kept.opcode != "dynamic-slice":
        return None
    whole = summed = called[kept.operands[0]]
    if whole.opcode == "get-tuple-element":
        summed = called[whole.operands[0]]
    if summed.opcode != "all-reduce" or not isinstance(whole.shape, ArrayShape):
        return None
    assert isinstance(kept.shape, ArrayShape)
    lengths = zip(kept.shape.dimensions, whole.shape.dimensions, strict=True)
    along = [number for number, (length, full) in enumerate(lengths) if length != full]
    # Older programs have all starts in one vector.
    if len(along) != 1 or len(kept.operands) != 1 + kept.shape.rank:
        return None
    sizes = kept.shape.dimensions[along[0]], whole.shape.dimensions[along[0]]
    return _Part(kept, summed, whole.attributes.get("index", 0), along[0], *sizes)


def _is_scatter(fusion: Instruction) -> bool:
    """Return whether the TPU compiler says that a fusion is a reduce-scatter."""
    config = fusion.backend_config.fields.get("collective_algorithm_config")
    return isinstance(config, dict) and str(config.get("emitter", "")).endswith(_EMITTER)


def _is_own(module: Module, called: Computation, part: _Part, budget: Budget, is_stated: bool) -> bool:
    """Return whether each device keeps the part that is its turn in its group.

    A table that a text leaves out tells nothing: there what the compiler states counts.
    """
    start, partitions = part.kept.operands[1 + part.along], module.partition_count
    ids = (divmod(device, partitions) for device in range(module.device_count))
    states: Iterator[State] = ({"replica-id": replica, "partition-id": partition} for replica, partition in ids)
    starts = [Scalars(module, called, state, budget).get(start) for state in states]
    if is_stated and set(starts) == {None}:
        return True
    return are_turns(device_groups(module, part.summed), starts, part.size, part.whole)


def _scattered(called: Computation, parts: list[_Part]) -> Computation:
    """Return a computation with reduce-scatters in place of a sum and its slices, one for each dimension."""
    summed = parts[0].summed
    gone = {name for part in parts for name in (summed.name, part.kept.operands[0], part.kept.name)}
    made = {one.name: one for along in dict.fromkeys(part.along for part in parts) for one in _scatters(parts, along)}
    before = [one for one in called if one.name not in gone | {called.root_name}]
    root = [] if called.root_name in made else [called.root]
    return replace(called, instructions=(*before, *made.values(), *root), offsets=())


def _scatters(parts: Iterable[_Part], along: int) -> Iterator[Instruction]:
    """Yield the reduce-scatter of all parts along one dimension, and what takes these out of it."""
    same = [part for part in parts if part.along == along]
    summed = same[0].summed
    operands = tuple(summed.operands[part.number] for part in same)
    shape: Shape = one_or_tuple([part.kept.shape for part in same])
    # What no longer stands there leaves its name: that of the slice, or of what took the first sum out of several.
    name = same[0].kept.name if len(same) == 1 else same[0].kept.operands[0]
    attributes = summed.attributes | {"dimensions": (along,)}
    yield Instruction(name, shape, "reduce-scatter", operands, attributes)
    for number, part in enumerate(same if len(same) > 1 else ()):
        yield Instruction(part.kept.name, part.kept.shape, "get-tuple-element", (name,), {"index": number})
