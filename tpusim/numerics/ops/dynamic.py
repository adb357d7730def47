"""Dynamic dimensions: a value whose shape has them is an array of its true sizes, which the shape only bounds.

So every rule that goes by its operands' sizes is right without knowing of them: a reduction sees no padding, a
concatenation compacts. What is left is here.

Source: XLA, Operation Semantics (GetDimensionSize, SetDimensionSize).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from operator import le
from typing import Any

import numpy as np

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.ir.module import Instruction
from tpusim.numerics.registry import array_shape, computes, element_type
from tpusim.numerics.site import Site
from tpusim.shapes.shape import ArrayShape, Shape, shape_text


@computes("get-dimension-size")
def get_dimension_size(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the true size of one dimension."""
    return np.array(operands[0].shape[instruction.attributes["dimensions"][0]], element_type(instruction))


@computes("set-dimension-size")
def set_dimension_size(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand cut to a size in one dimension, or filled up with zeros: XLA leaves these unspecified.

    Raises ProgramError for a size below 0 or above the dimension's bound, and UnsupportedError for a smaller one of a
    dimension that is stated as static, where something reads the array.
    """
    axis, wanted = instruction.attributes["dimensions"][0], int(operands[1])
    shape = array_shape(instruction.shape)
    bound = shape.dimensions[axis]
    _check_sizes(instruction, (wanted,), (bound,))
    if not (shape.dynamic and shape.dynamic[axis]):
        if wanted < bound and site.computation.users.get(instruction.name):
            # To XLA the dimension is dynamic all the same, and so is whatever is made of it.
            raise UnsupportedError(
                f"{instruction.name}: expected the size of dimension {axis}, which is set to {wanted}, to be stated as"
                f" its bound, <={bound}, found {shape_text(shape, layout=False)}"
            )
        # What lies beyond the elements is there, and is not known.
        wanted = bound
    sizes = list(operands[0].shape)
    sizes[axis] = wanted
    return resized(operands[0], sizes)


def at_bounds(value: Any, shape: Shape) -> Any:
    """Return a value at the bounds of its shape: what goes to places of it may go up to these, and may find zeros."""
    return resized(value, array_shape(shape).dimensions)


def sizes_of_slice(sizes: Sequence[int], whole: Sequence[int], found: Sequence[int]) -> list[int]:
    """Return the true sizes of a slice: those that it states, but of a ``whole`` dimension what was ``found`` there."""
    return [n if size == bound else size for size, bound, n in zip(sizes, whole, found, strict=True)]


def resized(value: Any, sizes: Sequence[int], fill: Any = 0) -> Any:
    """Return an array cut to some sizes, or filled up: with zeros unless it is said with what."""
    # With the dots a number stays an array: NumPy's scalar could not be written to.
    kept: tuple[Any, ...] = (*map(slice, map(min, sizes, value.shape)), ...)
    if all(map(le, sizes, value.shape)):
        return value[kept]
    result = np.full(sizes, fill, value.dtype)
    result[kept] = value[kept]
    return result


@computes("dynamic-reshape")
def dynamic_reshape(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the elements under the sizes that the other operands give.

    Raises ProgramError for a size below 0 or above its bound, and for sizes of fewer or more elements than there are.
    """
    sizes = [int(size) for size in operands[1:]]
    _check_sizes(instruction, sizes, array_shape(instruction.shape).dimensions)
    if prod(sizes) != operands[0].size:
        found = f"{sizes}, which are {prod(sizes)}"
        raise ProgramError(f"{instruction.name}: expected sizes for {operands[0].size} elements, found {found}")
    return operands[0].reshape(sizes)


def _check_sizes(instruction: Instruction, sizes: Sequence[int], bounds: Sequence[int]) -> None:
    """Refuse sizes that are not between 0 and their bounds."""
    for size, bound in zip(sizes, bounds, strict=True):
        if not 0 <= size <= bound:
            stated = shape_text(instruction.shape, layout=False)
            raise ProgramError(f"{instruction.name}: expected a size from 0 to {bound} for {stated}, found {size}")


def fit_together(operands: list[Any], shapes: Sequence[ArrayShape]) -> list[Any]:
    """Return the operands of an element-wise operation, of these shapes, cut to the least size of each dimension.

    XLA allows an operand of full size beside one of dynamic size, and repeats what has one element along a dynamic
    dimension beside others; scalars stay as they are.
    """
    # Scalars (a bound of clamp, a predicate) have no size to cut.
    most = max(operand.ndim for operand in operands)
    found = [(operand.shape, shape.dynamic or (False,) * most) for operand, shape in zip(operands, shapes, strict=True)]
    sizes = [
        _common_size([(sizes[d], dynamic[d]) for sizes, dynamic in found if len(sizes) == most]) for d in range(most)
    ]
    return [_fitted(operand, sizes) if operand.ndim == most else operand for operand in operands]


def _common_size(sizes: Sequence[tuple[int, bool]]) -> int:
    """Return the size of a dimension of operands, given that of each and whether it is dynamic."""
    dynamic = {size for size, is_dynamic in sizes if is_dynamic}
    if dynamic > {1}:
        return min(dynamic - {1})
    return min(size for size, _ in sizes)


def _fitted(operand: Any, sizes: Sequence[int]) -> Any:
    repeated = [size if own == 1 else own for own, size in zip(operand.shape, sizes, strict=True)]
    return resized(np.broadcast_to(operand, repeated), sizes)


def reshaped_sizes(sizes: Sequence[int], source: ArrayShape, target: ArrayShape) -> tuple[int, ...]:
    """Return the true sizes of a reshape whose result has dynamic dimensions, given those of its operand.

    Raises UnsupportedError where one group of dimensions that are reshaped together would have two dynamic ones.
    """
    # An empty array has no groups: any sizes multiply to nothing.
    result = list(target.dimensions)
    if 0 in result:
        return target.dimensions
    for old, new in _groups(source.dimensions, target.dimensions):
        dynamic = [number for number in new if target.dynamic[number]]
        if len(dynamic) > 1:
            raise UnsupportedError(
                f"expected at most one dynamic dimension among {list(new)} of {target}, reshaped from {source};"
                " give the sizes with dynamic-reshape"
            )
        if dynamic:
            static = prod(target.dimensions[number] for number in new if number != dynamic[0])
            result[dynamic[0]] = prod(sizes[number] for number in old) // max(1, static)
    return tuple(result)


def _groups(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Yield the shortest runs of dimensions of both sides that have as many elements as each other."""
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while (old := prod(source[first_i:i])) != (new := prod(target[first_j:j])):
            i, j = (i + 1, j) if old < new else (i, j + 1)
        # Sizes of 1 belong to the run before them: they split nothing off.
        while i < len(source) and source[i] == 1:
            i += 1
        while j < len(target) and target[j] == 1:
            j += 1
        yield range(first_i, i), range(first_j, j)
