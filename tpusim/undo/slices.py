"""Arrays that come into a fast memory slice by slice, so that each can begin as soon as there is room for it."""

from __future__ import annotations

from tpusim.draft import Graph, Node
from tpusim.semantics.aliasing import JOIN, Bounds, side_by_side
from tpusim.shapes.shape import ArrayShape
from tpusim.undo.pairs import sliced


def put_together(graph: Graph, node: Node) -> Node | None:
    """Return the array of which all slices are joined; None for anything else.

    They may be slices of bytes, which no other rule knows to be elements. What stays joined is then listed in the order
    in which it lies: slices by themselves do not say any more that they are some of one array.
    """
    if str(node.attributes.get("custom_call_target")) != JOIN:
        return None
    cuts = [sliced(graph, done) for done in node.operands]
    order = side_by_side(cuts)
    # Users are kept in the order of their use: none is taken anew that stands where it did.
    if order != sorted(order):
        node.take([node.operands[number] for number in order])
    slices = [cut for number in order if (cut := cuts[number])]
    if not slices or len(slices) < len(cuts):
        return None
    viewed = slices[0].source
    source = viewed.operands[0] if viewed.opcode == "bitcast" else viewed
    if any(cut.source is not viewed for cut in slices) or not _alike(source, node):
        return None
    return source if _are_whole([cut.bounds for cut in slices], viewed.array.dimensions) else None


def _are_whole(cuts: list[Bounds], sizes: tuple[int, ...]) -> bool:
    """Return whether slices, one behind the other along one dimension, leave nothing out of an array of some sizes."""
    spans = [{(one[along].start, one[along].limit) for one in cuts} for along in range(len(sizes))]
    cut = [along for along, size in enumerate(sizes) if spans[along] != {(0, size)}]
    if len(cut) > 1:
        return False
    along = cut[0] if cut else 0
    ends = [0, *(one[along].limit for one in cuts)]
    return [one[along].start for one in cuts] == ends[:-1] and ends[-1] == sizes[along]


def _alike(one: Node, other: Node) -> bool:
    """Return whether two arrays are the same but for the memory that they lie in."""
    first, second = one.shape, other.shape
    if not isinstance(first, ArrayShape) or not isinstance(second, ArrayShape):
        return False
    orders = (first.actual_layout.minor_to_major, second.actual_layout.minor_to_major)
    return (first.dtype, first.dimensions, orders[0]) == (second.dtype, second.dimensions, orders[1])
