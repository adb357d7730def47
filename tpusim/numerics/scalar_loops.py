"""Loops over scalars alone, in compiled code: a counter that goes to ten million, a recurrence, a root to be found.

Condition and body become rows on registers; a loop with anything in it that has no row is left to the rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.compiled import njit
from tpusim.ir.module import Instruction
from tpusim.numerics.registry import Array, array_shape
from tpusim.numerics.site import Site
from tpusim.numerics.values.registers import (
    FLOATS,
    INTEGERS,
    OTHERS,
    NoRowError,
    Register,
    Registers,
    carry_out,
    flat,
    in_type,
)
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import Shape, TupleShape


class ScalarLoop:
    """A loop whose state is scalars, ready to run; arrays in it are only handed on from trip to trip."""

    def __init__(self, site: Site, loop: Instruction) -> None:
        """Raise ``NoRowError`` if it is not such a loop."""
        self._registers, self._shape = Registers(site), loop.shape
        self._state = self._registers.of(loop.shape)
        self._condition, verdict = self._registers.add(site.module[loop.attributes["condition"]], [self._state])
        self._body, result = self._registers.add(site.module[loop.attributes["body"]], [self._state])
        pairs = list(zip(flat(self._state), flat(result), strict=True))
        if any(one != other for one, other in pairs if one.file == OTHERS) or not isinstance(verdict, Register):
            raise NoRowError
        self._verdict = verdict.number
        self._moves = [
            np.array([(one.number, other.number) for one, other in pairs if one.file == file], np.int64).reshape(-1, 2)
            for file in (INTEGERS, FLOATS)
        ]

    def run(self, state: Any, most_trips: int) -> tuple[Any, int]:
        """Return the state when the condition no longer holds, or after so many trips, and the number of trips."""
        files = self._registers.files()
        values = dict(zip(flat(self._state), flat(state), strict=True))
        for register, value in values.items():
            if register.file != OTHERS:
                files[register.file][register.number] = value
        trips = _run(self._condition, self._body, self._verdict, *self._moves, *files, most_trips)
        values |= {one: files[one.file][one.number] for one in values if one.file != OTHERS}
        return _gathered(self._state, self._shape, values), trips


def _gathered(registers: Any, shape: Shape, values: dict[Register, Any]) -> Any:
    """Return the values of registers, in tuples as they are, each in the element type of its shape."""
    if isinstance(shape, TupleShape):
        return tuple(_gathered(*part, values) for part in zip(registers, shape.elements, strict=True))
    value = values[registers]
    return value if registers.file == OTHERS else in_type(np.asarray(value), numpy_dtype(array_shape(shape).dtype))


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
        carry_out(condition, integers, floats)
        if not integers[verdict]:
            return trip
        carry_out(body, integers, floats)
        # All at once: a state's elements may change places.
        new_integers, new_floats = integers[integer_moves[:, 1]], floats[float_moves[:, 1]]
        integers[integer_moves[:, 0]] = new_integers
        floats[float_moves[:, 0]] = new_floats
    return most_trips
