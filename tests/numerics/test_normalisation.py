"""Batch normalisation against XLA, and its gradient against differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.one_instruction import program, shape_text
from tests.numerics.oracle import run_ours, run_xla

BOUNDS = {"f32": 2.0**-19, "f64": 2.0**-46, "bf16": 2.0**-6}
"""Error relative to the largest result; XLA computes bf16 in several roundings."""

TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
SIZES = (3, 4, 5)


def batch_norm(kind, name, feature, operands):
    """Return the text of ``batch-norm-kind`` over ``SIZES``, and random inputs, one letter of ``operands`` each.

    ``x`` is an array of all sizes, ``c`` a value per feature, ``v`` one that is positive.
    """
    full, short = shape_text(name, SIZES), shape_text(name, (SIZES[feature],))
    result = full if kind == "inference" else f"({full}, {short}, {short})"
    arguments = ", ".join(f"p{number}" for number in range(len(operands)))
    attributes = f"epsilon=0.001, feature_index={feature}"
    shapes = [full if operand == "x" else short for operand in operands]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(SIZES if operand == "x" else SIZES[feature]) for operand in operands]
    inputs = [np.abs(v) if operand == "v" else v for v, operand in zip(inputs, operands, strict=True)]
    text = program(result, f"batch-norm-{kind}({arguments}), {attributes}", shapes)
    return text, [value.astype(TYPES[name]) for value in inputs]


@pytest.mark.parametrize("feature", [0, 1, 2])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("kind", "operands"), [("training", "xcc"), ("inference", "xcccv"), ("grad", "xccvx")])
def test_batch_norms_are_xlas(kind, operands, name, feature):
    """All three kinds, over every dimension but one."""
    text, inputs = batch_norm(kind, name, feature, operands)
    for found, expected in zip(run_ours(text, inputs), run_xla(text, inputs), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        one, two = found.astype(np.float64), expected.astype(np.float64)
        assert np.max(np.abs(one - two)) <= BOUNDS[name] * np.max(np.abs(two))


def test_training_returns_mean_and_biased_variance():
    """The variance divides by the count, not by one less."""
    text, inputs = batch_norm("training", "f64", 1, "xcc")
    _, mean, variance = run_ours(text, inputs)
    np.testing.assert_allclose(mean, inputs[0].mean((0, 2)), rtol=1e-14)
    np.testing.assert_allclose(variance, inputs[0].var((0, 2)), rtol=1e-14)


def test_the_gradient_is_that_of_training():
    """Differences of the training result along each input give the gradients, with the batch's own moments."""
    text, (x, scale, offset) = batch_norm("training", "f64", 2, "xcc")
    weights = np.random.default_rng(1).standard_normal(SIZES)
    gradient_text, _ = batch_norm("grad", "f64", 2, "xccvx")
    found = run_ours(gradient_text, [x, scale, x.mean((0, 1)), x.var((0, 1)), weights])
    for position, gradient in enumerate(found):
        direction = np.random.default_rng(2).standard_normal(gradient.shape)
        sides = []
        for sign in (1, -1):
            inputs = [x, scale, offset]
            inputs[position] = inputs[position] + sign * 1e-6 * direction
            sides.append(np.sum(run_ours(text, inputs)[0] * weights))
        np.testing.assert_allclose(np.sum(gradient * direction), (sides[0] - sides[1]) / 2e-6, rtol=1e-6)
