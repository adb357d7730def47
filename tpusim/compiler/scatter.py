"""A sum over devices of which each keeps its own part becomes a reduce-scatter, which sends half as many bytes.

That is what partitioning leaves of a product over a sharded dimension whose result is sharded as well, and of gradients
of weights that devices share out. The part that a device keeps has to be its turn in the group, along one dimension,
and nothing else may take the sum. On a slice where a reduce-scatter is done as a sum it stays one, and what the program
scatters becomes one, with all the memory that it needs.

Source: programs compiled ahead of time for v5e, v5p and v6e, on slices of 4 to 256 chips, among all devices and along
axes of meshes, of bf16 and f32, along rows, columns and the middle dimension of three, in loops too: all have it so but
where the sum has another user, or the group is all of a slice with two equal sides of four and more, or with three.
XLA, ReduceScatterCreator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.target import Target
from tpusim.cost.by_slice import way_of
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.module import Module
from tpusim.semantics.device_groups import Groups, are_turns, device_groups
from tpusim.semantics.scalars import Budget, Number, Scalars, State
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape

U32 = DTYPES["u32"]


class _Cut(NamedTuple):
    """A sum of which one part is taken, and along which dimension."""

    graph: Graph
    summed: Node
    part: Node
    along: int


def scatter_sums(draft: Draft, target: Target) -> None:
    """Let devices that keep their own part of a sum get no more than that, unless the slice has it done as a sum."""
    running = draft.running()
    cuts = [cut for graph in running for cut in _cuts(graph)]
    scatters = [(graph, node) for graph in running for node in graph.order() if _is_scatter(node)]
    if not cuts and not scatters:
        return
    module = draft.write()
    for graph, node in scatters:
        groups = device_groups(module, module[graph.name][node.name])
        if _has_turns_in_order(module, groups) and _is_done_as_sum(node.operands[0], target, module, groups):
            _sum_all(Build(graph, node, target), node, module)
    starts = _Starts(module)
    for cut in cuts:
        groups = device_groups(module, module[cut.graph.name][cut.summed.name])
        size, whole = (node.array.dimensions[cut.along] for node in (cut.part, cut.summed))
        is_own_part = are_turns(groups, starts.of(cut), size, whole)
        if is_own_part and not _is_done_as_sum(cut.summed, target, module, groups):
            _scatter(cut)


def _cuts(graph: Graph) -> Iterator[_Cut]:
    """Yield sums that nothing takes but a slice along one dimension."""
    for node in graph.order():
        if node.opcode != "all-reduce" or not isinstance(node.shape, ArrayShape) or node.is_dynamic:
            continue
        users = list(node.users)
        if node is graph.root or [user.opcode for user in users] != ["dynamic-slice"]:
            continue
        (part,) = users
        along = [d for d, size in enumerate(part.array.dimensions) if size != node.array.dimensions[d]]
        # Older programs have all starts in one vector.
        if len(along) == 1 and len(part.operands) == 1 + part.array.rank:
            yield _Cut(graph, node, part, along[0])


class _Starts:
    """Where the parts begin that devices take, found once for all that begin at the same."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._budget = Budget()
        self._known: dict[Node, list[Number | None]] = {}

    def of(self, cut: _Cut) -> list[Number | None]:
        """Return by device where its part begins, None where that is not known."""
        start = cut.part.operands[1 + cut.along]
        if start not in self._known:
            computation, partitions = self._module[cut.graph.name], self._module.partition_count
            ids = (divmod(device, partitions) for device in range(self._module.device_count))
            states: Iterator[State] = ({"replica-id": replica, "partition-id": partition} for replica, partition in ids)
            scalars = (Scalars(self._module, computation, state, self._budget) for state in states)
            self._known[start] = [each.get(start.name) for each in scalars]
        return self._known[start]


def _is_done_as_sum(array: Node, target: Target, module: Module, groups: Groups) -> bool:
    """Return whether the slice has a reduce-scatter of an array done as a sum."""
    pod = target.pod(module) if target.pod else None
    if pod is None:
        return False
    return way_of("reduce-scatter", pod, groups[0], physical_bytes(array.shape)).kind == "all-reduce"


def _is_scatter(node: Node) -> bool:
    return node.opcode == "reduce-scatter" and isinstance(node.shape, ArrayShape) and not node.is_dynamic


def _has_turns_in_order(module: Module, groups: Groups) -> bool:
    """Return whether the turn of each device is its number, which is one of partitions or of replicas."""
    return groups == (tuple(range(module.device_count)),) and 1 in (module.partition_count, module.replica_count)


def _sum_all(build: Build, scattered: Node, module: Module) -> None:
    """Let devices have all of a sum, and take their parts of it."""
    graph, (operand,), (along,) = build.graph, scattered.operands, scattered.attributes["dimensions"]
    named = {name: value for name, value in scattered.attributes.items() if name != "dimensions"}
    summed = graph.add("all-reduce", operand.shape, [operand], named)
    number = graph.add("partition-id" if module.replica_count == 1 else "replica-id", ArrayShape(U32))
    sizes = scattered.array.dimensions
    starts = {d: build.constant(size if d == along else 0, U32) for d, size in enumerate(sizes)}
    starts[along] = build.apply("multiply", number, starts[along])
    graph.replace(scattered, build.dynamic_slice(summed, starts, sizes))
    graph.forget([scattered])
    scattered.take([])


def _scatter(cut: _Cut) -> None:
    graph, summed, part, along = cut
    attributes = summed.attributes | {"dimensions": (along,)}
    graph.replace(part, graph.add("reduce-scatter", part.shape, summed.operands, attributes))
    graph.forget([summed])
    part.take([])
    summed.take([])
