"""Loops over scalars alone, in compiled code: a counter that goes to ten million, a recurrence, a root to be found.

Condition and body become rows of numbers, one per operation on registers, which one compiled loop carries out. A
computation with anything in it that has no row here is left to the rules of its opcodes; the values are the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim.compiled import njit
from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import MAKES_SUBNORMALS
from tpusim.numerics.registry import array_shape, element_type
from tpusim.numerics.site import Site
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

Array = NDArray[Any]

_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _REMAINDER, _MAXIMUM, _MINIMUM, _AND, _OR, _XOR, _LEFT, _RIGHT = range(12)
_EQ, _NE, _LT, _LE, _GT, _GE, _SELECT, _TO_INTEGER, _TO_FLOAT = range(12, 21)

_SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)

_OF_INTEGERS = {
    "add": _ADD,
    "subtract": _SUBTRACT,
    "multiply": _MULTIPLY,
    "divide": _DIVIDE,
    "remainder": _REMAINDER,
    "maximum": _MAXIMUM,
    "minimum": _MINIMUM,
    "and": _AND,
    "or": _OR,
    "xor": _XOR,
    "shift-left": _LEFT,
    "shift-right-arithmetic": _RIGHT,
    "shift-right-logical": _RIGHT,
    "select": _SELECT,
}
_OF_TRUTH_VALUES = {"and": _AND, "or": _OR, "xor": _XOR, "select": _SELECT}
_FLOAT_NUMBERS = {_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _MAXIMUM, _MINIMUM, _SELECT}
_OF_FLOATS = {opcode: number for opcode, number in _OF_INTEGERS.items() if number in _FLOAT_NUMBERS}
_ROWS = {"b": _OF_TRUTH_VALUES, "i": _OF_INTEGERS, "u": _OF_INTEGERS, "f": _OF_FLOATS}
_COMPARISONS = {"EQ": _EQ, "NE": _NE, "LT": _LT, "LE": _LE, "GT": _GT, "GE": _GE}
_SHIFTS = {"shift-right-arithmetic": "i", "shift-right-logical": "u"}
_MOST_NESTED = 50

_INTEGERS, _FLOATS, _OTHERS = range(3)
"""Which file of registers: integers of up to 64 bits and truth values; f32; what is only handed on."""


class NoRowError(Exception):
    """Something in a computation has no row."""


class _Register(NamedTuple):
    """One register: its file, and its place in that."""

    file: int
    number: int


class ScalarLoop:
    """A loop whose state is scalars, ready to run; arrays in it are only handed on from trip to trip."""

    def __init__(self, site: Site, loop: Instruction) -> None:
        """Raise ``NoRowError`` if it is not such a loop."""
        self._site = site
        self._flush = site.settings.precision == "tpu"
        self._initial: tuple[list[Any], ...] = ([], [], [])
        self._shape = loop.shape
        self._state = self._registers(loop.shape)
        self._rows: list[list[int]] = []
        verdict = self._inline(site.module[loop.attributes["condition"]], [self._state])
        self._condition, self._rows = self._rows, []
        result = self._inline(site.module[loop.attributes["body"]], [self._state])
        pairs = list(zip(_flat(self._state), _flat(result), strict=True))
        if any(one != other for one, other in pairs if one.file == _OTHERS) or not isinstance(verdict, _Register):
            raise NoRowError
        self._verdict = verdict.number
        self._moves = [
            np.array([(one.number, other.number) for one, other in pairs if one.file == file], np.int64).reshape(-1, 2)
            for file in (_INTEGERS, _FLOATS)
        ]

    def run(self, state: Any, most_trips: int) -> tuple[Any, int]:
        """Return the state when the condition no longer holds, or after so many trips, and the number of trips."""
        files = [np.array(self._initial[_INTEGERS], np.int64), np.array(self._initial[_FLOATS], np.float64)]
        values = dict(zip(_flat(self._state), _flat(state), strict=True))
        for register, value in values.items():
            if register.file != _OTHERS:
                files[register.file][register.number] = value
        condition, body = (np.array(part, np.int64).reshape(-1, 7) for part in (self._condition, self._rows))
        trips = _run(condition, body, self._verdict, self._moves[0], self._moves[1], files[0], files[1], most_trips)
        values |= {one: files[one.file][one.number] for one in values if one.file != _OTHERS}
        return _gathered(self._state, self._shape, values), trips

    def _registers(self, shape: Shape) -> Any:
        """Return registers for what has a shape, in tuples as it is."""
        if isinstance(shape, TupleShape):
            return tuple(self._registers(element) for element in shape.elements)
        return self._register(_file_of(shape))

    def _register(self, file: int, value: Any = 0) -> _Register:
        self._initial[file].append(value)
        return _Register(file, len(self._initial[file]) - 1)

    def _inline(self, computation: Computation, arguments: list[Any], depth: int = 0) -> Any:
        """Add the rows of a computation and return the registers of its result."""
        if depth > _MOST_NESTED:
            raise NoRowError
        values: dict[str, Any] = {}
        for instruction in computation.instructions:
            operands = [values[name] for name in instruction.operands]
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[int(str(instruction.immediate))]
            else:
                values[instruction.name] = self._value(instruction, operands, depth)
        return values[computation.root_name]

    def _value(self, instruction: Instruction, operands: list[Any], depth: int) -> Any:
        """Return the registers of an instruction's value, with a row for it if it computes something."""
        match instruction.opcode:
            case "call" | "fusion":
                called = self._site.module[instruction.called_computations[0]]
                return self._inline(called, operands, depth + 1)
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return operands[0][instruction.attributes["index"]]
            case "copy":
                return operands[0]
            case "constant" if _file_of(instruction.shape) != _OTHERS and not instruction.immediate.elided:  # type: ignore[union-attr]
                value = self._site.settings.read_literal(instruction.immediate, instruction.shape)  # type: ignore[arg-type]
                return self._register(_file_of(instruction.shape), value.item())
        if any(not isinstance(operand, _Register) or operand.file == _OTHERS for operand in operands):
            raise NoRowError
        return self._computed(instruction, operands)

    def _computed(self, instruction: Instruction, operands: list[_Register]) -> _Register:
        file, operation = _file_of(instruction.shape), _operation(instruction)
        if file == _OTHERS or operation is None:
            raise NoRowError
        made = self._register(file)
        numbers = [operand.number for operand in operands] + [0] * (3 - len(operands))
        flush = int(self._flush and instruction.opcode in MAKES_SUBNORMALS)
        # The last operand's file: the first of a choice is always a truth value.
        rest = flush if file == _FLOATS else _width(instruction)
        self._rows.append([operation, operands[-1].file, made.number, *numbers, rest])
        return made


def _operation(instruction: Instruction) -> int | None:
    """Return the number of what an instruction does, None if it has no row."""
    kind = element_type(instruction).kind
    if instruction.opcode == "compare":
        is_usual = instruction.attributes.get("type") != "TOTALORDER"
        return _COMPARISONS[instruction.attributes["direction"]] if is_usual else None
    if instruction.opcode == "convert":
        return {"i": _TO_INTEGER, "u": _TO_INTEGER, "f": _TO_FLOAT}.get(kind)
    if _SHIFTS.get(instruction.opcode, kind) != kind:
        return None
    return _ROWS.get(kind, {}).get(instruction.opcode)


def _file_of(shape: Shape) -> int:
    """Return the file of registers for what has a shape."""
    if not isinstance(shape, ArrayShape) or shape.rank:
        return _OTHERS
    name = shape.dtype.name
    if name == "f32":
        return _FLOATS
    return _INTEGERS if name in ("pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64") else _OTHERS


def _width(instruction: Instruction) -> int:
    """Return the bits of an instruction's integers, negative where they have no sign."""
    dtype = element_type(instruction)
    return {"i": 8 * dtype.itemsize, "b": -1}.get(dtype.kind, -8 * dtype.itemsize)


def _flat(value: Any) -> list[Any]:
    """Return the parts of nested tuples one after the other."""
    if isinstance(value, tuple) and not isinstance(value, _Register):
        return [part for element in value for part in _flat(element)]
    return [value]


def _gathered(registers: Any, shape: Shape, values: dict[_Register, Any]) -> Any:
    """Return the values of registers, in tuples as they are, each in the element type of its shape."""
    if isinstance(shape, TupleShape):
        return tuple(_gathered(*part, values) for part in zip(registers, shape.elements, strict=True))
    value = values[registers]
    return value if registers.file == _OTHERS else np.array(value, numpy_dtype(array_shape(shape).dtype))


@njit(cache=True, error_model="numpy")
def _run(
    condition: Array,
    body: Array,
    verdict: int,
    integer_moves: Array,
    float_moves: Array,
    integers: Array,
    floats: Array,
    most_trips: int,
) -> int:
    """Run trips on the registers until the condition does not hold; return how many there were."""
    for trip in range(most_trips):
        for row in condition:
            _step(row, integers, floats)
        if not integers[verdict]:
            return trip
        for row in body:
            _step(row, integers, floats)
        # All at once: a state's elements may change places.
        new_integers, new_floats = integers[integer_moves[:, 1]], floats[float_moves[:, 1]]
        integers[integer_moves[:, 0]] = new_integers
        floats[float_moves[:, 0]] = new_floats
    return most_trips


@njit(cache=True, error_model="numpy")
def _step(row: Array, integers: Array, floats: Array) -> None:
    """Carry out one row: operation, file of the operands, target, three operands, width or flush."""
    operation, source, target, one, two, three, width = row
    if operation == _SELECT:
        chosen = two if integers[one] else three
        if source == _FLOATS:
            floats[target] = floats[chosen]
        else:
            integers[target] = integers[chosen]
    elif _EQ <= operation <= _GE:
        if source == _FLOATS:
            integers[target] = _holds(operation, floats[one], floats[two])
        else:
            integers[target] = _holds(operation, integers[one], integers[two])
    elif operation == _TO_INTEGER:
        integers[target] = _cut(floats[one], width) if source == _FLOATS else _wrapped(integers[one], width)
    elif operation == _TO_FLOAT:
        floats[target] = floats[one] if source == _FLOATS else np.float32(integers[one])
    elif source == _FLOATS:
        floats[target] = _rounded(_of_floats(operation, floats[one], floats[two]), width)
    else:
        integers[target] = _wrapped(_of_integers(operation, integers[one], integers[two], width), width)


@njit(cache=True)
def _holds(comparison: int, left: Any, right: Any) -> bool:
    if comparison == _EQ:
        return bool(left == right)
    if comparison == _NE:
        return bool(left != right)
    if comparison == _LT:
        return bool(left < right)
    if comparison == _LE:
        return bool(left <= right)
    return bool(left > right) if comparison == _GT else bool(left >= right)


@njit(cache=True)
def _wrapped(value: int, width: int) -> int:
    """Return an integer of so many bits, negative where they have no sign, as the machine keeps it."""
    bits = abs(width)
    if bits == 64:
        return value
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if width > 0 and low >> (bits - 1) else low


@njit(cache=True)
def _of_integers(operation: int, left: int, right: int, width: int) -> int:
    """Return what an operation gives, before it is cut to its width."""
    if operation == _ADD:
        return left + right
    if operation == _SUBTRACT:
        return left - right
    if operation == _MULTIPLY:
        return left * right
    if operation == _MAXIMUM:
        return max(left, right)
    if operation == _MINIMUM:
        return min(left, right)
    if operation <= _REMAINDER:
        return _divided(operation, left, right)
    return _of_bits(operation, left, right, abs(width))


@njit(cache=True)
def _divided(operation: int, left: int, right: int) -> int:
    """Return a quotient cut towards zero, or what it leaves; by zero all ones, or the dividend."""
    if right == 0:
        return -1 if operation == _DIVIDE else left
    # The lowest number by -1 is itself; the processor would stop.
    if right == -1:
        return -left if operation == _DIVIDE else 0
    quotient = left // right
    if quotient < 0 and quotient * right != left:
        quotient += 1
    return quotient if operation == _DIVIDE else left - quotient * right


@njit(cache=True)
def _of_bits(operation: int, left: int, right: int, bits: int) -> int:
    if operation == _AND:
        return left & right
    if operation == _OR:
        return left | right
    if operation == _XOR:
        return left ^ right
    # By the width or more, zeros or signs alone are left.
    is_beyond = right < 0 or right >= bits
    if operation == _LEFT:
        return 0 if is_beyond else left << right
    return left >> (63 if is_beyond else right)


@njit(cache=True, error_model="numpy")
def _of_floats(operation: int, left: float, right: float) -> float:
    """Return what an operation gives on f32 numbers in f64, which rounded once more is what f32 gives."""
    if operation == _ADD:
        return left + right
    if operation == _SUBTRACT:
        return left - right
    if operation == _MULTIPLY:
        return left * right
    if operation == _DIVIDE:
        return left / right
    if np.isnan(left) or np.isnan(right):
        return np.nan
    # Of zeros of both signs, +0 is the larger.
    if operation == _MAXIMUM:
        return left + right if left == right == 0.0 else max(left, right)
    return -(-left - right) if left == right == 0.0 else min(left, right)


@njit(cache=True)
def _rounded(value: float, flush: int) -> float:
    """Return a number as f32 has it, too small ones as zeros of their sign if they are flushed."""
    rounded = float(np.float32(value))
    return np.copysign(0.0, rounded) if flush and abs(rounded) < _SMALLEST_NORMAL else rounded


@njit(cache=True)
def _cut(value: float, width: int) -> int:
    """Return a float cut towards zero: NaN is 0, what is too large the nearest integer of that width."""
    bits = width - 1 if width > 0 else -width
    if np.isnan(value):
        return 0
    if value >= 2.0**bits:
        return (1 << bits) - 1 if bits < 63 else 9223372036854775807
    least = -(2.0**bits) if width > 0 else 0.0
    return int(max(value, least))
