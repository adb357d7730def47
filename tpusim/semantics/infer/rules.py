"""The shape that an instruction's result has, from its operands' shapes and its attributes.

One rule per opcode, in the files of this room by family; what a rule demands has a label that ``LABELS`` explains and
that stands in the error. Layouts are not inferred: a result has the operand's where it is the same array, else none.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.errors import ProgramError, did_you_mean
from tpusim.ir.module import Instruction
from tpusim.ir.ops import OPERATIONS, find_operation
from tpusim.semantics.infer import (
    collective,
    contraction,
    control,
    convolution,
    data,
    elementwise,
    indexing,
    numeric,
    reduction,
)
from tpusim.semantics.infer.async_ops import infer_short_form
from tpusim.semantics.infer.labels import LABELS
from tpusim.semantics.infer.site import RULES, UNKNOWN, Rule, Site, Surroundings, broken
from tpusim.shapes.shape import Shape

__all__ = ["FAMILIES", "LABELS", "RULES", "UNKNOWN", "check_form", "find_rule", "infer_shape"]

FAMILIES = (collective, contraction, control, convolution, data, elementwise, indexing, numeric, reduction)
"""The files that fill ``RULES`` by being imported, beside ``infer_async``."""


# The form is checked before the rule, since rules index operands and required attributes without asking.
def infer_shape(module: Surroundings, instruction: Instruction, operands: Sequence[Shape]) -> Shape:
    """Return the shape of an instruction's result.

    ``operands`` are the shapes of its operands. ``module`` holds the computations that it calls and the counts of
    replicas and partitions. An instruction whose shape is not known yet has the shape ``UNKNOWN``; where operands and
    attributes do not imply a result (a ``reshape``, a ``convert``, an ``infeed``), its own shape says what is wanted,
    and the rule checks it.

    Raises:
        ProgramError: The operands or attributes break a constraint, which the message names by its label.
    """
    check_form(instruction)
    try:
        return find_rule(instruction.opcode)(Site(instruction, operands, module))
    except ProgramError as error:
        raise ProgramError(f"{instruction.opcode!r} {instruction.name!r}: {error.message}", error.span) from None


def find_rule(opcode: str) -> Rule:
    """Return the rule of an opcode, the short forms of asynchronous operations included."""
    # Every opcode X may have an X-start, so that the short forms have no rows of their own.
    rule = RULES.get(opcode) or infer_short_form(opcode)
    assert rule is not None
    return rule


def check_form(instruction: Instruction) -> None:
    """Require a known opcode, as many operands as it takes, and its attributes.

    Raises:
        ProgramError: One of them is not so.
    """
    operation = find_operation(instruction.opcode)
    if operation is None:
        raise broken("instruction_c1", f"{instruction.opcode!r}{did_you_mean(instruction.opcode, OPERATIONS)}")
    if not operation.accepts_count(len(instruction.operands)):
        raise broken("instruction_c2", f"{len(instruction.operands)} for {instruction.opcode!r} {instruction.name!r}")
    missing = operation.required - instruction.attributes.keys()
    if missing:
        raise broken("instruction_c3", f"no {min(missing)!r} on {instruction.opcode!r} {instruction.name!r}")
    foreign = [name for name in instruction.attributes if not operation.allows(name)]
    if foreign:
        raise broken("instruction_c4", f"{foreign[0]!r} on {instruction.opcode!r} {instruction.name!r}")
