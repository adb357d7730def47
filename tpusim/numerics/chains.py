"""Chains of element-wise operations, computed block by block: what lies between them never leaves the cache.

A chain ends in one instruction; every other of it has all its users within. Its values are those of its instructions
one by one, each rounded to its own type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import finalize

from tpusim.ir.module import Computation, Instruction
from tpusim.numerics.registry import FLOAT_KERNELS, Array, array_shape, element_type
from tpusim.numerics.site import Site
from tpusim.numerics.values.blocks import flushes, in_blocks
from tpusim.numerics.values.strips import Step
from tpusim.shapes.shape import ArrayShape

_MOST_MEMBERS = 24
"""Instructions of a chain: with one strip of each, or a few blocks under way, a level of cache is full."""


class Unit(NamedTuple):
    """Instructions that are computed at once: a chain, or a single one.

    ``operands`` are the names of what they take from outside, ``last_used`` those that are not needed afterwards.
    """

    members: tuple[Instruction, ...]
    operands: tuple[str, ...]
    last_used: tuple[str, ...] = ()


_UNITS: dict[int, tuple[Unit, ...]] = {}


def units_of(computation: Computation) -> tuple[Unit, ...]:
    """Return the instructions of a computation in units, each where the last of its instructions stands."""
    found = _UNITS.get(id(computation))
    if found is None:
        found = _UNITS[id(computation)] = _with_last_uses(computation, _units(computation))
        # An object's number is free once the object has gone.
        finalize(computation, _UNITS.pop, id(computation))
    return found


def _units(computation: Computation) -> list[Unit]:
    ends = _ends(computation)
    members: dict[str, list[Instruction]] = {}
    units = []
    for instruction in computation.instructions:
        end = ends.get(instruction.name, instruction.name)
        chain = members.setdefault(end, [])
        chain.append(instruction)
        if instruction.name == end:
            inside = {member.name for member in chain}
            names = tuple(name for member in chain for name in member.operands if name not in inside)
            # The rule of a single instruction wants them all, one that comes twice too.
            units.append(Unit(tuple(chain), names if len(chain) == 1 else tuple(dict.fromkeys(names))))
    return units


def _ends(computation: Computation) -> dict[str, str]:
    """Return the last instruction of the chain that each element-wise instruction belongs to."""
    ends: dict[str, str] = {}
    sizes: Counter[str] = Counter()
    for instruction in reversed(computation.instructions):
        if not is_chained(computation, instruction):
            continue
        name, users = instruction.name, computation.users.get(instruction.name, [])
        found = {ends.get(user.name) for user, _ in users} if name != computation.root_name else set()
        end = found.pop() if len(found) == 1 else None
        if end is None or sizes[end] >= _MOST_MEMBERS or _sizes(computation[end]) != _sizes(instruction):
            end = name
        ends[name] = end
        sizes[end] += 1
    return ends


def is_chained(computation: Computation, instruction: Instruction) -> bool:
    """Return whether an instruction computes floats of floats, element by element, and all sizes are known."""
    if instruction.opcode not in FLOAT_KERNELS:
        return False
    shapes = [each.shape for each in (instruction, *computation.operands_of(instruction))]
    return all(isinstance(s, ArrayShape) and s.dtype.is_float and not any(s.dynamic) for s in shapes)


def _sizes(instruction: Instruction) -> tuple[int, ...]:
    return array_shape(instruction.shape).dimensions


def _with_last_uses(computation: Computation, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return units with what is not needed after each; the root is needed to the end."""
    last: dict[str, int] = {}
    for position, unit in enumerate(units):
        # With its own name, so that a value without users is dropped at once.
        last.update(dict.fromkeys((unit.members[-1].name, *unit.operands), position))
    last.pop(computation.root_name, None)
    dead: list[list[str]] = [[] for _ in units]
    for name, position in last.items():
        dead[position].append(name)
    return tuple(unit._replace(last_used=tuple(names)) for unit, names in zip(units, dead, strict=True))


def compute_chain(site: Site, unit: Unit, operands: Sequence[Array]) -> Any:
    """Return the value of the last instruction of a chain."""
    places = {name: place for place, name in enumerate(unit.operands)}
    types = dict(zip(unit.operands, (operand.dtype for operand in operands), strict=True))
    steps = []
    for member in unit.members:
        flush = flushes(member.opcode, types[member.operands[0]], site.settings)
        taken = tuple(places[name] for name in member.operands)
        steps.append(Step(FLOAT_KERNELS[member.opcode], taken, element_type(member), flush))
        places[member.name], types[member.name] = len(places), element_type(member)
    return in_blocks(steps, operands)
