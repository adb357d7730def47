"""Decompositions and solves of matrices, by what they do: steps of which each needs all of the one before.

Operations asked for are those of the text books: G. Golub and C. Van Loan, Matrix Computations, 2013; XLA,
HloCostAnalysis, for Cholesky factors and triangular solves.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import msgspec

from tpusim.ir.custom_calls import registered_for
from tpusim.ir.module import Computation, Instruction
from tpusim.shapes.shape import ArrayShape, leaves


class Decomposition(msgspec.Struct, frozen=True):
    """What is done of ``matrices`` that take ``steps`` each: ``passes`` over a ``share`` of an ``array`` in every step.

    The share is what is left on the mean of all steps. ``has_pivots`` tells those whose next step begins with a number
    that this one makes, such as a norm; triangles have theirs from the start. ``flops`` are of
    all matrices, as if they were real.
    """

    array: ArrayShape
    matrices: int
    steps: int
    share: float
    passes: int
    flops: float
    has_pivots: bool = False


def decomposition_of(computation: Computation, instruction: Instruction) -> Decomposition | None:
    """Return what an instruction does step after step; None of one that is no decomposition, and no solve.

    A target that a user has registered means what the user says.
    """
    if instruction.opcode != "custom-call":
        found = _OPERATIONS.get(instruction.opcode)
    else:
        found = _TARGETS.get(_target(instruction)) if registered_for(instruction) is None else None
    return found(computation, instruction) if found else None


def _target(instruction: Instruction) -> str:
    return str(instruction.attributes.get("custom_call_target", ""))


def _given(computation: Computation, instruction: Instruction) -> tuple[ArrayShape, int, int, int]:
    """Return the first operand, how many matrices it holds, and their rows and columns."""
    shape = leaves(computation[instruction.operands[0]].shape)[0]
    *batch, rows, columns = shape.dimensions
    return shape, prod(batch), rows, columns


def _factor(computation: Computation, instruction: Instruction) -> Decomposition:
    """Cholesky's: of what is left of the matrix the lower triangle counts."""
    array, matrices, rows, _ = _given(computation, instruction)
    return Decomposition(array, matrices, rows, 0.5, 1, matrices * rows**3 / 3, has_pivots=True)


def _inverse(computation: Computation, instruction: Instruction) -> Decomposition:
    """That of a triangle, or what is solved with one in the same way."""
    array, matrices, rows, _ = _given(computation, instruction)
    return Decomposition(array, matrices, rows, 0.5, 1, matrices * rows**3 / 3)


def _solve(computation: Computation, instruction: Instruction) -> Decomposition:
    """What is solved for is as large as the right side."""
    _, matrices, rows, _ = _given(computation, instruction)
    result = leaves(instruction.shape)[0]
    return Decomposition(result, matrices, rows, 0.5, 1, float(result.element_count) * rows)


def _reduced(computation: Computation, instruction: Instruction) -> Decomposition:
    """LU: each step takes a row and a column off, of which the column's place in the registers stays."""
    array, matrices, rows, columns = _given(computation, instruction)
    steps = min(rows, columns)
    # The sum of (rows - k) (columns - k), each a product and a difference.
    updated = steps * rows * columns - steps**2 * (rows + columns) / 2 + steps**3 / 3
    return Decomposition(array, matrices, steps, 1 - steps / (2 * max(1, rows)), 1, 2 * matrices * updated, True)


def _reflected(computation: Computation, instruction: Instruction) -> Decomposition:
    """QR: a reflection goes over what is left twice, for its products with the vector and to update it."""
    once = _reduced(computation, instruction)
    return msgspec.structs.replace(once, passes=2, flops=2 * once.flops)


def _multiplied(computation: Computation, instruction: Instruction) -> Decomposition:
    """Reflections whose vectors are there already."""
    return msgspec.structs.replace(_reflected(computation, instruction), has_pivots=False)


_Rule = Callable[[Computation, Instruction], Decomposition]
_OPERATIONS: dict[str, _Rule] = {"cholesky": _factor, "triangular-solve": _solve}
_INVERSES = ("InvertDiagBlocksLowerTriangular", "InvertDiagBlocksUpperTriangular", "CompactWyHelper")
_LU = ("LuComplexDecompositionBlock", "LuDecomposition", "LuDecompositionBlock", "LuRealDecompositionBlock")
_TARGETS: dict[str, _Rule] = {
    **dict.fromkeys(("Cholesky", "Eigh", "EighTpu"), _factor),
    **dict.fromkeys(_INVERSES, _inverse),
    **dict.fromkeys(_LU, _reduced),
    **dict.fromkeys(("Qr", "QrDecompositionBlock"), _reflected),
    "ProductOfElementaryHouseholderReflectors": _multiplied,
}

DECOMPOSING = tuple(_TARGETS)
"""Targets of custom calls."""
