"""Shapes that the text may leave out, because the operands imply them: which, and how to ask for them.

What they are, the rules of ``ir.infer`` say; XLA's parser, too, asks its shape inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import SHAPE_IMPLIED
from tpusim.semantics.infer.rules import UNKNOWN, find_rule
from tpusim.semantics.infer.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.shapes.shape import Shape


class _Surroundings(NamedTuple):
    """The computations that have been read; what the first line says matters to no shape that may be left out."""

    by_name: Mapping[str, Computation]
    attributes: Mapping[str, Any]


def infer_shape(
    opcode: str, operands: Sequence[Shape], attributes: dict[str, Any], computations: Mapping[str, Computation]
) -> Shape:
    """Return the shape that operands and attributes imply.

    Raises:
        ProgramError: They break a constraint, which the message names by its label.
    """
    instruction = Instruction("", UNKNOWN, opcode, ("",) * len(operands), attributes)
    return find_rule(opcode)(Site(instruction, operands, _Surroundings(computations, {})))


def can_infer(opcode: str) -> bool:
    """Whether a shape may be left out for this opcode."""
    return opcode in SHAPE_IMPLIED
