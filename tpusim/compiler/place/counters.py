"""Behind places: integers that a loop carries lie in HBM, and are brought to the scalar core once a trip.

As a rule that is its counter. Kernels that take or write what it names would each fetch it for themselves.

Source: programs compiled ahead of time (libtpu 0.0.52): of 69 loops for v5e whose kernels take their counter 56 have
that copy, and of 16 for v5p and v6e 11; which of them have not is not known.
"""

from __future__ import annotations

from tpusim.compiler.place.spaces import in_space, match_fusion
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import ELEMENTWISE, IN_PLACE, SLICES
from tpusim.shapes.layout import SCALAR_SPACE
from tpusim.shapes.shape import ArrayShape

_KERNELS = SLICES | IN_PLACE | {"fusion"}
_TAKERS = _KERNELS | ELEMENTWISE


def bring_counters(draft: Draft, target: Target) -> None:
    """Copy integers that loops carry, and their kernels take, to the memory of the scalar core."""
    if target.fast_bytes <= 0:
        return
    for graph in draft.running():
        for loop in (node for node in graph.order() if node.opcode == "while"):
            _bring_in(draft.graphs[loop.attributes["body"]])


def _bring_in(body: Graph) -> None:
    order: list[Node] = []
    for counter in body.order():
        order.append(counter)
        if not _is_taken(counter, body):
            continue
        copy = body.add("copy", in_space(counter.array, SCALAR_SPACE), [counter], like=counter)
        order.append(copy)
        for user in [user for user in counter.users if user.opcode in _TAKERS]:
            user.replace_operand(counter, copy)
            if user.opcode == "fusion":
                match_fusion(user, body.draft)
    body.sequence = order


def _is_taken(node: Node, body: Graph) -> bool:
    """Return whether a node is an integer that a loop carries, and a kernel takes."""
    if not body.is_element(node):
        return False
    is_integer = isinstance(node.shape, ArrayShape) and node.shape.rank == 0 and node.shape.dtype.name == "s32"
    return is_integer and any(user.opcode in _KERNELS and not user.is_small for user in node.users)
