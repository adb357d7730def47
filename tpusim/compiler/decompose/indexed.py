"""Gathers and scatters."""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build, only_opcode
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.graph import Node
from tpusim.compiler.simplify.rules import splat_text


@decomposes("gather")
def gather(build: Build, node: Node) -> Node | None:
    """Indices of one number each have no dimension for it, and are brought inside where they are made.

    Source: programs compiled ahead of time.
    """
    indices = _without_vector(build, node, node.operands[1])
    if indices is None or indices.array.dtype.bits < _WORD:
        return None
    operand = node.operands[0]
    (along,) = node.attributes["start_index_map"]
    most = operand.array.dimensions[along] - node.attributes["slice_sizes"][along]
    inside = build.apply("clamp", build.splat(0, indices), indices, build.splat(most, indices))
    return build.graph.clone(node, [operand, inside])


_WORD = 32
"""Bits of an index in which the size of any dimension has room."""


@decomposes("scatter")
def scatter(build: Build, node: Node) -> Node | None:
    """Indices of one number each have no dimension for it. Source: programs compiled ahead of time."""
    at = len(node.operands) // 2
    indices = _without_vector(build, node, node.operands[at])
    if indices is None:
        return None
    return build.graph.clone(node, [*node.operands[:at], indices, *node.operands[at + 1 :]])


def _without_vector(build: Build, node: Node, indices: Node) -> Node | None:
    """Return indices without the dimension of the numbers of one index, if it is the last and has size 1.

    ``index_vector_dim`` then points behind the last dimension, where XLA takes it to have size 1.
    """
    vector = node.attributes["index_vector_dim"]
    sizes = indices.array.dimensions
    if vector != len(sizes) - 1 or vector == 0 or sizes[vector] != 1:
        return None
    return build.reshape(indices, *sizes[:-1])


@decomposes("add", tolerance=1e-5)
def add_to_scatter(build: Build, node: Node) -> Node | None:
    """What is scattered onto zeros and then added is scattered onto what it is added to.

    Source: programs compiled ahead of time.
    """
    for made, other in (node.operands, reversed(node.operands)):
        if made.opcode != "scatter" or len(made.operands) != 3 or len(made.users) != 1:
            continue
        adds = only_opcode(build.graph.draft, made.attributes["to_apply"]) == "add"
        if adds and splat_text(made.operands[0]) in ("0", "-0") and other is not made:
            return build.graph.clone(made, [other, *made.operands[1:]])
    return None
