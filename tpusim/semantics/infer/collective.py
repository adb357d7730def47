"""Shapes of collectives, their asynchronous starts and dones included."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.semantics.device_groups import check_groups, group_mode, group_size, site_most_ids, stated_groups
from tpusim.semantics.infer.async_ops import elements_of
from tpusim.semantics.infer.reduction import check_reducer
from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import U32, is_array, make_array, one_or_tuple, parts, plain, resized, types_agree
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, compatible


@infers("all-gather", "all-gather-start")
def _all_gather(site: Site) -> Shape:
    """Give the operands as many times larger as a group has members; a start gives the operands before."""
    shapes, dimension = _operands(site, "all_gather_c1"), _dimension(site, "all_gather_c2")
    mode = check_groups(site)
    declared = site.declared
    is_start = site.opcode == "all-gather-start"
    if declared is not None and is_start:
        if not isinstance(declared, TupleShape) or len(declared.elements) != 2:
            raise broken("all_gather_c3", plain(declared))
        declared = declared.elements[1]
    size = group_size(site, mode)
    if declared is not None:
        require(parts(declared), "all_gather_c3", declared)
        count = _ratio(parts(declared)[0], shapes[0], dimension, "all_gather_c4")
        # 1 may mean that neither groups nor module say how many there are; the stated shape then does.
        require(size in (1, count), "all_gather_c5", count, "times for groups of", size)
        size = count
    sizes = [shape.dimensions[dimension] for shape in shapes]
    known = [n if n == UNBOUNDED else n * size for n in sizes]
    result = one_or_tuple([resized(s, dimension, n, n == UNBOUNDED) for s, n in zip(shapes, known, strict=True)])
    # A start keeps its operands alive until its done, and so lists them before the results.
    return TupleShape((one_or_tuple(shapes), result)) if is_start else result


def _operands(site: Site, label: str) -> list[ArrayShape]:
    require(site.operands, label, "none")
    return site.arrays()


def _dimension(site: Site, label: str) -> int:
    """Return the one dimension that a collective works along, which every operand must have."""
    dimensions = site.attributes["dimensions"]
    if len(dimensions) != 1 or not all(0 <= dimensions[0] < shape.rank for shape in site.arrays()):
        raise broken(label, f"{dimensions} for {', '.join(map(plain, site.operands))}")
    return int(dimensions[0])


def _ratio(larger: Shape, smaller: Shape, dimension: int, label: str) -> int:
    """Return how many times larger one of two arrays is in a dimension, rounded up."""
    if not is_array(larger) or not is_array(smaller) or dimension >= min(larger.rank, smaller.rank):
        raise broken(label, f"{plain(larger)} and {plain(smaller)}")
    divisor = smaller.dimensions[dimension]
    # Rounded up as XLA's verifier does; a ratio that is not whole shows when shapes are compared.
    return -(-larger.dimensions[dimension] // divisor) if divisor else 1


@infers("all-reduce", "all-reduce-start")
def _all_reduce(site: Site) -> Shape:
    # Channel 0 is how the protocol buffer says that there is no channel.
    if "channel_id" in site.attributes and site.attributes["channel_id"] <= 0:
        raise broken("all_reduce_c1", site.attributes["channel_id"])
    # No size depends on the groups here, and XLA lets them differ.
    check_groups(site, uniform=False)
    shapes = site.arrays()
    _check_reduction(site, shapes)
    return one_or_tuple(shapes)


def _check_reduction(site: Site, shapes: Sequence[ArrayShape]) -> None:
    """Require a computation of two scalars that gives one.

    Its precision may be another one than the operands': compilers keep one computation for several.
    """
    if not shapes:
        return
    signature = site.signature("to_apply")
    results = [result for result in parts(signature.result) if is_array(result)]
    check_reducer(signature, results, [result.dtype for result in results])
    require(len(results) == 1, "all_reduce_c4", len(signature.parameters), "parameters")
    for shape in shapes:
        if not types_agree(shape.dtype, results[0].dtype):
            raise broken("all_reduce_c3", f"{plain(shape)} for a reduction of {results[0].dtype}")


@infers("reduce-scatter")
def _reduce_scatter(site: Site) -> Shape:
    shapes, dimension = _operands(site, "reduce_scatter_c1"), _dimension(site, "reduce_scatter_c2")
    _check_reduction(site, shapes)
    size = group_size(site, check_groups(site))
    if site.declared is not None:
        require(parts(site.declared), "reduce_scatter_c3", site.declared)
        count = _ratio(shapes[0], parts(site.declared)[0], dimension, "reduce_scatter_c3")
        require(size in (1, count), "reduce_scatter_c4", count, "parts for groups of", size)
        size = count
    results = []
    for shape in shapes:
        length = shape.dimensions[dimension]
        whole = size > 0 and (length == UNBOUNDED or length % size == 0)
        require(whole, "reduce_scatter_c5", size, "parts of", shape)
        # A part of a dynamic dimension has no bound: XLA infers it so.
        dynamic = bool(shape.dynamic) and shape.dynamic[dimension]
        results.append(resized(shape, dimension, UNBOUNDED if dynamic else length // size, dynamic))
    return one_or_tuple(results)


@infers("all-to-all")
def _all_to_all(site: Site) -> Shape:
    """Give the operand's shape; with ``dimensions`` one array is cut and put together, else there is one per member.

    The document's form with two dimensions is the builder's, which transposes around this one.
    """
    size = group_size(site, check_groups(site))
    if "dimensions" not in site.attributes:
        require(len(site.operands) == size, "all_to_all_c5", len(site.operands), "for groups of", size)
        is_one = all(compatible(shape, site.operands[0]) for shape in site.operands)
        require(is_one, "all_to_all_c6", TupleShape(tuple(site.operands)))
        return TupleShape(tuple(site.operands))
    require(len(site.operands) == 1, "all_to_all_c1", len(site.operands))
    shape, dimension = site.array(), _dimension(site, "all_to_all_c2")
    # XLA, InferAllToAllShape: sizes without any bound may pass, bounded ones may not.
    require(not shape.dynamic or UNBOUNDED in shape.dimensions, "all_to_all_c3", shape)
    length = shape.dimensions[dimension]
    require(length == UNBOUNDED or length % size == 0, "all_to_all_c4", length, "for groups of", size)
    return make_array(shape.dtype, shape.dimensions, shape.dynamic)


@infers("ragged-all-to-all")
def _ragged_all_to_all(site: Site) -> ArrayShape:
    """Give the shape of the array that is written into, the second operand."""
    check_groups(site)
    for shape in site.arrays()[2:]:
        require(shape.rank in (1, 2), "ragged_all_to_all_c1", shape)
        require(compatible(shape, site.operands[2]), "ragged_all_to_all_c2", shape, "and", site.operands[2])
    return site.array(1)


@infers("collective-broadcast")
def _collective_broadcast(site: Site) -> Shape:
    """Give the shapes of what is sent; with a dynamic root, the last operand names the sender."""
    most = site_most_ids(site, group_mode(site.opcode, site.attributes))
    # Devices in no group get zeros, so that not all ids must be there.
    groups = stated_groups(site.attributes)
    require(all(groups), "groups_c3", "one without devices")
    ids = [number for group in groups for number in group]
    require(len(set(ids)) == len(ids) and min(ids, default=0) >= 0, "collective_broadcast_c3", ids)
    require(max(ids, default=0) < most, "collective_broadcast_c3", max(ids, default=0), "of", most)
    shapes = _operands(site, "collective_broadcast_c1")
    if not site.flag("has_dynamic_root"):
        return one_or_tuple(shapes)
    root = shapes.pop()
    if not shapes or root.dtype.name != "s32" or root.dimensions != (len(shapes),):
        raise broken("collective_broadcast_c2", f"{plain(root)} for {len(shapes)} arrays")
    return one_or_tuple(shapes)


@infers("collective-permute", "collective-permute-start")
def _collective_permute(site: Site) -> Shape:
    """Give the operands' shapes, or that of the array written into; a start gives operands, results and contexts."""
    in_place = "slice_sizes" in site.attributes
    # Each device is a source and a target once, or once for every slice that is sent.
    _check_pairs(site, _check_in_place(site) if in_place else 1)
    if site.opcode == "collective-permute":
        return site.operands[1] if in_place else one_or_tuple(site.arrays())
    operands = site.operands[0] if in_place else one_or_tuple(site.operands)
    results = site.operands[1] if in_place else operands
    declared = site.declared
    contexts = declared.elements[2:] if isinstance(declared, TupleShape) else ()
    return TupleShape((operands, results, *contexts))


def _check_pairs(site: Site, most: int) -> None:
    """Require pairs of devices that exist, in which each is a source and a target at most ``most`` times."""
    pairs = site.attributes["source_target_pairs"]
    require(all(len(pair) == 2 for pair in pairs), "collective_permute_c1", pairs)
    count = site_most_ids(site, group_mode(site.opcode, site.attributes))
    ids = [number for pair in pairs for number in pair]
    if ids and (min(ids) < 0 or max(ids) >= count):
        raise broken("collective_permute_c2", f"{min(ids)} to {max(ids)} of {count}")
    for side, label in ((0, "collective_permute_c3"), (1, "collective_permute_c4")):
        numbers = [pair[side] for pair in pairs]
        if len(set(numbers)) < len(numbers) and any(numbers.count(number) > most for number in set(numbers)):
            raise broken(label, pairs)


def _check_in_place(site: Site) -> int:
    """Require source, target and a tuple of starts for each; return how many slices are sent."""
    # Two buffers and where slices begin in each: the sizes alone are an attribute.
    require(len(site.operands) == 4, "collective_permute_c5", len(site.operands))
    source, target, source_starts, target_starts = site.operands
    if is_array(source) and is_array(target):
        _check_offsets(source, source_starts)
        _check_offsets(target, target_starts)
        return len(parts(source_starts))
    sides = ((source, source_starts), (target, target_starts))
    if not isinstance(source, TupleShape) or not parts(source) or len(parts(source)) != len(parts(target)):
        raise broken("collective_permute_c6", f"{plain(source)} and {plain(target)}")
    for buffers, starts in sides:
        if not isinstance(starts, TupleShape) or len(parts(starts)) != len(parts(buffers)):
            raise broken("collective_permute_c6", f"{plain(starts)} for {plain(buffers)}")
        for buffer, start in zip(parts(buffers), parts(starts), strict=True):
            _check_offsets(buffer, start)
    return len(parts(parts(source_starts)[0]))


def _check_offsets(buffer: Shape, starts: Shape) -> None:
    elements = parts(starts) if isinstance(starts, TupleShape) else ()
    rank = buffer.rank if isinstance(buffer, ArrayShape) else -1
    all_tuples = bool(elements) and all(isinstance(element, TupleShape) for element in elements)
    counts = [len(parts(element)) for element in elements] if all_tuples else [len(elements)]
    if any(count != rank for count in counts) or not (all_tuples or all(map(is_array, elements))):
        raise broken("collective_permute_c7", f"{plain(starts)} for {plain(buffer)}")


infers("partition-id", "replica-id")(lambda site: U32)
# all-reduce-start alone gives just its result, so that its done has nothing to pick out.
infers("all-reduce-done")(lambda site: site.operands[0])
infers("all-gather-done", "collective-permute-done")(lambda site: elements_of(site.operands[0], 2, "start_c1")[1])
