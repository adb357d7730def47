"""Shapes that the text may leave out, because the operands imply them: XLA's parser, too, asks its shape inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import SHAPE_IMPLIED
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.shapes.shape import Shape


class _Surroundings(NamedTuple):
    """The computations that have been read; what the first line says matters to no shape that may be left out."""

    by_name: Mapping[str, Computation]
    attributes: Mapping[str, Any]


def infer_shape(instruction: Instruction, operands: Sequence[Shape], computations: Mapping[str, Computation]) -> Shape:
    """Return the shape of an instruction whose own is ``UNKNOWN``, as operands and attributes imply it.

    Raises:
        ProgramError: They break a constraint, which the message names by its label.
    """
    return find_rule(instruction.opcode)(Site(instruction, operands, _Surroundings(computations, {})))


def can_infer(opcode: str) -> bool:
    """Return whether a shape may be left out for this opcode."""
    return opcode in SHAPE_IMPLIED
