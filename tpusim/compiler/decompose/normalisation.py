"""Batch normalisation, which a front end may state as one instruction.

Source: XLA, BatchNormExpander.
"""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Node


@decomposes("batch-norm-inference", tolerance=1e-5)
def inference(build: Build, node: Node) -> Node | None:
    """Normalise by a mean and a variance that are given."""
    operand, scale, offset, mean, variance = node.operands
    if operand.array.dtype.name != "f32":
        return None
    return _normalised(build, node, operand, (scale, offset, mean, variance))


@decomposes("batch-norm-training", tolerance=1e-4)
def training(build: Build, node: Node) -> Node | None:
    """Normalise by the mean and the variance of the batch, which are results too: of squares, less that of the mean."""
    operand, scale, offset = node.operands
    if operand.array.dtype.name != "f32" or not operand.array.element_count:
        return None
    share = build.splat(scale.array.element_count / operand.array.element_count, scale)
    squares = build.apply("multiply", operand, operand)
    mean, square = (build.apply("multiply", _sums(build, node, each), share) for each in (operand, squares))
    variance = build.apply("subtract", square, build.apply("multiply", mean, mean))
    normalised = _normalised(build, node, operand, (scale, offset, mean, variance))
    return build.graph.add("tuple", node.shape, [normalised, mean, variance])


@decomposes("batch-norm-grad", tolerance=1e-4)
def gradient(build: Build, node: Node) -> Node | None:
    """The gradients of the operand, the scale and the offset, from that of the result."""
    operand, scale, mean, variance, grad = node.operands
    if operand.array.dtype.name != "f32" or not operand.array.element_count:
        return None
    share = build.splat(scale.array.element_count / operand.array.element_count, scale)
    factor = build.apply("rsqrt", build.apply("add", variance, build.splat(node.attributes["epsilon"], variance)))
    centred = build.apply("subtract", operand, _spread(build, node, mean))
    offset_grad = _sums(build, node, grad)
    scale_grad = build.apply("multiply", _sums(build, node, build.apply("multiply", grad, centred)), factor)
    slope = build.apply("multiply", build.apply("multiply", scale_grad, factor), share)
    level = _spread(build, node, build.apply("multiply", offset_grad, share))
    moved = build.apply("multiply", centred, _spread(build, node, slope))
    rest = build.apply("subtract", build.apply("subtract", grad, level), moved)
    operand_grad = build.apply("multiply", rest, _spread(build, node, build.apply("multiply", scale, factor)))
    return build.graph.add("tuple", node.shape, [operand_grad, scale_grad, offset_grad])


def _spread(build: Build, node: Node, feature: Node) -> Node:
    """Return a number for each feature where the operand has that feature."""
    return build.broadcast(feature, node.operands[0].array.dimensions, (node.attributes["feature_index"],))


def _sums(build: Build, node: Node, operand: Node) -> Node:
    """Return the sum over all but the features."""
    kept = node.attributes["feature_index"]
    zero = build.constant(0, operand.array.dtype)
    return build.reduce(operand, zero, [d for d in range(operand.array.rank) if d != kept], "add")


def _normalised(build: Build, node: Node, operand: Node, features: tuple[Node, Node, Node, Node]) -> Node:
    scale, offset, mean, variance = features
    spread = build.apply("add", variance, build.splat(node.attributes["epsilon"], variance))
    factor = build.apply("multiply", build.apply("rsqrt", spread), scale)
    factor, mean, offset = (_spread(build, node, each) for each in (factor, mean, offset))
    centred = build.apply("subtract", operand, mean)
    return build.apply("add", build.apply("multiply", centred, factor), offset)
