"""Behind pass 2: of rows that lie on several devices each device selects first, and only what it selected is gathered.

A partitioner that does not know the selection gathers rows whole; that of the TPU compiler does know it. What a program
gathers by itself stays whole.

Source: programs compiled ahead of time for v5e; XLA, SpmdPartitioningVisitor::HandleCustomCallTopK, by idea.
"""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.kernels.places import BEFORE
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import ComputationName, SliceDimension, Symbol
from tpusim.ir.module import Literal
from tpusim.semantics.device_groups import group_mode, id_count, stated_groups
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, TupleShape

_S32 = DTYPES["s32"]

_MOST_SELECTED = 160
"""Of each row; 256 are selected from what is gathered."""

_SHORTEST_ROWS = 2048
"""What each row has on all devices; rows of 1,024 are sorted."""

_MATRIX = 2
"""The rank of what is selected from; others are sorted."""


def select_locally(draft: Draft, target: Target) -> None:
    """Select on each device from its own parts of rows, and then from what was selected."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "topk" and _is_spread(graph, node) and (places := _places(draft, node.operands[0])):
                graph.replace(node, _selected(Build(graph, node, target), node, places))


def _is_spread(graph: Graph, node: Node) -> bool:
    """Return whether rows are only gathered to be selected from, and each device has more of them than is selected."""
    (gathered,) = node.operands
    if gathered.opcode != "all-gather" or node.is_dynamic or list(gathered.users) != [node] or gathered is graph.root:
        return False
    k, whole, (own, *others) = node.attributes["k"], gathered.array, gathered.operands
    is_known = whole.dtype.name == "f32" and whole.rank == _MATRIX and gathered.attributes["dimensions"] == (1,)
    is_long = whole.dimensions[-1] >= _SHORTEST_ROWS and k <= min(_MOST_SELECTED, own.array.dimensions[-1] - 1)
    # What the partitioner adds has the name of what it is added for.
    is_added = gathered.attributes.get("metadata") == node.attributes.get("metadata")
    return is_known and is_long and is_added and not others and BEFORE not in gathered.attributes


def _places(draft: Draft, gathered: Node) -> dict[int, int]:
    """Return the place of each device in its group, by its number; nothing if it has two, replica and partition."""
    replicas, partitions = (draft.attributes.get(name, 1) for name in ("replica_count", "num_partitions"))
    count = id_count(group_mode(gathered.opcode, gathered.attributes), replicas, partitions)
    if min(replicas, partitions) > 1 or count != max(replicas, partitions):
        return {}
    groups = stated_groups(gathered.attributes) or (tuple(range(count)),)
    places = {device: place for group in groups for place, device in enumerate(group)}
    return places if sorted(places) == list(range(count)) else {}


def _selected(build: Build, node: Node, places: dict[int, int]) -> Node:
    """Return what is selected from the selections of all devices; of equals the first, as from the rows themselves."""
    graph, (gathered,) = build.graph, node.operands
    (own,) = gathered.operands
    values, indices = _elements(build, graph.add("topk", node.shape, [own], dict(node.attributes)))
    # Where a device's part of the rows begins.
    first = build.apply("multiply", _place(build, places), build.constant(own.array.dimensions[-1], _S32))
    indices = build.apply("add", indices, build.broadcast(first, indices.array.dimensions, ()))
    all_values, all_indices = (_gathered(graph, each, gathered) for each in (values, indices))
    largest = node.attributes.get("largest", True)
    ordered = graph.add(
        "sort",
        TupleShape((all_values.shape, all_indices.shape)),
        [all_values, all_indices],
        {"dimensions": (1,), "to_apply": _comparison(build, values, largest)},
        like=node,
    )
    rows, k = values.array.dimensions
    parts = {"slice": (SliceDimension(0, rows), SliceDimension(0, k))}
    results = [
        graph.add("slice", each.shape, [part], parts, like=node)
        for each, part in zip((values, indices), _elements(build, ordered), strict=True)
    ]
    graph.forget([gathered])
    return graph.add("tuple", node.shape, results, like=node)


def _elements(build: Build, node: Node) -> list[Node]:
    return [build.element(node, at) for at in range(2)]


def _place(build: Build, places: dict[int, int]) -> Node:
    """Return which part of the rows a device has."""
    graph = build.graph
    number = "partition-id" if graph.draft.attributes.get("num_partitions", 1) > 1 else "replica-id"
    text = ", ".join(str(places[device]) for device in range(len(places)))
    table = graph.add("constant", ArrayShape(_S32, (len(places),)), immediate=Literal(f"{{{text}}}"))
    device = graph.add(number, ArrayShape(DTYPES["u32"]), like=build.like)
    sizes = {"dynamic_slice_sizes": (1,)}
    return build.reshape(graph.add("dynamic-slice", ArrayShape(_S32, (1,)), [table, device], sizes, like=build.like))


def _gathered(graph: Graph, node: Node, whole: Node) -> Node:
    """Return what a node is on all devices of the groups in which another one gathers."""
    rows, selected = node.array.dimensions
    devices = whole.array.dimensions[-1] // whole.operands[0].array.dimensions[-1]
    attributes = dict(whole.attributes)
    if "channel_id" in attributes:
        every = (each.attributes for other in graph.draft.graphs.values() for each in other.order())
        attributes["channel_id"] = 1 + max(each.get("channel_id", 0) for each in every)
    return graph.add("all-gather", ArrayShape(node.array.dtype, (rows, selected * devices)), [node], attributes)


def _comparison(build: Build, values: Node, largest: bool) -> ComputationName:
    """Return the name of a new computation that says which value comes first; of equals that of the lower index."""
    draft = build.graph.draft
    graph = Graph(draft, draft.fresh("compare_value_and_index"))
    draft.graphs[graph.name] = graph
    types = (values.array.dtype, values.array.dtype, _S32, _S32)
    graph.parameters = [graph.add("parameter", ArrayShape(dtype), immediate=at) for at, dtype in enumerate(types)]
    one, other, *indices = graph.parameters
    inner = Build(graph, build.like, build.target)

    def compared(direction: str) -> Node:
        made = inner.compare(direction, one, other)
        # A selection tells zeros apart by their signs, and puts NaN first.
        made.attributes = made.attributes | {"type": Symbol("TOTALORDER")}
        return made

    graph.root = inner.apply(
        "select", compared("EQ"), inner.compare("LT", *indices), compared("GT" if largest else "LT")
    )
    return ComputationName(graph.name)
