"""Which results are written over an operand: what the compiler states, and what an update in place implies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.lowering.traffic import IN_PLACE, VIEWS
from tpusim.shapes.shape import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpusim.ir.module import Computation, Instruction, Module


def shared_operands(module: Module, computation: Computation, instruction: Instruction) -> dict[int, tuple[int, int]]:
    """Return, by leaf of the result, the operand and the leaf of it that the result is written over."""
    return dict(_shared(module, computation, instruction))


def _shared(
    module: Module, computation: Computation, instruction: Instruction
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield what shares memory, the surest last."""
    for leaf, operand in in_place_operands(module, instruction).items():
        yield leaf, (operand, 0)
    lists = instruction.backend_config.aliasing_operands
    if not lists:
        return
    # The compiler numbers the arrays of all operands, then those of the result.
    places = [
        (number, leaf)
        for number, name in enumerate(instruction.operands)
        for leaf, _ in enumerate(leaves(computation[name].shape))
    ]
    results = range(len(places), len(places) + len(tuple(leaves(instruction.shape))))
    for numbers in lists:
        over = next((places[number] for number in numbers if 0 <= number < len(places)), None)
        for number in numbers:
            if over is not None and number in results:
                yield number - len(places), over


def in_place_operands(module: Module, instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) are updates in place, and of which operands."""
    if instruction.opcode in IN_PLACE:
        return {0: 0}
    if instruction.opcode != "fusion":
        return {}
    called = module[instruction.attributes["calls"]]
    # Only a root can be written over an operand: a value inside a fusion has no buffer.
    roots = called.operands_of(called.root) if called.root.opcode == "tuple" else (called.root,)
    targets = ((index, _updated_parameter(module, called, root)) for index, root in enumerate(roots))
    return {index: target for index, target in targets if target is not None}


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
    while value.opcode in VIEWS:
        value = computation[value.operands[0]]
    return value.immediate if value.opcode == "parameter" and isinstance(value.immediate, int) else None
