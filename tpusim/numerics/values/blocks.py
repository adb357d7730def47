"""Applies an element-wise kernel to whole arrays, block by block where that saves memory traffic.

A kernel is written with temporaries and in f32 or wider; a block is small enough for them to stay in the cache, and
narrow floats are widened and rounded there, once per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from tpusim.compiled import njit
from tpusim.ir.ops import MAKES_SUBNORMALS
from tpusim.numerics.cores import Index, cuts, deal
from tpusim.numerics.ops.convert import FLOAT32, Type, as_rounded, convert_values, from_float32, widened
from tpusim.numerics.registry import Array, compute_type
from tpusim.numerics.site import Settings
from tpusim.numerics.values.strips import Bench, Step, program_of

BLOCK_ELEMENTS = 1 << 18
"""Elements per block of NumPy's calls: a few temporaries of this many f32 fit the last level of cache of current
processors. Smaller blocks have more calls, which cost more than the second level saves."""

STRIP_ELEMENTS = 1 << 11
"""Elements per strip of compiled steps: 8 KB for each, of which a step takes and gives three."""

STRIP_BLOCK_ELEMENTS = 1 << 16
"""Elements that compiled steps are called for at once; their operands, in f32, stay in the second level of cache."""


def flushes(opcode: str, dtype: Type, settings: Settings) -> bool:
    """Return whether results of an opcode on elements of a type that are too small to be normal become zeros."""
    return settings.precision == "tpu" and opcode in MAKES_SUBNORMALS and dtype.kind not in "biu"


def compute(kernel: Callable[..., Any], operands: Sequence[Array], dtype: Type, *, flush: bool = False) -> Array:
    """Return what ``kernel`` gives for operands that broadcast to each other, as an array of ``dtype``.

    The kernel gets arrays of one dimension or more, in the types in which their elements are computed; sizes of 1 stand
    for what is the same everywhere. With ``flush``, f32 results too small to be normal become zeros of their sign.
    """
    types = (dtype, *(operand.dtype for operand in operands))
    step = Step(kernel, tuple(range(len(operands))), dtype, flush)
    if not isinstance(kernel, np.ufunc) or any(compute_type(each) != each for each in types):
        return in_blocks([step], operands)
    if not flush or dtype != FLOAT32:
        return np.asarray(kernel(*operands)).astype(dtype, copy=False)
    is_one_block = all(operand.size <= BLOCK_ELEMENTS for operand in operands)
    return _flushed(kernel(*operands)) if is_one_block else in_blocks([step], operands)


def in_blocks(steps: Sequence[Step], operands: Sequence[Array]) -> Array:
    """Return what the last of some steps gives, all taken on one block of the operands after the other.

    Results between them are rounded as if they had been written, but do not leave the cache.
    """
    result = np.empty(np.broadcast_shapes(*(operand.shape for operand in operands)), steps[-1].dtype)
    if not result.size:
        return result
    shape, parts = _spread(operands, result.shape)
    program = program_of(tuple(steps), tuple(operand.dtype for operand in operands))
    if program is None:
        _in_numpy(steps, parts, result.reshape(shape))
    else:
        _in_strips(program, parts, result.reshape(shape))
    return result


def _in_numpy(steps: Sequence[Step], parts: Sequence[Array], rows: Array) -> None:
    """Write what the last of some steps gives, each of them one call per block."""
    dtype = rows.dtype

    def take(blocks: Iterator[Index]) -> None:
        for index in blocks:
            values = [part if part.size == 1 else widened(_repeated(part, rows.shape)[index]) for part in parts]
            for step in steps[:-1]:
                values.append(as_rounded(_value(step, values), step.dtype))
            value = _value(steps[-1], values)
            if value.dtype == FLOAT32 != dtype and compute_type(dtype) == FLOAT32:
                from_float32(value, dtype, rows[index])
            else:
                rows[index] = convert_values(value, dtype)

    deal(take, list(cuts(rows.shape, BLOCK_ELEMENTS)))


def _in_strips(program: Array, parts: Sequence[Array], rows: Array) -> None:
    """Write what the last of some steps gives, all of them in one call per block."""
    period = min(part.size for part in (*parts, rows) if part.size > 1 or part is rows)
    # A strip of whole periods meets the same elements as every other, and so does a block of whole strips.
    is_held = period < rows.size and period <= min(STRIP_ELEMENTS, STRIP_BLOCK_ELEMENTS)
    strip = STRIP_ELEMENTS // period * period if is_held else STRIP_ELEMENTS
    is_moving = tuple(part.size > (period if is_held else 1) for part in parts)
    wholes = [_repeated(part, rows.shape) if moves else part for part, moves in zip(parts, is_moving, strict=True)]

    def take(blocks: Iterator[Index]) -> None:
        bench = Bench(program, is_moving, min(rows.size, STRIP_BLOCK_ELEMENTS), strip)
        for place, part in enumerate(wholes):
            if not is_moving[place]:
                bench.hold(place, part)
        for index in blocks:
            for place, part in enumerate(wholes):
                if is_moving[place]:
                    bench.put(place, part[index])
            bench.run(rows[index].reshape(-1))

    deal(take, list(cuts(rows.shape, STRIP_BLOCK_ELEMENTS)), least=4)


def _repeated(part: Array, dimensions: tuple[int, ...]) -> Array:
    return part if part.shape == dimensions else np.broadcast_to(part, dimensions)


def _value(step: Step, values: Sequence[Array]) -> Array:
    """Return the value of a step, in the type in which it is computed."""
    value: Array = step.kernel(*[values[place] for place in step.operands])
    return _flushed(value) if step.flush and value.dtype == FLOAT32 else value


def _spread(operands: Sequence[Array], dimensions: tuple[int, ...]) -> tuple[tuple[int, ...], list[Array]]:
    """Return the dimensions to walk and the operands for them, which broadcast to them.

    Few dimensions, where operands are each a single value, whole, or one and the same row again and again.
    """
    count, parts = prod(dimensions), []
    for operand in operands:
        # What is repeated is widened once, before it is: elements at one address, as those of a broadcast scalar.
        is_whole = operand.flags.c_contiguous
        base = operand if is_whole else operand[tuple([slice(None if step else 1) for step in operand.strides])]
        parts.append(widened(base) if base.size < count or base.size == 1 else operand)
    periods = {_period(part, dimensions) for part in parts} - {1, count}
    if 0 in periods or len(periods) > 1:
        return dimensions, [part.reshape(1) if part.size == 1 else _repeated(part, dimensions) for part in parts]
    shape = (count // prod(periods), *periods)
    return shape, [part.reshape(shape if part.size == count else -1) for part in parts]


def _period(part: Array, dimensions: tuple[int, ...]) -> int:
    """Return after how many elements a part of the dimensions begins anew, 0 where it does not lie in one row."""
    own = part.shape[next((axis for axis, size in enumerate(part.shape) if size > 1), part.ndim) :]
    is_row = part.flags.c_contiguous and own == dimensions[len(dimensions) - len(own) :]
    return part.size if is_row else 0


def _flushed(value: Any) -> Array:
    """Return an f32 result, which is written to, without numbers too small to be normal."""
    # NumPy's result lies in memory like its operands do; the row to flush must not be a copy of it.
    result = np.asarray(value, order="C")
    _flush(result.reshape(-1).view(np.uint32))
    return result


@njit(cache=True, nogil=True)
def _flush(words: Array) -> None:
    """Make f32 numbers below the smallest normal one, given as bits, zeros of their sign."""
    for i in range(words.size):
        if not words[i] & np.uint32(0x7F800000):
            words[i] &= np.uint32(0x80000000)
