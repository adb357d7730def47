"""Pass 11: sums over devices that do not need each other are one, and leave loops that need no new ones.

Permutes begin as soon as what they send is there, and end where their result is first used. Between the two the core
goes on with what is ready. The order of kernels stays what it was. For other collectives the core waits, but for v5e's
all-gathers: see ``devices.gathers``.

Source: programs compiled ahead of time for v5e, v5p and v6e, of all-reduces of 4 KiB to 64 MiB: those of one operation,
type and groups are one up to ``COMBINED_BYTES``, and those of a loop's invariants stand before the loop; all-gathers,
permutes and reduce-scatters stay as they are, inside of loops too, and none is cut up to run beside the product that
needs it (a collective matmul), which a partitioner would do. Of 33 with collectives, compiled without flags, only
permutes have a start and an end; for v5e kernels take all-gathers along. Of 77 arrays in HBM that a kernel makes for an
all-reduce alone and that are no results 61 are summed in place; of 24 that are one of several things that it makes
none. XLA, AllReduceCombiner, AsyncCollectiveCreator; LatencyHidingScheduler, by idea.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

from tpusim.compiler.channels import put_behind
from tpusim.compiler.devices.kinds import kind_of
from tpusim.compiler.kernels.emitters import state
from tpusim.compiler.kernels.places import (
    BEFORE,
    Home,
    Order,
    has_place,
    is_made_for,
    results_of,
    waits,
    writers_of,
)
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import HBM
from tpusim.ir.attributes import InstructionName
from tpusim.ir.ops import ON_RINGS, VIEWS
from tpusim.semantics.infer.types import one_or_tuple
from tpusim.semantics.marks import BY_SLICE
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import TupleShape, leaves

COMBINED_BYTES = 120 * 2**20
"""What all-reduces that are one have together at most: of 160 with 1 MiB each the first 120, of 15 MiB each 8."""


def combine(draft: Draft, target: Target) -> None:
    """Take sums over devices out of loops that need no new ones, and make those together that can be.

    It changes when an array is summed, and what another is: what is updated in place is asked afterwards.
    """
    for graph in draft.running():
        for node in graph.order():
            if node.opcode == "while":
                _sum_before(draft, graph, node)
    for graph in draft.running():
        while bucket := _bucket(draft, graph):
            _sum_together(graph, bucket)


def _sum_before(draft: Draft, graph: Graph, loop: Node) -> None:
    """Let a loop carry the sum of what it passes on as it is and only sums."""
    body, condition = (draft.graphs[loop.attributes[name]] for name in ("body", "condition"))
    (state,) = loop.operands
    if loop is graph.root or "tuple" not in {state.opcode} & {body.root.opcode}:
        return
    inside, behind, asked = (one.takers() for one in (body.parameters[0], loop, condition.parameters[0]))
    for at, element in enumerate(body.root.operands):
        summed = next((user for user in element.users if user.opcode == "all-reduce"), None)
        # Whatever else takes it would get the sum.
        if summed is None or behind[at] or asked[at] or not _is_only_summed(body, inside[at], element, summed):
            continue
        state = graph.own(state, loop)
        before = graph.clone(summed, [state.operands[at]])
        state.take([*state.operands[:at], before, *state.operands[at + 1 :]])
        body.replace(summed, element)
        _forget(body, summed)


def _is_only_summed(body: Graph, inside: list[Node], element: Node, summed: Node) -> bool:
    """Return whether a body passes a part of its tuple on as it is, and otherwise has its sum alone.

    ``inside`` are those that get that part in the body.
    """
    is_given = element.opcode == "get-tuple-element" and inside == [element]
    is_summed = summed.operands == [element] and set(element.users) == {summed, body.root}
    # What a program wants behind others in the loop stays there.
    return is_given and is_summed and body.root.operands.count(element) == 1 and BEFORE not in summed.attributes


def _bucket(draft: Draft, graph: Graph) -> list[Node]:
    """Return all-reduces that are to be one: alike, none made of another or behind it, and not too many bytes."""
    order = graph.order()
    kinds = {node: kind for node in order if node.opcode == "all-reduce" and (kind := kind_of(draft, node)) is not None}
    earlier = waits(draft, order) if kinds else {}
    # What runs behind something, or before it, stays by itself.
    for node in (each for behind, before in earlier.items() for each in (behind, *before)):
        kinds.pop(node, None)
    return _first_bucket(put_behind(order, earlier), earlier, kinds)


def _first_bucket(
    order: Iterable[Node], earlier: Mapping[Node, list[Node]], kinds: Mapping[Node, object]
) -> list[Node]:
    # By node the all-reduces that it is made of or behind, as bits.
    needs: dict[Node, int] = {}
    own: dict[Node, int] = {}
    buckets: dict[object, list[Node]] = {}
    for node in order:
        needed = (*node.operands, *earlier.get(node, ()))
        needs[node] = reduce(or_, (needs.get(each, 0) for each in needed), 0)
        if node not in kinds:
            continue
        bucket = buckets.setdefault(kinds[node], [])
        n_bytes = sum(physical_bytes(each.shape) for each in (*bucket, node))
        if n_bytes > COMBINED_BYTES or any(own[each] & needs[node] for each in bucket):
            if len(bucket) > 1:
                return bucket
            bucket.clear()
        bucket.append(node)
        own[node] = 1 << len(own)
        needs[node] |= own[node]
    return next((bucket for bucket in buckets.values() if len(bucket) > 1), [])


def _sum_together(graph: Graph, bucket: list[Node]) -> None:
    shape = TupleShape(tuple(node.shape for node in bucket))
    operands = [node.operands[0] for node in bucket]
    made = graph.add("all-reduce", shape, operands, bucket[0].attributes)
    for index, node in enumerate(bucket):
        graph.replace(node, graph.add("get-tuple-element", node.shape, [made], {"index": index}))
        _forget(graph, node)


def _forget(graph: Graph, node: Node) -> None:
    """Drop a node that runs for its effects."""
    graph.forget([node])
    node.take([])


def leave_to_slice(draft: Draft, target: Target) -> None:
    """State that sums, gathers and scatters over devices are carried out as the slice allows."""
    for graph in draft.running():
        for node in graph.order():
            if node.opcode in ON_RINGS:
                state(node, {"collective_algorithm_config": {"emitter": BY_SLICE}})


def sum_in_place(draft: Draft, target: Target) -> None:
    """State which sums over devices lie where what they sum did, which is in HBM and needed no more.

    That is what a kernel makes, as its only result, for the sum alone. A result of the program, or of a trip of a loop,
    has a place of its own, and so has what is written over an argument.
    """
    order = Order(draft)
    for graph in draft.running():
        sums = [node for node in graph.order() if node.opcode == "all-reduce"]
        elsewhere = set(_homes_of_results(order, graph)) if sums else set()
        for node in sums:
            count = len(node.operands)
            over = [at for at in range(count) if _lies_over(order, graph, node, at, elsewhere)]
            lists = [{"indices": [str(at), str(count + at)]} for at in over]
            state(node, {"aliasing_operands": {"lists": lists}} if lists else {})


def _homes_of_results(order: Order, graph: Graph) -> Iterator[Home]:
    """Yield what makes what a graph returns, and what that is written over."""
    todo = results_of(graph)
    for result in todo:
        if isinstance(result.shape, TupleShape):
            # In what the caller gets there may be tuples in tuples.
            todo += result.source.operands
        elif has_place(result):
            yield from writers_of(order, result)[0]


def _lies_over(order: Order, graph: Graph, summed: Node, at: int, elsewhere: Container[Home]) -> bool:
    operand, is_tuple = summed.operands[at], isinstance(summed.shape, TupleShape)
    if operand.is_small or not is_made_for(graph, summed, at) or Home(summed, at if is_tuple else None) in elsewhere:
        return False
    spaces = {space_of(operand.shape), space_of(leaves(summed.shape)[at])}
    return spaces == {HBM} and writers_of(order, operand)[1] is None


def start_early(draft: Draft, target: Target) -> None:
    """Split every permute into its start and its end."""
    for graph in draft.running():
        order = graph.order()
        starts = split(graph, [node for node in order if node.opcode == "collective-permute"])
        if starts:
            graph.sequence = _with_starts(order, starts)
    # The order says it now; and some name what was fused or rewritten.
    draft.drop(BEFORE)


def split(graph: Graph, nodes: Iterable[Node]) -> dict[Node, Node]:
    """Put starts and ends in place of collectives; return by these the starts, each of which an end alone uses."""
    starts = {node: _split(graph, node) for node in nodes}
    ends = (end for start in starts.values() for end in start.users)
    graph.forget({*starts, *starts.values(), *ends})
    for node in starts:
        node.take([])
    return starts


def _split(graph: Graph, node: Node) -> Node:
    # Of one that writes into an array the source alone is sent; several that are sent at once are a tuple.
    sent = node.operands[:1] if "slice_sizes" in node.attributes else node.operands
    shape = TupleShape((one_or_tuple([operand.shape for operand in sent]), node.shape))
    start = graph.add(f"{node.opcode}-start", shape, node.operands, node.attributes)
    graph.replace(node, graph.add(f"{node.opcode}-done", node.shape, [start], like=node))
    return start


def _with_starts(order: list[Node], starts: dict[Node, Node]) -> list[Node]:
    """Return an order with each start right behind what it sends, and what reads where it writes.

    An end stands before what waits for it, to write over what is sent; others are left to stand before their users, and
    so is what only names their results.
    """
    ends = {InstructionName(node.name): end for node, start in starts.items() for end in start.users}
    of = names_of(order, ends.values())
    place = {node: number for number, node in enumerate(order)}
    by_name = {InstructionName(node.name): node for node in order}
    used: dict[Node, int] = {}
    for number, node in enumerate(order):
        for end in () if node in starts or node in of else (of[each] for each in node.operands if each in of):
            used.setdefault(end, number)
    around: dict[Node, tuple[list[Node], list[Node]]] = {node: ([], []) for node in order}
    for start in starts.values():
        earlier = [by_name[name] for name in start.attributes.get(BEFORE, ()) if name in by_name and name not in ends]
        last = max([place.get(node, -1) for node in (*start.operands, *earlier) if node not in of], default=-1)
        # What the one before brought is sent on ahead of what takes it too, which then runs meanwhile.
        first = min([used[of[each]] for each in start.operands if of.get(each) in used], default=-1)
        if max(first, last) >= 0:
            around[order[max(first, last)]][first <= last].append(start)
    found: list[Node] = []
    for node in order:
        before, behind = around[node]
        for one in () if node in starts or node in of else (*before, node, *behind):
            found += [*(ends[name] for name in one.attributes.get(BEFORE, ()) if name in ends), one]
    return found


def names_of(order: Iterable[Node], ends: Iterable[Node]) -> dict[Node, Node]:
    """Return by node the one of ``ends`` whose result it is or names."""
    of = {end: end for end in ends}
    for node in order:
        if (node.opcode in VIEWS or node.opcode == "get-tuple-element") and node.operands[0] in of:
            of[node] = of[node.operands[0]]
    return of
