"""Operations that move, spread or choose elements of vectors.

Source: MLIR, dialect ``vector``; JAX, dialect ``tpu`` of Mosaic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tpusim.numerics.ops.convert import convert_values
from tpusim.numerics.pallas.references import repacked
from tpusim.numerics.pallas.table import Function, Where, dtype_of, element_of, operation
from tpusim.numerics.registry import Array

_DYNAMIC = -(1 << 63)
"""What stands in a static position for one that is an operand."""


@operation("vector.broadcast", "vector.splat")
def _broadcast(where: Where) -> Function:
    dimensions = where.result().dimensions
    return lambda value: np.broadcast_to(value, dimensions)


@operation("vector.shape_cast", "tpu.reshape")
def _reshape(where: Where) -> Function:
    dimensions = where.result().dimensions
    return lambda value: value.reshape(dimensions)


@operation("vector.transpose", "tpu.transpose")
def _transpose(where: Where) -> Function:
    permutation = where.attributes["permutation"]
    # In one piece: what follows walks it row by row.
    return lambda value: np.ascontiguousarray(value.transpose(permutation))


@operation("tpu.concatenate")
def _concatenate(where: Where) -> Function:
    dimension = where.attributes["dimension"]
    return lambda *values: np.concatenate(values, dimension)


@operation("tpu.repeat")
def _repeat(where: Where) -> Function:
    """Return the vector several times, one after another."""
    dimension, times = where.attributes["dimension"], where.attributes["times"]
    return lambda value: np.concatenate([value] * times, dimension)


@operation("tpu.iota")
def _iota(where: Where) -> Function:
    """Count along some dimensions, the last one named fastest."""
    kind = where.result()
    rank = len(kind.dimensions)
    counted = where.attributes.get("dimensions", (where.attributes.get("dimension", rank - 1),))
    row = np.arange(prod(kind.dimensions[d] for d in counted)).reshape([kind.dimensions[d] for d in counted])
    ordered = row.transpose(np.argsort(counted))
    column = ordered.reshape([size if d in counted else 1 for d, size in enumerate(kind.dimensions)])
    counts = np.broadcast_to(convert_values(column, dtype_of(kind)), kind.dimensions)
    return lambda: counts


@operation("vector.step")
def _step(where: Where) -> Function:
    counts = np.arange(where.result().dimensions[0], dtype=dtype_of(where.result()))
    return lambda: counts


@operation("tpu.rotate")
def _rotate(where: Where) -> Function:
    amount, turned = where.attributes["amount"], _turned(where)
    return lambda value: turned(value, amount)


@operation("tpu.dynamic_rotate")
def _dynamic_rotate(where: Where) -> Function:
    return _turned(where)


def _turned(where: Where) -> Function:
    """Return the function that moves element i to i plus an amount, which may grow along another dimension."""
    dimension, stride = where.attributes["dimension"], where.attributes.get("stride")
    across = where.attributes.get("stride_dimension")
    if stride is None or across is None:
        return lambda value, amount: np.roll(value, int(amount), dimension)
    sizes = where.result().dimensions

    def turned(value: Array, amount: Any) -> Array:
        grid: list[Any] = list(np.ogrid[tuple(slice(size) for size in sizes)])
        grid[dimension] = (grid[dimension] - int(amount) - stride * grid[across]) % sizes[dimension]
        return np.asarray(value[tuple(grid)])

    return turned


@operation("tpu.gather")
def _gather(where: Where) -> Function:
    indices, dimension = np.array(where.attributes["indices"]), where.attributes["dimension"]
    return lambda value: np.take(value, indices, dimension)


@operation("tpu.dynamic_gather")
def _dynamic_gather(where: Where) -> Function:
    """Return the elements at indices along some dimensions taken together; indices wrap around."""
    stated = where.attributes.get("dimensions", where.attributes.get("dimension"))
    dimensions = stated if isinstance(stated, tuple) else (stated,)
    sizes = [where.operand().dimensions[d] for d in dimensions]

    def gathered(value: Array, indices: Array) -> Array:
        grid: list[Any] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
        along = np.unravel_index(indices % prod(sizes), sizes)
        for dimension, index in zip(dimensions, along, strict=True):
            grid[dimension] = index
        return np.asarray(value[tuple(grid)])

    return gathered


@operation("vector.extract")
def _extract(where: Where) -> Function:
    place = _place(where, where.attributes.get("static_position", where.attributes.get("position", ())))
    return lambda value, *dynamic: value[place(dynamic)]


@operation("vector.extractelement")
def _extract_element(where: Where) -> Function:
    return lambda value, *dynamic: value[tuple(map(int, dynamic))]


@operation("vector.insert")
def _insert(where: Where) -> Function:
    place = _place(where, where.attributes.get("static_position", where.attributes.get("position", ())))

    def inserted(value: Any, target: Array, *dynamic: Any) -> Array:
        result = target.copy()
        result[place(dynamic)] = value
        return result

    return inserted


def _place(where: Where, static: Sequence[int]) -> Function:
    """Return the function that makes an index of the operands that stand where the static position has none."""

    def place(dynamic: Sequence[Any]) -> tuple[int, ...]:
        left = iter(dynamic)
        return tuple(int(next(left)) if position == _DYNAMIC else position for position in static)

    return place


@operation("vector.extract_strided_slice")
def _extract_slice(where: Where) -> Function:
    says = where.attributes
    parts = _parts(says["offsets"], says["sizes"], says["strides"])
    return lambda value: value[parts]


@operation("vector.insert_strided_slice")
def _insert_slice(where: Where) -> Function:
    offsets, strides = where.attributes["offsets"], where.attributes["strides"]
    sizes = (1,) * (len(offsets) - len(strides)) + where.operand().dimensions
    parts = _parts(offsets, sizes, (1,) * (len(offsets) - len(strides)) + tuple(strides))

    def inserted(value: Array, target: Array) -> Array:
        result = target.copy()
        result[parts] = value.reshape(sizes)
        return result

    return inserted


def _parts(offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> tuple[slice, ...]:
    rows = zip(offsets, sizes, strides, strict=False)
    return tuple(slice(start, start + (size - 1) * stride + 1, stride) for start, size, stride in rows)


@operation("tpu.bitcast", "vector.bitcast")
def _bitcast(where: Where) -> Function:
    """Return the bits as another type: elements of other widths are made of neighbouring rows."""
    source, target = element_of(where.operand().element), element_of(where.result().element)
    if where.operation.name == "vector.bitcast" and source.bits != target.bits:
        raise where.unsupported("elements of another width")
    return lambda value: repacked(value, source, target)


@operation("vector.create_mask", "vector.constant_mask", "tpu.create_mask")
def _mask(where: Where) -> Function:
    """Return where an index lies below a bound in each dimension, and not below another one if there are two."""
    sizes, stated = where.result().dimensions, where.attributes.get("mask_dim_sizes", ())

    def mask(*bounds: Any) -> Array:
        ends = [int(bound) for bound in bounds] or list(stated)
        low, high = (ends[: len(sizes)], ends[len(sizes) :]) if len(ends) > len(sizes) else ([0] * len(sizes), ends)
        grid = np.ogrid[tuple(slice(size) for size in sizes)]
        inside = np.ones(sizes, np.bool_)
        for index, first, end in zip(grid, low, high, strict=True):
            inside &= (index >= first) & (index < end)
        return inside

    return mask


@operation("tpu.sort")
def _sort(where: Where) -> Function:
    """Return where there are keys, the keys in order, and the values that go with them; what is masked comes last."""
    is_descending = bool(where.attributes.get("descending"))

    def ordered(keys: Array, values: Array, *mask: Array) -> tuple[Array, ...]:
        there = mask[0] if mask else np.ones(keys.shape, np.bool_)
        ranks = np.argsort(keys, axis=-1, kind="stable").argsort(axis=-1)
        if is_descending:
            # The last of equal ones must stay the last.
            ranks = keys.shape[-1] - 1 - np.flip(np.flip(keys, -1).argsort(axis=-1, kind="stable").argsort(axis=-1), -1)
        order = np.argsort(np.where(there, ranks, keys.shape[-1] + ranks), axis=-1, kind="stable")
        return tuple(np.take_along_axis(each, order, -1) for each in (there, keys, values))

    return ordered
