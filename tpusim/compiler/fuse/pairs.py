"""Which products are made in the kernel of the product that they feed, so that what is between them stays in VMEM.

Of ``relu(x @ w) @ v`` with few columns each tile of rows goes through both. A kernel has two products at most: of a
chain of them those pair first that compute most.

Source: 590 pairs and 30 chains of products compiled ahead of time (libtpu 0.0.52, most for v5e, some for v4, v5p, v6e).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import NamedTuple

from tpusim.compiler.fuse.moved import goes_through_part, turns_on_the_way, turns_rows, turns_taken
from tpusim.compiler.fuse.rules import made_for
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.ir.ops import ELEMENTWISE
from tpusim.semantics.products import Product, canonical_product
from tpusim.shapes.address import physical_bytes

_MOST_HELD = 3 * 2**19
"""Elements that both products take for every tile, at most.

Source: of 512 pairs of sizes from 256 to 2,048 this tells 471 right (fused in the compiler or not); where it does not,
the kernels are bound by the matrix unit, and take as long either way.
"""

_BETWEEN = ELEMENTWISE - {"map"}


class _Pair(NamedTuple):
    """A product, the one that it feeds, and what the first computes and makes."""

    feeder: Node
    product: Node
    flops: float
    made_bytes: int


def paired(nodes: Iterable[Node], chip: Chip) -> dict[Node, Node]:
    """Return the products of a graph that are made in the kernel of the product that they feed, each with that."""
    pairs = [pair for node in nodes if node.opcode == "dot" for pair in _pairs_with(node, chip)]
    pairs.sort(key=lambda pair: (-pair.flops, -pair.made_bytes))
    found: dict[Node, Node] = {}
    taken: set[Node] = set()
    for pair in pairs:
        if taken.isdisjoint((pair.feeder, pair.product)):
            found[pair.feeder] = pair.product
            taken |= {pair.feeder, pair.product}
    return found


def _pairs_with(product: Node, chip: Chip) -> Iterator[_Pair]:
    """Yield the pairs of a product and one that is made for it alone, with nothing but element-wise work between."""
    private = {product, *made_for(product, _BETWEEN)}
    left, right = (_behind(operand, private) for operand in product.operands)
    for side, feeders, others in ((0, left, right), (1, right, left)):
        # What feeds both sides is needed in two orders.
        for feeder in (one for one in feeders if one not in others):
            turned = ((product, product.operands[side]), *((feeder, one) for one in feeder.operands))
            if any(turns_rows(*one) for one in turned):
                continue
            first, second = _sizes(feeder), _sizes(product)
            is_small = first.passes == second.passes == 1 and _held(first, second, side) <= _MOST_HELD
            if is_small and _may_feed(feeder, chip):
                yield _Pair(feeder, product, first.flops, physical_bytes(feeder.shape))


def _may_feed(feeder: Node, chip: Chip) -> bool:
    """Return whether a product may feed another one in a kernel of both, for what it moves itself.

    What the second moves beside the first makes no difference.

    Source: 59 pairs of products compiled ahead of time for v5e (libtpu 0.0.52), with one and two dimensions of batches,
    of arrays that are cut, spread or turned; 15 each for v5p, where all is as for v5e, and v6e.
    """
    return not goes_through_part(feeder) and (turns_on_the_way(chip) or not turns_taken(feeder))


def _behind(operand: Node, private: Collection[Node]) -> list[Node]:
    """Return the dots among what is made for a product alone that one of its operands is made of."""
    # In an order that is the same in every run.
    todo, seen = [operand], {operand: None}
    while todo:
        node = todo.pop()
        new = [] if node not in private or node.opcode == "dot" else [one for one in node.operands if one not in seen]
        todo += new
        seen |= dict.fromkeys(new)
    return [node for node in seen if node in private and node.opcode == "dot"]


def _sizes(node: Node) -> Product:
    return canonical_product(node.written(), [operand.array for operand in node.operands])


def _held(first: Product, second: Product, side: int) -> float:
    """Return the elements that a kernel holds while it goes through the longer dimension of what is between two dots.

    Those are what the first is multiplied with and what the second is, or makes: of the shorter dimension, and of the
    depth of the first or of what nothing feeds of the second, which the first feeds on the left or right ``side``.
    """
    free, apart = (second.rows, second.columns) if side == 0 else (second.columns, second.rows)
    if first.batch != second.batch or sorted((first.rows, first.columns)) != sorted((second.depth, free)):
        return inf
    return min(second.depth, free) * (first.depth + apart)
