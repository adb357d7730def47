"""Tiles and orders: how an array of some sizes lies in memory where nothing else decides.

Source: programs compiled ahead of time, v3 to v6e.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, permutations
from math import prod

from tpusim.compiler.softmax.rows import is_row_window
from tpusim.compiler.softmax.shares import MATRIX
from tpusim.cost.mxu import round_up
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.layout import Layout
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

Order = tuple[int, ...]
"""Dimension numbers, minor to major."""


def laid_out(array: ArrayShape, order: Order, chip: Chip) -> ArrayShape:
    """Return an array in an order of its dimensions, with the tiles that belong to it."""
    return _laid_out(array.with_layout(None), order, chip.vpu.sublanes, chip.vpu.lanes, chip.least_tile_rows)


def least_padded(array: ArrayShape, orders: Iterable[Order], chip: Chip) -> Order:
    """Return the first of those orders in which an array takes the least memory."""
    return min(orders, key=lambda order: physical_bytes(laid_out(array, order, chip)))


def boundary_order(array: ArrayShape, chip: Chip) -> Order:
    """Return the order of an argument or a result of a program, a loop or a branch."""
    rank = array.rank
    default = tuple(reversed(range(rank)))
    # One without elements takes no memory in any order.
    if rank < 2 or not array.dtype.bits or 0 in array.dimensions:
        return default
    # Of many dimensions only the two minor ones matter for padding.
    return least_padded(array, chain([default], _descending(array)), chip)


def fullest_order(array: ArrayShape, chip: Chip) -> Order:
    """Return the order of least padded bytes that of equal ones would pad least in tiles of all sublanes."""
    tile = chip.vpu.sublanes, chip.vpu.lanes

    def padded(order: Order) -> tuple[int, int]:
        sizes = [array.dimensions[d] for d in order]
        minor = [round_up(size, to) for size, to in zip(sizes, reversed(tile), strict=False)]
        return physical_bytes(laid_out(array, order, chip)), prod((*minor, *sizes[2:]))

    return min(chain([tuple(reversed(range(array.rank)))], _descending(array)), key=padded)


def outside_of_tiles(array: ArrayShape, along: int, chip: Chip) -> Order:
    """Return the order for what goes along a dimension, one element after the other: outside of tiles, or of lanes.

    As long as that takes little more memory than the order that pads least.
    """
    orders = [tuple(reversed(range(array.rank))), *_descending(array)]
    sizes = [physical_bytes(laid_out(array, order, chip)) for order in orders]
    small = [order for order, size in zip(orders, sizes, strict=True) if size <= _LITTLE_MORE * min(sizes)]
    return min(small, key=lambda order: (along in order[:2], along == order[0], sizes[orders.index(order)]))


_LITTLE_MORE = 1.25
"""In programs compiled ahead of time running sums take up to 1.02 times the least memory, and not twice as much."""


def order_of_rows(node: Node) -> Order | None:
    """Return the order of stacked matrices whose rows are combined, if these are to go along the sublanes.

    Source: 60 reductions and row windows compiled ahead of time for v5e (libtpu 0.0.52), of what products make. Rows do
    so unless they are longer than a matrix has rows; columns that are combined stay where they are.
    """
    if len(node.operands) != 2:
        return None
    array, along = node.operands[0].array, _combined(node)
    large = array.large_dimensions
    if len(large) <= MATRIX or tuple(d for d in large if d in along) != large[-1:]:
        return None
    *_, rows, columns = large
    others = (d for d in reversed(range(array.rank)) if d not in (rows, columns))
    return (rows, columns, *others) if array.dimensions[columns] <= array.dimensions[rows] else None


def _combined(node: Node) -> Sequence[int]:
    """Return the dimensions that a reduction or a row window combines."""
    if node.opcode == "reduce":
        return tuple(node.attributes["dimensions"])
    if not is_row_window(node):
        return ()
    return [d for d, window in enumerate(node.attributes["window"].dimensions) if window.size > 1]


def order_of_spread(broadcast: Node, order: Order) -> Iterator[Order]:
    """Yield the order of a matrix that is broadcast into the tiles of a result, where that lies in an order."""
    (operand,), along = broadcast.operands, broadcast.attributes.get("dimensions", ())
    minor = [along.index(d) for d in order[:MATRIX] if d in along]
    if len(minor) == MATRIX:
        yield (*minor, *(d for d in reversed(range(operand.array.rank)) if d not in minor))


def without_ones(reshape: Node, order: Order) -> Iterator[Order]:
    """Yield the order of a reshape's operand in one of its result, if they differ in dimensions of size 1 alone."""
    before, after = reshape.operands[0].array, reshape.array
    large = [array.large_dimensions for array in (before, after)]
    if [before.dimensions[d] for d in large[0]] == [after.dimensions[d] for d in large[1]]:
        place = dict(zip(large[1], large[0], strict=True))
        ones = [d for d in reversed(range(before.rank)) if d not in large[0]]
        yield (*(place[d] for d in order if d in place), *ones)


def _descending(array: ArrayShape) -> Iterator[Order]:
    """Yield the choices of the two minor dimensions, the others in default order, the highest numbers first."""
    rank, sizes = array.rank, array.dimensions
    count = Counter[int]()
    minor = []
    for number in reversed(range(rank)):
        # A third one of a size gives the padding that the first two give.
        count[sizes[number]] += 1
        if count[sizes[number]] <= 2:
            minor.append(number)
    for pair in permutations(minor, 2):
        yield (*pair, *(d for d in reversed(range(rank)) if d not in pair))


def with_boundary_layouts(shape: Shape, chip: Chip) -> Shape:
    """Return a shape laid out as an argument or a result of a program."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(with_boundary_layouts(element, chip) for element in shape.elements))
    if not isinstance(shape, ArrayShape) or not shape.dtype.bits:
        return shape
    return laid_out(shape, boundary_order(shape, chip), chip)


@lru_cache(maxsize=1 << 14)
def _laid_out(array: ArrayShape, order: Order, sublanes: int, lanes: int, least_rows: int) -> ArrayShape:
    sizes = [array.dimensions[d] for d in reversed(order)]
    bits = array.dtype.packed_bits
    tiles = tiles_of(bits, sizes, (sublanes, lanes), least_rows)
    return array.with_layout(Layout(order, tiles, element_size_bits=bits if bits < array.dtype.storage_bits else 0))


def tiles_of(
    bits: int, sizes: Sequence[int], register: tuple[int, int], least_rows: int
) -> tuple[tuple[int, ...], ...]:
    """Return the tiles of an array whose sizes are given in physical order, major to minor.

    Exact on 35,765 of 35,767 arrays of programs compiled ahead of time for v3 to v6e.
    """
    sublanes, lanes = register
    pack = max(1, 32 // bits)
    packed = ((pack, 1),) if pack > 1 else ()
    if not sizes:
        return ((lanes * pack * least_rows,),)
    if len(sizes) == 1:
        return (_covering(sizes[0], lanes * pack * least_rows, lanes * sublanes),), *(
            ((lanes,), *packed) if packed else ()
        )
    return (_covering(sizes[-2], pack * least_rows, sublanes), lanes), *packed


def _covering(size: int, least: int, most: int) -> int:
    """Return the smallest power of two, from ``least`` to ``most``, that covers ``size``."""
    return min(max(least, 1 << max(0, size - 1).bit_length()), max(least, most))
