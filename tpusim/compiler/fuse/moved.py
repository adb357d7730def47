"""What a product takes that it moves by itself, or that another kernel has laid out anew for it.

Where it does it makes no rows: a softmax of what it makes is a kernel of its own.

Source: 84 programs with attention compiled ahead of time for v5e (libtpu 0.0.52): queries, keys and values of one
array or of several, with the dimension that tells them apart at every place, of arguments, projections and loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.compiler.layouts.products import free_dimensions, made_dimensions
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.ir.ops import ELEMENTWISE, HANDED_IN, RESHAPES

NEAR = 100
"""Of what something is made of so many nodes are looked at: a chain of thousands of them is no layer."""


def takes_moved(product: Node, chip: Chip) -> bool:
    """Return whether a product takes something that lies elsewhere than where it takes it from."""
    is_spread = any(operand.source.opcode == "broadcast" for operand in product.operands)
    is_moved = is_spread or goes_through_part(product) or (turns_taken(product) and not turns_on_the_way(chip))
    return is_moved or any(map(_is_cut_from_copy, _taken(product)))


def turns_on_the_way(chip: Chip) -> bool:
    """Return whether a matrix unit is fed with what is turned as with anything else: one wider than registers, v6e's.

    Source: 19 pairs of products and 30 attentions compiled ahead of time for v6e (libtpu 0.0.52).
    """
    return chip.mxu.rows > chip.vpu.lanes


def turns_taken(product: Node) -> bool:
    """Return whether a product turns what it takes: registers, or the order of matrices."""
    if product.opcode == "dot" and _turns_batches(product):
        return True
    return any(node.opcode == "copy" and turns_registers(node) for node in _taken(product))


def _taken(product: Node) -> Iterator[Node]:
    """Yield what a product takes; what is computed of it element by element is computed as it is taken in."""
    todo, seen = list(product.operands), set(product.operands)
    while todo and len(seen) < NEAR:
        node = todo.pop().source
        yield node
        if node.opcode in ELEMENTWISE:
            new = [one for one in node.operands if one not in seen and not one.is_small]
            seen.update(new)
            todo += new


def turns_registers(copy: Node) -> bool:
    """Return whether a copy only lays out anew what is there, along another dimension than that of the lanes.

    Of copies before products in programs compiled ahead of time (v3 to v7x, several versions of libtpu) all 106 that
    leave the lanes as they are are made in the kernel of the product, and none of 36 others.
    """
    (operand,) = copy.operands
    return len({node.array.actual_layout.minor_to_major[:1] for node in (copy, operand)}) == 1


def turns_rows(product: Node, operand: Node) -> bool:
    """Return whether what a product makes of the rows of an operand, under whatever name, lies in another order.

    Source: 17 products compiled ahead of time for v5e (libtpu 0.0.52), of arguments with two or three dimensions in
    another order than the result's. They read what is computed of an argument, or made narrower, from memory, but for
    bytes that they make wider, and feed no product in a kernel of both.
    """
    if product.opcode != "dot":
        return False
    sides = zip(product.operands, free_dimensions(product), made_dimensions(product), strict=True)
    return any(
        one.source is operand.source and _outer_first(one, rows) != _outer_first(product, made)
        for one, rows, made in sides
    )


_LAID_OUT = HANDED_IN | RESHAPES
"""Arrays that lie as they do whatever is cut out of them."""


def _is_cut_from_copy(node: Node) -> bool:
    """Return whether a node is cut out of what the TPU compiler lays out anew, with its parts behind each other.

    So it does with an array that is cut at every number of one dimension, as into queries, keys and values, unless
    that dimension is the outermost already, one part is all that is used, or the array is turned to it anyhow.
    """
    if node.opcode != "slice":
        return False
    (array,) = node.operands
    if array.opcode == "copy":
        return True
    if array.opcode not in _LAID_OUT or len(array.users) == 1:
        return False
    sizes = array.array.dimensions
    single = [d for d, size in enumerate(node.array.dimensions) if size == 1 < sizes[d]]
    outermost = next((d for d in reversed(array.array.actual_layout.minor_to_major) if sizes[d] > 1), None)
    return any(d != outermost for d in single)


def goes_through_part(product: Node) -> bool:
    """Return whether the first operand is some matrices of an array that follow each other: none are cut out for that.

    Of the second operand they are, and so are rows and columns.
    """
    operand = product.operands[0]
    if product.opcode != "dot" or operand.opcode != "slice":
        return False
    batch = product.attributes.get("lhs_batch_dims", ())
    sizes = zip(operand.operands[0].array.dimensions, operand.array.dimensions, strict=True)
    cut = [d for d, (whole, part) in enumerate(sizes) if whole != part]
    return bool(cut) and all(d in batch and operand.attributes["slice"][d].stride == 1 for d in cut)


def _turns_batches(dot: Node) -> bool:
    """Return whether the matrices of an operand lie in another order than those that are made of them."""
    made = _outer_first(dot, range(len(dot.attributes.get("lhs_batch_dims", ()))))
    taken = (dot.attributes.get(f"{side}_batch_dims", ()) for side in ("lhs", "rhs"))
    return any(_outer_first(one, batch) != made for one, batch in zip(dot.operands, taken, strict=True))


def _outer_first(node: Node, dimensions: Sequence[int]) -> list[int]:
    """Return the numbers of some dimensions that are larger than 1, from outermost to innermost in memory."""
    order = list(reversed(node.array.actual_layout.minor_to_major))
    big = [number for number, d in enumerate(dimensions) if node.array.dimensions[d] > 1]
    return sorted(big, key=lambda number: order.index(dimensions[number]))
