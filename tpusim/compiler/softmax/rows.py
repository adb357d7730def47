"""A maximum over a row that is broadcast back over it becomes a window as wide as the row reaches both ways.

The window's result has the row's own shape, so that scores, their maximum and the exponentials are one kernel. So are
only stacks of matrices treated, and rows that are not too long.

Source: programs compiled ahead of time for v4, v5e and v6e, in which a softmax over rows of n has a ``reduce-window``
of 2n - 1, with three dimensions (from 128 to 8,192 elements) and not with two, nor from 12,288 on. A maximum that
leaves out dimensions of size 1 as well is none (6 programs for v5e, libtpu 0.0.52).
"""

from __future__ import annotations

from math import inf, prod

from tpusim.compiler.softmax.shares import MATRIX, has_kernel, is_plain_softmax
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import WORD_BITS
from tpusim.ir.attributes import Window, WindowDimension
from tpusim.ir.ops import ELEMENTWISE, IDEMPOTENT, PLAIN_PRODUCTS, RELAYOUTS
from tpusim.semantics.combining import sole_opcode


def make_row_windows(draft: Draft, target: Target) -> None:
    """Replace maxima and minima of rows that are broadcast back over these."""
    for graph in draft.reachable():
        for node in graph.order():
            if node.opcode == "broadcast":
                _replace(graph, node, target)


def _replace(graph: Graph, node: Node, target: Target) -> None:
    (reduce,) = node.operands
    if reduce.opcode != "reduce" or len(reduce.operands) != 2 or len(reduce.attributes["dimensions"]) != 1:
        return
    row, start = reduce.operands
    (along,) = reduce.attributes["dimensions"]
    if row.array.dimensions != node.array.dimensions or any(row.array.dynamic) or not _is_idempotent(graph, reduce):
        return
    others = [d for d in row.array.large_dimensions if d != along]
    if [node.attributes["dimensions"][d] for d in reduce.array.large_dimensions] != others:
        return
    size = row.array.dimensions[along]
    if not 0 < size <= _LONGEST or row.array.true_rank <= MATRIX or _is_made_again(row, node, target):
        return
    whole = WindowDimension(2 * size - 1, 1, size - 1, size - 1)
    window = Window(tuple(whole if d == along else WindowDimension(1) for d in range(row.array.rank)))
    named = {"window": window, "to_apply": reduce.attributes["to_apply"]}
    graph.replace(node, graph.add("reduce-window", node.shape, [row, start], named, like=reduce))


_LONGEST = 8192
"""Elements of a row that a kernel still sees as a whole."""


def _is_made_again(row: Node, wide: Node, target: Target) -> bool:
    """Return whether what is made of a row and its maximum is made again for a product and for what else needs it.

    So are exponentials that are summed, or that several products take, unless they become narrower on the way: they are
    made of the row that is stored beside its maximum. Of a row as a product leaves it, or if no product takes it, it is
    stored itself.

    Source: 97 of 124 programs compiled ahead of time for v5e and v4 (libtpu 0.0.52). Of 25 others the result is what is
    made of a row: there is no window for that, if a product or a gather makes it. All of 74 attentions, of which 14 of
    f32, for v5e and v5p.
    """
    while row.opcode in RELAYOUTS:
        row = row.operands[0]
    if row.opcode in PLAIN_PRODUCTS:
        return False
    made = wide
    while len(made.users) == 1 and (user := next(iter(made.users))).opcode in ELEMENTWISE:
        made = user
    if len(made.users) < 2 or (has_kernel(target) and is_plain_softmax(made)):
        return False
    return _are_for_product(made)


def _are_for_product(made: Node) -> bool:
    """Return whether a product takes what is made of a node element by element or moved, and no narrower."""
    todo = list(made.users)
    seen = set(todo)
    while todo:
        node = todo.pop()
        if node.opcode in PLAIN_PRODUCTS:
            return True
        if node.opcode in ELEMENTWISE | RELAYOUTS and node.array.dtype.bits >= made.array.dtype.bits:
            new = [user for user in node.users if user not in seen]
            seen.update(new)
            todo += new
    return False


def _is_idempotent(graph: Graph, reduce: Node) -> bool:
    """Return whether no order or count of the row's elements matters to a reduction."""
    return sole_opcode(graph.draft.graphs, reduce.attributes["to_apply"]) in IDEMPOTENT


# Questions about row windows, for what makes kernels.


def is_row_window(node: Node) -> bool:
    """Return whether it is a window that reaches over a whole row from wherever it stands."""
    if node.opcode != "reduce-window":
        return False
    window = node.attributes["window"].dimensions
    sizes = node.operands[0].array.dimensions
    return all(d.size in (1, 2 * size - 1) for d, size in zip(window, sizes, strict=True))


def goes_along_lanes(window: Node) -> bool:
    """Return whether the rows of a window are longer than there are columns of a matrix."""
    length, columns = _row_and_columns(window)
    return length > columns


def has_long_rows(window: Node, product: Node) -> bool:
    """Return whether no kernel has the rows of a window at hand while it makes them with a product.

    Source: 43 kernels compiled ahead of time for v5e (libtpu 0.0.52). Rows that are longer than there are columns go
    along the lanes: up to 4,096 elements are made with the product, 5,120 are not. Of others, which go along the
    sublanes, up to 2,816 are, and 3,072 are not; where the product sums over 64 elements up to 3,072, and 4,096 are
    not. Of 16 bits 4,096 are as well.
    """
    if window.array.dtype.bits < WORD_BITS:
        return False
    if goes_along_lanes(window):
        most = _LONGEST_OF_LANES
    else:
        most = _LONGEST_NARROW if _summed_elements(product) <= _NARROW else _LONGEST_OF_SUBLANES
    length, _ = _row_and_columns(window)
    return length > most


_LONGEST_OF_LANES, _LONGEST_OF_SUBLANES, _LONGEST_NARROW, _NARROW = 4096, 2816, 3072, 64


def has_much_to_compute(window: Node) -> bool:
    """Return whether a kernel that reads scores of 16 bits does not make of them what the rows of a window consist of.

    It would have all of that at hand for whole rows, and so the kernel that makes the scores does it.

    Source: 56 attentions compiled ahead of time for v5e (libtpu 0.0.52), with 128 and 256 elements in each head. Scores
    that are multiplied by a number are read up to 2,560 elements, and 2,816 are not; with a bias as well, or masked
    only, up to 1,792, and 1,920 are not; multiplied and masked, or multiplied twice and added to, up to 1,408, and
    1,536 are not; with a bias and masked 1,152 are, and multiplied, capped and masked they are not.
    """
    row = window.operands[0]
    length, _ = _row_and_columns(window)
    todo, seen, combined = [row], {row}, 0
    while todo:
        node = todo.pop()
        # What is done to scores of 16 bits is done where they are made.
        if node.opcode not in ELEMENTWISE or (node.array.dtype.is_float and node.array.dtype.bits < WORD_BITS):
            continue
        if node.array.element_count < row.array.element_count:
            continue
        combined += len(node.operands) - 1
        new = [operand for operand in node.operands if operand not in seen]
        seen.update(new)
        todo += new
    return length * (combined + _COMBINED_ANYHOW) > _MOST_COMBINED


_COMBINED_ANYHOW, _MOST_COMBINED = 1.5, 6500
"""Of each element of a row: what a softmax does with it beside, and the most, in operands that are combined.

Fitted: 1.5 and 6,400 to 6,720 meet all that is said above.
"""


def _row_and_columns(window: Node) -> tuple[int, int]:
    """Return how many elements the rows of a window have, and how many lie side by side in a matrix."""
    sizes = dict(enumerate(window.array.dimensions))
    # Windows of one element are rows of one, whichever dimension these go along.
    along = [d for d, part in enumerate(window.attributes["window"].dimensions) if part.size > 1]
    length = max((sizes.pop(d) for d in along), default=1)
    return length, max((size for d, size in sizes.items() if d >= window.array.rank - 2), default=1)


def _summed_elements(product: Node) -> float:
    """Return of how many products each element of a matrix product is the sum."""
    if product.opcode != "dot":
        return inf
    sizes = product.operands[0].array.dimensions
    return float(prod(sizes[d] for d in product.attributes.get("lhs_contracting_dims", ())))
