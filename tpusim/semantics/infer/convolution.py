"""Shape of a convolution."""

from __future__ import annotations

import re

from tpusim.ir.attributes import ConvolutionLabels, Window
from tpusim.limits import COUNT
from tpusim.semantics.infer.contraction import result_type
from tpusim.semantics.infer.reduction import window_result
from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import dynamic_flags, is_array, make_array, plain
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, TupleShape

# The attribute is too rare to be more than text after parsing.
_SPARSITY = re.compile(r"rhs=\{[^}]*sparsity=(\d+)x(\d+)")


@infers("convolution")
def _convolution(site: Site) -> ArrayShape:
    """Give batch, features and one size per place of the kernel, in the order of the result's labels."""
    lhs, rhs = site.array(0), _kernel(site)
    labels, window = site.attributes["dim_labels"], site.attributes.get("window", Window())
    groups, batches = site.attributes.get("feature_group_count", 1), site.attributes.get("batch_group_count", 1)
    require(groups >= 1 and batches >= 1, "convolution_c1", groups, "and", batches)
    require(groups <= 1 or batches <= 1, "convolution_c2", groups, "and", batches)
    spatial = _check_labels(labels, lhs, rhs)
    require(len(window.dimensions) == spatial, "convolution_c5", len(window.dimensions), "for", spatial)
    _check_features(site, lhs, rhs, groups, batches)
    return _convolved(site, lhs, rhs, window)


def _kernel(site: Site) -> ArrayShape:
    """Return the kernel's shape; a sparse one comes as a tuple with its metadata."""
    shape = site.operands[1]
    if isinstance(shape, TupleShape):
        if len(shape.elements) != 2 or not is_array(shape.elements[0]):
            raise broken("convolution_c11", plain(shape))
        return shape.elements[0]
    return site.array(1)


def _check_labels(labels: ConvolutionLabels, lhs: ArrayShape, rhs: ArrayShape) -> int:
    """Require each label once on each side; return how many dimensions are spatial."""
    spatial = sum(label.isdigit() for label in labels.lhs)
    for text, roles in ((labels.lhs, "bf"), (labels.rhs, "io"), (labels.output, "bf")):
        expected = sorted([*roles, *map(str, range(spatial))])
        if sorted(text) != expected:
            raise broken("convolution_c3", f"{text!r} for {''.join(expected)!r}")
    if lhs.rank != spatial + 2 or rhs.rank != spatial + 2:
        raise broken("convolution_c4", f"{plain(lhs)} and {plain(rhs)} for {spatial} spatial dimensions")
    return spatial


def _check_features(site: Site, lhs: ArrayShape, rhs: ArrayShape, groups: int, batches: int) -> None:
    labels, window = site.attributes["dim_labels"], site.attributes.get("window", Window())
    features, batch = lhs.dimensions[labels.lhs.index("f")], lhs.dimensions[labels.lhs.index("b")]
    inputs, outputs = rhs.dimensions[labels.rhs.index("i")], rhs.dimensions[labels.rhs.index("o")]
    # A sparse kernel stores one of each block of input features; the left operand has them all.
    sparsity = _SPARSITY.search(site.attributes.get("sparsity_config", ""))
    if sparsity is not None:
        require(sparsity[1] == "1", "convolution_c12", sparsity[1], "of", sparsity[2])
        inputs *= COUNT.number(sparsity[2])
    if outputs % batches or outputs % groups:
        raise broken("convolution_c6", f"{outputs} for {groups} feature and {batches} batch groups")
    require(batch % batches == 0 or batch == UNBOUNDED, "convolution_c7", batch, "for", batches, "groups")
    if features % groups or features // groups != inputs:
        raise broken("convolution_c8", f"{features} in {groups} groups, {inputs} in the kernel")
    kernel = [rhs.dimensions[labels.rhs.index(str(i))] for i in range(len(window.dimensions))]
    if kernel != [dimension.size for dimension in window.dimensions]:
        raise broken("convolution_c9", f"{[d.size for d in window.dimensions]} for {kernel}")


def _convolved(site: Site, lhs: ArrayShape, rhs: ArrayShape, window: Window) -> ArrayShape:
    """Return the result's shape; what is dynamic in a spatial dimension of either side is dynamic in the result."""
    labels = site.attributes["dim_labels"]
    lhs_flags, rhs_flags = dynamic_flags(lhs), dynamic_flags(rhs)
    # They would make the result's features dynamic, which XLA does not infer.
    require(not rhs_flags[labels.rhs.index("o")], "convolution_c10", rhs)
    order = [labels.lhs.index(str(i)) for i in range(len(window.dimensions))]
    # In the order of the window, which goes by the labels' numbers and not by dimensions.
    base = ArrayShape(lhs.dtype, tuple(lhs.dimensions[i] for i in order))
    batch = lhs.dimensions[labels.lhs.index("b")]
    sizes = {str(i): size for i, size in enumerate(window_result(base, window, lhs.dtype).dimensions)}
    sizes["b"] = batch if batch == UNBOUNDED else batch // site.attributes.get("batch_group_count", 1)
    sizes["f"] = rhs.dimensions[labels.rhs.index("o")]
    flags = {label: lhs_flags[labels.lhs.index(label)] for label in sizes if label != "f"}
    for label in sizes.keys() - {"b", "f"}:
        flags[label] = flags[label] or rhs_flags[labels.rhs.index(label)]
    dynamic = [flags.get(label, False) for label in labels.output]
    return make_array(result_type(site, lhs, rhs), [sizes[label] for label in labels.output], dynamic)
