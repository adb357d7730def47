"""Values of batch normalisation: over all dimensions but that of the features.

Narrow types are computed in f32 and rounded once; sums are f64, so that the order of addition does not show.

Source: XLA, Operation Semantics, BatchNormTraining, BatchNormInference, BatchNormGrad.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.ir.module import Instruction
from tpusim.numerics.ops.linear_algebra import solvable
from tpusim.numerics.registry import Array, array_shape, computes
from tpusim.numerics.site import Site
from tpusim.semantics.infer.types import parts
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import Shape


@computes("batch-norm-training")
def batch_norm_training(site: Site, instruction: Instruction, operands: list[Any]) -> tuple[Array, ...]:
    """Return the normalised operand, and the mean and the biased variance of each feature in this batch."""
    x, scale, offset = map(solvable, operands)
    epsilon, feature = instruction.attributes["epsilon"], instruction.attributes["feature_index"]
    mean = _mean(x, feature)
    # Squares of differences, not the difference of squares, which cancels.
    variance = _mean(np.square(x - _along(mean, x, feature)), feature)
    result = _normalised(x, (scale, offset, mean, variance), epsilon, feature)
    return _rounded(instruction.shape, result, mean, variance)


@computes("batch-norm-inference")
def batch_norm_inference(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return the operand normalised by means and variances that are given."""
    x, *moments = map(solvable, operands)
    epsilon, feature = instruction.attributes["epsilon"], instruction.attributes["feature_index"]
    return _rounded(instruction.shape, _normalised(x, tuple(moments), epsilon, feature))[0]


@computes("batch-norm-grad")
def batch_norm_grad(site: Site, instruction: Instruction, operands: list[Any]) -> tuple[Array, ...]:
    """Return the gradients of operand, scale and offset, from those of the normalised result."""
    x, scale, mean, variance, gradient = map(solvable, operands)
    epsilon, feature = instruction.attributes["epsilon"], instruction.attributes["feature_index"]
    inverse = _inverse_deviation(variance, epsilon)
    centred = (x - _along(mean, x, feature)) * _along(inverse, x, feature)
    mean_gradient, mean_product = _mean(gradient, feature), _mean(gradient * centred, feature)
    # The means above, times the count, are the sums that the other two gradients are.
    count = x.dtype.type(x.size // max(1, x.shape[feature]))
    inner = gradient - _along(mean_gradient, x, feature) - centred * _along(mean_product, x, feature)
    grad_x = _along(scale * inverse, x, feature) * inner
    return _rounded(instruction.shape, grad_x, mean_product * count, mean_gradient * count)


def _mean(x: Array, feature: int) -> Array:
    # NumPy adds along leading dimensions one by one, which in f32 would lose digits, and in the order of memory.
    total = np.sum(np.asarray(x, order="C"), tuple(axis for axis in range(x.ndim) if axis != feature), np.float64)
    return np.asarray((total / (x.size // max(1, x.shape[feature]))).astype(x.dtype))


def _along(values: Array, x: Array, feature: int) -> Array:
    """Return one value per feature in a form that broadcasts over ``x``."""
    return values.reshape([-1 if axis == feature else 1 for axis in range(x.ndim)])


def _inverse_deviation(variance: Array, epsilon: float) -> Array:
    """Return the reciprocal of the standard deviation, kept finite by ``epsilon``, which XLA holds as f32."""
    return np.asarray(1 / np.sqrt(variance + variance.dtype.type(np.float32(epsilon))))


def _normalised(x: Array, moments: tuple[Array, ...], epsilon: float, feature: int) -> Array:
    """Return ``scale * (x - mean) / deviation + offset`` for ``moments``: scale, offset, mean, variance."""
    scale, offset, mean, variance = (_along(values, x, feature) for values in moments)
    return (x - mean) * (scale * _inverse_deviation(variance, epsilon)) + offset


def _rounded(shape: Shape, *values: Array) -> tuple[Array, ...]:
    pairs = zip(parts(shape), values, strict=True)
    return tuple(value.astype(numpy_dtype(array_shape(part).dtype), copy=False) for part, value in pairs)
