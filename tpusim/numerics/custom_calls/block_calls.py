"""Values of the custom calls in which the TPU compiler decomposes matrices: blocks of Cholesky, QR, LU and eigenvalues.

A TPU has no complex registers: a complex matrix comes as its real and its imaginary array, two operands in a row, and
leaves the same way. Calls before that split have one complex operand.

Source: XLA's expanders of Cholesky, QR, triangular solve and Eigh, for what their blocks compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.numerics.custom_calls.table import target
from tpusim.numerics.ops import linear_algebra
from tpusim.numerics.ops.linear_algebra import adjoint, complex_of, solvable
from tpusim.numerics.registry import Array, Rule
from tpusim.numerics.site import Site
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import TupleShape, leaves, shape_text


def _matrices(instruction: Instruction, operands: list[Any], count: int) -> list[Array]:
    """Return ``count`` operands in a type that can be computed in; twice as many come in real and imaginary parts."""
    if len(operands) == 2 * count:
        pairs = zip(operands[::2], operands[1::2], strict=True)
        return [complex_of(solvable(real), solvable(imaginary)) for real, imaginary in pairs]
    if len(operands) == count:
        return [solvable(operand) for operand in operands]
    raise ProgramError(
        f"{instruction.name}: expected {count} operands of {instruction.attributes['custom_call_target']!r}, or"
        f" {2 * count} in real and imaginary parts, found {len(operands)}"
    )


def _results(instruction: Instruction, *values: Any) -> Any:
    """Return values as the instruction's shape has them: its element types, complex ones split if its own are not."""
    shapes = list(leaves(instruction.shape))
    is_split = not shapes[0].dtype.is_complex
    pairs = [(v.real.copy(), v.imag.copy()) if is_split and v.dtype.kind == "c" else (v,) for v in values]
    parts = [part for pair in pairs for part in pair]
    # Some programs leave out LU's permutation, which follows from the exchanges.
    if len(parts) < len(shapes) or any(p.shape != s.dimensions for p, s in zip(parts, shapes, strict=False)):
        found = ", ".join(f"{part.dtype}{list(part.shape)}" for part in parts)
        name, stated = instruction.attributes["custom_call_target"], shape_text(instruction.shape, layout=False)
        raise ProgramError(f"{instruction.name}: expected the shape of what {name!r} gives, {found}, found {stated}")
    cast = [part.astype(numpy_dtype(s.dtype), copy=False) for part, s in zip(parts, shapes, strict=False)]
    return tuple(cast) if isinstance(instruction.shape, TupleShape) else cast[0]


def _eigh(matrices: Array) -> tuple[Array, Array]:
    """Return the eigenvectors, as columns, and the eigenvalues of Hermitian matrices, ascending; signs are free."""
    # NumPy reads one triangle; the mean makes it not matter which one was meant.
    values, vectors = np.linalg.eigh((matrices + adjoint(matrices)) / 2)
    return vectors, values


def _eigh_quadrants(*quadrants: Array) -> tuple[Array, ...]:
    """Return a Hermitian matrix's eigenvalues in halves and its eigenvectors' adjoint in quadrants, row by row."""
    # Order and signs are free; the caller sorts.
    values, vectors = linear_algebra.eigen_decomposition(np.block([list(quadrants[:2]), list(quadrants[2:])]))
    half = values.shape[-1] // 2
    rows = adjoint(vectors)
    parts = [part for row in (rows[..., :half, :], rows[..., half:, :]) for part in (row[..., :half], row[..., half:])]
    return (values[..., :half], values[..., half:], *parts)


def _rule_of(function: Callable[..., Any], count: int = 1) -> Rule:
    """Return the rule of calls whose results ``function`` computes from ``count`` matrices."""

    def rule(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
        values = function(*_matrices(instruction, operands, count))
        return _results(instruction, *(values if isinstance(values, tuple) else (values,)))

    return rule


# The compiler calls this on the diagonal blocks of a factorisation that it does itself.
target("Cholesky")(_rule_of(linear_algebra.cholesky_factor))
# With these inverses the compiler turns a triangular solve into products.
target("InvertDiagBlocksLowerTriangular")(_rule_of(partial(linear_algebra.invert_triangle, is_lower=True)))
target("InvertDiagBlocksUpperTriangular")(_rule_of(partial(linear_algebra.invert_triangle, is_lower=False)))
# Q stays in factored form; another call multiplies it out where it is wanted.
target("Qr", "QrDecompositionBlock")(_rule_of(linear_algebra.qr_factor))
target("CompactWyHelper")(_rule_of(linear_algebra.block_reflector))
target("ProductOfElementaryHouseholderReflectors")(_rule_of(linear_algebra.householder_product, 2))
_LU = ("LuComplexDecompositionBlock", "LuDecomposition", "LuDecompositionBlock", "LuRealDecompositionBlock")
target(*_LU)(_rule_of(linear_algebra.lu_factor))
target("Eigh")(_rule_of(_eigh))
target("EighTpu")(_rule_of(_eigh_quadrants, 4))
