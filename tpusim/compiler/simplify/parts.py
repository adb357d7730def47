"""Part of pass 2: rules for what takes arrays apart, puts them together, turns them round or in order.

What nobody reads is not made, and what is made and unmade is what it was.

Source: XLA, AlgebraicSimplifier (HandleSlice, HandleDynamicUpdateSlice, HandleReverse, HandleConcatenate, HandleSort),
with its conditions: parts with gaps stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tpusim.compiler.simplify.rules import same_type
from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.hardware.units import WORD_BITS
from tpusim.ir.attributes import SliceDimension, sorted_along
from tpusim.ir.module import Literal
from tpusim.ir.ops import DEVICE_IDS
from tpusim.semantics.scalars import literal_number, literal_numbers
from tpusim.shapes.shape import ArrayShape


def _parts(node: Node) -> tuple[SliceDimension, ...]:
    return tuple(node.attributes["slice"])


def _is_whole(node: Node) -> bool:
    """Return whether a slice leaves out nothing between what it takes, and its sizes are known."""
    return all(part.stride == 1 for part in _parts(node)) and not node.is_dynamic


def sliced(graph: Graph, whole: Node, parts: Sequence[SliceDimension], like: Node) -> Node:
    """Return a slice of an array, with a part for each dimension; a number has none, and is returned itself."""
    if not parts:
        return whole
    sizes = tuple(len(range(part.start, part.limit, part.stride)) for part in parts)
    return graph.add("slice", ArrayShape(whole.array.dtype, sizes), [whole], {"slice": tuple(parts)}, like=like)


@simplifies("slice")
def _of_slice(graph: Graph, node: Node) -> Node | None:
    """A part of a part is one of the whole."""
    (inner,) = node.operands
    if inner.opcode != "slice" or not _is_whole(node) or not _is_whole(inner):
        return None
    both = zip(_parts(node), _parts(inner), strict=True)
    parts = [SliceDimension(before.start + part.start, before.start + part.limit) for part, before in both]
    return sliced(graph, inner.operands[0], parts, node)


@simplifies("slice")
def _of_squeezed(graph: Graph, node: Node) -> Node | None:
    """A part of an array without its dimensions of one element is a part of the array without them."""
    (squeezed,) = node.operands
    if squeezed.opcode != "reshape" or node.is_dynamic or squeezed.is_dynamic or not _is_cut_alone(squeezed):
        return None
    whole = squeezed.operands[0]
    kept = [d for d, size in enumerate(whole.array.dimensions) if size != 1]
    if whole.opcode != "dynamic-slice" or tuple(whole.array.dimensions[d] for d in kept) != squeezed.array.dimensions:
        return None
    parts = [SliceDimension(0, 1)] * whole.array.rank
    for d, part in zip(kept, _parts(node), strict=True):
        parts[d] = part
    return graph.add("reshape", node.shape, [sliced(graph, whole, parts, node)], like=node)


@simplifies("slice")
def _of_reshape(graph: Graph, node: Node) -> Node | None:
    """The first rows of an array, or others that follow each other, are rows of the array before it was reshaped.

    Source: ten programs compiled ahead of time for v5e (libtpu 0.0.52): where a part of each row is taken, a part of a
    row before, or several parts, the whole is made.
    """
    (reshaped,) = node.operands
    if reshaped.opcode != "reshape" or len(reshaped.users) != 1 or reshaped is graph.root:
        return None
    if not _is_whole(node) or reshaped.is_dynamic or not node.array.element_count or node.array.rank < 1:
        return None
    (before,), sizes, (first, *_) = reshaped.operands, reshaped.array.dimensions, _parts(node)
    if node.array.dimensions[1:] != sizes[1:] or not before.array.rank:
        return None
    row, row_before = (one.array.element_count // one.array.dimensions[0] for one in (reshaped, before))
    ends = [end * row for end in (first.start, first.limit)]
    if any(end % row_before for end in ends):
        return None
    parts = [SliceDimension(0, size) for size in before.array.dimensions]
    parts[0] = SliceDimension(*(end // row_before for end in ends))
    return graph.add("reshape", node.shape, [sliced(graph, before, parts, node)], like=node)


@simplifies("slice")
def _of_dynamic_slice(graph: Graph, node: Node) -> Node | None:
    """A part of what is cut out is cut out by itself, if nothing needs all of it: a layer of several, for one.

    Where several numbers of a row are taken, the row is cut out once, and they are taken of that.
    """
    (cut,) = node.operands
    if node.is_small and len(cut.users) > 1:
        return None
    if cut.opcode != "dynamic-slice" or not _is_whole(node) or cut.is_dynamic or not _is_cut_alone(cut):
        return None
    whole, *starts = cut.operands
    # A place further on may be more than a short integer holds.
    if any(start.array.dtype.bits < WORD_BITS for start in starts):
        return None
    moved = [
        _moved_start(graph, start, whole.array.dimensions[d] - cut.array.dimensions[d], part.start, node)
        if node.array.dimensions[d] != cut.array.dimensions[d]
        else start
        for d, (start, part) in enumerate(zip(starts, _parts(node), strict=True))
    ]
    attributes = dict(cut.attributes) | {"dynamic_slice_sizes": node.array.dimensions}
    return graph.add("dynamic-slice", node.shape, [whole, *moved], attributes, like=cut)


def _moved_start(graph: Graph, start: Node, most: int, further: int, like: Node) -> Node:
    """Return where a part begins that lies further on in what begins at ``start``, or at ``most``."""

    def number(value: int) -> Node:
        return graph.add("constant", start.shape, like=like, immediate=Literal(str(value)))

    # What would reach over the end is moved back as a whole.
    held = graph.add("clamp", start.shape, [number(0), start, number(most)], like=like)
    return graph.add("add", start.shape, [held, number(further)], like=like) if further else held


def _is_cut_alone(node: Node) -> bool:
    """Return whether nothing but parts of an array is used."""
    return all(user.opcode == "slice" or (user.opcode == "reshape" and _is_cut_alone(user)) for user in node.users)


@simplifies("slice")
def _of_broadcast(graph: Graph, node: Node) -> Node | None:
    """A part of what is spread is a part that is spread."""
    (spread,) = node.operands
    if spread.opcode != "broadcast" or node.is_dynamic or spread.is_dynamic:
        return None
    dimensions = tuple(spread.attributes["dimensions"])
    few = sliced(graph, spread.operands[0], [_parts(node)[d] for d in dimensions], node)
    return graph.add("broadcast", node.shape, [few], {"dimensions": dimensions}, like=node)


@simplifies("slice")
def _of_pad(graph: Graph, node: Node) -> Node | None:
    """A part of a padded array is all of the array, a part of it, or nothing but padding."""
    (padded,) = node.operands
    if padded.opcode != "pad" or node.is_dynamic or padded.is_dynamic:
        return None
    inner, value = padded.operands
    both = list(zip(_parts(node), padded.attributes["padding"], padded.array.dimensions, strict=True))
    if any(part.limit <= around.low or part.start >= size - around.high for part, around, size in both):
        return graph.add("broadcast", node.shape, [value], {"dimensions": ()}, like=node)
    if same_type(node, inner) and all(
        part.start == around.low and part.stride == around.interior + 1 for part, around, _ in both
    ):
        return inner
    if all(
        part.start >= around.low and part.limit <= size - around.high and part.stride == 1 and not around.interior
        for part, around, size in both
    ):
        parts = [SliceDimension(part.start - around.low, part.limit - around.low) for part, around, _ in both]
        return sliced(graph, inner, parts, node)
    return None


@simplifies("slice")
def _of_reverse(graph: Graph, node: Node) -> Node | None:
    """What is turned round is the part alone, counted from the other end."""
    (turned,) = node.operands
    if turned.opcode != "reverse" or node.is_dynamic or not node.array.element_count:
        return None
    parts = list(_parts(node))
    for d in turned.attributes["dimensions"]:
        taken = range(parts[d].start, parts[d].limit, parts[d].stride)
        last = turned.array.dimensions[d] - 1
        parts[d] = SliceDimension(last - taken[-1], last - taken[0] + 1, parts[d].stride)
    few = sliced(graph, turned.operands[0], parts, node)
    return graph.add("reverse", node.shape, [few], dict(turned.attributes), like=node)


@simplifies("slice")
def _of_joined(graph: Graph, node: Node) -> Node | None:
    """Only those are joined of which a part has something."""
    (joined,) = node.operands
    if joined.opcode != "concatenate" or not _is_whole(node):
        return None
    (along,) = joined.attributes["dimensions"]
    parts = list(_parts(node))
    start, limit = parts[along].start, parts[along].limit
    needed: list[Node] = []
    begin = end = 0
    for operand in joined.operands:
        at, end = end, end + operand.array.dimensions[along]
        if at < limit and end > start:
            begin = begin if needed else at
            needed.append(operand)
        # There may be thousands, and a slice of each.
        if end >= limit:
            break
    if not needed or len(needed) == len(joined.operands):
        return None
    parts[along] = SliceDimension(start - begin, limit - begin)
    return sliced(graph, _joined(graph, needed, along, joined), parts, node)


def _joined(graph: Graph, nodes: Sequence[Node], along: int, like: Node) -> Node:
    """Return arrays one behind the other along a dimension; of one that is the array itself."""
    if len(nodes) == 1:
        return nodes[0]
    sizes = list(like.array.dimensions)
    sizes[along] = sum(node.array.dimensions[along] for node in nodes)
    shape = ArrayShape(like.array.dtype, tuple(sizes))
    return graph.add("concatenate", shape, nodes, {"dimensions": (along,)}, like=like)


@simplifies("dynamic-slice")
def _cut_at_known_places(graph: Graph, node: Node) -> Node | None:
    """What is cut out at constants is a slice, as far in as it has to be."""
    array, *starts = node.operands
    known = (literal_number(start.immediate) if start.opcode == "constant" else None for start in starts)
    places = [int(place) for place in known if place is not None]
    if len(places) != array.array.rank or node.is_dynamic or array.is_dynamic:
        return None
    ranges = []
    for place, whole, size in zip(places, array.array.dimensions, node.array.dimensions, strict=True):
        start = min(max(0, place), whole - size)
        ranges.append(SliceDimension(start, start + size))
    return graph.add("slice", node.shape, [array], {"slice": tuple(ranges)}, like=node)


@simplifies("dynamic-slice")
def _own_number(graph: Graph, node: Node) -> Node | None:
    """What each device finds at its own number in a table of all numbers is its number.

    Source: programs compiled ahead of time, of whatever is sharded along one axis of a mesh; other tables stay.
    """
    table, *starts = node.operands
    if len(starts) != 1 or starts[0].opcode not in DEVICE_IDS or node.array.element_count != 1:
        return None
    counted = {"partition-id": "num_partitions", "replica-id": "replica_count"}[starts[0].opcode]
    if literal_numbers(table.immediate) != tuple(range(graph.draft.attributes.get(counted, 1))):
        return None
    number = graph.add("convert", ArrayShape(node.array.dtype, ()), starts, like=node)
    return graph.add("reshape", node.shape, [number], like=node)


@simplifies("dynamic-update-slice")
def _overwritten(graph: Graph, node: Node) -> Node | None:
    """What is written over everything is all that there is: it begins at 0, wherever it is told to."""
    before, part, *_ = node.operands
    if same_type(node, part):
        return part
    return before if not part.array.element_count and not node.is_dynamic else None


@simplifies("select")
def _written_if(graph: Graph, node: Node) -> Node | None:
    """What is written into an array or not, as one number says, is written in any case: itself, or what is there.

    The array can then be written in place. Source: programs compiled ahead of time, of a cache that is sharded along
    what is written, at a place known at run time: partitioning lets one device write, and others keep what they had.
    """
    says, *choices = node.operands
    number = says.operands[0] if says.opcode == "broadcast" else says
    at = next((at for at in (0, 1) if _is_written(choices[at], choices[1 - at], node)), None)
    if at is None or number.array.rank or node.is_dynamic:
        return None
    before, part, *starts = choices[at].operands
    sizes = {"dynamic_slice_sizes": part.array.dimensions}
    there = graph.add("dynamic-slice", part.shape, [before, *starts], sizes, like=node)
    spread = ArrayShape(number.array.dtype, part.array.dimensions)
    both = [part, there] if at == 0 else [there, part]
    says = graph.add("broadcast", spread, [number], {"dimensions": ()}, like=node) if part.array.rank else number
    chosen = graph.add("select", part.shape, [says, *both], like=node)
    return graph.clone(choices[at], [before, chosen, *starts])


def _is_written(written: Node, before: Node, chosen: Node) -> bool:
    """Return whether one array is another with a part written into it, and one choice between the two alone uses it."""
    is_update = written.opcode == "dynamic-update-slice" and written.operands[0] is before
    return is_update and list(written.users) == [chosen] and not written.is_dynamic


@simplifies("scatter")
def _put_nowhere(graph: Graph, node: Node) -> Node | None:
    """An array without elements is as it was, whatever is put onto it."""
    targets = node.operands[: len(node.operands) // 2]
    if any(target.array.element_count for target in targets) or node.is_dynamic:
        return None
    return graph.add("tuple", node.shape, targets, like=node) if targets[1:] else targets[0]


@simplifies("reverse")
def _turned_back(graph: Graph, node: Node) -> Node | None:
    """What is turned round twice is as it was, and so is what has nothing to be turned."""
    (inner,) = node.operands
    dimensions = set(node.attributes["dimensions"])
    if all(node.array.dimensions[d] == 1 for d in dimensions) and not node.is_dynamic:
        return inner
    if inner.opcode != "reverse":
        return None
    left = tuple(sorted(dimensions.symmetric_difference(inner.attributes["dimensions"])))
    return (
        graph.add("reverse", node.shape, inner.operands, {"dimensions": left}, like=node) if left else inner.operands[0]
    )


@simplifies("concatenate")
def _joined_again(graph: Graph, node: Node) -> Node | None:
    """Neighbouring parts of one array that are joined are one part of it."""
    (along,) = node.attributes["dimensions"]
    runs = [[node.operands[0]]]
    for part, after in pairwise(node.operands):
        if _follows(part, after, along):
            runs[-1].append(after)
        else:
            runs.append([after])
    if len(runs) == len(node.operands):
        return None
    spans = [run[0] if len(run) == 1 else _span(graph, run, along, node) for run in runs]
    return _joined(graph, spans, along, node)


def _follows(part: Node, after: Node, along: int) -> bool:
    """Return whether one slice begins where another one of the same array ends."""
    if part.opcode != "slice" or after.opcode != "slice" or part.operands != after.operands:
        return False
    if not _is_whole(part) or not _is_whole(after):
        return False
    # All sizes but the one along which they are joined are equal already.
    starts = [(one.start, two.start) for one, two in zip(_parts(part), _parts(after), strict=True)]
    starts[along] = _parts(part)[along].limit, _parts(after)[along].start
    return all(one == two for one, two in starts)


def _span(graph: Graph, run: Sequence[Node], along: int, like: Node) -> Node:
    """Return the slice from where the first of some slices begins to where the last one ends."""
    parts = list(_parts(run[0]))
    parts[along] = SliceDimension(parts[along].start, _parts(run[-1])[along].limit)
    return sliced(graph, run[0].operands[0], parts, like)


@simplifies("sort")
def _in_order(graph: Graph, node: Node) -> Node | None:
    """One element, or none, is in order."""
    first = node.operands[0]
    sizes = first.array.dimensions
    # An array without elements has none along a dimension that is longer, either.
    is_one = not sizes or sizes[sorted_along(node.attributes, len(sizes))] <= 1 or not first.array.element_count
    if node.is_dynamic or not is_one:
        return None
    return graph.add("tuple", node.shape, node.operands, like=node) if node.operands[1:] else first
