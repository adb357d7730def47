"""Values of the custom calls in which the TPU compiler decomposes matrices: blocks of Cholesky, QR, LU and eigenvalues.

A TPU has no complex registers: a complex matrix comes as its real and its imaginary array, two operands in a row, and
leaves the same way. Calls before that split have one complex operand.

Source: XLA's expanders of Cholesky, QR, triangular solve and Eigh, for what their blocks compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.numerics.custom_calls.table import target
from tpusim.numerics.ops.linear_algebra import (
    adjoint,
    block_reflector,
    cholesky_factor,
    complex_of,
    eigen_decomposition,
    householder_product,
    invert_triangle,
    lu_factor,
    qr_factor,
    solvable,
)
from tpusim.numerics.registry import Array
from tpusim.numerics.site import Site
from tpusim.numerics.values.relayout import numpy_dtype
from tpusim.shapes.shape import TupleShape, leaves, shape_text


@target("Cholesky")
def _cholesky(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the lower factor of a matrix whose lower triangle is read."""
    # The compiler calls this on the diagonal blocks of a factorisation that it does itself.
    return _results(instruction, cholesky_factor(*_matrices(instruction, operands)))


@target("InvertDiagBlocksLowerTriangular")
def _invert_lower(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the inverses of lower triangular blocks."""
    # With these inverses the compiler turns a triangular solve into products.
    return _results(instruction, invert_triangle(*_matrices(instruction, operands), is_lower=True))


@target("InvertDiagBlocksUpperTriangular")
def _invert_upper(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the inverses of upper triangular blocks."""
    return _results(instruction, invert_triangle(*_matrices(instruction, operands), is_lower=False))


@target("Qr", "QrDecompositionBlock")
def _qr(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return R over the Householder vectors, and the vectors' factors."""
    # Q stays in factored form; another call multiplies it out where it is wanted.
    return _results(instruction, *qr_factor(*_matrices(instruction, operands)))


@target("CompactWyHelper")
def _block_reflector(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the triangle T that makes one product ``I + Y T Y*`` of reflections, from their products (see there)."""
    return _results(instruction, block_reflector(*_matrices(instruction, operands)))


@target("ProductOfElementaryHouseholderReflectors")
def _householder_product(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the orthogonal matrix whose Householder vectors and factors are given."""
    return _results(instruction, householder_product(*_matrices(instruction, operands, 2)))


@target("LuComplexDecompositionBlock", "LuDecomposition", "LuDecompositionBlock", "LuRealDecompositionBlock")
def _lu(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return L under U, the row exchanges, and the permutation of the rows that they amount to."""
    return _results(instruction, *lu_factor(*_matrices(instruction, operands)))


@target("Eigh")
def _eigh(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the eigenvectors, as columns, and the eigenvalues of Hermitian matrices, ascending; signs are free."""
    (matrices,) = _matrices(instruction, operands)
    # NumPy reads one triangle; the mean makes it not matter which one was meant.
    values, vectors = np.linalg.eigh((matrices + adjoint(matrices)) / 2)
    return _results(instruction, vectors, values)


@target("EighTpu")
def _eigh_quadrants(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return eigenvalues in two halves and the adjoint of the eigenvectors in four quadrants, row by row.

    The operands are the quadrants of a Hermitian matrix. Order and signs are free; who calls it sorts.
    """
    quadrants = _matrices(instruction, operands, 4)
    values, vectors = eigen_decomposition(np.block([quadrants[:2], quadrants[2:]]))
    half = values.shape[-1] // 2
    rows = adjoint(vectors)
    halves = (rows[..., :half, :], rows[..., half:, :])
    parts = [part for row in halves for part in (row[..., :half], row[..., half:])]
    return _results(instruction, values[..., :half], values[..., half:], *parts)


def _matrices(instruction: Instruction, operands: list[Any], count: int = 1) -> list[Array]:
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
    parts = [part for value in values for part in _parts(value, is_split=not shapes[0].dtype.is_complex)]
    # Some programs leave out LU's permutation, which follows from the exchanges.
    if len(parts) < len(shapes) or any(p.shape != s.dimensions for p, s in zip(parts, shapes, strict=False)):
        found = ", ".join(f"{part.dtype}{list(part.shape)}" for part in parts)
        name, stated = instruction.attributes["custom_call_target"], shape_text(instruction.shape, layout=False)
        raise ProgramError(f"{instruction.name}: expected the shape of what {name!r} gives, {found}, found {stated}")
    cast = [part.astype(numpy_dtype(s.dtype), copy=False) for part, s in zip(parts, shapes, strict=False)]
    return tuple(cast) if isinstance(instruction.shape, TupleShape) else cast[0]


def _parts(value: Array, *, is_split: bool) -> tuple[Array, ...]:
    """Return an array, or its real and imaginary parts."""
    return (value.real.copy(), value.imag.copy()) if is_split and value.dtype.kind == "c" else (value,)
