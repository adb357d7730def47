"""Computations of scalars as rows of numbers, one per operation on registers, which compiled code carries out.

A computation with anything in it that has no row here is left to the rules of its opcodes; the values are the same, bit
for bit. So there are rows for what IEEE 754 defines, and none for exponentials.

Numba keeps what it has compiled for as long as its own file does not change: whoever changes ``carry_out`` has to
delete ``__pycache__`` beside the files that take it from here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import MAKES_SUBNORMALS
from tpusim.numerics.ops.convert import FLOAT32, Type, from_float32, round_word
from tpusim.numerics.registry import Array, array_shape, element_type
from tpusim.numerics.site import Site
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _REMAINDER, _MAXIMUM, _MINIMUM, _AND, _OR, _XOR, _LEFT, _RIGHT = range(12)
_EQ, _NE, _LT, _LE, _GT, _GE, _SELECT, _TO_INTEGER, _TO_FLOAT = range(12, 21)
_NEGATE, _ABSOLUTE, _NOT, _ROOT, _INVERSE_ROOT = range(21, 26)

_SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)
_TO_SINGLE, _TO_BRAIN, _TO_HALF = range(0, 6, 2)
_ROUNDINGS = {"f32": _TO_SINGLE, "bf16": _TO_BRAIN, "f16": _TO_HALF}
"""By type, how results are rounded; one more says that those too small to be normal in f32 become zeros."""

_SMALLEST_HALF, _LARGEST_HALF, _HALVES = 2.0**-24, 65504.0, 1 << 11
"""Of f16 the smallest and the largest number, and how many of one exponent there are, from zero on."""


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
    "negate": _NEGATE,
    "abs": _ABSOLUTE,
    "not": _NOT,
}
_OF_TRUTH_VALUES = {"and": _AND, "or": _OR, "xor": _XOR, "select": _SELECT, "not": _NOT}
_FLOAT_NUMBERS = {_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _MAXIMUM, _MINIMUM, _SELECT, _NEGATE, _ABSOLUTE}
_OF_FLOATS = {
    **{opcode: number for opcode, number in _OF_INTEGERS.items() if number in _FLOAT_NUMBERS},
    "sqrt": _ROOT,
    "rsqrt": _INVERSE_ROOT,
}
_ROWS = {"b": _OF_TRUTH_VALUES, "i": _OF_INTEGERS, "u": _OF_INTEGERS, "f": _OF_FLOATS}
_COMPARISONS = {"EQ": _EQ, "NE": _NE, "LT": _LT, "LE": _LE, "GT": _GT, "GE": _GE}
_SHIFTS = {"shift-right-arithmetic": "i", "shift-right-logical": "u"}
_MOST_NESTED = 50

INTEGERS, FLOATS, OTHERS = range(3)
"""Which file of registers: integers of up to 64 bits and truth values; floats of up to 32; what is only handed on."""


class NoRowError(Exception):
    """Something in a computation has no row."""


class Register(NamedTuple):
    """One register: its file, and its place in that."""

    file: int
    number: int


class Registers:
    """The registers that computations of scalars need, with what constants have written into them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._flush = site.settings.precision == "tpu"
        self._initial: tuple[list[Any], ...] = ([], [], [])
        self._rows: list[list[int]] = []

    def of(self, shape: Shape) -> Any:
        """Return registers for what has a shape, in tuples as it is."""
        if isinstance(shape, TupleShape):
            return tuple(self.of(element) for element in shape.elements)
        return self._register(_file_of(shape))

    def add(self, computation: Computation, arguments: list[Any]) -> tuple[Array, Any]:
        """Return a computation's rows, and the registers of its result; raise ``NoRowError`` if something has none."""
        self._rows = []
        result = self._inline(computation, arguments)
        return np.array(self._rows, np.int64).reshape(-1, 7), result

    def files(self) -> tuple[Array, Array]:
        """Return new files of registers, of integers and of floats, with the constants in them."""
        return np.array(self._initial[INTEGERS], np.int64), np.array(self._initial[FLOATS], np.float64)

    def _register(self, file: int, value: Any = 0) -> Register:
        self._initial[file].append(value)
        return Register(file, len(self._initial[file]) - 1)

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
            case "constant" if _file_of(instruction.shape) != OTHERS and not instruction.immediate.elided:  # type: ignore[union-attr]
                value = self._site.settings.read_literal(instruction.immediate, instruction.shape)  # type: ignore[arg-type]
                is_float = _file_of(instruction.shape) == FLOATS
                return self._register(_file_of(instruction.shape), float(value) if is_float else int(value))
        if any(not isinstance(operand, Register) or operand.file == OTHERS for operand in operands):
            raise NoRowError
        return self._computed(instruction, operands)

    def _computed(self, instruction: Instruction, operands: list[Register]) -> Register:
        file, operation = _file_of(instruction.shape), _operation(instruction)
        if file == OTHERS or operation is None:
            raise NoRowError
        made = self._register(file)
        numbers = [operand.number for operand in operands] + [0] * (3 - len(operands))
        flush = int(self._flush and instruction.opcode in MAKES_SUBNORMALS)
        # The last operand's file: the first of a choice is always a truth value.
        rest = _ROUNDINGS[array_shape(instruction.shape).dtype.name] + flush if file == FLOATS else _width(instruction)
        self._rows.append([operation, operands[-1].file, made.number, *numbers, rest])
        return made


def _operation(instruction: Instruction) -> int | None:
    """Return the number of what an instruction does, None if it has no row."""
    # To NumPy bf16 is of a kind of its own.
    kind = "f" if _file_of(instruction.shape) == FLOATS else element_type(instruction).kind
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
        return OTHERS
    name = shape.dtype.name
    if name in _ROUNDINGS:
        return FLOATS
    return INTEGERS if name in ("pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64") else OTHERS


def _width(instruction: Instruction) -> int:
    """Return the bits of an instruction's integers, negative where they have no sign."""
    dtype = element_type(instruction)
    return {"i": 8 * dtype.itemsize, "b": -1}.get(dtype.kind, -8 * dtype.itemsize)


def in_type(values: Array, dtype: Type) -> Array:
    """Return what registers hold as elements of the type that it was computed in."""
    return from_float32(values.astype(FLOAT32), dtype) if values.dtype.kind == "f" else values.astype(dtype)


def flat(value: Any) -> list[Any]:
    """Return the parts of nested tuples one after the other."""
    if isinstance(value, tuple) and not isinstance(value, Register):
        return [part for element in value for part in flat(element)]
    return [value]


@njit(cache=True, error_model="numpy")
def carry_out(rows: Array, integers: Array, floats: Array) -> None:
    """Carry out rows one after the other."""
    for row in rows:
        _step(row, integers, floats)


@njit(cache=True, error_model="numpy")
def _step(row: Array, integers: Array, floats: Array) -> None:
    """Carry out one row: operation, file of the operands, target, three operands, width or how to round."""
    operation, source, target, one, two, three, width = row
    if operation == _SELECT:
        chosen = two if integers[one] else three
        if source == FLOATS:
            floats[target] = _rounded(floats[chosen], width)
        else:
            integers[target] = integers[chosen]
    elif _EQ <= operation <= _GE:
        if source == FLOATS:
            integers[target] = _holds(operation, floats[one], floats[two])
        else:
            integers[target] = _holds(operation, integers[one], integers[two])
    elif operation == _TO_INTEGER:
        integers[target] = _cut(floats[one], width) if source == FLOATS else _wrapped(integers[one], width)
    elif operation == _TO_FLOAT:
        floats[target] = _rounded(floats[one] if source == FLOATS else np.float32(integers[one]), width)
    elif source == FLOATS:
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
    if operation >= _NEGATE:
        return ~left if operation == _NOT else -left if operation == _NEGATE else abs(left)
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
    if operation >= _NEGATE:
        return _of_one_float(operation, left)
    # Of zeros of both signs, +0 is the larger; NaN is larger and smaller than all.
    if operation == _MAXIMUM:
        return left + right if left == right == 0.0 else left if left >= right or left != left else right
    return -(-left - right) if left == right == 0.0 else left if left <= right or left != left else right


@njit(cache=True, error_model="numpy")
def _of_one_float(operation: int, value: float) -> float:
    if operation == _NEGATE:
        return -value
    if operation == _ABSOLUTE:
        return abs(value)
    root = np.sqrt(value)
    return root if operation == _ROOT else 1.0 / float(np.float32(root))


@njit(cache=True)
def _rounded(value: float, how: int) -> float:
    """Return a number as f32 has it, too small ones as zeros of their sign if they are flushed; or as bf16 or f16."""
    rounded = float(np.float32(value))
    if how == _TO_SINGLE:
        return rounded
    if how % 2 and abs(rounded) < _SMALLEST_NORMAL:
        return np.copysign(0.0, rounded)
    if how < _TO_BRAIN or not np.isfinite(rounded):
        return rounded
    return _as_brain(rounded) if how < _TO_HALF else _as_half(rounded)


@njit(cache=True)
def _as_brain(value: float) -> float:
    """Return the nearest bf16 of a number that f32 has, a tie to even."""
    word = np.float32(value).view(np.uint32)
    return float(np.uint32(round_word(word) & np.uint32(0xFFFF0000)).view(np.float32))


@njit(cache=True)
def _as_half(value: float) -> float:
    """Return the nearest f16 of a number that f32 has, a tie to even."""
    unit = _SMALLEST_HALF
    while abs(value) >= unit * _HALVES:
        unit *= 2
    rounded = np.rint(value / unit) * unit
    return np.copysign(np.inf, value) if abs(rounded) > _LARGEST_HALF else np.copysign(rounded, value)


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
