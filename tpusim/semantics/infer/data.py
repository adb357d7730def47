"""Shapes of operations that move data by fixed rules: broadcast, reshape, pad, slice, transpose and their like."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from tpusim.semantics.infer.site import Signature, Site, broken, infers, require
from tpusim.semantics.infer.types import (
    PRED,
    S32,
    alike,
    dynamic_flags,
    is_array,
    is_scalar,
    is_unbounded,
    make_array,
    one_or_tuple,
    plain,
    resized,
    retyped,
    sizes_agree,
    types_agree,
    wider,
)
from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, TupleShape

# XLA counts the elements of a dimension in s32, whatever its bound.
_MOST_INT32 = (1 << 31) - 1


@infers("iota")
def _iota(site: Site) -> ArrayShape:
    shape = site.stated_array()
    require(shape.dimensions, "iota_c1", shape)
    if not 0 <= site.attributes["iota_dimension"] < shape.rank:
        raise broken("iota_c2", f"{site.attributes['iota_dimension']} in {plain(shape)}")
    require(not shape.dtype.is_pred, "iota_c3", shape)
    return shape


@infers("bitcast")
def _bitcast(site: Site) -> ArrayShape:
    """Give the stated shape, under which the same bytes are read: padding may change the number of elements."""
    shape, result = site.array(), site.stated_array()
    # Unknown sizes cannot be compared; shape_c3 refuses them.
    if is_unbounded(shape) or is_unbounded(result):
        return result
    # XLA may be told to let the padding at the end differ; before layouts there is none. An array without tiles inside
    # a fusion lies nowhere and has none either.
    are_tiled = all(array.layout is not None and array.layout.tiles for array in (shape, result))
    sizes = physical_bytes(shape), physical_bytes(result)
    if sizes[0] != sizes[1] and (are_tiled or logical_bytes(shape) != logical_bytes(result)):
        raise broken("bitcast_c1", f"{sizes[0]} for {shape} and {sizes[1]} for {result}")
    return result


@infers("broadcast")
def _broadcast(site: Site) -> ArrayShape:
    """Give the stated shape, in which the operand's dimensions stand where ``dimensions`` says."""
    shape = site.array()
    dimensions = site.attributes.get("dimensions", ())
    require(len(dimensions) == shape.rank, "broadcast_c1", dimensions, "for", shape)
    result = site.stated_array()
    require(types_agree(result.dtype, shape.dtype), "broadcast_c2", shape, "and", result)
    require(len(set(dimensions)) == len(dimensions), "broadcast_c5", dimensions)
    rank, sizes = len(result.dimensions), result.dimensions
    for size, dimension in zip(shape.dimensions, dimensions, strict=True):
        require(0 <= dimension < rank, "broadcast_c3", dimension, "in", result)
        require(sizes[dimension] == size, "broadcast_c4", size, "in", shape, "and", sizes[dimension], "in", result)
    # The operand's type: XLA infers it so, and may be told to compare loosely afterwards.
    return retyped(result, shape.dtype)


@infers("reshape", "dynamic-reshape")
def _reshape(site: Site) -> ArrayShape:
    shape, result = site.array(), site.stated_array()
    require(types_agree(result.dtype, shape.dtype), "reshape_c1", shape, "and", result)
    # Sizes that are not known have no product to compare.
    if prod(shape.dimensions) != prod(result.dimensions) and UNBOUNDED not in shape.dimensions:
        raise broken(
            "reshape_c2", f"{shape.element_count} in {plain(shape)}, {result.element_count} in {plain(result)}"
        )
    if site.opcode == "dynamic-reshape":
        require(len(site.operands) - 1 == result.rank, "dynamic_reshape_c1", len(site.operands) - 1, "for", result)
        for size in site.arrays()[1:]:
            require(size.dtype.name == "s32", "dynamic_reshape_c2", size)
    return retyped(result, shape.dtype)


@infers("transpose")
def _transpose(site: Site) -> ArrayShape:
    shape, order = site.array(), site.attributes["dimensions"]
    require(sorted(order) == list(range(shape.rank)), "transpose_c1", order, "for", shape)
    flags = dynamic_flags(shape)
    return make_array(shape.dtype, [shape.dimensions[i] for i in order], [flags[i] for i in order])


@infers("reverse")
def _reverse(site: Site) -> ArrayShape:
    shape, dimensions = site.array(), site.attributes["dimensions"]
    require(len(set(dimensions)) == len(dimensions), "reverse_c1", dimensions)
    require(all(0 <= dimension < shape.rank for dimension in dimensions), "reverse_c2", dimensions, "for", shape)
    return shape


@infers("concatenate")
def _concatenate(site: Site) -> ArrayShape:
    require(len(site.attributes["dimensions"]) == 1, "concatenate_c1", site.attributes["dimensions"])
    shapes, dimension = site.arrays(), site.attributes["dimensions"][0]
    first = shapes[0]
    require(0 <= dimension < first.rank, "concatenate_c2", dimension, "for", first)
    for shape in shapes[1:]:
        require(shape.rank == first.rank, "concatenate_c3", first, "and", shape)
        require(types_agree(shape.dtype, first.dtype), "concatenate_c4", first, "and", shape)
        pairs = enumerate(zip(first.dimensions, shape.dimensions, strict=True))
        agree = all(i == dimension or sizes_agree(*sizes) for i, sizes in pairs)
        require(agree, "concatenate_c5", first, "and", f"{plain(shape)}, along dimension {dimension}")
    sizes, flags = zip(*(_joined(shapes, i, i == dimension) for i in range(first.rank)), strict=True)
    return make_array(reduce(wider, (shape.dtype for shape in shapes)), sizes, flags)


def _joined(shapes: Sequence[ArrayShape], dimension: int, adds: bool) -> tuple[int, bool]:
    """Return the size of one dimension of a concatenation, and whether it is dynamic."""
    sizes = [shape.dimensions[dimension] for shape in shapes]
    dynamic = any(shape.dynamic and shape.dynamic[dimension] for shape in shapes if shape.dimensions[dimension] >= 0)
    if not adds:
        # UNBOUNDED is negative: any size that is known beats it.
        known = max(sizes)
        return known, dynamic or known == UNBOUNDED
    return (UNBOUNDED, True) if UNBOUNDED in sizes else (sum(sizes), dynamic)


@infers("pad")
def _pad(site: Site) -> ArrayShape:
    """Give the padded sizes: holes between elements first, then edges, which may be negative."""
    shape, value, padding = site.array(0), site.array(1), site.attributes["padding"]
    if not is_scalar(value):
        raise broken("pad_c1", plain(value))
    require(len(padding) == shape.rank, "pad_c2", len(padding), "for", shape)
    require(types_agree(shape.dtype, value.dtype), "pad_c3", shape.dtype, "and", value.dtype)
    if any(p.interior < 0 for p in padding):
        raise broken("pad_c4", min(p.interior for p in padding))
    sizes = [
        # Without max, an empty dimension would lose the hole after its element that is not there.
        size if size == UNBOUNDED else size + p.low + p.high + max(size - 1, 0) * p.interior
        for size, p in zip(shape.dimensions, padding, strict=True)
    ]
    if any(size < 0 and before >= 0 for size, before in zip(sizes, shape.dimensions, strict=True)):
        raise broken("pad_c5", sizes)
    return make_array(wider(shape.dtype, value.dtype), sizes, shape.dynamic)


@infers("slice")
def _slice(site: Site) -> ArrayShape:
    shape, slices = site.array(), site.attributes["slice"]
    require(len(slices) == shape.rank, "slice_c1", len(slices), "for", shape)
    sizes = []
    for size, part in zip(shape.dimensions, slices, strict=True):
        require(part.start >= 0, "slice_c2", part.start)
        # A limit in a dimension without a known size can only be trusted.
        require(not part.limit > size != UNBOUNDED, "slice_c3", part.limit, "of", size, "in", shape)
        require(part.start <= part.limit, "slice_c4", f"[{part.start}:{part.limit}]")
        require(part.stride > 0, "slice_c5", part.stride)
        sizes.append(-(-(part.limit - part.start) // part.stride))
    flags = zip(dynamic_flags(shape), sizes, shape.dimensions, strict=True)
    # As XLA infers it: one element, or a part of what has no bound, is static.
    return make_array(shape.dtype, sizes, [flag and size != 1 and bound != UNBOUNDED for flag, size, bound in flags])


@infers("get-dimension-size")
def _get_dimension_size(site: Site) -> ArrayShape:
    shape, dimension = _one_dimension(site, "get_dimension_size_c1")
    require(shape.dimensions[dimension] <= _MOST_INT32, "get_dimension_size_c2", shape.dimensions[dimension])
    return S32


@infers("set-dimension-size")
def _set_dimension_size(site: Site) -> ArrayShape:
    """Give the operand's shape with a bound where it had a size."""
    shape, dimension = _one_dimension(site, "set_dimension_size_c1")
    size = site.array(1)
    require(not size.dimensions and size.dtype.name == "s32", "set_dimension_size_c2", size)
    require(shape.dimensions[dimension] <= _MOST_INT32, "set_dimension_size_c3", shape.dimensions[dimension])
    # The size itself is data; what the shape can say is that it is at most this.
    return resized(shape, dimension, shape.dimensions[dimension], True)


def _one_dimension(site: Site, label: str) -> tuple[ArrayShape, int]:
    """Return the operand and the one dimension of it that the attribute names."""
    shape, dimensions = site.array(), site.attributes["dimensions"]
    require(len(dimensions) == 1 and 0 <= dimensions[0] < shape.rank, label, dimensions, "for", shape)
    return shape, dimensions[0]


@infers("sort")
def _sort(site: Site) -> Shape:
    shapes, dimensions = site.arrays(), site.attributes["dimensions"]
    for shape in shapes[1:]:
        require(shape.dimensions == shapes[0].dimensions, "sort_c2", shapes[0], "and", shape)
    require(len(dimensions) == 1, "sort_c1", dimensions)
    # A scalar counts as sorted along dimension 0; XLA counts a negative dimension from the last.
    require(-shapes[0].rank <= dimensions[0] < max(shapes[0].rank, 1), "sort_c3", dimensions, "for", shapes[0])
    _check_comparator(site.signature("to_apply"), shapes)
    return one_or_tuple(shapes)


def _check_comparator(comparator: Signature, shapes: Sequence[ArrayShape]) -> None:
    parameters, result = comparator
    require(is_array(result) and alike(result, PRED), "sort_c4", result)
    require(len(parameters) == 2 * len(shapes), "sort_c5", len(parameters), "for", len(shapes), "operands")
    for number, parameter in enumerate(parameters):
        shape = shapes[number // 2]
        if not alike(parameter, ArrayShape(shape.dtype)):
            raise broken("sort_c6", f"parameter {number} of shape {plain(parameter)} for {plain(shape)}")


@infers("topk")
def _topk(site: Site) -> TupleShape:
    """Give the ``k`` values and their places in the last dimension."""
    shape, k = site.array(), site.attributes["k"]
    require(shape.dimensions, "topk_c1", shape)
    require(0 <= k <= shape.dimensions[-1], "topk_c2", k, "for", shape)
    # k is a number of the text, so that the last dimension is static even where the operand's was not.
    values = make_array(shape.dtype, (*shape.dimensions[:-1], k), (*dynamic_flags(shape)[:-1], False))
    return TupleShape((values, retyped(values, DTYPES["s32"])))


infers("parameter", "constant")(Site.stated)
