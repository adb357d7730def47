"""Which results lie where operands do: what the compiler states, and what updates in place and joins imply."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import TypeAlias

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import IN_PLACE, VIEWS
from tpusim.nesting import walk_nested
from tpusim.shapes.shape import leaves

_Walk: TypeAlias = Generator[str, dict[int, int], dict[int, int]]
"""A walk of a fused computation, which yields the names of those in it, and is sent their updates."""


def joins_operands(instruction: Instruction) -> bool:
    """Return whether an instruction only joins its operands: its result lies where they do, side by side."""
    # The compiler brings a large array in as slices, so that each can begin as soon as there is room for it.
    return instruction.attributes.get("custom_call_target") == "ConcatBitcast"


def behind_views(computation: Computation, value: Instruction) -> Instruction:
    """Return the instruction whose value ``value`` is a view of."""
    while value.opcode in VIEWS:
        value = computation[value.operands[0]]
    return value


def stated_operands(computation: Computation, instruction: Instruction) -> dict[int, tuple[int, int]]:
    """Return which results (by leaf) the compiler has put over which operands, and over which leaf of them."""
    lists = instruction.backend_config.aliasing_operands
    if not lists:
        return {}
    # The compiler numbers the arrays of all operands, then those of the result.
    counts = [len(leaves(operand.shape)) for operand in computation.operands_of(instruction)]
    places = [(number, leaf) for number, count in enumerate(counts) for leaf in range(count)]
    found = {}
    for numbers in lists:
        over = next((places[number] for number in numbers if 0 <= number < len(places)), None)
        if over is not None:
            found.update({number - len(places): over for number in numbers if number >= len(places)})
    return found


def in_place_operands(module: Module, instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) must lie where an operand does: updates in place, and what the text states."""
    if instruction.opcode in IN_PLACE:
        return {0: 0}
    found = _stated(instruction)
    if instruction.opcode != "fusion":
        return found
    called = instruction.attributes["calls"]
    # Hardly any fusion has what updates in place: what its opcodes are is known before its roots are followed.
    return found | walk_nested(partial(_updates, module), called) if module[called].opcodes & _MAY_UPDATE else found


def _updates(module: Module, name: str) -> _Walk:
    """Walk a fused computation, and return which parameter each of its results (by leaf) is an update of."""
    known, called = module.updates, module[name]
    # A fusion that many hold, or that is asked for at every level around it, is walked once.
    if name not in known:
        # Only a root can be written over an operand: a value inside a fusion has no buffer.
        roots = called.operands_of(called.root) if called.root.opcode == "tuple" else (called.root,)
        found = {}
        for index, root in enumerate(roots if called.opcodes & _MAY_UPDATE else ()):
            value = behind_views(called, root)
            operand = 0 if value.opcode in IN_PLACE else None
            if value.opcode == "fusion":
                operand = (_stated(value) | (yield value.attributes["calls"])).get(0)
            target = None if operand is None else _parameter_behind(called, value.operands[operand])
            if target is not None:
                found[index] = target
        known[name] = found
    return known[name]


_MAY_UPDATE = IN_PLACE | {"fusion"}


def _stated(instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) the text states to lie where an operand does."""
    if "output_to_operand_aliasing" not in instruction.attributes:
        return {}
    return {index: operand for index, operand in _attribute(instruction) if index is not None}


def _attribute(instruction: Instruction) -> Iterator[tuple[int | None, int]]:
    """Yield the aliases that ``output_to_operand_aliasing`` states of whole operands, by leaf of the result."""
    for alias in instruction.attributes.get("output_to_operand_aliasing", ()):
        if not alias.operand_index and alias.operand < len(instruction.operands):
            # Aliases inside nested tuples do not occur in practice.
            yield (alias.output_index or (0,))[0] if len(alias.output_index) < 2 else None, alias.operand


def _parameter_behind(computation: Computation, name: str) -> int | None:
    """Return the number of the parameter that a name is a view of, or None."""
    value = computation[name]
    # A fusion inside may be a view of its own: it is written over its operand.
    while value.opcode in VIEWS or (value.opcode == "fusion" and (0, 0) in _attribute(value)):
        value = computation[value.operands[0]]
    return value.immediate if value.opcode == "parameter" and isinstance(value.immediate, int) else None
