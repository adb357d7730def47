"""Batch normalisation, which a front end may state as one instruction.

Source: XLA, BatchNormExpander.
"""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.graph import Node


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


def _sums(build: Build, node: Node, operand: Node) -> Node:
    """Return the sum over all but the features."""
    kept = node.attributes["feature_index"]
    zero = build.constant(0, operand.array.dtype)
    return build.reduce(operand, zero, [d for d in range(operand.array.rank) if d != kept], "add")


def _normalised(build: Build, node: Node, operand: Node, features: tuple[Node, Node, Node, Node]) -> Node:
    scale, offset, mean, variance = features
    spread = build.apply("add", variance, build.splat(node.attributes["epsilon"], variance))
    factor = build.apply("multiply", build.apply("rsqrt", spread), scale)
    factor, mean, offset = (
        build.broadcast(each, operand.array.dimensions, (node.attributes["feature_index"],))
        for each in (factor, mean, offset)
    )
    centred = build.apply("subtract", operand, mean)
    return build.apply("add", build.apply("multiply", centred, factor), offset)
