"""Shapes of operations whose indices are data: dynamic slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tpusim.semantics.infer.reduction import check_reducer
from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import (
    dynamic_flags,
    is_scalar,
    make_array,
    one_or_tuple,
    plain,
    sizes_agree,
    types_agree,
)
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, TupleShape, compatible


def _check_starts(starts: Sequence[Shape], shape: ArrayShape) -> None:
    """Require one integer scalar per dimension, all of one type; or, as older programs have it, a vector of them."""
    if len(starts) == 1 and isinstance(starts[0], ArrayShape) and starts[0].rank == 1:
        require(starts[0].dimensions[0] == shape.rank, "dynamic_slice_c1", starts[0], "for", shape)
    else:
        require(len(starts) == shape.rank, "dynamic_slice_c1", len(starts), "for", shape)
        require(all(map(is_scalar, starts)), "dynamic_slice_c2", TupleShape(tuple(starts)))
    for start in starts:
        is_one = isinstance(start, ArrayShape) and start.dtype.is_integer and compatible(start, starts[0])
        require(is_one, "dynamic_slice_c3", TupleShape(tuple(starts)))


@infers("dynamic-slice")
def _dynamic_slice(site: Site) -> ArrayShape:
    """Give the stated sizes; a dimension that is taken whole stays dynamic."""
    shape, sizes = site.array(), site.attributes["dynamic_slice_sizes"]
    _check_starts(site.operands[1:], shape)
    require(len(sizes) == shape.rank, "dynamic_slice_c4", sizes, "for", shape)
    for size, bound in zip(sizes, shape.dimensions, strict=True):
        require(size >= 0 and not size > bound != UNBOUNDED, "dynamic_slice_c5", sizes, "for", shape)
    # Only a dimension that is taken whole stays dynamic, and XLA calls a single element static.
    flags = zip(dynamic_flags(shape), sizes, shape.dimensions, strict=True)
    return make_array(shape.dtype, sizes, [flag and size > 1 and size == bound for flag, size, bound in flags])


@infers("dynamic-update-slice")
def _dynamic_update_slice(site: Site) -> Shape:
    """Give the operand's shape, which may be a buffer that is written in place."""
    target = site.operands[0]
    shape = target.element if isinstance(target, BufferShape) else target
    if not isinstance(shape, ArrayShape):
        raise broken("array_c1", f"operand 0 of shape {plain(target)}")
    update = site.array(1)
    _check_starts(site.operands[2:], shape)
    require(update.rank == shape.rank, "dynamic_update_slice_c1", update, "for", shape)
    require(types_agree(update.dtype, shape.dtype), "dynamic_update_slice_c2", update, "for", shape)
    for size, bound in zip(update.dimensions, shape.dimensions, strict=True):
        require(not size > bound != UNBOUNDED, "dynamic_update_slice_c3", update, "for", shape)
    # The target, not its element: a buffer that is written in place stays a buffer.
    if not update.dynamic:
        return target
    whole = [size == bound for size, bound in zip(update.dimensions, shape.dimensions, strict=True)]
    flags = zip(dynamic_flags(shape), update.dynamic, whole, strict=True)
    return make_array(shape.dtype, shape.dimensions, [old or (new and all_) for old, new, all_ in flags])


@infers("gather")
def _gather(site: Site) -> ArrayShape:
    """Give one slice per index vector: offset dimensions where ``offset_dims`` says, the rest from the indices."""
    shape, indices = site.array(0), site.array(1)
    vector_dimension = site.attributes["index_vector_dim"]
    require(indices.dtype.is_integer, "gather_c1", indices)
    require(0 <= vector_dimension <= indices.rank, "gather_c2", vector_dimension, "for", indices)
    index_sizes, index_flags = _with_vector(indices, vector_dimension)
    _check_gather_dimensions(site, shape, index_sizes)
    _check_batching(site, shape, index_sizes, _GATHER)
    _check_gather_slices(site, shape)
    # An index vector is used up by its slice: only the dimensions around it are in the result.
    del index_sizes[vector_dimension], index_flags[vector_dimension]
    return _gathered(site, shape, index_sizes, index_flags)


def _with_vector(indices: ArrayShape, vector_dimension: int) -> tuple[list[int], list[bool]]:
    """Return sizes and flags of the indices with the dimension of the index vector, of size 1 if it is implied."""
    sizes, flags = list(indices.dimensions), list(dynamic_flags(indices))
    return (sizes, flags) if vector_dimension < len(sizes) else ([*sizes, 1], [*flags, False])


def _check_gather_dimensions(site: Site, shape: ArrayShape, index_sizes: Sequence[int]) -> None:
    """Require dimension numbers to be dimensions of the result, of the index vectors and of the operand."""
    offsets, start_map = site.attributes["offset_dims"], site.attributes["start_index_map"]
    collapsed, vector_size = site.attributes["collapsed_slice_dims"], index_sizes[site.attributes["index_vector_dim"]]
    require(_ascends(offsets), "gather_c3", offsets)
    # Less one: the dimension of the index vector is not in the result.
    rank = len(offsets) + len(index_sizes) - 1
    require(_within(offsets, rank), "gather_c4", offsets, "for rank", rank)
    require(sizes_agree(len(start_map), vector_size), "gather_c5", start_map, "for vectors of", vector_size)
    require(_within(start_map, shape.rank), "gather_c6", start_map, "for", shape)
    require(len(set(start_map)) == len(start_map), "gather_c7", start_map)
    require(_within(collapsed, shape.rank), "gather_c8", collapsed, "for", shape)
    require(_ascends(collapsed), "gather_c9", collapsed)


class _Batching(msgspec.Struct, frozen=True):
    """The names of the attributes that batching dimensions concern, and the labels of what is required of them."""

    own: str
    other: str
    dropped: str
    target: str
    labels: tuple[str, str, str, str, str, str]


_GATHER = _Batching(
    "operand_batching_dims",
    "start_indices_batching_dims",
    "collapsed_slice_dims",
    "start_index_map",
    ("gather_c10", "gather_c11", "gather_c12", "gather_c17", "gather_c18", "gather_c19"),
)
_SCATTER = _Batching(
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    ("scatter_c14", "scatter_c15", "scatter_c16", "scatter_c17", "scatter_c18", "scatter_c19"),
)


def _check_batching(site: Site, shape: ArrayShape, index_sizes: Sequence[int], names: _Batching) -> None:
    own, other = site.attributes.get(names.own, ()), site.attributes.get(names.other, ())
    dropped, target = site.attributes[names.dropped], site.attributes[names.target]
    as_many, of_operand, of_indices, not_dropped, one_size, not_target = names.labels
    require(len(own) == len(other), as_many, own, "and", other)
    require(_within(own, shape.rank) and _ascends(own), of_operand, own, "for", shape)
    # Pairs go by position: the operand's side ascends, which leaves the other any order.
    are_own = _within(other, len(index_sizes)) and site.attributes["index_vector_dim"] not in other
    require(are_own and len(set(other)) == len(other), of_indices, other)
    require(set(own).isdisjoint(dropped), not_dropped, own, "and", dropped)
    # A larger batch of indices would leave the operand.
    agree = all(sizes_agree(shape.dimensions[i], index_sizes[j]) for i, j in zip(own, other, strict=True))
    require(agree, one_size, own, "of", shape, "and", other, "of", index_sizes)
    require(set(own).isdisjoint(target), not_target, target, "and", own)


def _check_gather_slices(site: Site, shape: ArrayShape) -> None:
    """Require a slice size per dimension that fits the operand, and 1 (or 0) where the result has no dimension."""
    sizes, collapsed = site.attributes["slice_sizes"], site.attributes["collapsed_slice_dims"]
    batching = site.attributes.get("operand_batching_dims", ())
    require(len(sizes) == shape.rank, "gather_c13", sizes, "for", shape)
    if len(sizes) != len(site.attributes["offset_dims"]) + len(collapsed) + len(batching):
        raise broken("gather_c14", f"{site.attributes['offset_dims']}, {collapsed} and {batching} for {plain(shape)}")
    for size, bound in zip(sizes, shape.dimensions, strict=True):
        require(bound == UNBOUNDED or 0 <= size <= bound, "gather_c15", sizes, "for", shape)
    # Size 0 may collapse as well: an empty slice has no second element to lose.
    if any(sizes[dimension] > 1 for dimension in (*collapsed, *batching)):
        raise broken("gather_c16", f"slice sizes {sizes}, of which {collapsed} collapse and {batching} are batching")


def _gathered(site: Site, shape: ArrayShape, index_sizes: list[int], index_flags: list[bool]) -> ArrayShape:
    """Return the result's shape; the indices come without the dimension of the index vector."""
    offsets = frozenset(site.attributes["offset_dims"])
    dropped = {*site.attributes["collapsed_slice_dims"], *site.attributes.get("operand_batching_dims", ())}
    own_flags, sizes = dynamic_flags(shape), site.attributes["slice_sizes"]
    kept = [i for i in range(shape.rank) if i not in dropped]
    # A window that covers a dynamic dimension is as dynamic.
    windows = iter([(sizes[i], own_flags[i] and sizes[i] == shape.dimensions[i]) for i in kept])
    batches = iter(zip(index_sizes, index_flags, strict=True))
    rank = len(offsets) + len(index_sizes)
    result = [next(windows if i in offsets else batches) for i in range(rank)]
    return make_array(shape.dtype, [size for size, _ in result], [flag for _, flag in result])


@infers("scatter")
def _scatter(site: Site) -> Shape:
    shapes = site.arrays()
    count = len(shapes) // 2
    require(len(shapes) == 2 * count + 1 and count, "scatter_c1", len(shapes))
    indices, vector_dimension = shapes[count], site.attributes["index_vector_dim"]
    require(indices.dtype.is_integer, "scatter_c2", indices)
    require(0 <= vector_dimension <= indices.rank, "scatter_c3", vector_dimension, "for", indices)
    index_sizes, _ = _with_vector(indices, vector_dimension)
    for shape, updates in zip(shapes[:count], shapes[count + 1 :], strict=True):
        _check_scatter_pair(site, shape, updates, index_sizes)
    for group in (shapes[:count], shapes[count + 1 :]):
        is_one = all(shape.dimensions == group[0].dimensions for shape in group)
        require(is_one, "scatter_c4", TupleShape(tuple(group)))
    # An element of the operand is the accumulator, one of the updates the element.
    inits = [ArrayShape(shape.dtype) for shape in shapes[:count]]
    check_reducer(site.signature("to_apply"), inits, [updates.dtype for updates in shapes[count + 1 :]])
    return one_or_tuple(shapes[:count])


def _check_scatter_pair(site: Site, shape: ArrayShape, updates: ArrayShape, index_sizes: list[int]) -> None:
    """Require updates to be as many windows as there are index vectors, none larger than the operand."""
    windows = site.attributes["update_window_dims"]
    # Less one: the dimension of the index vector is in no update.
    rank = len(windows) + len(index_sizes) - 1
    require(updates.rank == rank, "scatter_c5", updates, "for rank", rank)
    require(_ascends(windows) and _within(windows, rank), "scatter_c6", windows, "for", updates)
    _check_scatter_dimensions(site, shape, index_sizes)
    dropped = {*site.attributes["inserted_window_dims"], *site.attributes.get("input_batching_dims", ())}
    bounds = [size for i, size in enumerate(shape.dimensions) if i not in dropped]
    for dimension, bound in zip(windows, bounds, strict=True):
        # Smaller windows are fine, and one that an index pushes over the edge is skipped at run time.
        require(not updates.dimensions[dimension] > bound != UNBOUNDED, "scatter_c7", updates, "for", shape)
    batches = [size for i, size in enumerate(updates.dimensions) if i not in windows]
    counts = [size for i, size in enumerate(index_sizes) if i != site.attributes["index_vector_dim"]]
    require(all(map(sizes_agree, batches, counts)), "scatter_c8", batches, "for", counts)


def _check_scatter_dimensions(site: Site, shape: ArrayShape, index_sizes: list[int]) -> None:
    """Require the dimension numbers of a scatter to belong to the operand and to add up to its rank."""
    attributes = site.attributes
    inserted, batching = attributes["inserted_window_dims"], attributes.get("input_batching_dims", ())
    require(_ascends(inserted) and _within(inserted, shape.rank), "scatter_c9", inserted, "for", shape)
    if len(attributes["update_window_dims"]) + len(inserted) + len(batching) != shape.rank:
        raise broken("scatter_c10", f"{attributes['update_window_dims']}, {inserted} and {batching} for {plain(shape)}")
    target = attributes["scatter_dims_to_operand_dims"]
    vector_size = index_sizes[attributes["index_vector_dim"]]
    require(sizes_agree(len(target), vector_size), "scatter_c11", target, "for vectors of", vector_size)
    require(_within(target, shape.rank), "scatter_c12", target, "for", shape)
    require(len(set(target)) == len(target), "scatter_c13", target)
    _check_batching(site, shape, index_sizes, _SCATTER)


def _ascends(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _within(numbers: Sequence[int], rank: int) -> bool:
    return all(0 <= number < rank for number in numbers)
