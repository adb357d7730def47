"""Cholesky and triangular solves against XLA; LU, QR and inverses against what defines them."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.one_instruction import program, shape_text
from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.ops.linear_algebra import (
    householder_product,
    invert_triangle,
    lu_factor,
    qr_factor,
    solve_triangle,
)

BOUNDS = {"f32": 2.0**-18, "f64": 2.0**-46, "c64": 2.0**-18, "c128": 2.0**-46}
"""Error for well-conditioned matrices of a few dozen rows, relative to the largest result."""

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
VARIANTS = list(product((True, False), (True, False), (True, False), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")))


def numbers(sizes, name="f32", seed=0):
    """Return random numbers."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(sizes)
    return (values + 1j * rng.standard_normal(sizes) if name.startswith("c") else values).astype(TYPES[name])


def positive_definite(sizes, name="f32"):
    """Return Hermitian matrices with positive eigenvalues."""
    a = numbers(sizes, name)
    return (a @ np.swapaxes(a, -1, -2).conj() + sizes[-1] * np.eye(sizes[-1])).astype(TYPES[name])


def assert_close(found, expected, bound):
    """Assert that values agree, NaN with NaN, relative to the largest."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    if not np.isnan(expected).all():
        assert np.nanmax(np.abs(found - expected)) <= bound * np.nanmax(np.abs(expected))


def cholesky(name, sizes, lower):
    """Return the text of a decomposition."""
    return program(shape_text(name, sizes), f"cholesky(p0), lower={str(lower).lower()}", [shape_text(name, sizes)])


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_cholesky_is_xlas(name, lower):
    """Batches of Hermitian matrices; the triangle that is not read holds NaN and comes out as zeros."""
    a = positive_definite((2, 3, 5, 5), name)
    unread = np.triu_indices(5, 1) if lower else np.tril_indices(5, -1)
    a[..., unread[0], unread[1]] = np.nan
    text = cholesky(name, a.shape, lower)
    assert_close(run_ours(text, [a])[0], run_xla(text, [a])[0], BOUNDS[name])


def test_a_matrix_without_factor_spoils_nothing_but_itself():
    """NaN where the matrix is not positive definite, its neighbour's factor beside it."""
    a = positive_definite((2, 4, 4))
    a[1] -= 50 * np.eye(4, dtype=np.float32)
    text = cholesky("f32", a.shape, True)
    found = run_ours(text, [a])[0]
    assert np.isnan(found[1]).all()
    assert_close(found, run_xla(text, [a])[0], BOUNDS["f32"])


def test_narrow_types_are_computed_in_f32():
    """A bf16 matrix gives the f32 factor, rounded once."""
    a = positive_definite((6, 6)).astype(ml_dtypes.bfloat16)
    expected = np.linalg.cholesky(a.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run_ours(cholesky("bf16", (6, 6), True), [a])[0], expected)


def triangular_solve(name, sizes, variant):
    """Return the text of a solve for ``a[2, n, n]`` and ``b`` of the given sizes."""
    left, lower, unit, transpose = variant
    size = sizes[-2] if left else sizes[-1]
    attributes = f"left_side={left}, lower={lower}, unit_diagonal={unit}".lower() + f", transpose_a={transpose}"
    shapes = [shape_text(name, (2, size, size)), shape_text(name, sizes)]
    return program(shape_text(name, sizes), f"triangular-solve(p0, p1), {attributes}", shapes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_variants_of_a_triangular_solve_are_xlas(variant):
    """Left or right, lower or upper, unit diagonal or not, transposed, conjugated or neither."""
    b = numbers((2, 5, 3) if variant[0] else (2, 3, 5), "c64")
    a = 0.3 * numbers((2, 5, 5), "c64", 1) + (0 if variant[2] else 3) * np.eye(5, dtype=np.complex64)
    text = triangular_solve("c64", b.shape, variant)
    assert_close(run_ours(text, [a, b])[0], run_xla(text, [a, b])[0], BOUNDS["c64"])


def test_a_solve_reads_its_triangle_only():
    """NaN in the other triangle, and on a diagonal that counts as ones, changes nothing."""
    b = numbers((2, 4, 3))
    a = np.tril(0.3 * numbers((2, 4, 4), seed=1), -1)
    spoiled = a + np.triu(np.full((4, 4), np.nan, np.float32))
    text = triangular_solve("f32", b.shape, (True, True, True, "NO_TRANSPOSE"))
    np.testing.assert_array_equal(run_ours(text, [spoiled, b])[0], run_ours(text, [a, b])[0])


def test_a_singular_triangle_gives_infinities():
    """A zero on the diagonal divides as floats do."""
    a, b = np.float32([[[0, 0], [1, 1]]] * 2), np.ones((2, 2, 1), np.float32)
    found = run_ours(triangular_solve("f32", b.shape, (True, True, False, "NO_TRANSPOSE")), [a, b])[0]
    np.testing.assert_array_equal(found, np.float32([[[np.inf], [-np.inf]]] * 2))


def naive_solve(a, b):
    """Solve a lower triangle element by element, in f64."""
    x = np.zeros(b.shape)
    for row in range(len(a)):
        x[row] = (b[row] - sum(a[row, k] * x[k] for k in range(row))) / a[row, row]
    return x


@pytest.mark.parametrize("size", [1, 31, 32, 33, 70])
def test_blocks_of_rows_are_row_by_row_substitution(size):
    """Around and beyond the size of a block."""
    a = np.tril(0.1 * numbers((size, size), "f64")) + 2 * np.eye(size)
    b = numbers((size, 3), "f64", 1)
    np.testing.assert_allclose(solve_triangle(a, b, is_lower=True), naive_solve(a, b), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("is_lower", [True, False])
def test_the_inverse_of_a_triangle_is_its_inverse(is_lower):
    """Of the other triangle nothing is read."""
    a = 0.1 * numbers((2, 40, 40), "f64") + 2 * np.eye(40)
    triangle = np.tril(a) if is_lower else np.triu(a)
    np.testing.assert_allclose(triangle @ invert_triangle(a, is_lower=is_lower), [np.eye(40)] * 2, atol=1e-12)


@pytest.mark.parametrize("sizes", [(5, 5), (2, 6, 4), (2, 4, 6)])
def test_lu_factors_the_permuted_matrix(sizes):
    """P A = L U with no multiplier above 1; exchanges and permutation say the same."""
    a = numbers(sizes, "f64")
    lu, exchanges, permutation = lu_factor(a)
    n = min(sizes[-2:])
    lower, upper = np.tril(lu[..., :n], -1), np.triu(lu[..., :n, :])
    eye = np.eye(sizes[-2], n)
    np.testing.assert_allclose((lower + eye) @ upper, np.take_along_axis(a, permutation[..., None], -2), atol=1e-12)
    assert np.abs(lower).max() <= 1
    rows = np.arange(sizes[-2])
    for k, other in enumerate(exchanges.reshape(-1, n)[0]):
        rows[[k, other]] = rows[[other, k]]
    np.testing.assert_array_equal(rows, permutation.reshape(-1, sizes[-2])[0])


@pytest.mark.parametrize("name", TYPES)
def test_reflections_and_r_make_the_matrix_again(name):
    """Q R = A with orthonormal columns."""
    a = numbers((2, 6, 4), name)
    packed, factors = qr_factor(a)
    q = householder_product(packed, factors)
    np.testing.assert_allclose(q @ np.triu(packed[..., :4, :]), a, atol=1e-5)
    np.testing.assert_allclose(np.swapaxes(q, -1, -2).conj() @ q, [np.eye(4)] * 2, atol=1e-5)


def test_reflections_do_not_depend_on_how_they_lie_in_memory():
    """A transpose is a view, and BLAS adds up what lies in columns in another order."""
    packed = np.random.default_rng(0).standard_normal((60, 60)).astype(np.float32)
    factors = np.full(60, 0.5, np.float32)
    found = {householder_product(np.array(packed, order=order), factors).tobytes() for order in "CF"}
    assert len(found) == 1
