"""Of a product of which only a part is used no more is computed: the part is cut out of what it multiplies.

Source: 22 products and convolutions compiled ahead of time for v5e, v5p and v6e (libtpu 0.0.52), of which a row,
columns, a batch, images, features or pixels are used; where something else uses the product as well, the part is one of
every few elements, or anything is made of the product before, all of it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tpusim.compiler.simplify.parts import sliced
from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.ir.attributes import SliceDimension, Window
from tpusim.semantics.windows import dilated


@simplifies("slice")
def _of_dot(graph: Graph, node: Node) -> Node | None:
    """Rows and columns of a product are products of rows and columns."""
    (dot,) = node.operands
    if dot.opcode != "dot" or not _is_all_that_is_used(graph, dot, node):
        return None
    left, right = (_sides(dot, side, number) for number, side in enumerate(("lhs", "rhs")))
    parts = node.attributes["slice"]
    batches, free = len(left[0]), len(left[1])
    of_result = [(*left[0], *left[1]), (*right[0], *right[1])]
    cuts = [parts[: batches + free], (*parts[:batches], *parts[batches + free :])]
    operands = [
        _cut(graph, operand, dict(zip(dimensions, cut, strict=True)), node)
        for operand, dimensions, cut in zip(dot.operands, of_result, cuts, strict=True)
    ]
    # Nothing uses all of it any more, and so nothing but the new one what it is made of.
    dot.take(())
    return graph.add("dot", node.shape, operands, dict(dot.attributes), like=dot)


def _sides(dot: Node, side: str, number: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the batch dimensions of a side, and those that the result has besides."""
    batch = dot.attributes.get(f"{side}_batch_dims", ())
    summed = dot.attributes.get(f"{side}_contracting_dims", ())
    rank = dot.operands[number].array.rank
    return batch, [d for d in range(rank) if d not in batch and d not in summed]


@simplifies("slice")
def _of_convolution(graph: Graph, node: Node) -> Node | None:
    """Images, features and pixels of a convolution are one of images, or of kernels, or with another padding."""
    (made,) = node.operands
    if made.opcode != "convolution" or not _is_all_that_is_used(graph, made, node):
        return None
    labels, window = made.attributes["dim_labels"], made.attributes.get("window", Window())
    parts = dict(zip(labels.output, node.attributes["slice"], strict=True))
    sizes = dict(zip(labels.output, made.array.dimensions, strict=True))
    is_cut = {label for label, part in parts.items() if part.limit - part.start != sizes[label]}
    groups = [made.attributes.get(f"{of}_group_count", 1) for of in ("batch", "feature")]
    if ("b" in is_cut and groups[0] > 1) or ("f" in is_cut and max(groups) > 1):
        return None
    images, kernels = made.operands
    images = _cut(graph, images, {labels.lhs.index("b"): parts["b"]} if "b" in is_cut else {}, node)
    kernels = _cut(graph, kernels, {labels.rhs.index("o"): parts["f"]} if "f" in is_cut else {}, node)
    moved = list(window.dimensions)
    for at in [at for at in range(len(moved)) if str(at) in is_cut]:
        one, part = moved[at], parts[str(at)]
        low = one.pad_low - part.start * one.stride
        reach = (part.limit - part.start - 1) * one.stride + dilated(one.size, one.rhs_dilate)
        given = dilated(images.array.dimensions[labels.lhs.index(str(at))], one.lhs_dilate)
        moved[at] = structs.replace(one, pad_low=low, pad_high=reach - given - low)
    named = dict(made.attributes) | ({"window": Window(tuple(moved))} if moved else {})
    made.take(())
    return graph.add("convolution", node.shape, [images, kernels], named, like=made)


def _is_all_that_is_used(graph: Graph, product: Node, part: Node) -> bool:
    """Return whether a part without gaps is all that is used of a product."""
    if len(product.users) != 1 or product is graph.root or product.is_dynamic or part.is_dynamic:
        return False
    return bool(part.array.element_count) and all(one.stride == 1 for one in part.attributes["slice"])


def _cut(graph: Graph, operand: Node, parts: dict[int, SliceDimension], like: Node) -> Node:
    """Return a part of an operand, by its dimensions; of the others all."""
    whole = [SliceDimension(0, size) for size in operand.array.dimensions]
    taken = [parts.get(d, all_of_it) for d, all_of_it in enumerate(whole)]
    return operand if taken == whole else sliced(graph, operand, taken, like)
