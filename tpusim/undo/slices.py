"""Arrays that come into a fast memory slice by slice, so that each can begin as soon as there is room for it."""

from __future__ import annotations

from tpusim.draft import Graph, Node
from tpusim.shapes.shape import ArrayShape
from tpusim.undo.pairs import sliced

JOIN = "ConcatBitcast"
"""The custom call whose result is its operands' buffers, one after the other."""


def put_together(graph: Graph, node: Node) -> Node | None:
    """Return the array of which all slices are joined; None for anything else.

    They may be slices of bytes, which no other rule knows to be elements.
    """
    if str(node.attributes.get("custom_call_target")) != JOIN:
        return None
    slices = [found for done in node.operands if (found := sliced(graph, done))]
    if not slices or len(slices) < len(node.operands):
        return None
    (viewed, *others) = {source: None for source, _ in slices}
    source = viewed.operands[0] if viewed.opcode == "bitcast" else viewed
    if others or not _alike(source, node):
        return None
    cuts = [cut for _, cut in slices]
    ends = [0, *(cut[0].limit for cut in cuts)]
    whole = all(
        (part.start, part.limit) == (0, size)
        for cut in cuts
        for part, size in zip(cut[1:], viewed.array.dimensions[1:], strict=True)
    )
    if whole and [cut[0].start for cut in cuts] == ends[:-1] and ends[-1] == viewed.array.dimensions[0]:
        return source
    return None


def _alike(one: Node, other: Node) -> bool:
    """Return whether two arrays are the same but for the memory that they lie in."""
    first, second = one.shape, other.shape
    if not isinstance(first, ArrayShape) or not isinstance(second, ArrayShape):
        return False
    orders = (first.actual_layout.minor_to_major, second.actual_layout.minor_to_major)
    return (first.dtype, first.dimensions, orders[0]) == (second.dtype, second.dimensions, orders[1])
