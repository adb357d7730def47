"""Shapes that the text may leave out, because the operands imply them: XLA's parser, too, asks its shape inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import SHAPE_IMPLIED
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import Site
from tpusim.shapes.shape import Shape


class _Surroundings(NamedTuple):
    """The computations that have been read; what the first line says matters to no shape that may be left out."""

    by_name: Mapping[str, Computation]
    attributes: Mapping[str, Any]


def infer_shape(instruction: Instruction, operands: Sequence[Shape], computations: Mapping[str, Computation]) -> Shape:
    """Return the shape that operands and attributes imply; raise ProgramError if they break a constraint."""
    return find_rule(instruction.opcode)(Site(instruction, operands, _Surroundings(computations, {})))


def can_infer(opcode: str) -> bool:
    """Return whether a shape may be left out for this opcode."""
    return opcode in SHAPE_IMPLIED
