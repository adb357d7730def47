"""Scalars, computed as XLA computes them: loop counters, and what follows from the number of the device.

Integers wrap at the width of their type; floats round to nearest even after every operation (f16 and bf16 by way of
f32). Conversions from float to integer cut towards zero and saturate, and NaN becomes 0. Nothing is computed that is
not asked for, and nothing is guessed: what cannot be known before the program runs raises ``Unknown``.

Source: XLA, Operation Semantics; division by zero as every backend of XLA has it.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from math import ceil, copysign, floor, fmod, frexp, inf, isfinite, isnan, nan
from typing import Any

from tpusim.ir.module import Computation, Instruction, Literal, Module
from tpusim.ir.ops import RESHAPES, SAME_ELEMENTS, SAME_VALUE
from tpusim.semantics.infer.types import FLOAT_REACH
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, TupleShape

Number = int | float | bool
# Elements of a tuple, or parameters, by number; under their opcodes the numbers of the device.
State = dict[int | str, Number]

_DEEPEST = 200
"""So deep may scalars depend on each other; beyond it Python's own limit of recursion would come near."""

_MOST_COMPUTED = 2**20
"""Scalars for one question, or for all that is asked of a program: some seconds."""

_INTEGERS = r"\{\s*-?\d+(\s*,\s*-?\d+)*\s*\}"


class Unknown(Exception):
    """A scalar depends on something that is not known before the program runs."""


def table_of(computation: Computation, made: Instruction) -> tuple[int, ...] | None:
    """Return the numbers of a constant array of integers, past copies of it; None for anything else."""
    while made.opcode in SAME_ELEMENTS:
        source = computation[made.operands[0]]
        # The bits of one type are other numbers, and as many as may be, in another.
        if made.opcode == "bitcast" and _element_type(source) != _element_type(made):
            return None
        made = source
    return literal_numbers(made.immediate)


def _element_type(made: Instruction) -> DType | None:
    return made.shape.dtype if isinstance(made.shape, ArrayShape) else None


def literal_numbers(literal: int | Literal | None) -> tuple[int, ...] | None:
    """Return the numbers that a literal of a row of integers writes; None for anything else."""
    return _integers(literal.text) if isinstance(literal, Literal) else None


# Every device of a pod looks for its place in one table, which has a number for each of them.
@lru_cache(maxsize=16)
def _integers(text: str) -> tuple[int, ...] | None:
    # As below, no integer is -0.
    if not re.fullmatch(_INTEGERS, text) or re.search(r"-0\b", text):
        return None
    return tuple(map(int, text.strip("{} ").split(",")))


def literal_number(literal: int | Literal | None) -> Number | None:
    """Return the number that a literal of one element writes; None for arrays, tuples and complex numbers."""
    text = literal.text.strip("{} ") if isinstance(literal, Literal) else ""
    if text in ("true", "false"):
        return text == "true"
    try:
        # Behind a NaN its payload may stand in parentheses; integers have no -0.
        return int(text) if text.lstrip("-").isdecimal() and text != "-0" else float(text.partition("(")[0])
    except ValueError:
        return None


def origin_of(computation: Computation, name: str) -> Instruction:
    """Return the instruction that made a value, past what hands it on as it is."""
    made = computation[name]
    while made.opcode in SAME_VALUE:
        made = computation[made.operands[0]]
    return made


def element_of_parameter(computation: Computation, name: str) -> int | None:
    """Return which element of the computation's only parameter, a tuple, a value is; None if it is something else."""
    made = origin_of(computation, name)
    if made.opcode != "get-tuple-element" or len(computation.parameters) != 1:
        return None
    source = origin_of(computation, made.operands[0])
    return int(made.attributes["index"]) if source.opcode == "parameter" else None


class Budget:
    """How many more scalars are computed, each some microseconds: calls, trips and visits multiply them."""

    def __init__(self) -> None:
        self._left = _MOST_COMPUTED

    def spend(self, count: int = 1) -> None:
        """Count what is computed; raise ``Unknown`` if it is too much."""
        self._left -= count
        if self._left < 0:
            raise Unknown


class Scalars:
    """Computes the scalars of a computation of which something is known.

    ``state`` has the known elements of its only parameter, a tuple, or else its known parameters, by number. What asks
    again and again gives all that it asks one ``budget``.
    """

    def __init__(
        self, module: Module, computation: Computation, state: State, budget: Budget | None = None, depth: int = 0
    ) -> None:
        self._module = module
        self._computation = computation
        self._state = state
        self.budget = budget or Budget()
        self._depth = depth
        self._known: dict[str, Number | None] = {}

    def value(self, name: str) -> Number:
        """Return a scalar, or raise ``Unknown``."""
        if name not in self._known:
            # What is not known is remembered too: a chain of values used twice each would else be walked 2**n times.
            self._known[name] = None
            self.budget.spend()
            self._depth += 1
            try:
                self._known[name] = self._computed(self._computation[name])
            finally:
                self._depth -= 1
        found = self._known[name]
        if found is None:
            raise Unknown
        return found

    def get(self, name: str) -> Number | None:
        """Return a scalar, or None if it is not known."""
        try:
            return self.value(name)
        except Unknown:
            return None

    def state_of(self, names: Sequence[str], wanted: Container[int | str] | None = None) -> State:
        """Return what is known of the parameters of a computation that is called with the named values.

        Of a single tuple that is what is known of its elements. The numbers of the device are always among it.
        """
        found: State = {key: number for key, number in self._state.items() if isinstance(key, str)}
        if len(names) == 1:
            made = origin_of(self._computation, names[0])
            if made.opcode == "parameter" and isinstance(made.shape, TupleShape):
                return dict(self._state)
            names = made.operands if made.opcode == "tuple" else names
        for number, name in enumerate(names):
            value = self.get(name) if wanted is None or number in wanted else None
            if value is not None:
                found[number] = value
        return found

    def inside(self, instruction: Instruction) -> Scalars:
        """Return the scalars of the computation that a fusion or call runs."""
        attributes = instruction.attributes
        called = self._module[attributes["calls" if "calls" in attributes else "to_apply"]]
        # What a call is given is asked for through as many functions of Python again.
        self._depth += 1
        state = self.state_of(instruction.operands)
        self._depth -= 1
        return Scalars(self._module, called, state, self.budget, self._depth)

    def _computed(self, made: Instruction) -> Number | None:
        dtype = _scalar_type(made)
        if self._depth > _DEEPEST or dtype is None:
            return None
        if made.opcode in _SPECIAL:
            found = _SPECIAL[made.opcode](self, made)
            return None if found is None else as_type(found, dtype)
        if made.opcode not in _OPERATIONS and made.opcode not in _BY_TYPE:
            return None
        values = [self.value(operand) for operand in made.operands]
        if made.opcode in _OPERATIONS:
            return as_type(_OPERATIONS[made.opcode](*values), dtype)
        source = _scalar_type(self._computation[made.operands[0]])
        assert source is not None
        return _BY_TYPE[made.opcode](source, dtype, *values)

    def element(self, made: Instruction) -> Number | None:
        """Return an element of the computation's tuple, or of a tuple that it builds itself."""
        source = origin_of(self._computation, made.operands[0])
        if source.opcode == "tuple":
            return self.value(source.operands[made.attributes["index"]])
        return self.stated(element_of_parameter(self._computation, made.name))

    def stated(self, key: Any) -> Number | None:
        """Return a number of the state."""
        return self._state.get(key)

    def called(self, made: Instruction) -> Number:
        """Return what a fusion or call of scalars gives."""
        inner = self.inside(made)
        return inner.value(inner._computation.root_name)

    def selected(self, made: Instruction) -> Number:
        """Return the one of two values that the first says; the other need not be known."""
        choice, *values = made.operands
        return self.value(values[0] if self.value(choice) else values[1])

    def looked_up(self, made: Instruction) -> Number | None:
        """Return an element of a table: devices find their places along the axes of a mesh in such."""
        numbers = table_of(self._computation, self._computation[made.operands[0]])
        if len(made.operands) != 2 or numbers is None:
            return None
        # Beyond its ends a slice begins as far in as it has to (XLA, DynamicSlice).
        return numbers[min(max(0, int(self.value(made.operands[1]))), len(numbers) - 1)]

    def cut(self, made: Instruction) -> Number | None:
        """Return an element of a table, or of one that is computed, that is cut out at a place that is stated."""
        source, ranges = self._computation[made.operands[0]], made.attributes["slice"]
        if _scalar_type(source) is not None:
            return self.value(source.name)
        numbers = table_of(self._computation, source)
        return None if numbers is None or len(ranges) != 1 else numbers[ranges[0].start]

    def compared(self, made: Instruction) -> Number:
        """Compare two scalars."""
        values = [self.value(operand) for operand in made.operands]
        if made.attributes.get("type") == "TOTALORDER":
            values = [_total_order_key(value) if isinstance(value, float) else value for value in values]
        # Directions are named as Python's operators are: EQ, NE, LT, LE, GT, GE.
        return bool(getattr(operator, str(made.attributes["direction"]).lower())(*values))


def _scalar_type(made: Instruction) -> DType | None:
    """Return the element type of one element, None for anything larger or of a type whose numbers are not computed."""
    shape = made.shape
    # One element is as good as a scalar: what is cut out of a table is an array of one.
    if not isinstance(shape, ArrayShape) or shape.element_count != 1:
        return None
    dtype = shape.dtype
    return dtype if dtype.is_integer or dtype.is_pred or dtype.name in ("bf16", "f16", "f32", "f64") else None


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the lowest and the highest number of an integer type."""
    return (-1 << (dtype.bits - 1), (1 << (dtype.bits - 1)) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)


def as_type(value: Number, dtype: DType) -> Number:
    """Return a number as its type holds it: integers keep their low bits, floats round to nearest even."""
    if dtype.is_pred:
        return bool(value)
    if dtype.is_float:
        return _rounded(value, dtype.name)
    low, high = integer_range(dtype)
    return int(value) if low <= value <= high else (int(value) - low) % (1 << dtype.bits) + low


def _rounded(value: Number, name: str) -> float:
    """Return a number rounded to a float type; on the way to all but f64 that is to f32 first."""
    # Few programs count in floats.
    from fractions import Fraction

    if name in ("f16", "bf16"):
        value = _rounded(value, "f32")
    if name == "f64" or not isfinite(value):
        return float(value)
    reach, digits = FLOAT_REACH[name]
    # The unit of the last digit that is kept, which below the normal numbers is the least of them all.
    unit = 2.0 ** (max(frexp(value)[1], 3 - reach) - digits)
    # As a float a large integer would be rounded once more. Ties go to even, and a carry may reach what overflows.
    size = round(abs(value) / unit if isinstance(value, float) else abs(value) / Fraction(unit)) * unit
    return copysign(size if size < 2**reach else inf, value)


def is_normal(value: Number, dtype: DType) -> bool:
    """Return whether a number of a float type has all the digits of its type: it is finite and not too near to 0."""
    reach, _ = FLOAT_REACH[dtype.name]
    return isfinite(value) and abs(value) >= 2.0 ** (2 - reach)


def converted(source: DType, target: DType, value: Number) -> Number:
    """Return a number in another type."""
    if target.is_pred:
        return value != 0
    if not target.is_integer or not isinstance(value, float):
        return as_type(value, target)
    low, high = integer_range(target)
    return 0 if isnan(value) else int(min(max(value, low), high))


def _same_bits(source: DType, target: DType, value: Number) -> Number:
    """Return the number that the bits of an integer are in another integer type of the same width."""
    if source == target:
        return value
    if source.bits != target.bits or not (source.is_integer and target.is_integer):
        raise Unknown
    return as_type(value, target)


def _total_order_key(value: float) -> int:
    """Return an integer that is ordered as floats are by sign and magnitude, NaN beyond infinity."""
    bits = int(struct.unpack("q", struct.pack("d", value))[0])
    return bits ^ (bits >> 63 & 0x7FFFFFFFFFFFFFFF)


def _shift(to_left: bool, signed: bool) -> Callable[[DType, DType, Number, Number], Number]:
    """Return a shift; by the width of the type or more (or less than 0) nothing is left but signs."""

    def shift(source: DType, target: DType, value: Number, by: Number) -> Number:
        within = 0 <= by < source.bits
        distance = int(by) if within else source.bits
        low = -1 << (source.bits - 1) if signed else 0
        # The same bits, read with a sign or without one.
        bits = (int(value) - low) % (1 << source.bits) + low
        return as_type(bits << distance if to_left else bits >> distance, target)

    return shift


def _quotient(left: Number, right: Number) -> Number:
    """Divide as the operands' type does: integers towards zero, and by zero to all ones."""
    if isinstance(left, float):
        return left / right if right else left * copysign(inf, right)
    # Through floats large integers would lose their last digits.
    whole = abs(left) // abs(right) if right else -1
    return whole if (left < 0) == (right < 0) or not right else -whole


def _remainder(left: Number, right: Number) -> Number:
    """Return what a division leaves, with the sign of the dividend; of a division by zero that is the dividend."""
    if not isinstance(left, float):
        return left - int(_quotient(left, right)) * right if right else left
    return fmod(left, right) if right and isfinite(left) and not isnan(right) else nan


def _maximum(left: Number, right: Number) -> Number:
    """Return the larger; NaN wins, and +0 is larger than -0."""
    if isnan(left) or isnan(right):
        return nan
    if left == right:
        return right if copysign(1, left) < 0 else left
    return max(left, right)


def _whole(direction: Callable[[float], int]) -> Callable[[Number], Number]:
    """Return a rounding of floats to whole numbers; zeros keep their sign."""
    return lambda value: copysign(direction(value), value) if isfinite(value) else value


_OPERATIONS: dict[str, Callable[..., Number]] = {
    **dict.fromkeys(SAME_VALUE | RESHAPES | {"broadcast"}, lambda value, *others: value),
    "abs": abs,
    "add": operator.add,
    "and": operator.and_,
    "ceil": _whole(ceil),
    "clamp": lambda least, value, most: -_maximum(-_maximum(least, value), -most),
    "divide": _quotient,
    "floor": _whole(floor),
    "is-finite": isfinite,
    "maximum": _maximum,
    # NaN wins here too, and -0 is smaller than +0.
    "minimum": lambda left, right: -_maximum(-left, -right),
    "multiply": operator.mul,
    "negate": operator.neg,
    "not": lambda value: not value if isinstance(value, bool) else ~value,
    "or": operator.or_,
    "remainder": _remainder,
    "round-nearest-even": _whole(round),
    "subtract": operator.sub,
    "xor": operator.xor,
}
"""What an opcode makes of its operands, before the result's type takes it."""

_BY_TYPE: dict[str, Callable[..., Number]] = {
    "bitcast": _same_bits,
    "bitcast-convert": _same_bits,
    "convert": converted,
    "shift-left": _shift(to_left=True, signed=False),
    "shift-right-arithmetic": _shift(to_left=False, signed=True),
    "shift-right-logical": _shift(to_left=False, signed=False),
}
"""What depends on the type of the first operand: from it, the type of the result, and the operands."""

_SPECIAL: dict[str, Callable[[Scalars, Instruction], Number | None]] = {
    "call": Scalars.called,
    "compare": Scalars.compared,
    "constant": lambda scalars, made: literal_number(made.immediate),
    "dynamic-slice": Scalars.looked_up,
    "fusion": Scalars.called,
    "get-tuple-element": Scalars.element,
    "parameter": lambda scalars, made: scalars.stated(made.immediate),
    "partition-id": lambda scalars, made: scalars.stated(made.opcode),
    "replica-id": lambda scalars, made: scalars.stated(made.opcode),
    "select": Scalars.selected,
    "slice": Scalars.cut,
}
"""What follows operands by name, or has none."""
