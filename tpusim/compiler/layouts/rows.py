"""How tables lie of which kernels gather rows, or onto which they scatter them.

A row is what one index names: of each dimension one element, all of it, or (gathered only) a part. A kernel takes the
elements of a row from lanes, so that the dimension there must be one of which a row has all; parts of dimensions begin
anywhere, and lie outside of tiles.

Source: 72 gathers of real programs, and 90 small ones with gathers and scatters, compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from tpusim.compiler.layouts.orders import Order, laid_out
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


def takes_rows(sizes: Sequence[int], row: Sequence[int], order: Order) -> bool:
    """Return whether a kernel takes rows of these sizes from a table as it lies, or there is no other way to lie."""
    if all(size == 1 for size in row):
        return True
    return row[order[0]] == sizes[order[0]] and not set(parts(sizes, row)).intersection(order[:2])


def row_order(sizes: Sequence[int], row: Sequence[int], taken: Order) -> Order:
    """Return the order for a table that lies in ``taken``: what rows have all of, then one of, then parts of."""
    outer = parts(sizes, row)
    return tuple(sorted(taken, key=lambda d: (d in outer, row[d] == 1)))


def parts(sizes: Sequence[int], row: Sequence[int]) -> list[int]:
    """Return the dimensions of which rows have more than one element, and not all."""
    return [d for d, size in enumerate(row) if 1 < size < sizes[d]]


def side_by_side(order: Order, moved: Mapping[int, int], rank: int) -> Order:
    """Return the order of rows side by side, from a table that lies in ``order``: they lie as it does.

    ``moved`` has the dimensions of the rows, in an array of this rank, by those of the table. Where the table has one
    element of a row in lanes or sublanes, other rows come to lie there.
    """
    default = tuple(reversed(range(rank)))
    others = [d for d in default if d not in moved.values()]
    if moved.keys() >= set(order[:2]):
        return (*(moved[d] for d in order if d in moved), *others)
    minor = [[moved[d]] if d in moved else others for d in order[:2]]
    return tuple(dict.fromkeys((*chain.from_iterable(minor), *default)))


def stays_narrow(table: ArrayShape, order: Order, chip: Chip) -> bool:
    """Return whether rows are gathered from a table as it lies, since it has few lanes to fill in that order."""
    padded = _bytes(table, order, chip)
    return padded >= _WIDE_BYTES and padded > 2 * table.element_count * table.dtype.packed_bits // 8


def is_too_large(target: ArrayShape, order: Order, chip: Chip) -> bool:
    """Return whether rows are scattered onto an array as it lies, since it takes too much memory in that order."""
    return _bytes(target, order, chip) >= _LARGE_BYTES


_WIDE_BYTES = 180 * 10**6
"""Tables of 16 to 32 numbers a row are copied for 154 MB and not for 205; those that only double are always copied."""

_LARGE_BYTES = 2**30
"""What is scattered onto is copied for 0.5 GB and not for 2 GB."""


def _bytes(array: ArrayShape, order: Order, chip: Chip) -> int:
    return physical_bytes(laid_out(array, order, chip))


def window_sizes(scatter: Node) -> list[int]:
    """Return the sizes of what one update of a scatter is put onto, by the dimensions of its target."""
    update = scatter.operands[-1].array
    sizes = [update.dimensions[d] for d in scatter.attributes["update_window_dims"]]
    for along in sorted(left_out(scatter)):
        sizes.insert(along, 1)
    return sizes


def left_out(node: Node) -> set[int]:
    """Return the dimensions that a gather's table, or a scatter's target, has and their rows have not."""
    if node.opcode == "gather":
        return {*node.attributes["collapsed_slice_dims"], *node.attributes.get("operand_batching_dims", ())}
    return {*node.attributes["inserted_window_dims"], *node.attributes.get("input_batching_dims", ())}


def moved_dimensions(node: Node) -> dict[int, int]:
    """Return which dimensions of rows side by side are which of a gather's table, or a scatter's target."""
    rows = node.attributes["offset_dims" if node.opcode == "gather" else "update_window_dims"]
    gone = left_out(node)
    return dict(zip((d for d in range(node.operands[0].array.rank) if d not in gone), rows, strict=True))
