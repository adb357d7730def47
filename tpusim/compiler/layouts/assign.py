"""Pass 6: every array gets a layout: the order of its dimensions in memory, and its tiles.

The order of an argument or a result of the program is the one of least padded bytes; of equal ones the default order,
then the descending ones. Inside, most operations keep the order of their operands. Where one is free (a product, a
reshape that moves elements, a gather, what is made of vectors alone) it makes what its users want, or what pads least:
products want their batch dimensions outermost, convolutions their features in lanes and their batch in sublanes, and
what combines the rows of stacked matrices has them along the sublanes. Where two disagree, a copy stands between them.

The user may have said otherwise of arguments and results (``jax.experimental.layout``): an order, or ``auto`` for what
their users, or makers, want.

Source: XLA, LayoutAssignment and LayoutMode, by idea; the rules of order and tiles from programs compiled ahead of
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tpusim.compiler.host.held import is_to_host
from tpusim.compiler.layouts.bitcasts import carried_orders, is_bitcast, named_anew, stays
from tpusim.compiler.layouts.loops import Rows, copy_before_loops, order_of_taken, order_of_written, rows_of
from tpusim.compiler.layouts.orders import (
    Order,
    boundary_order,
    laid_out,
    least_padded,
    order_of_rows,
    order_of_spread,
    outside_of_tiles,
    with_boundary_layouts,
    without_ones,
)
from tpusim.compiler.layouts.products import Sides, product_sides, result_sides, wanted_sides
from tpusim.compiler.layouts.rows import (
    is_too_large,
    moved_dimensions,
    parts,
    row_order,
    side_by_side,
    stays_narrow,
    takes_rows,
    window_sizes,
)
from tpusim.compiler.layouts.whole_tiles import move_tiles, moved_tiles
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import ComputationLayout
from tpusim.ir.ops import (
    CONTROL_FLOW,
    ELEMENTWISE,
    FUSES_INTO_USERS,
    KEEPS_LAYOUT,
    LAID_OUT_FREELY,
    LINEAR_ALGEBRA,
    PLAIN_PRODUCTS,
    PUTS_TOGETHER,
    RELAYOUTS,
    SORTS,
)
from tpusim.semantics.host_memory import move_of
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.shapes.shape import ArrayShape, TupleShape


def assign_layouts(draft: Draft, target: Target) -> None:
    """Give every array of the module a layout, with copies where users disagree."""
    entry = draft.entry
    carried: dict[str, TupleShape] = {}
    # What a loop carries is laid out where it is handed: callers come first.
    for graph in reversed(draft.reachable()):
        _Assignment(graph, target, _modes(draft) if graph is entry else _Modes((), ()), carried).run()
    copy_before_loops(draft)
    draft.attributes["entry_computation_layout"] = ComputationLayout(
        tuple(parameter.shape for parameter in entry.parameters), entry.root.shape
    )


class _Modes(NamedTuple):
    """What the user says of the layouts of arguments and results, in their order: as usual, free, or an order."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]

    def of_argument(self, node: Node) -> str:
        """Return what is said of an argument."""
        return self._at(self.arguments, node.immediate)

    def of_result(self, number: int) -> str:
        """Return what is said of a result."""
        return self._at(self.results, number)

    @staticmethod
    def _at(modes: tuple[str, ...], number: Any) -> str:
        return modes[number] if isinstance(number, int) and number < len(modes) else _USUAL


_USUAL, _FREE = "default", "auto"
_ORDER = re.compile(r"\{((?:\d{1,3},?)*)")


def _modes(draft: Draft) -> _Modes:
    said, root = frontend_attributes(draft.attributes), draft.entry.root
    arguments, results = (tuple(said.get(f"{of}_layout_modes", "").split(";")) for of in ("arg", "out"))
    made = len(root.operands) if root.opcode == "tuple" else 1
    # XLA says it of every array: where tuples come in, or go out, which is which is not known here.
    is_flat = len(arguments) == len(draft.entry.parameters), len(results) == made
    return _Modes(arguments if is_flat[0] else (), results if is_flat[1] else ())


def _stated_order(mode: str, array: ArrayShape) -> Order | None:
    """Return the order of an array that a mode states, None where it states none of its dimensions."""
    found = _ORDER.match(mode)
    order = tuple(int(number) for number in found[1].split(",") if number) if found else ()
    return order if sorted(order) == list(range(array.rank)) else None


_FOLLOWS = KEEPS_LAYOUT - LINEAR_ALGEBRA - SORTS - CONTROL_FLOW - {"scatter"}
"""Opcodes whose operands of the same rank lie in the order of the result."""


class _Assignment:
    """The orders of one graph's arrays: what users want, from the results back, then what each node gets."""

    def __init__(self, graph: Graph, target: Target, modes: _Modes, carried: dict[str, TupleShape]) -> None:
        self.graph = graph
        self.modes = modes
        # By computation what a loop hands it, of loops that carry some arrays otherwise than in their usual order.
        self.carried = carried
        self.rows: dict[Node, Rows] = {}
        self.target = target
        self.chip = target.chip
        self.wanted: dict[Node, Order] = {}
        self.order: dict[Node, Order] = {}
        # What is made in the order that is wanted, whatever it is made of.
        self.firm: set[Node] = set()
        self.results: set[Node] = set()
        # What is wanted as it is by a product, perhaps behind work element by element.
        self.by_product: set[Node] = set()
        # What is wanted as it is by what combines rows, perhaps behind such work.
        self.by_rows: set[Node] = set()

    def run(self) -> None:
        nodes = self.graph.order()
        self.rows = {node.operands[0]: rows_of(self.graph, node) for node in nodes if node.opcode == "while"}
        rows, results = self._orders_of_rows(nodes), dict(self._results(self.graph.root))
        self.wanted |= rows | results
        self.by_rows.update(rows.keys() - results.keys())
        self.results.update(results)
        for node in reversed(nodes):
            self._want(node)
        for node in nodes:
            self._assign(node)
        self._close()

    # From the results back.

    def _orders_of_rows(self, nodes: Sequence[Node]) -> dict[Node, Order]:
        """Return the arrays that dots make, perhaps with work element by element, and whose rows are to be columns."""
        made: set[Node] = set()
        for node in nodes:
            keeps = node.opcode in ELEMENTWISE or node.opcode == "reshape"
            if node.opcode == "dot" or (keeps and not made.isdisjoint(node.operands)):
                made.add(node)
        rows = ((node.operands[0], order_of_rows(node)) for node in nodes if node.operands and node.operands[0] in made)
        return {array: order for array, order in rows if order}

    def _results(self, root: Node) -> Iterator[tuple[Node, Order]]:
        """Yield the arrays that a graph hands on, each with the order in which it is to be."""
        arrays = root.operands if root.opcode == "tuple" else [root]
        if root is self.graph.root and root.opcode == "tuple" and self.graph.name in self.carried:
            elements = self.carried[self.graph.name].elements
            for array, element in zip(arrays, elements, strict=True):
                if isinstance(element, ArrayShape) and element.dtype.bits:
                    yield array, element.actual_layout.minor_to_major
            return
        rows = self.rows.get(root, Rows({}, {}))
        for number, array in enumerate(arrays):
            if number in rows.taken or number in rows.written:
                continue
            mode = self.modes.of_result(number) if root is self.graph.root else _USUAL
            if isinstance(array.shape, ArrayShape) and array.shape.dtype.bits and mode != _FREE:
                yield array, _stated_order(mode, array.shape) or boundary_order(array.shape, self.chip)

    def _want(self, node: Node) -> None:
        """Note what a node wants of its operands, unless a later user has said so already."""
        for operand, order in self._wants(node):
            if isinstance(operand.shape, ArrayShape) and operand.shape.rank > 1:
                if operand not in self.wanted and (node.opcode in PLAIN_PRODUCTS or node in self.by_product):
                    self.by_product.add(operand)
                if operand not in self.wanted and node in self.by_rows and node.opcode not in PLAIN_PRODUCTS:
                    self.by_rows.add(operand)
                is_wanted = self.wanted.setdefault(operand, order) == order
                is_firm = node in self.firm or _is_put_together(operand, node)
                if is_wanted and is_firm and operand.opcode in FUSES_INTO_USERS:
                    self.firm.add(operand)

    def _wants(self, node: Node) -> Iterable[tuple[Node, Order]]:
        if node.opcode in PLAIN_PRODUCTS:
            sides = zip(node.operands, wanted_sides(node, self.chip), strict=False)
            return [(operand, self._product_order(operand.array, has)) for operand, has in sides if has.minor_pairs]
        if node.opcode == "tuple":
            return self._results(node)
        along = _runs_along(node)
        if along is not None:
            return [(node.operands[0], outside_of_tiles(node.operands[0].array, along, self.chip))]
        mine = self.wanted.get(node)
        if mine is None:
            return ()
        if node.opcode in _FOLLOWS:
            return [(operand, mine) for operand in node.operands if _rank(operand) == len(mine)]
        if node.opcode == "scatter" or is_to_host(node):
            return [(node.operands[0], mine)]
        if node.opcode == "transpose":
            return [(node.operands[0], tuple(node.attributes["dimensions"][d] for d in mine))]
        if node.opcode == "reshape" and node in self.by_rows:
            return [(node.operands[0], order) for order in without_ones(node, mine)]
        if node.opcode == "broadcast" and node in self.by_rows:
            return [(node.operands[0], order) for order in order_of_spread(node, mine)]
        return ()

    # From the arguments on.

    def _assign(self, node: Node) -> None:
        shape = node.shape
        if not isinstance(shape, ArrayShape):
            self._assign_tuple(node)
            return
        if node.opcode in LAID_OUT_FREELY and shape.rank > 1:
            return
        rule = _ASSIGN.get(node.opcode) or (_follow if node.opcode in _FOLLOWS else _default)
        self._set(node, rule(self, node))

    def _set(self, node: Node, order: Order) -> None:
        self.order[node] = order
        node.shape = laid_out(node.array, order, self.chip) if node.array.dtype.bits else node.shape

    def _assign_tuple(self, node: Node) -> None:
        """Everything that makes a tuple makes it as programs are handed theirs."""
        if node.opcode == "tuple":
            orders = dict(self._results(node))
            for operand in node.operands:
                # What nobody wants in an order has one before the tuple is said to hold it.
                if isinstance(operand.shape, ArrayShape) and operand not in orders:
                    self.settled(operand)
            places = [orders.get(operand) for operand in node.operands]
            for at, order in self._rows_orders(node).items():
                places[at] = order
            given = zip(node.operands, places, strict=True)
            node.take([self.ordered(one, order) if order else one for one, order in given])
            node.shape = TupleShape(tuple(operand.shape for operand in node.operands))
            return
        if node.opcode == "while" and node.operands[0] in self.rows:
            self._hand_on(node)
            return
        if node.opcode == "parameter" and self.graph.name in self.carried:
            node.shape = self.carried[self.graph.name]
            return
        if node.opcode == "sort":
            # Arrays of several types, whose own orders may differ, are sorted together.
            order = boundary_order(node.operands[0].array, self.chip)
            node.take([self.ordered(operand, order) for operand in node.operands])
            node.shape = TupleShape(tuple(operand.shape for operand in node.operands))
            return
        node.take([self.coerced(operand) for operand in node.operands])
        node.shape = with_boundary_layouts(node.shape, self.chip)

    def _rows_orders(self, state: Node) -> dict[int, Order]:
        """Return the orders of what a loop takes or writes row by row, by its place in what the loop is handed."""
        rows = self.rows.get(state, Rows({}, {}))
        found: dict[int, Order] = {}
        inside, fills = self.graph.name in self.carried, bool(rows.written)
        for at, along in rows.taken.items():
            array, handed = state.operands[at].array, self.settled(state.operands[at])
            found[at] = order_of_taken(handed, array, along, self.chip, inside=inside, fills=fills)
        takers = [user.takers() for user in state.users if user.opcode == "while"]
        for at, along in rows.written.items():
            array = state.operands[at].array
            behind = (self.wanted.get(taker) for each in takers for taker in each[at])
            wanted = next((order for order in behind if order), boundary_order(array, self.chip))
            found[at] = order_of_written(wanted, array, along, self.chip)
        return found

    def _hand_on(self, loop: Node) -> None:
        """Let a loop, and what it runs, have everything as it is handed to it."""
        shape = loop.operands[0].shape
        assert isinstance(shape, TupleShape)
        loop.shape = shape
        self.carried |= {loop.attributes[name]: shape for name in ("body", "condition")}

    def coerced(self, operand: Node) -> Node:
        """Return an operand in the order in which programs are handed theirs."""
        if not isinstance(operand.shape, ArrayShape) or not operand.shape.dtype.bits:
            return operand
        return self.ordered(operand, boundary_order(operand.shape, self.chip))

    def ordered(self, operand: Node, order: Order) -> Node:
        """Return an operand in that order: itself, a copy, or where it is made from nothing, another one of it."""
        if operand not in self.order and operand.opcode in LAID_OUT_FREELY:
            self._set(operand, order)
        if self.order[operand] == order:
            return operand
        if operand.opcode in LAID_OUT_FREELY & FUSES_INTO_USERS:
            made = self.graph.clone(operand)
            self._set(made, order)
            return made
        twin = next((u for u in operand.users if u.opcode == "copy" and self.order.get(u) == order), None)
        if twin is None:
            twin = self.graph.add("copy", operand.shape, [operand], like=operand)
            self._set(twin, order)
        return twin

    def taken(self, operand: Node, order: Order) -> Node:
        """Return an operand of a product in that order: what the product converts itself is brought to it before that.

        With its lanes as they are the product lays it out anew as well, and the narrow array is all that is read.
        """
        if not _is_converted_by_products(operand) or self.order[operand][0] != order[0]:
            return self.ordered(operand, order)
        made = self.graph.clone(operand, [self.taken(operand.operands[0], order)])
        self._set(made, order)
        return made

    def settled(self, operand: Node) -> Order:
        """Return the order of an operand, which is the one that pads least if nobody has asked for another."""
        if operand not in self.order:
            self._set(operand, self.free(operand))
        return self.order[operand]

    def free(self, node: Node) -> Order:
        """Return the order of what may lie in any: that which is wanted, or pads least."""
        return self.wanted.get(node) or boundary_order(node.array, self.chip)

    def _product_order(self, array: ArrayShape, sides: Sides) -> Order:
        """Return the order for a side of a product, or its result: what pads least."""
        default = tuple(reversed(range(array.rank)))
        pairs = sorted(sides.minor_pairs, key=lambda pair: [default.index(d) for d in pair])
        orders = [(*pair, *(d for d in default if d not in pair)) for pair in pairs]
        return least_padded(array, orders or [default], self.chip)

    def _turn_spread(self, node: Node) -> None:
        """Turn a mask or a bias before it is spread over what lies turned."""
        orders = order_of_spread(node, self.order[node]) if node.opcode == "broadcast" else ()
        for order in orders:
            if self.settled(node.operands[0])[:2] != order[:2]:
                node.take([self.ordered(node.operands[0], order)])

    def _close(self) -> None:
        """Lay out what is left, and the result as programs, loops and branches are to hand it on."""
        for node in self.graph.order():
            if isinstance(node.shape, ArrayShape) and node not in self.order:
                self.settled(node)
        root = self.graph.root
        if isinstance(root.shape, ArrayShape):
            self.graph.root = next((self.ordered(root, order) for _, order in self._results(root)), root)
        for node in filter(self.by_rows.__contains__, self.graph.order()):
            self._turn_spread(node)
        for node in self.graph.order():
            if node.opcode in RELAYOUTS and is_bitcast(node):
                self.graph.replace(node, named_anew(self.graph, node.operands[0], node.shape, node))
            elif node.opcode == "reshape":
                move_tiles(self.graph, node)


def _rank(node: Node) -> int:
    return node.shape.rank if isinstance(node.shape, ArrayShape) else -1


def _is_put_together(operand: Node, product: Node) -> bool:
    """Return whether a product that has to have an operand laid out anew puts it together from what lies so already.

    Source: as below, with keys of two halves, of two arrays, and with room behind them.
    """
    if product.opcode not in PLAIN_PRODUCTS or operand.opcode not in PUTS_TOGETHER:
        return False
    default = tuple(reversed(range(operand.array.rank)))
    sides = zip(product.operands, product_sides(product), strict=False)
    return any(one is operand and not has.fit(default) for one, has in sides)


def _is_converted_by_products(node: Node) -> bool:
    """Return whether a node is made of an array of bytes, or less, by conversions alone.

    Source: 40 products of keys that are computed, with heads behind positions, compiled ahead of time for v5e (libtpu
    0.0.52): of s4, u4, s8, u8, pred and two types of f8 they are converted in the product, of s16, f16, s32 and f32 in
    a kernel before it.
    """
    is_converted = node.opcode == "convert"
    while node.opcode == "convert":
        (node,) = node.operands
    return is_converted and node.array.dtype.bits <= _BYTE


_BYTE = 8


def _product(self: _Assignment, node: Node) -> Order:
    sides = product_sides(node)
    operands = list(node.operands)
    for at, (operand, has) in enumerate(zip(operands[:2], sides, strict=False)):
        if not has.fit(self.settled(operand)):
            operands[at] = self.taken(operand, self._product_order(operand.array, has))
    node.take(operands)
    wanted, made = self.wanted.get(node), sides[2]
    if node.opcode == "dot":
        made = result_sides(node, self.chip)
    return wanted if wanted and made.fit(wanted) else self._product_order(node.array, made)


def _follow(self: _Assignment, node: Node) -> Order:
    """The order of the largest operand that has one, of equal ones a product's; the others are brought to it."""
    alike = [operand for operand in node.operands if _rank(operand) == node.array.rank]
    known = [operand for operand in alike if operand in self.order]
    wanted = self.wanted.get(node)
    if known:
        largest = max(
            known, key=lambda one: (one.array.element_count * one.array.dtype.bits, one.opcode in PLAIN_PRODUCTS)
        )
        order = self.order[largest]
        if wanted and (node in self.firm or any(self.order[operand] == wanted for operand in known)):
            order = wanted
        elif wanted and largest.opcode not in FUSES_INTO_USERS:
            # A copy of what no kernel of this makes is needed in any case, and best where there is less to go through.
            # With lanes as they are the kernel that takes it makes it; for products there are kernels of their own.
            is_made_on_the_way = wanted[0] == order[0] and node not in self.by_product
            # A copy before a conversion moves fewer bytes.
            is_made_on_the_way |= node in self.by_rows and node.array.dtype.bits > largest.array.dtype.bits
            both = [wanted, order] if is_made_on_the_way else [order, wanted]
            order = least_padded(node.array, both, self.chip)
    else:
        order = wanted or boundary_order(node.array, self.chip)
    node.take([self.ordered(operand, order) if _rank(operand) == len(order) else operand for operand in node.operands])
    return order


def _default(self: _Assignment, node: Node) -> Order:
    """Operands as programs are handed theirs, and a result that is handed on likewise."""
    node.take([self.coerced(operand) for operand in node.operands])
    if node.opcode == "parameter":
        mode = self.modes.of_argument(node)
        wanted = self.wanted.get(node) if mode == _FREE else _stated_order(mode, node.array)
        return wanted or boundary_order(node.array, self.chip)
    if node.opcode in CONTROL_FLOW:
        return boundary_order(node.array, self.chip)
    return tuple(reversed(range(node.array.rank)))


def _custom_call(self: _Assignment, node: Node) -> Order:
    """What is moved to the host is brought into order before, what comes from there after."""
    if not move_of(node.attributes):
        return _default(self, node)
    order = self.settled(node.operands[0])
    order = self.wanted.get(node, order) if is_to_host(node) else order
    node.take([self.ordered(node.operands[0], order)])
    return order


def _alike(self: _Assignment, node: Node) -> Order:
    """Operands of other sizes, and the result, all in the default order."""
    order = tuple(reversed(range(node.array.rank)))
    node.take([self.ordered(operand, order) if _rank(operand) == len(order) else operand for operand in node.operands])
    return order


def _transpose(self: _Assignment, node: Node) -> Order:
    """The order in which the elements stay where they are."""
    before = self.settled(node.operands[0])
    places = {d: at for at, d in enumerate(node.attributes["dimensions"])}
    return tuple(places[d] for d in before)


def _reduce(self: _Assignment, node: Node) -> Order:
    order = self.settled(node.operands[0])
    gone = set(node.attributes["dimensions"])
    left = [d for d in range(len(order)) if d not in gone]
    return tuple(left.index(d) for d in order if d not in gone)


def _reshape(self: _Assignment, node: Node) -> Order:
    """What moves no element keeps them where they are; what does makes what is wanted, or pads least."""
    operand = node.operands[0]
    self.settled(operand)
    if operand.opcode == "dynamic-slice" and len(node.operands) == 1:
        operand = _row_in_order(self, node, operand)
    carried = carried_orders(operand.array, node.array.dimensions)
    for kept in carried:
        # What is gathered keeps its rows on the way to other dimensions.
        if operand.opcode == "gather" or stays(operand.array, laid_out(node.array, kept, self.chip)):
            return kept
    free = self.free(node)
    # Whole tiles move for products and results alone, and what products make: else dimensions stay in their order.
    near = (operand, *operand.operands)
    moves = node in self.by_product or node in self.results or any(one.opcode in PLAIN_PRODUCTS for one in near)
    if carried and not moves and moved_tiles(operand.array, laid_out(node.array, free, self.chip)):
        return carried[0]
    return free


def _row_in_order(self: _Assignment, node: Node, row: Node) -> Node:
    """Return a row of one number of a dimension in tiles, brought into the order in which it is used without that.

    Where only what is in lanes of the rows lies elsewhere, it is moved there on the way.
    """
    order, sizes = self.order[row], row.array.dimensions
    single = [d for d, size in enumerate(sizes) if size == 1 < row.operands[0].array.dimensions[d]]
    left = [d for d in range(len(sizes)) if d not in single]
    if len(single) != 1 or tuple(sizes[d] for d in left) != node.array.dimensions or single[0] not in order[:2]:
        return row
    wanted = (*(left[d] for d in self.free(node)), *single)
    if order[0] == single[0] and order[1:] == wanted[:-1]:
        return row
    made = self.ordered(row, wanted)
    node.take([made])
    return made


def _element(self: _Assignment, node: Node) -> Order:
    shape = node.operands[0].shape
    assert isinstance(shape, TupleShape)
    element = shape.elements[node.attributes["index"]]
    assert isinstance(element, ArrayShape)
    return element.actual_layout.minor_to_major


def _runs_along(node: Node) -> int | None:
    """Return the dimension along which the windows of a running sum, or of another such, take in all before them."""
    if node.opcode != "reduce-window" or len(node.operands) != 2 or node.array.rank < 2:
        return None
    windows = zip(node.attributes["window"].dimensions, node.operands[0].array.dimensions, strict=True)
    wide = [(d, window.size == size) for d, (window, size) in enumerate(windows) if window.size > 1]
    return wide[0][0] if len(wide) == 1 and wide[0][1] else None


def _window(self: _Assignment, node: Node) -> Order:
    """Running sums go along a dimension that lies outside of tiles; all other windows are taken as the operand lies."""
    along = _runs_along(node)
    if along is None:
        return _follow(self, node)
    array, start = node.operands
    order = outside_of_tiles(array.array, along, self.chip)
    self.settled(start)
    node.take([self.ordered(array, order), start])
    return order


def _gather(self: _Assignment, node: Node) -> Order:
    """Rows are read and written one by one, from a table as it lies or as they need it."""
    table, indices = node.operands
    self.settled(indices)
    taken, sizes, row = self.settled(table), table.array.dimensions, node.attributes["slice_sizes"]
    moved = moved_dimensions(node)
    # Where what is wanted has two dimensions of a row in tiles, the table has them there as well.
    wanted = [d for d in self.wanted.get(node, ()) if node.array.dimensions[d] > 1][:2]
    is_wide = len(wanted) == 2 and set(wanted) <= set(moved.values()) and any(row[d] == 1 for d in taken[:2])
    stays = takes_rows(sizes, row, taken) and not parts(sizes, row) and not is_wide
    order = taken if stays else row_order(sizes, row, taken)
    if not moved or (order != taken and stays_narrow(table.array, order, self.chip)):
        return self.free(node)
    node.take([self.ordered(table, order), indices])
    return side_by_side(order, moved, node.array.rank)


def _scatter(self: _Assignment, node: Node) -> Order:
    """Rows are put one by one onto what lies as they need it; so do they."""
    target, indices, updates = node.operands
    self.settled(indices)
    taken, sizes, row = self.settled(target), target.array.dimensions, window_sizes(node)
    order = taken if takes_rows(sizes, row, taken) else row_order(sizes, row, taken)
    if order != taken and is_too_large(target.array, order, self.chip):
        return taken
    moved = moved_dimensions(node)
    by_row = side_by_side(order, moved, updates.array.rank) if moved else self.settled(updates)
    node.take([self.ordered(target, order), indices, self.ordered(updates, by_row)])
    return order


_ASSIGN: dict[str, Callable[[_Assignment, Node], Order]] = {
    **dict.fromkeys(KEEPS_LAYOUT & (LINEAR_ALGEBRA | SORTS), _alike),
    "convolution": _product,
    "custom-call": _custom_call,
    "dot": _product,
    "gather": _gather,
    "get-tuple-element": _element,
    "reduce": _reduce,
    "reduce-window": _window,
    "reshape": _reshape,
    "scatter": _scatter,
    "transpose": _transpose,
}
