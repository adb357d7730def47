"""Which results lie where operands do: what the compiler states, and what updates in place and joins imply."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import IN_PLACE, VIEWS
from tpusim.shapes.shape import leaves


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
    found = {}
    if "output_to_operand_aliasing" in instruction.attributes:
        found = {index: operand for index, operand in _attribute(instruction) if index is not None}
    called = module[instruction.attributes["calls"]] if instruction.opcode == "fusion" else None
    # Hardly any fusion has what updates in place: what its opcodes are is known before its roots are followed.
    if called and called.opcodes & _MAY_UPDATE:
        # Only a root can be written over an operand: a value inside a fusion has no buffer.
        roots = called.operands_of(called.root) if called.root.opcode == "tuple" else (called.root,)
        targets = ((index, _updated_parameter(module, called, root)) for index, root in enumerate(roots))
        found |= {index: target for index, target in targets if target is not None}
    return found


_MAY_UPDATE = IN_PLACE | {"fusion"}


def _attribute(instruction: Instruction) -> Iterator[tuple[int | None, int]]:
    """Yield the aliases that ``output_to_operand_aliasing`` states of whole operands, by leaf of the result."""
    for alias in instruction.attributes.get("output_to_operand_aliasing", ()):
        if not alias.operand_index and alias.operand < len(instruction.operands):
            # Aliases inside nested tuples do not occur in practice.
            yield (alias.output_index or (0,))[0] if len(alias.output_index) < 2 else None, alias.operand


def _updated_parameter(module: Module, computation: Computation, value: Instruction) -> int | None:
    """Return the number of the parameter that ``value`` updates in place, or None."""
    if value.opcode in VIEWS:
        return _updated_parameter(module, computation, computation[value.operands[0]])
    if value.opcode == "fusion":
        inner = in_place_operands(module, value).get(0)
        return None if inner is None else _parameter_behind(computation, value.operands[inner])
    return _parameter_behind(computation, value.operands[0]) if value.opcode in IN_PLACE else None


def _parameter_behind(computation: Computation, name: str) -> int | None:
    """Return the number of the parameter that a name is a view of, or None."""
    value = computation[name]
    # A fusion inside may be a view of its own: it is written over its operand.
    while value.opcode in VIEWS or (value.opcode == "fusion" and (0, 0) in _attribute(value)):
        value = computation[value.operands[0]]
    return value.immediate if value.opcode == "parameter" and isinstance(value.immediate, int) else None
