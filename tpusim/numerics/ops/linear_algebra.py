"""Values of Cholesky and LU decompositions, of triangular solves and inverses; leading dimensions are batches.

Narrow types are computed in f32 and rounded once.

Source: XLA, Operation Semantics, Cholesky and TriangularSolve; LAPACK Users' Guide for LU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.ir.module import Instruction
from tpusim.numerics.registry import Array, computes, element_type
from tpusim.numerics.site import Site

_BLOCK = 32
"""Rows that are solved one by one before a matrix product carries them into all the others."""


@computes("cholesky")
def cholesky(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return the factor of a Hermitian positive definite matrix, of which one triangle is read; zeros in the other.

    A matrix that is not positive definite gives NaN everywhere.
    """
    is_lower = instruction.attributes.get("lower", False)
    matrices = solvable(operands[0])
    # The upper factor is the adjoint of the lower one of the adjoint, which reads the upper triangle.
    factor = cholesky_factor(matrices if is_lower else adjoint(matrices))
    return (factor if is_lower else adjoint(factor)).astype(element_type(instruction), copy=False)


@computes("triangular-solve")
def triangular_solve(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return ``x`` with ``op(a) x = b``, or ``x op(a) = b`` if ``left_side`` is false; one triangle of ``a`` is read.

    A zero on the diagonal gives infinities and NaN; with ``unit_diagonal`` it is not read at all.
    """
    attributes = instruction.attributes
    a, b = solvable(operands[0]), solvable(operands[1])
    is_lower = attributes.get("lower", False)
    transposition = attributes.get("transpose_a", "NO_TRANSPOSE")
    if transposition == "ADJOINT":
        # The adjoint is the transpose of the conjugate.
        a = a.conj()
    is_left = attributes.get("left_side", False)
    # Transposing the whole equation exchanges the sides; transposing the matrix, its triangles.
    if (transposition == "NO_TRANSPOSE") != is_left:
        a, is_lower = np.swapaxes(a, -1, -2), not is_lower
    # Everything is now a lower or upper solve from the left.
    right = b if is_left else np.swapaxes(b, -1, -2)
    solved = solve_triangle(a, right, is_lower=is_lower, is_unit=attributes.get("unit_diagonal", False))
    return (solved if is_left else np.swapaxes(solved, -1, -2)).astype(element_type(instruction), copy=False)


def solvable(array: Array) -> Array:
    """Return the array in a type that can be computed in: f32, unless it is wider or complex."""
    return array if array.dtype.char in "fdFD" else array.astype(np.float32)


def complex_of(real: Array, imaginary: Array) -> Array:
    """Return complex numbers of their real and imaginary parts."""
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.result_type(real.dtype, np.complex64))
    # Part by part: a product with the imaginary unit would make NaN of infinities.
    result.real, result.imag = real, imaginary
    return result


def adjoint(matrices: Array) -> Array:
    """Return the conjugate transpose of the two minor dimensions."""
    return np.swapaxes(matrices, -1, -2).conj()


def cholesky_factor(matrices: Array) -> Array:
    """Return the lower factor of matrices of which the lower triangle is read; NaN for those that have none."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        if matrices.ndim == 2:
            return np.full_like(matrices, np.nan)
    # One bad matrix must not spoil its batch.
    flat = matrices.reshape((-1, *matrices.shape[-2:]))
    return np.stack([cholesky_factor(matrix) for matrix in flat]).reshape(matrices.shape)


def solve_triangle(a: Array, b: Array, *, is_lower: bool, is_unit: bool = False) -> Array:
    """Return ``x`` with ``a x = b`` for triangular ``a[.., n, n]`` and ``b[.., n, columns]``, by substitution."""
    if not is_lower:
        # Read from the last row and column back, an upper triangle is a lower one.
        reversed_x = solve_triangle(a[..., ::-1, ::-1], b[..., ::-1, :], is_lower=True, is_unit=is_unit)
        return reversed_x[..., ::-1, :]
    # A copy: it is solved in place, and operands are shared.
    x = np.array(b, order="C")
    size = a.shape[-1]
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        for row in range(start, stop):
            if not is_unit:
                x[..., row, :] /= a[..., row, row, None]
            x[..., row + 1 : stop, :] -= a[..., row + 1 : stop, row, None] * x[..., row, None, :]
        if stop < size:
            x[..., stop:, :] -= np.ascontiguousarray(a[..., stop:, start:stop]) @ x[..., start:stop, :]
    return x


def invert_triangle(a: Array, *, is_lower: bool) -> Array:
    """Return the inverses of triangular matrices, of which only that triangle is read."""
    identity = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solve_triangle(a, identity, is_lower=is_lower)


def lu_factor(matrices: Array) -> tuple[Array, Array, Array]:
    """Return L below and U on and above the diagonal, the row exchanges, and the permutation that they add up to.

    At each step the largest element of the column comes up; ``exchanges[.., k]`` is the row that row k changed with.
    How large a complex number is, LAPACK tells by the sum of its parts.
    """
    rows, columns = matrices.shape[-2:]
    lu = np.array(matrices).reshape((-1, rows, columns))
    batch = np.arange(lu.shape[0])
    permutation = np.tile(np.arange(rows, dtype=np.int32), (lu.shape[0], 1))
    exchanges = np.empty((lu.shape[0], min(rows, columns)), np.int32)
    for k in range(exchanges.shape[-1]):
        column = lu[:, k:, k]
        pivot = k + np.argmax(np.abs(column.real) + np.abs(column.imag), -1)
        exchanges[:, k] = pivot
        _exchange(lu, batch, k, pivot)
        _exchange(permutation, batch, k, pivot)
        # A column of zeros stays one, as LAPACK leaves it.
        divisor = np.where(lu[:, k, k] == 0, 1, lu[:, k, k])
        lu[:, k + 1 :, k] /= divisor[:, None]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    lead = matrices.shape[:-2]
    return lu.reshape(matrices.shape), exchanges.reshape((*lead, -1)), permutation.reshape((*lead, rows))


def _exchange(rows: Array, batch: Array, k: int, pivot: Array) -> None:
    kept = rows[batch, k].copy()
    rows[batch, k] = rows[batch, pivot]
    rows[batch, pivot] = kept


def qr_factor(matrices: Array) -> tuple[Array, Array]:
    """Return R on and above the diagonal, the Householder vectors below it, and their factors tau (LAPACK, geqrf)."""
    packed, factors = np.linalg.qr(matrices, "raw")
    return np.swapaxes(packed, -1, -2).astype(matrices.dtype), factors.astype(matrices.dtype)


def block_reflector(products: Array) -> Array:
    """Return the upper triangle T with ``(I - t1 v1 v1*) (I - t2 v2 v2*) ... = I + Y T Y*``, Y having columns v.

    ``products`` is upper triangular: ``-tj`` on the diagonal, ``-tj (vi* vj)`` above it.
    """
    # T = T N + D with N above the diagonal D, as column j takes in what those before it have become.
    size = products.shape[-1]
    diagonal = products[..., range(size), range(size)]
    solved = invert_triangle(np.eye(size, dtype=products.dtype) - np.triu(products, 1), is_lower=False)
    return np.asarray(diagonal[..., :, None] * solved)


def eigen_decomposition(matrices: Array) -> tuple[Array, Array]:
    """Return eigenvalues and, as columns, eigenvectors of Hermitian matrices.

    An index whose row is zero but for the diagonal keeps its place, as rotations that have nothing to turn leave it:
    so the padding of a matrix of odd size stays last. The others ascend.
    """
    size = matrices.shape[-1]
    means = ((matrices + adjoint(matrices)) / 2).reshape(-1, size, size)
    values, vectors = np.zeros(means.shape[:2], means.real.dtype), np.zeros_like(means)
    for matrix, own_values, own_vectors in zip(means, values, vectors, strict=True):
        is_coupled = (matrix * (1 - np.eye(size)) != 0).any(-1)
        own_values[:] = matrix.diagonal().real
        np.fill_diagonal(own_vectors, 1)
        coupled = np.ix_(is_coupled, is_coupled)
        own_values[is_coupled], own_vectors[coupled] = np.linalg.eigh(matrix[coupled])
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


def householder_product(packed: Array, factors: Array) -> Array:
    """Return the first columns of the product of the reflections in ``packed[.., m, n]`` (LAPACK, orgqr)."""
    rows, columns = packed.shape[-2:]
    # In rows, however the operand lies: BLAS adds vectors up in another order where a matrix lies in columns.
    result = np.zeros(packed.shape, packed.dtype)
    result[..., range(min(rows, columns)), range(min(rows, columns))] = 1
    for k in reversed(range(factors.shape[-1])):
        vector = packed[..., k:, k : k + 1].copy()
        # The leading 1 is implied; its place in the packed form holds R.
        vector[..., 0, 0] = 1
        projection = adjoint(vector) @ result[..., k:, :]
        result[..., k:, :] -= factors[..., k, None, None] * vector @ projection
    return result
