"""Values of sort and topk.

A comparator that goes by keys (see ``comparators``) becomes integers in the same order, which NumPy sorts. Any other
one runs lifted in a bitonic network: for n elements, log n (log n + 1) / 2 rounds of two calls on n / 2 pairs.

Source: XLA, Operation Semantics (Sort); K. Batcher, Sorting networks and their applications, 1968.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.ir.attributes import sorted_along
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.convert import convert_values
from tpusim.numerics.registry import Array, array_shape, compute_type, computes
from tpusim.numerics.scalar_computation import apply_lifted, lifted_part
from tpusim.numerics.site import Site
from tpusim.numerics.values.comparators import order_of
from tpusim.semantics.infer.types import parts
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import TupleShape

Indices = NDArray[np.int64]


@computes("sort")
def sort(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operands with their elements along one dimension moved, together, into a comparator's order.

    The sort is stable whether it has to be or not.
    """
    axis, name = sorted_along(instruction.attributes, operands[0].ndim), instruction.attributes["to_apply"]
    # In a schedule floats of another precision may come in; the comparator knows those that go out.
    types = [numpy_dtype(array_shape(part).dtype) for part in parts(instruction.shape)]
    in_types = [convert_values(operand, dtype) for operand, dtype in zip(operands, types, strict=True)]
    results = sorted_together(site, name, in_types, axis)
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def sorted_together(site: Site, name: str, operands: list[Array], axis: int) -> list[Array]:
    """Return arrays with their elements along ``axis`` moved into the order of the comparator of that name."""
    if not operands[0].ndim or operands[0].shape[axis] <= 1 or not operands[0].size:
        return operands
    keys = _keys(site, name, operands)
    if not keys:
        order = _order_by_network(site, name, operands, axis)
    else:
        order = np.argsort(keys[0], axis, kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1], axis)
    return [np.take_along_axis(operand, order, axis) for operand in operands]


def _keys(site: Site, name: str, operands: list[Array]) -> list[Array] | None:
    """Return the keys of all elements as integers, the first one counting most; None if there are no keys."""
    order = order_of(site.module[name])
    if order is None:
        return None
    # The left one of each pair of parameters is what keys are computed from; the right one is not looked at.
    pairs = [operand for operand in operands for _ in range(2)]
    values = [np.broadcast_to(lifted_part(site, name, key.name, pairs), operands[0].shape) for key in order]
    if any(value.dtype.kind == "c" for value in values):
        return None
    # Inverted rather than negated: the least integer has no negative.
    keys = [as_ordered(value, is_total=key.is_total) for value, key in zip(values, order, strict=True)]
    return [key if way.is_ascending else ~key for key, way in zip(keys, order, strict=True)]


_SIGN_AND_MAGNITUDE = ("float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
"""Floats of one byte whose bits are in the order of their values, as those of wider ones are."""


def as_ordered(array: Array, *, is_total: bool) -> Array:
    """Return integers in the order of the elements of ``array``, which are truth values, integers or floats.

    Floats order by their bits, sign and magnitude: -NaN, -Inf, ..., -0, +0, ..., +Inf, +NaN; both zeros are one unless
    ``is_total``.
    """
    if array.dtype.kind == "b":
        return array.view(np.uint8)
    # f32 holds all values of the types of 8 bits and fewer, but not what tells one NaN from another.
    is_small = array.dtype.itemsize == 1 and array.dtype.name not in _SIGN_AND_MAGNITUDE
    wide = array.astype(compute_type(array.dtype)) if is_small else array
    if wide.dtype.kind in "iu":
        return wide
    plain = wide if is_total else np.where(wide == 0, np.zeros((), wide.dtype), wide)
    # Not ascontiguousarray, which would give a scalar a dimension.
    bits = np.asarray(plain, order="C").view(f"i{plain.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _order_by_network(site: Site, name: str, operands: list[Array], axis: int) -> Indices:
    """Return, along ``axis``, which element comes first, second, ... by a comparator that nothing is known of."""
    rows = [np.moveaxis(operand, axis, 0) for operand in operands]
    count = len(rows[0])
    size = 1 << (count - 1).bit_length()
    # Numbers past the last element stand for padding, which comes after all of them.
    order = np.ones(rows[0].shape[1:], np.int64) * np.arange(size).reshape(-1, *[1] * (rows[0].ndim - 1))
    for low, high, is_upward in _rounds(size):
        first, second = order[low], order[high]
        swap = _comes_before(site, name, rows, second, first) == is_upward.reshape(-1, *[1] * (rows[0].ndim - 1))
        order[low], order[high] = np.where(swap, second, first), np.where(swap, first, second)
    return np.moveaxis(order[:count], 0, axis)


def _rounds(size: int) -> Iterator[tuple[Indices, Indices, NDArray[np.bool_]]]:
    """Yield the rounds of a bitonic network: pairs of places, and whether the lower place gets what comes first."""
    places = np.arange(size)
    for block in (1 << k for k in range(1, size.bit_length())):
        for distance in (block >> k for k in range(1, block.bit_length())):
            low = places[places & distance == 0]
            yield low, low + distance, low & block == 0


def _comes_before(site: Site, name: str, rows: list[Array], one: Indices, two: Indices) -> NDArray[np.bool_]:
    """Return which of two numbered elements comes first; where the comparator leaves it open, the lower number."""
    last = len(rows[0]) - 1
    ones = [np.take_along_axis(row, np.minimum(one, last), 0) for row in rows]
    twos = [np.take_along_axis(row, np.minimum(two, last), 0) for row in rows]
    is_less = apply_lifted(site, name, [side for pair in zip(ones, twos, strict=True) for side in pair])
    is_more = apply_lifted(site, name, [side for pair in zip(twos, ones, strict=True) for side in pair])
    is_known = (one <= last) & (two <= last) & (is_less != is_more)
    return np.where(is_known, is_less, one < two)


@computes("topk")
def topk(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the largest (or smallest) elements of the last dimension in order, and where they were."""
    found, places = map(array_shape, parts(instruction.shape))
    # Not by the attribute k, which the custom call of this name does not have.
    values, indices = top_k(operands[0], found.dimensions[-1], instruction.attributes.get("largest", True))
    return values, indices.astype(numpy_dtype(places.dtype))


def top_k(array: Array, k: int, largest: bool = True) -> tuple[Array, Indices]:
    """Return the ``k`` first elements of the last dimension, and their indices, in descending (ascending) total order.

    Of equal elements that with the lower index comes first; NaN is larger than infinity.
    """
    keys = as_ordered(array, is_total=True)
    keys = ~keys if largest else keys
    if keys.dtype.itemsize > 4 or not 0 < k < keys.shape[-1]:
        first = np.argsort(keys, -1, kind="stable")[..., :k]
    else:
        # Key and index in one number make all of them differ: a partition then selects as a stable sort would.
        signed = keys.astype(np.int64) - (2**31 if keys.dtype.kind == "u" else 0)
        numbered = (signed << 32) + np.arange(keys.shape[-1])
        first = np.sort(np.partition(numbered, k - 1, -1)[..., :k], -1) & 0xFFFFFFFF
    return np.take_along_axis(array, first, -1), first
