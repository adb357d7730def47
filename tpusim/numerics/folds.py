"""Computations of scalars applied to one element after the other in compiled code, each to what the one before gave.

What may not take neighbours first (``a + b * b``) has as many turns as there are elements, and a call of NumPy's for
every operation of each would take a minute for some millions. The values are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.ir.module import Computation
from tpusim.numerics.ops.convert import Type, to_float32
from tpusim.numerics.registry import Array, array_shape
from tpusim.numerics.site import COMPILED, PATIENCE, Site
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
from tpusim.shapes.shape import Shape, leaves

Places = tuple[Array, Array]

_BLOCK = 1 << 16
"""Turns whose elements are widened at once."""


class _Side(NamedTuple):
    """What turns take and give in one file of registers.

    ``state``, ``elements`` and ``given`` have a row for each array; the rest are the registers of these, and those of
    the next state.
    """

    state: Array
    elements: Array
    given: Array
    of_state: Array
    of_elements: Array
    of_given: Array
    of_next: Array


class _Slot(NamedTuple):
    """A scalar that a computation takes or returns: its register, and its type."""

    register: Register
    dtype: Type


class Fold:
    """A computation of scalars, ready for turns.

    It takes ``states`` values of the state, before or behind an element of each array, and returns what it gives of
    each turn, and behind that the next state.
    """

    def __init__(self, site: Site, computation: Computation, states: int, *, is_state_first: bool = True) -> None:
        """Raise ``NoRowError`` if compiled code does not know all of it."""
        self._registers = Registers(site)
        shapes = [parameter.shape for parameter in computation.parameters]
        registers = [self._registers.of(shape) for shape in shapes]
        self._rows, result = self._registers.add(computation, registers)
        taken, returned = _slots(registers, shapes), _slots(flat(result), leaves(computation.root.shape))
        at, ended = states if is_state_first else len(taken) - states, len(returned) - states
        halves = taken[:at], taken[at:]
        self._state, self._elements = halves if is_state_first else halves[::-1]
        self._given, self._next = returned[:ended], returned[ended:]
        if [slot.dtype for slot in self._next] != [slot.dtype for slot in self._state]:
            raise NoRowError

    def fits(self, states: Sequence[Array], elements: Sequence[Array]) -> bool:
        """Return whether arrays have the types of the computation's parameters."""
        slots, arrays = (*self._state, *self._elements), (*states, *elements)
        return [slot.dtype for slot in slots] == [array.dtype for array in arrays]

    def run(
        self, states: Sequence[Array], elements: Sequence[Array], places: Places
    ) -> tuple[list[Array], list[Array]]:
        """Return the states after all turns, and what the turns have given.

        There is a turn for every element, in row-major order: that of ``elements[k][i, j]`` takes and leaves the
        states at ``bases[i] + offsets[j]`` of ``states``, which are rows.
        """
        bases, offsets = places
        files, width = self._registers.files(), max(1, offsets.size)
        states = [_packed(self._state, states, file) for file in (INTEGERS, FLOATS)]
        given: list[list[Array]] = [[], []]
        step = max(1, _BLOCK // width)
        for start in range(0, bases.size, step):
            block = [array[start : start + step].reshape(-1) for array in elements]
            where = np.ravel(bases[start : start + step, None] + offsets)
            sides = [self._side(file, states[file], block, where.size) for file in (INTEGERS, FLOATS)]
            _take_turns(self._rows, where, *files, *sides)
            for file in (INTEGERS, FLOATS):
                given[file].append(sides[file].given)
        ends = [np.concatenate(parts, axis=1) if parts else np.empty((0, 0)) for parts in given]
        return _unpacked(self._next, states), _unpacked(self._given, ends)

    def _side(self, file: int, state: Array, elements: Sequence[Array], count: int) -> _Side:
        rows = [slot for slot in self._given if slot.register.file == file]
        every = (self._state, self._elements, self._given, self._next)
        given = np.empty((len(rows), count), state.dtype)
        return _Side(state, _packed(self._elements, elements, file), given, *(_numbers(slots, file) for slots in every))


def take_turns(
    site: Site,
    name: str,
    states: Sequence[Array],
    elements: Sequence[Array],
    places: Places,
    rounds: int,
    *,
    is_state_first: bool = True,
) -> tuple[list[Array], list[Array]] | None:
    """Return what ``Fold.run`` does; None where the rules are as fast, and where there is no other way.

    ``rounds`` are the calls that the rules need, which take all places of a round at once. Either is counted as work.
    """
    work, turns = site.device.work, places[0].size * places[1].size
    fold = None
    if rounds >= PATIENCE and turns <= rounds * _ABREAST:
        fold = _fold(site, name, states, elements, is_state_first)
    work.apply(name, rounds if fold is None else turns / COMPILED)
    return None if fold is None else fold.run(states, elements, places)


_ABREAST = 60
"""Elements that a call of NumPy's computes in the time that compiled rows take for them."""


def _fold(
    site: Site, name: str, states: Sequence[Array], elements: Sequence[Array], is_state_first: bool
) -> Fold | None:
    try:
        fold = Fold(site, site.module[name], len(states), is_state_first=is_state_first)
    except NoRowError:
        return None
    return fold if fold.fits(states, elements) else None


def _slots(registers: Sequence[Any], shapes: Iterable[Shape]) -> list[_Slot]:
    if any(not isinstance(register, Register) or register.file == OTHERS for register in registers):
        raise NoRowError
    types = [numpy_dtype(array_shape(shape).dtype) for shape in shapes]
    return [_Slot(*each) for each in zip(registers, types, strict=True)]


def _numbers(slots: Sequence[_Slot], file: int) -> Array:
    return np.array([slot.register.number for slot in slots if slot.register.file == file], np.int64)


def _packed(slots: Sequence[_Slot], arrays: Sequence[Array], file: int) -> Array:
    """Return the arrays of a file, of one dimension, as rows of what its registers hold."""
    dtype = np.dtype(np.float64 if file == FLOATS else np.int64)
    chosen = [array for slot, array in zip(slots, arrays, strict=True) if slot.register.file == file]
    rows = np.empty((len(chosen), arrays[0].size if arrays else 0), dtype)
    for row, array in zip(rows, chosen, strict=True):
        row[...] = to_float32(array) if file == FLOATS else array
    return rows


def _unpacked(slots: Sequence[_Slot], files: Sequence[Array]) -> list[Array]:
    """Return the rows of both files, in the order of what they are, in the types of these."""
    rows = [iter(file) for file in files]
    return [in_type(next(rows[slot.register.file]), slot.dtype) for slot in slots]


# Written out for both files: a row of arrays of different types is none that Numba could walk.
@njit(cache=True, error_model="numpy")
def _take_turns(
    rows: Array, places: Array, integers: Array, floats: Array, of_integers: _Side, of_floats: _Side
) -> None:
    """Carry out the rows once for every place, one after the other."""
    for turn in range(places.size):
        _take(integers, of_integers, places[turn], turn)
        _take(floats, of_floats, places[turn], turn)
        carry_out(rows, integers, floats)
        _give(integers, of_integers, places[turn], turn)
        _give(floats, of_floats, places[turn], turn)


@njit(cache=True)
def _take(registers: Array, side: _Side, place: int, turn: int) -> None:
    for k in range(side.of_state.size):
        registers[side.of_state[k]] = side.state[k, place]
    for k in range(side.of_elements.size):
        registers[side.of_elements[k]] = side.elements[k, turn]


@njit(cache=True)
def _give(registers: Array, side: _Side, place: int, turn: int) -> None:
    for k in range(side.of_next.size):
        side.state[k, place] = registers[side.of_next[k]]
    for k in range(side.of_given.size):
        side.given[k, turn] = registers[side.of_given[k]]
