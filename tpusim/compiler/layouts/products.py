"""How a matrix unit wants a product's arrays: which dimensions of its operands and its result lie in tiles.

Source: programs compiled ahead of time, v5e, v5p and v6e.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from tpusim.compiler.layouts.orders import Order
from tpusim.cost.mxu import round_up
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.shapes.shape import ArrayShape


class Sides(NamedTuple):
    """Of an operand or the result of a product: the dimensions of the one kind and of the other that it has.

    An array takes a block of both in, and gives such a block out, so that the two minor dimensions are one of each;
    whatever else there is goes round them. Those of ``outside`` do so in default order.
    """

    one: tuple[int, ...]
    other: tuple[int, ...]
    outside: tuple[int, ...] = ()

    @property
    def minor_pairs(self) -> list[tuple[int, int]]:
        """The two minor dimensions, either way round."""
        pairs = list(product(self.one, self.other))
        return pairs + [(b, a) for a, b in pairs]

    def fit(self, order: Order) -> bool:
        """Return whether an array may lie in that order."""
        if not self.minor_pairs:
            return True
        outside = [d for d in order if d in self.outside]
        return order[:2] in self.minor_pairs and outside == sorted(outside, reverse=True)


def product_sides(node: Node) -> list[Sides]:
    """Return what the two operands and the result of a product have."""
    if node.opcode == "convolution":
        labels = node.attributes["dim_labels"]
        texts = ((labels.lhs, "b", "f"), (labels.rhs, "i", "o"), (labels.output, "b", "f"))
        return [Sides((text.index(one),), (text.index(other),)) for text, one, other in texts]
    arrays = [operand.array for operand in node.operands[:2]]
    summed = [node.attributes.get(f"{side}_contracting_dims", ()) for side in ("lhs", "rhs")]
    free = free_dimensions(node)
    sides = [
        Sides(_large(array, mine), _large(array, depth))
        for array, mine, depth in zip(arrays, free, summed, strict=True)
    ]
    rows, columns = made_dimensions(node)
    return [*sides, Sides(_large(node.array, rows), _large(node.array, columns))]


def result_sides(node: Node, chip: Chip) -> Sides:
    """Return what the result of a dot has: one dimension of each kind in tiles.

    A dot runs as a convolution: one dimension of its rows is the batch, one of its columns the features, and the others
    are spatial. The one is taken that pads the width of an array least, of equal ones the last, in whatever order an
    operand lies. Where the last of the rows is whole tiles they are one dimension as they lie, and so it is taken all
    the same unless another one pads nothing.

    Source: 57 dots compiled ahead of time (libtpu 0.0.52), with two to four dimensions of rows or of columns.
    """
    lanes, sizes = chip.vpu.lanes, node.array.dimensions
    rows, columns = (_large(node.array, made) for made in made_dimensions(node))
    whole = [d for d in rows[-1:] if sizes[d] % chip.vpu.sublanes == 0]
    sides = [
        sorted(side, key=lambda d: (sizes[d] % lanes > 0, d not in whole, round_up(sizes[d], lanes) / sizes[d], -d))
        for side in (rows, columns)
    ]
    one, other = sides
    return Sides(tuple(one[:1]), tuple(other[:1]), (*one[1:], *other[1:]))


def wanted_sides(node: Node, chip: Chip) -> list[Sides]:
    """Return what operands of a product have where they may lie as it likes: of its rows and columns one in tiles."""
    sides = product_sides(node)[:2]
    if node.opcode != "dot":
        return sides
    made = result_sides(node, chip)
    rows, columns = (
        tuple(taken for d, taken in zip(own, free, strict=True) if d in chosen)
        for own, free, chosen in zip(made_dimensions(node), free_dimensions(node), (made.one, made.other), strict=True)
    )
    return [side._replace(one=own) for side, own in zip(sides, (rows, columns), strict=True)]


def free_dimensions(node: Node) -> list[tuple[int, ...]]:
    """Return those dimensions of either operand of a dot that its result has for itself."""
    named = node.attributes
    gone = [
        (*named.get(f"{side}_batch_dims", ()), *named.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")
    ]
    arrays = (operand.array for operand in node.operands[:2])
    return [tuple(d for d in range(array.rank) if d not in taken) for array, taken in zip(arrays, gone, strict=True)]


def made_dimensions(node: Node) -> tuple[range, range]:
    """Return the dimensions of a dot's result that are its rows, and those that are its columns."""
    batch = len(node.attributes.get("lhs_batch_dims", ()))
    rows = range(batch, batch + len(free_dimensions(node)[0]))
    return rows, range(rows.stop, node.array.rank)


def _large(array: ArrayShape, dimensions: Iterable[int]) -> tuple[int, ...]:
    return tuple(d for d in dimensions if array.dimensions[d] > 1)
