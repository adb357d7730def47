"""What the trips of a loop hand each other."""

from __future__ import annotations

from tpusim.advice.trials import Case
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COPIES, VIEWS
from tpusim.program.steps import Loop
from tpusim.semantics.aliasing import in_place_operands


def body_of(case: Case, loop: Loop) -> Computation | None:
    """Return the computation of a loop's body."""
    instruction = case.instruction(loop)
    if instruction is None or case.module is None or "body" not in instruction.attributes:
        return None
    return case.module[instruction.attributes["body"]]


def handed_as_is(body: Computation) -> set[int]:
    """Return the elements of a loop's state that trips hand on as they are."""
    handed = enumerate(body.operands_of(body.root)) if body.root.opcode == "tuple" else ()
    return {number for number, made in handed if element_of(body, made) == number}


def element_of(body: Computation, value: Instruction) -> int | None:
    """Return which element of the loop's state a value is, or a copy of; None for what a trip makes."""
    while value.opcode in COPIES | VIEWS:
        value = body[value.operands[0]]
    if value.opcode != "get-tuple-element" or body[value.operands[0]].opcode != "parameter":
        return None
    return int(value.attributes["index"])


def is_updated(module: Module, body: Computation, number: int) -> bool:
    """Return whether a trip makes the next of an element of the state by writing over it, or over a copy of it."""
    if body.root.opcode != "tuple":
        return False
    made, has_written = body[body.root.operands[number]], False
    while (behind := _written_over(module, body, made)) is not None:
        has_written, made = True, behind
    return has_written and element_of(body, made) == number


def _written_over(module: Module, body: Computation, made: Instruction) -> Instruction | None:
    """Return what a value, or what it is a copy of, is written over, None for one that has a place of its own."""
    while made.opcode in COPIES | VIEWS:
        made = body[made.operands[0]]
    update = update_of(module, body, made)
    return None if update is None else update[1]


def update_of(module: Module, body: Computation, made: Instruction) -> tuple[Instruction, Instruction] | None:
    """Return what makes a value in place, behind its tuple, and what that writes over; None if nothing does."""
    leaf = 0
    if made.opcode == "get-tuple-element":
        leaf, made = int(made.attributes["index"]), body[made.operands[0]]
    operand = in_place_operands(module, made).get(leaf)
    return None if operand is None else (made, body[made.operands[operand]])
