"""Scalars, computed: counters of loops trip by trip, and what depends on the number of the device.

Where a counter is not a plain arithmetic progression, its few scalar instructions are played out until the condition
says stop. That stays cheap because only what the condition depends on is computed, and few trips are tried.
"""

from __future__ import annotations

import operator
import re
import struct
from math import fmod, isfinite
from typing import TYPE_CHECKING

from tpusim.ir.module import Literal
from tpusim.shapes.shape import ArrayShape

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from tpusim.ir.module import Computation, Instruction, Module

    Number = int | float | bool
    # Elements of a tuple, or parameters, by number; under their opcodes the numbers of the device.
    State = dict[int | str, Number]

MOST_TRIPS = 4096
"""Trips that are played out before a loop counts as unknown; each costs some microseconds per instruction."""

_DEEPEST = 200

_NARROWEST_BITS = 8

_TABLE = re.compile(r"\{\s*-?\d+(\s*,\s*-?\d+)*\s*\}")


class Unknown(Exception):
    """A scalar depends on something that is not known before the program runs."""


CANNOT = (Unknown, ArithmeticError, ValueError, TypeError, struct.error)
"""What ends an attempt to compute a scalar."""


def play_counter(module: Module, loop: Instruction, start: State) -> int | None:
    """Return how often ``loop`` runs if its condition depends only on scalars known at ``start``, else None."""
    condition = module[loop.attributes["condition"]]
    try:
        for trips, state in enumerate(states_of(module, loop, start)):
            if not Scalars(module, condition, state).value(condition.root_name):
                return trips
    except CANNOT:
        pass
    return None


def states_of(module: Module, loop: Instruction, start: State) -> Iterator[State]:
    """Yield the known elements of a loop's tuple trip by trip, as many as are worth trying."""
    state = dict(start)
    for _ in range(MOST_TRIPS):
        yield state
        state = _next_state(module, module[loop.attributes["body"]], state)


def table_of(computation: Computation, made: Instruction) -> list[int] | None:
    """Return the numbers of a constant array of integers, past copies of it; None for anything else."""
    while made.opcode in ("copy", "bitcast", "reshape"):
        made = computation[made.operands[0]]
    text = made.immediate.text if isinstance(made.immediate, Literal) else ""
    return [int(number) for number in text.strip("{} ").split(",")] if _TABLE.fullmatch(text) else None


def literal_number(instruction: Instruction) -> Number | None:
    """Return the number of a scalar ``constant``, or None for anything else."""
    text = instruction.immediate.text if isinstance(instruction.immediate, Literal) else ""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


def _next_state(module: Module, body: Computation, state: State) -> State:
    """Return the elements of the loop's tuple after one trip, as far as they can be computed."""
    root = body.root
    if root.opcode != "tuple":
        raise Unknown
    return elements_of(Scalars(module, body, state), root, state)


def elements_of(scalars: Scalars, tuple_: Instruction, wanted: Container[int | str] | None = None) -> State:
    """Return the elements of a tuple that can be computed (of those ``wanted``), and the numbers of the device."""
    found = scalars.ids
    for index, name in enumerate(tuple_.operands):
        if wanted is not None and index not in wanted:
            continue
        try:
            found[index] = scalars.value(name)
        except CANNOT:
            continue
    return found


class Scalars:
    """Computes scalars of a computation whose parameter is a tuple of known elements, or whose parameters are known."""

    def __init__(self, module: Module, computation: Computation, state: State, depth: int = 0) -> None:
        self._module = module
        self._computation = computation
        self._state = state
        self._depth = depth
        self._known: dict[str, Number] = {}

    @property
    def ids(self) -> State:
        """The numbers of the device, where they are known."""
        return {key: number for key, number in self._state.items() if isinstance(key, str)}

    def value(self, name: str) -> Number:
        """Return a scalar, or raise ``Unknown``."""
        if name not in self._known:
            self._known[name] = self._computed(self._computation[name])
        return self._known[name]

    def _computed(self, instruction: Instruction) -> Number:
        """Compute one instruction."""
        shape = instruction.shape
        self._depth += 1
        # One element is as good as a scalar: what is cut out of a table is an array of one.
        if self._depth > _DEEPEST or not isinstance(shape, ArrayShape) or shape.element_count != 1:
            raise Unknown
        special = _SPECIAL.get(instruction.opcode)
        if special is not None:
            return special(self, instruction)
        compute = _OPERATIONS.get(instruction.opcode)
        if compute is None:
            raise Unknown
        return _in_type(compute(*(self.value(operand) for operand in instruction.operands)), shape.dtype.name)

    def constant(self, instruction: Instruction) -> Number:
        """Return the number that a literal writes."""
        number = literal_number(instruction)
        if number is None:
            raise Unknown
        return number

    def element(self, instruction: Instruction) -> Number:
        """Return an element of the loop's tuple, or of a tuple that the computation builds itself."""
        index, source = instruction.attributes["index"], self._computation[instruction.operands[0]]
        if source.opcode == "tuple":
            return self.value(source.operands[index])
        if source.opcode != "parameter" or index not in self._state:
            raise Unknown
        return self._state[index]

    def parameter(self, instruction: Instruction) -> Number:
        """Return an argument of a fused computation."""
        if instruction.immediate not in self._state:
            raise Unknown
        return self._state[instruction.immediate]

    def fused(self, instruction: Instruction) -> Number:
        """Compute a fusion of scalars."""
        called = self._module[instruction.attributes["calls"]]
        arguments = self.ids
        for number, operand in enumerate(instruction.operands):
            try:
                arguments[number] = self.value(operand)
            except CANNOT:
                continue
        return Scalars(self._module, called, arguments, self._depth).value(called.root_name)

    def device(self, instruction: Instruction) -> Number:
        """Return the number of the device that the opcode asks for."""
        if instruction.opcode not in self._state:
            raise Unknown
        return self._state[instruction.opcode]

    def looked_up(self, instruction: Instruction) -> Number:
        """Return an element of a table: devices find their places along the axes of a mesh in such."""
        numbers = table_of(self._computation, self._computation[instruction.operands[0]])
        if len(instruction.operands) != 2 or numbers is None:
            raise Unknown
        # Beyond its ends a slice begins as far in as it has to (XLA, DynamicSlice).
        return numbers[min(max(0, int(self.value(instruction.operands[1]))), len(numbers) - 1)]

    def compared(self, instruction: Instruction) -> Number:
        """Compare two scalars."""
        left, right = (self.value(operand) for operand in instruction.operands)
        return bool(_COMPARISONS[str(instruction.attributes["direction"])](left, right))


def _in_type(value: Number, type_name: str) -> Number:
    """Return a value as its type holds it: integers wrap, f32 rounds."""
    if type_name == "pred":
        return bool(value)
    if type_name == "f32" and isfinite(value):
        return float(struct.unpack("f", struct.pack("f", value))[0])
    if type_name[0] not in "su":
        return value
    modulus = 1 << int(type_name[1:])
    wrapped = int(value) % modulus
    return wrapped - modulus if type_name[0] == "s" and 2 * wrapped >= modulus else wrapped


def _distance(by: Number) -> int:
    """Return by how many bits to shift; beyond any type's width it takes the type to say what comes out."""
    if not isinstance(by, int) or not 0 <= by < _NARROWEST_BITS:
        raise Unknown
    return by


def _refuse() -> Number:
    """Refuse what depends on the width of a type."""
    raise Unknown


def _quotient(left: Number, right: Number) -> Number:
    """Divide as the operands' type does: integers towards zero."""
    if not (isinstance(left, int) and isinstance(right, int)):
        return left / right
    # Through floats large integers would lose their last digits.
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: Number, right: Number) -> Number:
    """Return what a division leaves, with the sign of the dividend."""
    if isinstance(left, int) and isinstance(right, int):
        return left - int(_quotient(left, right)) * right
    return fmod(left, right)


_COMPARISONS: dict[str, Callable[[Number, Number], object]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}

_OPERATIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "add": operator.add,
    "and": operator.and_,
    "bitcast": lambda value: value,
    "broadcast": lambda value: value,
    "clamp": lambda least, value, most: min(max(least, value), most),
    "convert": lambda value: value,
    "copy": lambda value: value,
    "divide": _quotient,
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "negate": operator.neg,
    "not": lambda value: not value if isinstance(value, bool) else ~value,
    "or": operator.or_,
    "remainder": _remainder,
    "reshape": lambda value: value,
    "select": lambda choice, yes, no: yes if choice else no,
    "shift-left": lambda value, by: value << _distance(by),
    "shift-right-arithmetic": lambda value, by: value >> _distance(by),
    "shift-right-logical": lambda value, by: abs(value) >> _distance(by) if value >= 0 else _refuse(),
    "subtract": operator.sub,
    "xor": operator.xor,
}

_SPECIAL: dict[str, Callable[[Scalars, Instruction], Number]] = {
    "compare": Scalars.compared,
    "constant": Scalars.constant,
    "dynamic-slice": Scalars.looked_up,
    "fusion": Scalars.fused,
    "get-tuple-element": Scalars.element,
    "parameter": Scalars.parameter,
    "partition-id": Scalars.device,
    "replica-id": Scalars.device,
}
