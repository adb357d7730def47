"""Values of dots: plain, ragged and scaled.

Dimensions are brought into the order batch, rows, depth for the left and batch, depth, columns for the right operand;
then one batched matrix product does the rest.

Source: XLA, Operation Semantics, DotGeneral; XLA, RaggedDotRewriter and ScaledDotRewriter.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.dynamic import resized
from tpusim.numerics.registry import Array, array_shape, computes
from tpusim.numerics.site import Site
from tpusim.numerics.values.precision import (
    Arithmetic,
    Contract,
    choose_arithmetic,
    in_passes,
    matmul,
    product,
    product_type,
)
from tpusim.semantics.products import PRODUCT_ROLES


class DotDimensions(NamedTuple):
    """Which dimensions of the two operands of a dot are paired off, and how."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]


@computes("dot", "scaled-dot")
def dot(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return the sum of products over the contracted dimensions: dimensions batch, lhs free, rhs free.

    A scaled dot multiplies each element by the scale of its block first.
    """
    arithmetic, roles = choose_arithmetic(site, instruction), PRODUCT_ROLES[instruction.opcode]
    lhs, rhs = operands[roles.lhs], operands[roles.rhs]
    if instruction.opcode == "scaled-dot":
        lhs, rhs = _scaled(lhs, operands[roles.lhs_scale]), _scaled(rhs, operands[roles.rhs_scale])
    dimensions = dot_dimensions(instruction)
    lhs, rhs = _filled(lhs, rhs, dimensions)
    return in_passes(arithmetic, lhs, rhs, partial(general_dot, dimensions=dimensions, multiply=product))


def _filled(lhs: Array, rhs: Array, dimensions: DotDimensions) -> tuple[Array, Array]:
    """Return the operands with zeros for what a dynamic size leaves out of one of two dimensions that are paired."""
    left, right = list(lhs.shape), list(rhs.shape)
    batch, rhs_batch, lhs_contracting, rhs_contracting = dimensions
    for one, other in zip(batch + lhs_contracting, rhs_batch + rhs_contracting, strict=True):
        left[one] = right[other] = max(left[one], right[other])
    return resized(lhs, left), resized(rhs, right)


@computes("ragged-dot")
def ragged_dot(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return a dot whose one lhs dimension is cut into groups of the sizes in its last operand.

    Cut rows meet each its own group of the rhs; a cut contraction gives one result per group; a cut batch changes
    nothing. What lies beyond the last group counts for nothing.
    """
    dimensions = dot_dimensions(instruction)
    ragged = instruction.attributes.get("lhs_ragged_dims", ())
    if len(ragged) != 1:
        raise UnsupportedError(f"{instruction.name}: expected one entry in lhs_ragged_dims, found {ragged!r}")
    arithmetic = choose_arithmetic(site, instruction)
    if not operands[2].shape[-1] and ragged[0] not in dimensions.lhs_batch:
        # Without groups rows meet nothing, and a contraction has no results.
        return np.zeros(array_shape(instruction.shape).dimensions, product_type(arithmetic))
    if ragged[0] in dimensions.lhs_batch:
        bound = operands[0].shape[ragged[0]]
        ends = np.minimum(np.sum(operands[2], -1, dtype=np.int64), bound)
        mask = _mask(operands[0].ndim, (np.zeros_like(ends), ends), slice(0, bound), ragged[0])
        lhs = np.where(mask, operands[0], np.zeros((), operands[0].dtype))
        return in_passes(arithmetic, lhs, operands[1], partial(general_dot, dimensions=dimensions))
    if ragged[0] in dimensions.lhs_contracting:
        return _ragged_contraction(arithmetic, operands, dimensions, ragged[0])
    return _ragged_rows(arithmetic, operands, dimensions, (ragged[0], instruction.attributes["rhs_group_dims"][0]))


def dot_dimensions(instruction: Instruction) -> DotDimensions:
    """Return the dimension numbers of a dot."""
    names = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
    return DotDimensions(*(instruction.attributes.get(name, ()) for name in names))


def general_dot(
    arithmetic: Arithmetic, lhs: Array, rhs: Array, dimensions: DotDimensions, multiply: Contract = matmul
) -> Array:
    """Return the dot of two operands of the arithmetic's working type, before its result is rounded.

    ``multiply`` makes it of matrices: sums of which a dot is only a part begin with zero, whatever their number is.
    """
    batch, rhs_batch, lhs_contracting, rhs_contracting = dimensions
    lhs_free = _others(lhs.ndim, batch + lhs_contracting)
    rhs_free = _others(rhs.ndim, rhs_batch + rhs_contracting)
    batch_sizes = tuple(lhs.shape[d] for d in batch)
    rows = tuple(lhs.shape[d] for d in lhs_free)
    columns = tuple(rhs.shape[d] for d in rhs_free)
    # Sizes come from the values: a dynamic dimension is smaller than its shape says.
    depth = prod(lhs.shape[d] for d in lhs_contracting)
    # Batch dimensions stay apart: merging them could force a copy, and matmul takes any number.
    left = lhs.transpose(batch + lhs_free + lhs_contracting).reshape((*batch_sizes, prod(rows), depth))
    right = rhs.transpose(rhs_batch + rhs_contracting + rhs_free).reshape((*batch_sizes, depth, prod(columns)))
    return multiply(arithmetic, left, right).reshape(batch_sizes + rows + columns)


def _others(rank: int, taken: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d not in taken)


def _scaled(array: Array, scale: Array) -> Array:
    """Return the array times a scale that is constant over blocks; a scalar stands for no scale at all."""
    if scale.ndim == 0:
        return array
    for axis, size in enumerate(array.shape):
        # Blocks are all of one size, so the ratio of the sizes says how often each scale counts.
        scale = np.repeat(scale, size // scale.shape[axis], axis)
    # Two narrow operands multiply to bf16, which the matrix unit takes as it is.
    narrow = max(array.dtype.itemsize, scale.dtype.itemsize) == 1
    product = array.astype(np.float32) * scale.astype(np.float32)
    return product.astype(ml_dtypes.bfloat16) if narrow else product


def _ragged_rows(
    arithmetic: Arithmetic, operands: list[Any], dimensions: DotDimensions, ragged_and_group: tuple[int, int]
) -> Array:
    """Return a dot in which each group of lhs rows meets its own slice of the rhs."""
    lhs, rhs, sizes = operands
    ragged, group_dimension = ragged_and_group
    inner = dimensions._replace(
        rhs_batch=_without(dimensions.rhs_batch, group_dimension),
        rhs_contracting=_without(dimensions.rhs_contracting, group_dimension),
    )
    # The result has its batch dimensions first, then those of the lhs in order.
    free = _others(lhs.ndim, dimensions.lhs_batch + dimensions.lhs_contracting)
    at = len(dimensions.lhs_batch) + free.index(ragged)
    contract = partial(general_dot, dimensions=inner)
    # No rows at all give the dimensions, and the zeros where no group reaches.
    empty = in_passes(arithmetic, lhs, np.take(rhs, 0, group_dimension), contract)
    result = np.zeros_like(empty)
    for group, rows in enumerate(_groups(lhs, sizes, ragged)):
        part = in_passes(arithmetic, rows.of(lhs, ragged), np.take(rhs, group, group_dimension), contract)
        result[(slice(None),) * at + (rows.span,)] += part
    return result


def _ragged_contraction(arithmetic: Arithmetic, operands: list[Any], dimensions: DotDimensions, ragged: int) -> Array:
    """Return one dot per group, each over its own stretch of a contracted dimension."""
    lhs, rhs, sizes = operands
    rhs_ragged = dimensions.rhs_contracting[dimensions.lhs_contracting.index(ragged)]
    contract = partial(general_dot, dimensions=dimensions)
    pairs = [(group.of(lhs, ragged), group.of_plain(rhs, rhs_ragged)) for group in _groups(lhs, sizes, ragged)]
    return np.stack([in_passes(arithmetic, left, right, contract) for left, right in pairs])


class _Group(NamedTuple):
    """A stretch of a ragged dimension, and where in it (or None: everywhere) an element belongs to the group."""

    span: slice
    mask: Array | None

    def of_plain(self, array: Array, dimension: int) -> Array:
        """Return the stretch of another array along a dimension of it."""
        return array[(slice(None),) * dimension + (self.span,)]

    def of(self, array: Array, dimension: int) -> Array:
        """Return the group's stretch of the ragged array, zero where elements are not the group's."""
        part = self.of_plain(array, dimension)
        return part if self.mask is None else np.where(self.mask, part, np.zeros((), part.dtype))


def _groups(lhs: Array, sizes: Array, ragged: int) -> list[_Group]:
    """Return the groups of a ragged dimension; ``sizes[..., g]`` may differ along the leading dimensions of ``lhs``."""
    ends = np.minimum(np.cumsum(sizes, -1, dtype=np.int64), lhs.shape[ragged])
    starts = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], -1)
    groups = []
    for group in range(sizes.shape[-1]):
        # Only the stretch that any entry of the batch needs is multiplied.
        low, high = starts[..., group], ends[..., group]
        span = slice(int(low.min()), int(high.max()))
        mask = None if sizes.ndim == 1 else _mask(lhs.ndim, (low, high), span, ragged)
        groups.append(_Group(span, mask))
    return groups


def _mask(rank: int, bounds: tuple[Array, Array], span: slice, ragged: int) -> Array:
    """Return which positions of a stretch lie between bounds that have the array's leading dimensions."""
    low, high = (bound.reshape(bound.shape + (1,) * (rank - bound.ndim)) for bound in bounds)
    position = np.arange(span.start, span.stop).reshape((-1,) + (1,) * (rank - 1 - ragged))
    return np.asarray((low <= position) & (position < high))


def _without(numbers: tuple[int, ...], removed: int) -> tuple[int, ...]:
    """Return dimension numbers as they are once a dimension has gone."""
    return tuple(number - (number > removed) for number in numbers)
