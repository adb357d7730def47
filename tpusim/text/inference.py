"""Shapes that the text may leave out, because the operands imply them: XLA's parser, too, asks its shape inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import OPERATIONS, Category
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import Site
from tpusim.shapes.shape import Shape

# What a convert or a bitcast-convert makes is only said by its shape; of the others XLA never asked.
_STATED = frozenset({"bitcast-convert", "convert", "reduce-precision", "stochastic-convert"})
_INFERRED = frozenset(
    "add-dependency after-all batch-norm-grad batch-norm-inference batch-norm-training call cholesky concatenate"
    " conditional convolution copy domain dot fft gather get-dimension-size get-tuple-element pad partition-id"
    " ragged-dot reduce reduce-window replica-id reverse scan scatter select-and-scatter set-dimension-size sort topk"
    " transpose triangular-solve tuple while".split()
)


class _Surroundings(NamedTuple):
    """The computations that have been read; what the first line says matters to no shape that may be left out."""

    by_name: Mapping[str, Computation]
    attributes: Mapping[str, Any]


def infer_shape(instruction: Instruction, operands: Sequence[Shape], computations: Mapping[str, Computation]) -> Shape:
    """Return the shape that operands and attributes imply; raise ProgramError if they break a constraint."""
    return find_rule(instruction.opcode)(Site(instruction, operands, _Surroundings(computations, {})))


def can_infer(opcode: str) -> bool:
    """Return whether a shape may be left out for this opcode."""
    operation = OPERATIONS.get(opcode)
    if operation is not None and operation.category is Category.ELEMENTWISE:
        return opcode not in _STATED
    return opcode in _INFERRED


assert OPERATIONS.keys() >= _INFERRED | _STATED
