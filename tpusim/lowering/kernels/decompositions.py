"""Decompositions and solves of matrices, by what they do: steps of which each needs all of the one before.

Operations asked for are those of the text books: G. Golub and C. Van Loan, Matrix Computations, 2013; XLA,
HloCostAnalysis, for Cholesky factors and triangular solves. Jacobi's method is XLA's: eigh_expander.cc, after R. Brent
and F. Luk, The Solution of Singular-Value and Symmetric Eigenvalue Problems on Multiprocessor Arrays, SIAM 1985.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import msgspec

from tpusim.ir.custom_calls import registered_for
from tpusim.ir.module import Computation, Instruction
from tpusim.shapes.shape import ArrayShape, leaves

SWEEPS: Final = 9
"""Sweeps of Jacobi's method to 1e-6, the tolerance that JAX asks for.

Confidence: estimated. Run in float32, random symmetric matrices of 16 to 256 rows take 5 to 8, those of given spectra
(even, in steps, over six decades) 5 to 12; the mean of those of 32 and more is 9.
"""


class Decomposition(msgspec.Struct, frozen=True):
    """What is done of ``matrices`` that take ``steps`` each: ``passes`` over a ``share`` of an ``array`` in every step.

    The share is what is left on the mean of all steps. ``has_pivots`` tells those whose next step begins with a number
    that this one makes, such as a norm; triangles have theirs from the start. ``half`` is the rows of a quadrant that
    Jacobi's method rotates, 0 of any other. ``flops`` are of all matrices, as if they were real.
    """

    array: ArrayShape
    matrices: int
    steps: int
    share: float
    passes: int
    flops: float
    has_pivots: bool = False
    half: int = 0


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


def _rotated(computation: Computation, instruction: Instruction) -> Decomposition:
    """Eigenvalues: in n - 1 rounds every two rows meet, n / 2 pairs at once; sweeps of these until all is diagonal.

    A rotation takes two products and a sum for each element: of the matrix rows and columns are rotated, of the
    eigenvectors rows. The matrix comes in quadrants, once the compiler has cut it.
    """
    array, matrices, rows, _ = _given(computation, instruction)
    half = rows if _target(instruction) == "EighTpu" else -(-rows // 2)
    rounds = max(0, 2 * half - 1) * SWEEPS
    flops = 9.0 * matrices * (2 * half) ** 2 * rounds
    return Decomposition(array, matrices, rounds, 1.0, 1, flops, has_pivots=True, half=half)


_Rule = Callable[[Computation, Instruction], Decomposition]
_OPERATIONS: dict[str, _Rule] = {"cholesky": _factor, "triangular-solve": _solve}
_INVERSES = ("InvertDiagBlocksLowerTriangular", "InvertDiagBlocksUpperTriangular", "CompactWyHelper")
_LU = ("LuComplexDecompositionBlock", "LuDecomposition", "LuDecompositionBlock", "LuRealDecompositionBlock")
_TARGETS: dict[str, _Rule] = {
    "Cholesky": _factor,
    **dict.fromkeys(_INVERSES, _inverse),
    **dict.fromkeys(_LU, _reduced),
    **dict.fromkeys(("Qr", "QrDecompositionBlock"), _reflected),
    "ProductOfElementaryHouseholderReflectors": _multiplied,
    **dict.fromkeys(("Eigh", "EighTpu"), _rotated),
}

DECOMPOSING = tuple(_TARGETS)
"""Targets of custom calls."""
