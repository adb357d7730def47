"""Shapes of reductions, whole and by windows, and what their computations must be like."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.ir.attributes import Window
from tpusim.semantics.infer.site import Signature, Site, broken, infers, require
from tpusim.semantics.infer.types import (
    PRED,
    alike,
    dynamic_flags,
    is_array,
    is_scalar,
    make_array,
    one_or_tuple,
    parts,
    plain,
)
from tpusim.semantics.windows import dilated, output_size
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, compatible


def check_reducer(signature: Signature, inits: Sequence[Shape], types: Sequence[DType]) -> None:
    """Require a computation of N accumulators and N elements, all scalars, that gives the N accumulators.

    ``inits`` are the shapes of the initial values, ``types`` the element types of the arrays; floats may differ in
    precision.
    """
    count = len(inits)
    require(len(signature.parameters) == 2 * count, "reducer_c1", len(signature.parameters), "for", count, "arrays")
    results = parts(signature.result)
    require(len(results) == count, "reducer_c2", signature.result)
    require(all(map(is_scalar, results)), "reducer_c3", signature.result)
    for number, (result, init, dtype) in enumerate(zip(results, inits, types, strict=True)):
        accumulator, element = signature.parameters[number], signature.parameters[number + count]
        # Exactly alike, since what one call gives the next takes; the others may differ in precision.
        if not compatible(result, accumulator):
            raise broken("reducer_c4", f"parameter {number} of shape {plain(accumulator)} for {plain(result)}")
        require(alike(result, init), "reducer_c5", init, "for", result)
        if not alike(element, ArrayShape(dtype)):
            raise broken("reducer_c6", f"parameter {number + count} of shape {plain(element)} for {dtype}")
        require(alike(result, element), "reducer_c7", element, "for", result)


def window_result(shape: ArrayShape, window: Window, dtype: DType) -> ArrayShape:
    """Return the shape of all places of a window over a base area.

    A place needs the whole dilated window inside the dilated and padded base; a base of no elements has none.
    """
    require(len(window.dimensions) == shape.rank, "window_c1", len(window.dimensions), "for", shape)
    sizes = []
    for size, dimension in zip(shape.dimensions, window.dimensions, strict=True):
        require(dimension.size > 0, "window_c2", dimension.size)
        require(dimension.stride > 0, "window_c3", dimension.stride)
        require(dimension.lhs_dilate >= 1, "window_c4", dimension.lhs_dilate)
        require(dimension.rhs_dilate >= 1, "window_c5", dimension.rhs_dilate)
        # Negative padding may cut more than there is, which only the sum tells. XLA's inference has no shape for that:
        # it ends over it (StridedBound). StableHLO takes it to be an array without elements, which XLA's reader of it
        # makes a constant.
        base = dimension.pad_low + dilated(size, dimension.lhs_dilate) + dimension.pad_high
        require(base >= 0 or size == UNBOUNDED, "window_c6", base)
        sizes.append(UNBOUNDED if size == UNBOUNDED else output_size(dimension, size))
    return make_array(dtype, sizes, shape.dynamic)


@infers("reduce")
def _reduce(site: Site) -> Shape:
    shapes, _, types = _reduced(site, "reduce_c1", "reduce_c2")
    first, dimensions = shapes[0], site.attributes["dimensions"]
    require(all(0 <= dimension < first.rank for dimension in dimensions), "reduce_c3", dimensions, "for", first)
    require(len(set(dimensions)) == len(dimensions), "reduce_c4", dimensions)
    kept = [i for i in range(first.rank) if i not in dimensions]
    sizes = [first.dimensions[i] for i in kept]
    dynamic = [first.dynamic[i] for i in kept] if first.dynamic else ()
    return one_or_tuple([make_array(dtype, sizes, dynamic) for dtype in types])


@infers("reduce-window")
def _reduce_window(site: Site) -> Shape:
    shapes, inits, _ = _reduced(site, "reduce_window_c1", "reduce_window_c2")
    window = site.attributes.get("window", Window())
    # XLA infers reduce from its computation, but reduce-window from its initial values.
    return one_or_tuple([window_result(s, window, init.dtype) for s, init in zip(shapes, inits, strict=True)])


def _reduced(site: Site, count_label: str, size_label: str) -> tuple[list[ArrayShape], list[ArrayShape], list[DType]]:
    """Return the shapes of the arrays and of as many initial values, and the types that the computation gives."""
    require(site.operands and len(site.operands) % 2 == 0, count_label, len(site.operands))
    shapes, signature = site.arrays(), site.signature("to_apply")
    shapes, inits = shapes[: len(shapes) // 2], shapes[len(shapes) // 2 :]
    for shape in shapes[1:]:
        require(shape.dimensions == shapes[0].dimensions, size_label, shapes[0], "and", shape)
    check_reducer(signature, inits, [shape.dtype for shape in shapes])
    return shapes, inits, [result.dtype for result in parts(signature.result) if is_array(result)]


@infers("select-and-scatter")
def _select_and_scatter(site: Site) -> ArrayShape:
    """Give the operand's shape; the source has one element per place of the window."""
    shape, source, init = site.arrays()
    select, scatter = site.signature("select"), site.signature("scatter")
    require(len(select.parameters) == 2, "select_and_scatter_c1", len(select.parameters))
    require(compatible(select.result, PRED), "select_and_scatter_c2", select.result)
    for parameter in select.parameters:
        require(alike(parameter, ArrayShape(shape.dtype)), "select_and_scatter_c3", parameter, "for", shape)
    check_reducer(scatter, [init], [source.dtype])
    # The source is what a reduce-window of this operand and window gives: its gradient scatters back.
    places = window_result(shape, site.attributes.get("window", Window()), shape.dtype)
    require(alike(source, places), "select_and_scatter_c4", source, "for", places)
    return shape


@infers("scan")
def _scan(site: Site) -> Shape:
    """Give the results of each step, stacked along the scanned dimension, and the last carries.

    Inputs come before carries among the operands, outputs before carries in the result.
    """
    attributes, shapes = site.attributes, site.operands
    carries, inputs = attributes["num_carries"], len(shapes) - attributes["num_carries"]
    require(0 <= carries <= len(shapes), "scan_c1", carries, "for", len(shapes), "operands")
    if len(attributes["dimensions"]) != 1 or attributes["dimensions"][0] < 0:
        raise broken("scan_c2", attributes["dimensions"])
    signature, results = site.signature("to_apply"), parts(site.stated())
    # Without an input or an output nothing would say how many steps there are.
    if len(results) < carries or (not inputs and len(results) == carries):
        raise broken("scan_c3", f"{len(results)} results of {carries} carries")
    # Inputs and outputs together, since all of them must be as long.
    steps = _scan_steps([*shapes[:inputs], *results[: len(results) - carries]], attributes["dimensions"][0])
    _check_scan(signature, (*steps[:inputs], *shapes[inputs:]), (*steps[inputs:], *results[len(steps) - inputs :]))
    carried = map(compatible, signature.parameters[inputs:], parts(signature.result)[len(steps) - inputs :])
    require(all(carried), "scan_c6", signature.result)
    return site.stated()


def _scan_steps(shapes: Sequence[Shape], dimension: int) -> list[ArrayShape]:
    """Return what one step sees of arrays that are scanned along ``dimension``, in which all are as long."""
    steps, lengths = [], set()
    for shape in shapes:
        if not is_array(shape) or dimension >= shape.rank:
            raise broken("scan_c2", f"{dimension} for {plain(shape)}")
        lengths.add(shape.dimensions[dimension])
        sizes, flags = list(shape.dimensions), list(dynamic_flags(shape))
        # The scanned dimension is gone inside a step, not of size 1.
        del sizes[dimension], flags[dimension]
        steps.append(make_array(shape.dtype, sizes, flags))
    require(len(lengths) <= 1, "scan_c4", sorted(lengths))
    return steps


def _check_scan(signature: Signature, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
    for expected, found in ((operands, signature.parameters), (results, parts(signature.result))):
        if len(expected) != len(found) or not all(map(compatible, expected, found)):
            raise broken("scan_c5", f"{', '.join(map(plain, found))} for {', '.join(map(plain, expected))}")
