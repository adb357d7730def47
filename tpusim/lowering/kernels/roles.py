"""In which roles a kernel around a product reads an operand: as either side of it, or beside its result.

Each role goes through the array in an order of its own and has blocks of its own, also where two of them are of one
array. A block is fetched once for two roles only where their orders are the same, or where one of them has all that the
other needs in VMEM from the first tile to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, permutations
from math import prod

import msgspec
from msgspec import structs

from tpusim.lowering.kernels.tiles import LHS, OUT, RHS, TOUCHES, Nest, role_of
from tpusim.semantics.demand.inlining import Body, made_from
from tpusim.semantics.demand.needs import Access, Demand, demand_behind, demand_of, needed_by, reads
from tpusim.semantics.demand.regions import NOTHING, WHOLE, Box, Region, Span, boxes_of, region_of, union
from tpusim.semantics.products import Product, lettered, product_sides
from tpusim.shapes.shape import ArrayShape, leaves

Key = tuple[str, int]
"""An array that a kernel reads: the operand's name and the number of the leaf."""


class Moved(Access, frozen=True, gc=False):
    """One operand in one role, or one result. ``side`` is which of the product's arrays its blocks move with.

    ``held`` are accesses of the same array, as positions in the list of all: its blocks are among theirs unless a loop
    over one of these kinds of dimension has several trips.
    """

    side: str = OUT
    held: tuple[tuple[int, frozenset[str]], ...] = ()


class Roles(msgspec.Struct, frozen=True):
    """What a kernel moves, and which sides of its product the values are made for, by position.

    Values that are made for both are made once unless a loop over one of the kinds of dimension in ``apart`` has
    several trips; those that it does not name are always made for each.
    """

    moved: list[Moved]
    sides: dict[int, tuple[str, ...]]
    apart: dict[int, frozenset[str]]


def roles_of(body: Body, demand: Demand, found: Sequence[Access], products: Sequence[tuple[int, Product]]) -> Roles:
    """Return the accesses ``found`` of a kernel around the first of some products: operands once for each role."""
    if not products:
        return Roles([_as(access, OUT) for access in found], {}, {})
    sides = _values_by_side(body, at := products[0][0])
    named = {side: {body.operands[-1 - value].name for value in values if value < 0} for side, values in sides.items()}
    feeding = {name: side for side, names in named.items() for name in names}
    by_value = {at: tuple(s for s in (LHS, RHS) if at in sides[s]) for at in sides[LHS] | sides[RHS]}
    if sum(map(len, named.values())) == len(feeding):
        moved = [_as(access, OUT if access.is_output else feeding.get(access.name, OUT)) for access in found]
        return Roles(moved, by_value, {})
    orders = _Orders(body, demand, at, products[0][1])
    moved = [*_in_roles(orders), *(_as(access, OUT) for access in found if access.is_output)]
    both = (value for value in sides[LHS] & sides[RHS] if value >= 0)
    alike = [value for value in both if orders.needed[LHS].values[value] == orders.needed[RHS].values[value]]
    return Roles(moved, by_value, {value: orders.apart(value, LHS, RHS) for value in alike})


def moved_once(moved: Sequence[Moved], nest: Nest) -> list[Moved]:
    """Return those of the accesses that fetch blocks of their own in a nest."""
    if not any(access.held for access in moved):
        return list(moved)
    cut, kept = cut_kinds(nest), dict(enumerate(moved))
    for at, access in reversed(list(kept.items())):
        if any(holder in kept and cut.isdisjoint(unless) for holder, unless in access.held):
            del kept[at]
    return list(kept.values())


def cut_kinds(nest: Nest) -> set[str]:
    """Return the kinds of dimension over which a nest has a loop of several trips."""
    return {loop.role for loop in nest.loops if loop.trips > 1}


def _as(access: Access, side: str) -> Moved:
    return Moved(**structs.asdict(access), side=side)


def _values_by_side(body: Body, at: int) -> dict[str, set[int]]:
    """Return the positions of what either side of a product, and what is beside it, are made of."""
    made_of = [item.operands for item in body.values]
    left, right = made_of[at][:2]
    beside = [*made_of[:at], made_of[at][2:], *made_of[at + 1 :]]
    return {OUT: made_from(beside, (body.root,)), LHS: made_from(made_of, (left,)), RHS: made_from(made_of, (right,))}


def _in_roles(orders: _Orders) -> list[Moved]:
    """Return what a kernel reads in each role, and by which other role each of them is held."""
    by_side = {side: reads(orders.body, needed) for side, needed in orders.needed.items()}
    order = dict.fromkeys(chain.from_iterable(by_side.values()))
    names = {operand.name: number for number, operand in enumerate(orders.body.operands)}
    keys = [
        (k, side) for k in sorted(order, key=lambda k: (names[k[0]], k[1])) for side in by_side if k in by_side[side]
    ]
    held: dict[int, list[tuple[int, frozenset[str]]]] = {}
    for (mine, (key, side)), (holder, (other, its)) in permutations(enumerate(keys), 2):
        if key == other:
            own, theirs = orders.region(key, side), orders.region(key, its)
            # All of it lies in VMEM as long as no loop goes through the holder's blocks.
            if theirs.is_whole or theirs == own:
                held.setdefault(mine, []).append((holder, _going_through(its)))
            if theirs == own and holder < mine:
                held.setdefault(mine, []).append((holder, orders.apart(key, side, its)))
    moved = (_as(by_side[side][key], side) for key, side in keys)
    return [structs.replace(each, held=tuple(held.get(at, ()))) for at, each in enumerate(moved)]


def _going_through(side: str) -> frozenset[str]:
    return frozenset(kind for kind, sides in TOUCHES.items() if side in sides)


class _Orders:
    """In which order each role goes through what a kernel around the product at a position is made of."""

    def __init__(self, body: Body, demand: Demand, at: int, product: Product) -> None:
        self.body, self.at = body, at
        item = body.values[at]
        left, right = (leaves(item.computation[name].shape)[0] for name in product_sides(item.instruction))
        self.shapes = {LHS: left, RHS: right, OUT: leaves(item.instruction.shape)[0]}
        self.letters = lettered(item.instruction, left, right, product.kinds)
        of_sides = dict(zip((LHS, RHS), needed_by(body, demand, at), strict=False))
        self.needed = {side: demand_behind(body, start) for side, start in of_sides.items()}
        self.needed[OUT] = demand_of(body, beside=(at,))
        self._known: dict[tuple[str, str], Demand | None] = {}

    def region(self, of: Key | int, side: str) -> Region:
        """Return what a role needs in all of an array or of the value at a position."""
        return _region(self.body, self.needed[side], of)

    def apart(self, of: Key | int, side: str, other: str) -> frozenset[str]:
        """Return over which kinds of dimension a loop leads two roles to different places of it."""
        return frozenset(kind for kind in TOUCHES if not self._is_together(of, kind, side, other))

    def _is_together(self, of: Key | int, kind: str, side: str, other: str) -> bool:
        first, second = self._first(side, kind), self._first(other, kind)
        if first is None or second is None:
            return False
        return _region(self.body, first, of) == _region(self.body, second, of)

    def _first(self, side: str, kind: str) -> Demand | None:
        """Return what a role needs for the first place of a kind of dimension, and all of the others; None: unknown."""
        if (side, kind) not in self._known:
            self._known[side, kind] = self._at_first(side, kind)
        return self._known[side, kind]

    def _at_first(self, side: str, kind: str) -> Demand | None:
        if not self.letters:
            return None
        labels, kinds = self.letters
        names = {LHS: labels.lhs, RHS: labels.rhs, OUT: labels.output}[side]
        dimensions = [d for d, name in enumerate(names) if role_of(name, side, kinds) == kind]
        if side != OUT:
            operand = self.body.values[self.at].operands[(LHS, RHS).index(side)]
            return demand_behind(self.body, {operand: (_first_of(self.shapes[side], dimensions),)})
        of_result = self._dimensions_of_result(dimensions)
        return None if of_result is None else self._beside(of_result)

    def _dimensions_of_result(self, dimensions: Sequence[int]) -> list[int] | None:
        """Return the dimensions of the kernel's result that go with some of the product's; None if none do."""
        sizes = self.shapes[OUT].dimensions
        wanted, met, found = {d for d in dimensions if sizes[d] > 1}, set[int](), []
        for d in range(self._results[0].rank):
            boxes = boxes_of(self._beside([d]).values[self.at][0], self.shapes[OUT])
            narrow = {
                p
                for box in boxes
                for p, (span, size) in enumerate(zip(box.spans, sizes, strict=True))
                if span.count < size
            }
            if narrow & wanted:
                found.append(d)
                met |= narrow
        return found if met == wanted else None

    @property
    def _results(self) -> Sequence[ArrayShape]:
        return leaves(self.body.values[self.body.root].instruction.shape)

    def _beside(self, dimensions: Sequence[int]) -> Demand:
        """Return what is needed beside the sides for the first place of some dimensions of the result."""
        first = self._results[0].dimensions
        # A result of other dimensions is cut in some other way.
        parts = [_first_of(each, dimensions) if each.dimensions == first else NOTHING for each in self._results]
        return demand_of(self.body, tuple(parts), (self.at,))


def _region(body: Body, demand: Demand, of: Key | int) -> Region:
    """Return what is needed of an array, an operand that is named twice taken together, or of a value's first leaf."""
    if isinstance(of, int):
        return demand.values[of][0]
    name, number = of
    pairs = [(o.shape, parts) for o, parts in zip(body.operands, demand.operands, strict=True) if o.name == name]
    return union([parts[number] for _, parts in pairs], leaves(pairs[0][0])[number])


def _first_of(shape: ArrayShape, dimensions: Sequence[int]) -> Region:
    """Return the first place of some dimensions of an array, and all of the others."""
    spans = tuple(Span(1 if d in dimensions else size) for d, size in enumerate(shape.dimensions))
    return region_of([Box(spans, prod(span.count for span in spans))], shape) if dimensions else WHOLE
