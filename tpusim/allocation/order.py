"""The order in which XLA's passes walk a module: operands before their users, computations before their callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.ir.ops import CONTROL_FLOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpusim.ir.module import Computation, Instruction, Module

# The attributes of instructions whose computations are scheduled, in the order of XLA's lists of callees.
_CALLEES = ("to_apply", "body", "condition", "branch_computations", "true_computation", "false_computation")


def module_order(module: Module) -> dict[int, int]:
    """Return, by the ``id`` of each instruction that is scheduled, where it stands."""
    order: dict[int, int] = {}
    for computation in _computations(module, module.entry, set()):
        for instruction in post_order(computation):
            order[id(instruction)] = len(order)
    return order


def _computations(module: Module, computation: Computation, seen: set[str]) -> Iterator[Computation]:
    """Yield what a computation calls, and then itself, each computation once."""
    for instruction in computation.instructions:
        for name in _callees(instruction):
            if name not in seen:
                seen.add(name)
                yield from _computations(module, module[name], seen)
    yield computation


def _callees(instruction: Instruction) -> Iterator[str]:
    """Yield the names of the scheduled computations that an instruction calls."""
    for attribute in _CALLEES if instruction.opcode in CONTROL_FLOW else ():
        named = instruction.attributes.get(attribute, ())
        yield from (named,) if isinstance(named, str) else named


def post_order(computation: Computation) -> Iterator[Instruction]:
    """Yield a computation's instructions with operands before their users, depth first, from each that nobody uses."""
    seen: set[str] = set()
    for end in computation.instructions:
        waiting = [end] if end.name not in computation.users else []
        while waiting:
            instruction = waiting[-1]
            fresh = [name for name in instruction.operands if name not in seen]
            if fresh and instruction.name not in seen:
                # The first operand is to be walked first, so it goes on top.
                waiting += [computation[name] for name in reversed(fresh)]
                continue
            waiting.pop()
            if instruction.name not in seen:
                seen.add(instruction.name)
                yield instruction
