"""A plain softmax before a product of 16 bits, for which the TPU compiler has a kernel.

That kernel reads the scores once, finds their largest, raises and sums them up, and divides what the product makes of
the exponentials. None is made here: three kernels that divide behind the product too take a time near to it.

Source: programs compiled ahead of time (libtpu 0.0.52, whose kernel is called "online-softmax"): 25 for v5e, and four
each for v4, v5p and v6e.
"""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import WORD_BITS
from tpusim.ir.ops import ELEMENTWISE
from tpusim.semantics.combining import sole_opcode
from tpusim.shapes.shape import ArrayShape

MATRIX = 2
"""Dimensions of a matrix."""

_LEAST_VMEM_BYTES = 2**25
"""Of a chip that the kernel is made for: it keeps the scores there. v4 and those before have half as much."""


def divide_behind_products(draft: Draft, target: Target) -> None:
    """Divide what products make of exponentials by the sums of these, in place of the exponentials."""
    if has_kernel(target):
        for graph in draft.reachable():
            for node in graph.order():
                if node.opcode == "dot":
                    _divide_behind(graph, node, target)


def has_kernel(target: Target) -> bool:
    """Return whether the TPU compiler has its kernel for a chip: for v5e, v5p and v6e, with 64 MiB and more of VMEM.

    It has not for v4, with 16 MiB. Others were not tried.
    """
    return target.chip.vmem.capacity_bytes >= _LEAST_VMEM_BYTES


def is_plain_softmax(raised: Node) -> bool:
    """Return whether exponentials, or what is made of them element by element, are a plain product's first operand."""
    return raised.opcode == "exponential" and any(_goes_into_plain(user, raised) for user in raised.users)


def _goes_into_plain(user: Node, share: Node) -> bool:
    while user.opcode in ELEMENTWISE and len(user.users) == 1:
        share, user = user, next(iter(user.users))
    return user.opcode == "dot" and user.operands[0] is share and _is_plain(user)


def _is_plain(dot: Node) -> bool:
    """Return whether a product is of stacks of matrices whose dimensions follow each other as they are written."""
    batch = tuple(dot.attributes.get("lhs_batch_dims", ()))
    rows = dot.operands[0].array.rank - 1
    taken = [tuple(dot.attributes.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")]
    leads = batch == tuple(dot.attributes.get("rhs_batch_dims", ())) == tuple(range(len(batch)))
    return leads and taken == [(rows,), (len(batch),)]


def _divide_behind(graph: Graph, dot: Node, target: Target) -> None:
    share = dot.operands[0]
    # Other types have not the range of exponentials, or cut them.
    if dot.is_dynamic or {dot.array.dtype.name, share.array.dtype.name} != {"bf16"} or not _is_plain(dot):
        return
    divided = share.operands[0] if share.opcode == "convert" else share
    if divided.opcode != "divide" or any(len(node.users) != 1 for node in (share, divided)):
        return
    raised, spread = divided.operands
    rows = tuple(range(raised.array.rank - 1))
    if not _is_of_narrow(graph, raised) or spread.opcode != "broadcast" or spread.attributes["dimensions"] != rows:
        return
    summed = _unconverted(spread.operands[0])
    if summed.opcode != "reduce" or _unconverted(summed.operands[0]) is not raised:
        return
    if not _combines_rows(graph, summed, "add"):
        return
    build = Build(graph, dot, target)
    taken = raised if raised.array.dtype == share.array.dtype else build.convert(raised, share.array.dtype.name)
    shape = ArrayShape(summed.array.dtype, dot.array.dimensions)
    made = graph.add("dot", shape, [taken, dot.operands[1]], dict(dot.attributes), like=dot)
    whole = build.broadcast(summed, dot.array.dimensions, rows)
    graph.replace(dot, build.convert(build.apply("divide", made, whole), dot.array.dtype.name))


def _is_of_narrow(graph: Graph, raised: Node) -> bool:
    """Return whether exponentials are of scores of 16 bits, less the largest of each row.

    Stacks of scores as a product leaves them are another kernel's of that compiler, which makes them as well.
    """
    if raised.opcode != "exponential" or raised.operands[0].opcode != "subtract":
        return False
    less, spread = raised.operands[0].operands
    scores = _unconverted(less)
    if spread.opcode != "broadcast" or not _combines_rows(graph, _unconverted(spread.operands[0]), "maximum"):
        return False
    is_whole = scores.opcode == "dot" and scores.array.rank > MATRIX
    return scores.array.dtype.bits < WORD_BITS and not is_whole


def _combines_rows(graph: Graph, reduce: Node, opcode: str) -> bool:
    """Return whether the last dimension of an array is combined by an operation."""
    if reduce.opcode != "reduce" or len(reduce.operands) != 2:
        return False
    last = reduce.operands[0].array.rank - 1
    is_last = tuple(reduce.attributes["dimensions"]) == (last,)
    return is_last and sole_opcode(graph.draft.graphs, reduce.attributes["to_apply"]) == opcode


def _unconverted(node: Node) -> Node:
    while node.opcode == "convert":
        (node,) = node.operands
    return node
