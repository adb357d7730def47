"""Applies an element-wise kernel to whole arrays, block by block where that saves memory traffic.

A kernel is written with temporaries and in f32 or wider; a block is small enough for them to stay in the cache, and
narrow floats are widened and rounded there, once per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.ir.ops import MAKES_SUBNORMALS
from tpusim.numerics.ops.convert import FLOAT32, Type, as_rounded, convert_values, from_float32, widened
from tpusim.numerics.registry import Array, compute_type
from tpusim.numerics.site import Settings

Index = tuple[int | slice, ...]

BLOCK_ELEMENTS = 1 << 18
"""Elements per block: a few temporaries of this many f32 fit the last level of cache of current processors. Blocks
that fit the second level are 5 % slower over all of ResNet-50 (``benchmarks/numerics.py``): each has its own calls."""


class Step(NamedTuple):
    """One operation of several that are computed block by block.

    ``operands`` are places in the row of the operands of all, followed by the results of the steps before this one.
    """

    kernel: Callable[..., Any]
    operands: tuple[int, ...]
    dtype: Type
    flush: bool


def flushes(opcode: str, dtype: Type, settings: Settings) -> bool:
    """Return whether results of an opcode on elements of a type that are too small to be normal become zeros."""
    return settings.precision == "tpu" and opcode in MAKES_SUBNORMALS and dtype.kind not in "biu"


def compute(kernel: Callable[..., Any], operands: Sequence[Array], dtype: Type, *, flush: bool = False) -> Array:
    """Return what ``kernel`` gives for operands that broadcast to each other, as an array of ``dtype``.

    The kernel gets arrays of one dimension or more, in the types in which their elements are computed; sizes of 1 stand
    for what is the same everywhere. With ``flush``, f32 results too small to be normal become zeros of their sign.
    """
    with np.errstate(all="ignore"):
        types = (dtype, *(operand.dtype for operand in operands))
        step = Step(kernel, tuple(range(len(operands))), dtype, flush)
        if not isinstance(kernel, np.ufunc) or any(compute_type(each) != each for each in types):
            return in_blocks([step], operands)
        if not flush or dtype != FLOAT32:
            return np.asarray(kernel(*operands)).astype(dtype, copy=False)
        is_one_block = all(operand.size <= BLOCK_ELEMENTS for operand in operands)
        return _flushed(kernel(*operands)) if is_one_block else in_blocks([step], operands)


@np.errstate(all="ignore")
def in_blocks(steps: Sequence[Step], operands: Sequence[Array]) -> Array:
    """Return what the last of some steps gives, all taken on one block of the operands after the other.

    Results between them are rounded as if they had been written, but do not leave the cache.
    """
    dimensions, dtype = np.broadcast_shapes(*(operand.shape for operand in operands)), steps[-1].dtype
    result = np.empty(dimensions, dtype)
    shape, parts = _spread(operands, dimensions)
    rows = result.reshape(shape)
    for index in _cuts(shape):
        values = [part if part.size == 1 else widened(part[index]) for part in parts]
        for step in steps[:-1]:
            values.append(as_rounded(_value(step, values), step.dtype))
        value = _value(steps[-1], values)
        if value.dtype == FLOAT32 != dtype and compute_type(dtype) == FLOAT32:
            from_float32(value, dtype, rows[index])
        else:
            rows[index] = convert_values(value, dtype)
    return result


def _value(step: Step, values: Sequence[Array]) -> Array:
    """Return the value of a step, in the type in which it is computed."""
    value: Array = step.kernel(*[values[place] for place in step.operands])
    return _flushed(value) if step.flush and value.dtype == FLOAT32 else value


def _spread(operands: Sequence[Array], dimensions: tuple[int, ...]) -> tuple[tuple[int, ...], list[Array]]:
    """Return the dimensions to walk and the operands broadcast to them, those of one value with sizes of 1."""
    parts = []
    for operand in operands:
        # What is repeated is widened once, before it is: elements at one address, as those of a broadcast scalar.
        single = tuple(slice(0, 1) if not step else slice(None) for step in operand.strides)
        base = operand[single] if operand.size else operand
        parts.append(widened(base) if base.size < operand.size or base.size == 1 else operand)
    if all(part.size == 1 or (part.shape == dimensions and part.flags.c_contiguous) for part in parts):
        return (prod(dimensions),), [part.reshape(-1) for part in parts]
    return dimensions, [part.reshape(1) if part.size == 1 else np.broadcast_to(part, dimensions) for part in parts]


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


def _flushed(value: Any) -> Array:
    """Return an f32 result, which is written to, without numbers too small to be normal."""
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
