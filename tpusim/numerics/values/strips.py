"""Runs steps of element-wise arithmetic in compiled code, on one strip of the elements after the other.

A strip is short enough for what a step takes and gives to be in the first level of cache, and for all that the steps
make of it to be in the second; a call of NumPy's for each step and strip would cost more than that saves. Only steps
whose kernels are listed here run so: those that IEEE 754 or a comparison defines to the last bit. What a library
defines (exponentials, powers) stays NumPy's.

Numba keeps what it has compiled for as long as this file does not change: whoever changes the kernels that it takes
from other files has to delete ``__pycache__`` beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.numerics.ops.convert import (
    BFLOAT16,
    FLOAT32,
    Type,
    flat,
    from_float32,
    round_word,
    round_words,
    unchanged,
    widen,
    widened,
)
from tpusim.numerics.registry import Array, compute_type
from tpusim.numerics.values import floats
from tpusim.numerics.values.floats import write_larger, write_smaller

_CONVERT, _NEGATE, _ABSOLUTE, _ROOT, _INVERSE_ROOT, _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _LARGER, _SMALLER = range(11)

_OPERATIONS: dict[Callable[..., Any], int] = {
    unchanged: _CONVERT,
    np.negative: _NEGATE,
    np.absolute: _ABSOLUTE,
    np.sqrt: _ROOT,
    floats.rsqrt: _INVERSE_ROOT,
    np.add: _ADD,
    np.subtract: _SUBTRACT,
    np.multiply: _MULTIPLY,
    np.divide: _DIVIDE,
    floats.maximum: _LARGER,
    floats.minimum: _SMALLER,
}
"""By kernel, the operation that compiled code knows it as."""

_NORMAL = np.finfo(np.float32).smallest_normal
_NO_WORDS = np.empty(0, np.uint16)


class Step(NamedTuple):
    """One operation of several that are computed block by block.

    ``operands`` are places in the row of the operands of all, followed by the results of the steps before this one.
    """

    kernel: Callable[..., Any]
    operands: tuple[int, ...]
    dtype: Type
    flush: bool


@lru_cache(maxsize=256)
def program_of(steps: tuple[Step, ...], types: tuple[Type, ...]) -> Array | None:
    """Return steps on operands of some types as rows for compiled code, None if it does not know them all.

    A row is the operation, the places of its first and last operand, whether results too small to be normal become
    zeros, and whether they are rounded to bf16; those of the last step are where they are written.
    """
    if not _is_known(steps, types):
        return None
    uses = Counter(place for step in steps for place in step.operands)
    rows: list[tuple[int, ...]] = []
    # Where the value of each place is: not every step has a row.
    where, last = list(range(len(types))), len(steps) - 1
    for number, (kernel, operands, dtype, flush) in enumerate(steps):
        is_narrow, newest = dtype == BFLOAT16 and number < last, len(where) - 1
        if kernel is unchanged and dtype == FLOAT32 and number < last:
            # All values are f32 here.
            where.append(where[operands[0]])
        elif kernel is unchanged and number and operands[0] == newest and _is_alone(steps[number - 1], uses[newest]):
            rows[-1] = (*rows[-1][:-1], rows[-1][-1] or is_narrow)
            where.append(where[newest])
        else:
            rows.append((_OPERATIONS[kernel], where[operands[0]], where[operands[-1]], flush, is_narrow))
            where.append(len(types) + len(rows) - 1)
    return np.array(rows, np.int64)


def _is_known(steps: tuple[Step, ...], types: tuple[Type, ...]) -> bool:
    """Return whether compiled code knows all kernels, the types of operands and result, and those between."""
    if any(compute_type(dtype) != FLOAT32 for dtype in (*types, steps[-1].dtype)):
        return False
    is_listed = all(step.kernel in _OPERATIONS for step in steps)
    return is_listed and all(step.dtype in (FLOAT32, BFLOAT16) for step in steps[:-1])


def _is_alone(before: Step, count: int) -> bool:
    """Return whether what a step gives may be rounded where it is: it has one user, and is no other's value."""
    return count == 1 and before.kernel is not unchanged


class Bench:
    """The memory in which steps are taken: operands of one block, and one strip of every other value."""

    def __init__(self, program: Array, is_moving: tuple[bool, ...], block: int, strip: int) -> None:
        self.program, self.strip = program, strip
        self.places, self.begins = _places(len(program), is_moving, block, strip)
        self.memory = np.empty(self.begins[-1], FLOAT32)

    def hold(self, place: int, values: Array) -> None:
        """Write an operand that is the same in every strip, which a whole number of it makes up."""
        begin = self.begins[place]
        self.memory[begin : begin + self.strip].reshape(-1, values.size)[...] = values

    def put(self, place: int, values: Array) -> None:
        """Write what of an operand belongs to a block."""
        begin = self.begins[place]
        target = self.memory[begin : begin + values.size]
        if values.dtype == BFLOAT16:
            widen(flat(values).view(np.uint16), target.view(np.uint32))
        else:
            target.reshape(values.shape)[...] = widened(values)

    def run(self, out: Array) -> None:
        """Write the results of the last step on a block into a row of any float type of at most 32 bits."""
        is_narrow = out.dtype == BFLOAT16
        wide = out if out.dtype == FLOAT32 else np.empty(0 if is_narrow else out.size, FLOAT32)
        _run(self.program, self.places, self.memory, wide, out.view(np.uint16) if is_narrow else _NO_WORDS, self.strip)
        if wide is not out and not is_narrow:
            from_float32(wide, out.dtype, out)


@lru_cache(maxsize=256)
def _places(n_steps: int, is_moving: tuple[bool, ...], block: int, strip: int) -> tuple[Array, tuple[int, ...]]:
    """Return where each value begins and how far it moves per element, as rows; and the beginnings, with the end."""
    moves = (*is_moving, *(False,) * n_steps)
    begins = (0, *accumulate(block if moving else strip for moving in moves))
    return np.array(list(zip(begins, moves, strict=False)), np.int64), begins


@njit(cache=True, error_model="numpy", nogil=True)
def _run(program: Array, places: Array, memory: Array, out: Array, halves: Array, strip: int) -> None:
    """Carry out the rows on one strip after the other; the last result goes to ``out`` or, as bf16, to ``halves``."""
    words, count, n_operands = memory.view(np.uint32), max(out.size, halves.size), len(places) - len(program)
    for start in range(0, count, strip):
        size, to = min(count - start, strip), 0
        for number in range(len(program)):
            operation, first, second = program[number, 0], program[number, 1], program[number, 2]
            one, two = places[first, 0] + start * places[first, 1], places[second, 0] + start * places[second, 1]
            to = places[n_operands + number, 0]
            limit = _NORMAL if program[number, 3] else np.float32(0)
            if operation < _ADD:
                _change(operation, memory, one, to, size)
            else:
                _combine(operation, memory, one, two, to, size, limit)
            if program[number, 4]:
                _narrow(words, to, size)
        if halves.size:
            round_words(words[to : to + size], halves[start : start + size])
        else:
            _copy(memory[to : to + size], out[start : start + size])


@njit(cache=True)
def _copy(values: Array, result: Array) -> None:
    for i in range(result.size):
        result[i] = values[i]


@njit(cache=True, error_model="numpy")
def _change(operation: int, memory: Array, one: int, to: int, size: int) -> None:
    """Write what an operation gives for one operand."""
    values, result = memory[one : one + size], memory[to : to + size]
    if operation == _CONVERT:
        for i in range(result.size):
            result[i] = values[i]
    elif operation == _NEGATE:
        for i in range(result.size):
            result[i] = -values[i]
    elif operation == _ABSOLUTE:
        for i in range(result.size):
            result[i] = abs(values[i])
    else:
        for i in range(result.size):
            root = np.sqrt(values[i])
            result[i] = root if operation == _ROOT else np.float32(1) / root


@njit(cache=True, error_model="numpy")
def _combine(operation: int, memory: Array, one: int, two: int, to: int, size: int, limit: np.float32) -> None:
    """Write what an operation gives for two operands; below ``limit`` zeros."""
    left, right, result = memory[one : one + size], memory[two : two + size], memory[to : to + size]
    if operation == _ADD:
        for i in range(result.size):
            result[i] = _flushed(left[i] + right[i], limit)
    elif operation == _SUBTRACT:
        for i in range(result.size):
            result[i] = _flushed(left[i] - right[i], limit)
    elif operation == _MULTIPLY:
        for i in range(result.size):
            result[i] = _flushed(left[i] * right[i], limit)
    elif operation == _DIVIDE:
        for i in range(result.size):
            result[i] = _flushed(left[i] / right[i], limit)
    elif operation == _LARGER:
        write_larger(left, right, result)
    else:
        write_smaller(left, right, result)


@njit(cache=True)
def _flushed(value: Any, limit: Any) -> Any:
    """Return a number, or zero of its sign if it is smaller than the limit."""
    return math.copysign(np.float32(0), value) if abs(value) < limit else value


@njit(cache=True)
def _narrow(words: Array, to: int, size: int) -> None:
    """Round f32, given as bits, to bf16."""
    part = words[to : to + size]
    for i in range(part.size):
        part[i] = round_word(part[i]) & np.uint32(0xFFFF0000)
