"""Fourier transforms against XLA and against the sum that defines them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.one_instruction import program, shape_text
from tests.numerics.oracle import run_ours, run_xla

BOUND = 2.0**-21
"""Error of an f32 transform of up to a thousand numbers, relative to the largest result."""

TYPES = {"f32": np.float32, "c64": np.complex64, "f64": np.float64, "c128": np.complex128}
KINDS = [
    ("FFT", "c64", "c64"),
    ("IFFT", "c64", "c64"),
    ("RFFT", "f32", "c64"),
    ("IRFFT", "c64", "f32"),
    ("RFFT", "f64", "c128"),
    ("IRFFT", "c128", "f64"),
]


def transform(kind, operand, result, lengths, batch=(2,)):
    """Return the text of a transform and the sizes of its operand."""
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    sizes = batch + (half if kind == "IRFFT" else lengths)
    out = shape_text(result, batch + (half if kind == "RFFT" else lengths))
    attributes = f"fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    return program(out, f"fft(p0), {attributes}", [shape_text(operand, sizes)]), sizes


def numbers(sizes, name):
    """Return random numbers."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(sizes)
    return (values + 1j * rng.standard_normal(sizes) if name.startswith("c") else values).astype(TYPES[name])


@pytest.mark.parametrize("lengths", [(1,), (6,), (7,), (4, 6), (3, 5), (2, 3, 8)])
@pytest.mark.parametrize(("kind", "operand", "result"), KINDS)
def test_all_kinds_and_lengths_are_xlas(kind, operand, result, lengths):
    """Over one to three dimensions, even and odd; IRFFT's operand has imaginary parts that no real signal has."""
    text, sizes = transform(kind, operand, result, lengths)
    inputs = [numbers(sizes, operand)]
    found, expected = run_ours(text, inputs)[0], run_xla(text, inputs)[0]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.max(np.abs(found - expected)) <= BOUND * np.max(np.abs(expected))


def test_a_transform_is_the_sum_that_defines_it():
    """X[k] = sum of x[n] exp(-2 pi i k n / N), not scaled; the inverse is, by 1/N."""
    x = numbers((8,), "c64")
    waves = np.exp(-2j * np.pi * np.outer(np.arange(8), np.arange(8)) / 8)
    forward, back = (transform(kind, "c64", "c64", (8,), ())[0] for kind in ("FFT", "IFFT"))
    np.testing.assert_allclose(run_ours(forward, [x])[0], waves @ x, atol=1e-5)
    np.testing.assert_allclose(run_ours(back, [x])[0], waves.conj() @ x / 8, atol=1e-6)


@pytest.mark.parametrize("lengths", [(6,), (16,), (0,), (3, 8), (5, 5)])
@pytest.mark.parametrize(("kind", "expected"), [("FFT", np.fft.fftn), ("IFFT", np.fft.ifftn)])
def test_a_complex_transform_is_of_the_operands_own_sizes(kind, expected, lengths):
    """Lengths say along how many dimensions: the TPU compiler makes the same of any. XLA's CPU is no oracle here."""
    x = numbers((4, 8), "c64")
    attributes = f"fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    (found,) = run_ours(program("c64[4,8]", f"fft(p0), {attributes}", ["c64[4,8]"]), [x])
    np.testing.assert_allclose(found, expected(x, axes=range(-len(lengths), 0)), atol=1e-5)


@pytest.mark.parametrize(("kind", "operand", "result"), KINDS[:4])
def test_no_elements_transform_to_no_elements(kind, operand, result):
    """An empty batch is allowed and stays empty."""
    text, sizes = transform(kind, operand, result, (4,), (0,))
    assert run_ours(text, [numbers(sizes, operand)])[0].size == 0
