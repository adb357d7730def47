"""Applies an element-wise kernel to whole arrays, block by block where that saves memory traffic.

A kernel is written with temporaries and in f32 or wider; a block is small enough for them to stay in the cache, and
narrow floats are widened and rounded there, once per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tpusim.numerics.ops.convert import FLOAT32, convert_values, from_float32, to_float32
from tpusim.numerics.scalar_computation import compute_type

Array = NDArray[Any]
Type = np.dtype[Any]
Index = tuple[int | slice, ...]

BLOCK_ELEMENTS = 1 << 16
"""Elements per block: a few temporaries of this many f32 fit the second level of cache of current processors."""


# Asked several times per instruction, and slow to tell by names.
_wide_type = cache(compute_type)


def compute(kernel: Callable[..., Any], operands: Sequence[Array], dtype: Type, *, flush: bool = False) -> Array:
    """Return what ``kernel`` gives for operands that broadcast to each other, as an array of ``dtype``.

    The kernel gets arrays of one dimension or more, in the types in which their elements are computed; sizes of 1 stand
    for what is the same everywhere. With ``flush``, f32 results too small to be normal become zeros of their sign.
    """
    with np.errstate(all="ignore"):
        if not _is_one_call(kernel, operands, dtype):
            return _in_blocks(kernel, operands, dtype, flush)
        if not flush or dtype != FLOAT32:
            return np.asarray(kernel(*operands)).astype(dtype, copy=False)
        is_one_block = all(operand.size <= BLOCK_ELEMENTS for operand in operands)
        return _flushed(kernel(*operands)) if is_one_block else _in_blocks(kernel, operands, dtype, flush)


def _is_one_call(kernel: Any, operands: Sequence[Array], dtype: Type) -> bool:
    """Tell whether NumPy does all of it in one pass."""
    types = [dtype, *(operand.dtype for operand in operands)]
    return isinstance(kernel, np.ufunc) and all(_wide_type(each) == each for each in types)


def _in_blocks(kernel: Callable[..., Any], operands: Sequence[Array], dtype: Type, flush: bool) -> Array:
    """Run the kernel on one block after the other."""
    dimensions = np.broadcast_shapes(*(operand.shape for operand in operands))
    result = np.empty(dimensions, dtype)
    shape, parts = _spread(operands, dimensions)
    rows = result.reshape(shape)
    for index in _cuts(shape):
        block = [_wide(part if part.size == 1 else part[index]) for part in parts]
        value = kernel(*block)
        _store(_flushed(value) if flush and value.dtype == FLOAT32 else value, rows[index])
    return result


def _spread(operands: Sequence[Array], dimensions: tuple[int, ...]) -> tuple[tuple[int, ...], list[Array]]:
    """Return the dimensions to walk and the operands broadcast to them, those of one value with sizes of 1."""
    # What is the same everywhere is widened once, and needs no place in the cache.
    parts = [_single(operand) if _is_uniform(operand) else operand for operand in operands]
    is_flat = all(p.size == 1 or (p.shape == dimensions and p.flags.c_contiguous) for p in parts)
    shape = (prod(dimensions),) if is_flat else dimensions
    return shape, [part if part.size == 1 else _viewed(part, shape) for part in parts]


def _is_uniform(operand: Array) -> bool:
    """Tell whether all elements lie at one address, as those of a broadcast scalar do."""
    return operand.size > 0 and all(n == 1 or not step for n, step in zip(operand.shape, operand.strides, strict=True))


def _single(operand: Array) -> Array:
    """Return the one value of a uniform array, as an array of one element."""
    return operand[(slice(0, 1),) * operand.ndim].reshape(1)


def _viewed(part: Array, shape: tuple[int, ...]) -> Array:
    """Return an operand in the dimensions of the walk, without a copy."""
    return part.reshape(shape) if part.size == prod(shape) and len(shape) == 1 else np.broadcast_to(part, shape)


def _cuts(shape: tuple[int, ...]) -> Iterator[Index]:
    """Return the indices that cut an array into blocks: whole trailing dimensions, and a stretch of the one before."""
    if 0 in shape:
        return
    # Leading dimensions one index at a time, so that each block is one stretch of the result.
    axis = next(k for k in range(len(shape)) if prod(shape[k + 1 :]) <= BLOCK_ELEMENTS)
    step = BLOCK_ELEMENTS // prod(shape[axis + 1 :])
    for leading in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], step):
            yield (*leading, slice(start, start + step))


def _wide(block: Array) -> Array:
    """Return a block in the type in which its elements are computed."""
    wanted = _wide_type(block.dtype)
    return to_float32(block) if wanted == FLOAT32 else block.astype(wanted, copy=False)


def _store(value: Array, target: Array) -> None:
    """Put a block's values where they belong, rounded or cut to their type."""
    if value.dtype == FLOAT32 and target.dtype != FLOAT32 and _wide_type(target.dtype) == FLOAT32:
        from_float32(value, target.dtype, target)
    elif value.dtype == target.dtype:
        target[...] = value
    else:
        target[...] = convert_values(value, target.dtype)


def _flushed(value: Any) -> Array:
    """Return an f32 result, which nobody else has, without numbers too small to be normal."""
    # NumPy's result lies in memory like its operands do; the row to flush must not be a copy of it.
    result = np.asarray(value, order="C")
    _flush(result.reshape(-1).view(np.uint32))
    return result


@njit(cache=True)
def _flush(words: Array) -> None:
    """Make f32 numbers below the smallest normal one, given as bits, zeros of their sign."""
    for i in range(words.size):
        if not words[i] & np.uint32(0x7F800000):
            words[i] &= np.uint32(0x80000000)
