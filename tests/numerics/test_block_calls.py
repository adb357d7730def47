"""The compiler's calls that decompose matrices, by what defines them; complex ones come in real and imaginary parts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.one_instruction import program
from tests.numerics.oracle import run_ours
from tpusim.errors import ProgramError
from tpusim.numerics.ops.linear_algebra import block_reflector, eigen_decomposition, householder_product, qr_factor


def numbers(*sizes, seed=0):
    """Return random complex numbers."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)).astype(np.complex64)


def definite(*sizes):
    """Return Hermitian matrices with positive eigenvalues."""
    a = numbers(*sizes)
    return a @ np.swapaxes(a, -1, -2).conj() + sizes[-1] * np.eye(sizes[-1], dtype=np.complex64)


def shape_of(array):
    """Return an array's shape in HLO text."""
    return f"{'s32' if array.dtype.kind == 'i' else 'f32'}[{','.join(map(str, array.shape))}]"


def run(target, results, *operands):
    """Return what a call gives for operands, given the shapes of its results as text."""
    names = ", ".join(f"p{number}" for number in range(len(operands)))
    shape = f"({', '.join(results)})" if len(results) > 1 else results[0]
    text = program(shape, f'custom-call({names}), custom_call_target="{target}"', map(shape_of, operands))
    return run_ours(text, operands)


def run_split(target, results, a):
    """Return what a call gives for a complex matrix in two parts."""
    return run(target, results, a.real.copy(), a.imag.copy())


def test_a_complex_cholesky_factor_times_its_adjoint_is_the_matrix():
    """Two operands, two results: real parts first."""
    a = definite(2, 5, 5)
    real, imaginary = run_split("Cholesky", ["f32[2,5,5]"] * 2, a)
    factor = real + 1j * imaginary
    np.testing.assert_allclose(factor @ np.swapaxes(factor, -1, -2).conj(), a, atol=1e-4)


@pytest.mark.parametrize(("which", "triangle"), [("Lower", np.tril), ("Upper", np.triu)])
def test_inverted_complex_blocks_are_inverses(which, triangle):
    """Each block times its inverse is the identity."""
    a = triangle(definite(3, 4, 4))
    real, imaginary = run_split(f"InvertDiagBlocks{which}Triangular", ["f32[3,4,4]"] * 2, a)
    np.testing.assert_allclose(a @ (real + 1j * imaginary), [np.eye(4)] * 3, atol=1e-5)


def test_complex_qr_and_its_reflections_make_the_matrix_again():
    """R and vectors as two arrays, factors as two; then Q from all four."""
    a = numbers(6, 4)
    parts = run_split("QrDecompositionBlock", ["f32[6,4]", "f32[6,4]", "f32[4]", "f32[4]"], a)
    real, imaginary = run("ProductOfElementaryHouseholderReflectors", ["f32[6,4]"] * 2, *parts)
    upper = np.triu(parts[0] + 1j * parts[1])[:4]
    np.testing.assert_allclose((real + 1j * imaginary) @ upper, a, atol=1e-5)


def test_complex_lu_permutes_and_factors():
    """L, U and the permutation make the matrix again."""
    a = numbers(5, 5)
    real, imaginary, _, order = run_split(
        "LuComplexDecompositionBlock", ["f32[5,5]", "f32[5,5]", "s32[5]", "s32[5]"], a
    )
    lu = real + 1j * imaginary
    np.testing.assert_allclose((np.tril(lu, -1) + np.eye(5)) @ np.triu(lu), a[order], atol=1e-5)


def test_complex_lu_takes_the_pivot_with_the_largest_sum_of_parts():
    """LAPACK's measure: 3 + 3i comes before 5, though its absolute value is less."""
    a = np.complex64([[5, 1], [3 + 3j, 2]])
    *_, order = run_split("LuComplexDecompositionBlock", ["f32[2,2]", "f32[2,2]", "s32[2]", "s32[2]"], a)
    np.testing.assert_array_equal(order, [1, 0])


def test_real_lu_block_is_lu():
    """The name that newer compilers give it."""
    a = numbers(5, 5).real.copy()
    lu, _, order = run("LuRealDecompositionBlock", ["f32[5,5]", "s32[5]", "s32[5]"], a)
    np.testing.assert_allclose((np.tril(lu, -1) + np.eye(5)) @ np.triu(lu), a[order], atol=1e-5)


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_block_reflector_is_the_product_of_its_reflections(is_complex):
    """I + Y T Y* equals the reflections one after the other (XLA, CompactWYRepresentation)."""
    a = numbers(2, 6, 4) if is_complex else numbers(2, 6, 4).real
    packed, factors = qr_factor(a)
    y = np.tril(packed, -1) + np.eye(6, 4)
    products = np.triu(np.swapaxes(y, -1, -2).conj() @ y, 1) + np.eye(4)
    t = block_reflector(-factors[:, None, :] * products)
    whole = np.eye(6) + y @ t @ np.swapaxes(y, -1, -2).conj()
    np.testing.assert_allclose(whole[..., :4], householder_product(packed, factors), atol=1e-5)


def test_the_helper_of_qr_may_be_complex():
    """Its operand and its result come in two parts."""
    products = np.triu(numbers(4, 4))
    real, imaginary = run_split("CompactWyHelper", ["f32[4,4]"] * 2, products)
    np.testing.assert_allclose(real + 1j * imaginary, block_reflector(products), rtol=1e-6)


def test_eigenvectors_come_in_quadrants_of_their_adjoint():
    """Rows are eigenvectors: diag(w) V = V A."""
    a = definite(6, 6).real.copy()
    quadrants = [a[:3, :3], a[:3, 3:], a[3:, :3], a[3:, 3:]]
    *values, one, two, three, four = run("EighTpu", ["f32[3]"] * 2 + ["f32[3,3]"] * 4, *quadrants)
    rows = np.block([[one, two], [three, four]])
    np.testing.assert_allclose(np.concatenate(values)[:, None] * rows, rows @ a, atol=1e-4)


def test_what_is_coupled_to_nothing_keeps_its_place():
    """The padding of a matrix of odd size, which its caller cuts off at the end, has a smaller eigenvalue than all."""
    a = np.pad(definite(3, 3).real, (0, 1))
    values, vectors = eigen_decomposition(a)
    assert values[3] == 0
    np.testing.assert_array_equal(vectors[3], [0, 0, 0, 1])


def test_a_wrong_number_of_operands_is_named():
    """Neither whole nor in parts."""
    a = np.eye(2, dtype=np.float32)
    with pytest.raises(ProgramError, match=r"r: expected 1 operands of 'Cholesky', or 2 in real.*found 3"):
        run("Cholesky", ["f32[2,2]"], a, a, a)


def test_a_result_that_the_call_does_not_give_is_named():
    """The call gives two arrays, the program wants three."""
    with pytest.raises(ProgramError, match=r"r: expected the shape of what 'Qr' gives, .*found \(f32\[2,2\], f32\[3\]"):
        run("Qr", ["f32[2,2]", "f32[3]"], np.eye(2, dtype=np.float32))
