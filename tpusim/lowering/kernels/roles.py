"""In which roles a kernel around a product reads an operand: as either side of it, or beside its result.

Each role goes through the array in an order of its own and has blocks of its own, also where two of them are of one
array. A block is fetched once for two roles only where their orders are the same, or where one of them has all that the
other needs in VMEM from the first tile to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, permutations
from math import prod
from typing import NamedTuple

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
    together = _together(body, products)
    sides = _values_by_side(body, [at for at, _ in together])
    named = {side: {body.operands[-1 - value].name for value in values if value < 0} for side, values in sides.items()}
    feeding = {name: side for side, names in named.items() for name in names}
    by_value = {at: tuple(s for s in (LHS, RHS) if at in sides[s]) for at in sides[LHS] | sides[RHS]}
    if sum(map(len, named.values())) == len(feeding):
        moved = [_as(access, OUT if access.is_output else feeding.get(access.name, OUT)) for access in found]
        return Roles(moved, by_value, {})
    orders = _Orders(body, demand, together)
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


def _together(body: Body, products: Sequence[tuple[int, Product]]) -> list[tuple[int, Product]]:
    """Return the first product and those that go through the same loops with sides of their own.

    Their results are alike, and neither is made of the other: the loops of one lead to the same place of all.
    """
    if len(products) < 2:
        return list(products)
    made_of, (main, *others) = [item.operands for item in body.values], products
    behind, named = made_from(made_of, (main[0],)), _named(body, *main)
    apart = [each for each in others if each[0] not in behind and main[0] not in made_from(made_of, (each[0],))]
    return [main, *(each for each in apart if named and _is_alike(named, _named(body, *each)))]


class _Named(NamedTuple):
    """The shapes of a product's sides and result, and over what kind of dimension the loop over each of theirs runs."""

    shapes: dict[str, ArrayShape]
    kinds: dict[str, list[str]]


def _named(body: Body, at: int, product: Product) -> _Named | None:
    item = body.values[at]
    left, right = (leaves(item.computation[name].shape)[0] for name in product_sides(item.instruction))
    shapes = {LHS: left, RHS: right, OUT: leaves(item.instruction.shape)[0]}
    letters = lettered(item.instruction, left, right, product.kinds)
    if letters is None:
        return None
    names = {LHS: letters[0].lhs, RHS: letters[0].rhs, OUT: letters[0].output}
    return _Named(shapes, {side: [role_of(name, side, letters[1]) for name in each] for side, each in names.items()})


def _is_alike(one: _Named, other: _Named | None) -> bool:
    if other is None or other.kinds[OUT] != one.kinds[OUT]:
        return False
    return other.shapes[OUT].dimensions == one.shapes[OUT].dimensions


def _values_by_side(body: Body, products: Sequence[int]) -> dict[str, set[int]]:
    """Return the positions of what either side of some products, and what is beside them, are made of."""
    made_of = [item.operands for item in body.values]
    left, right = ([made_of[at][number] for at in products] for number in (0, 1))
    beside = [operands[2:] if at in products else operands for at, operands in enumerate(made_of)]
    return {OUT: made_from(beside, (body.root,)), LHS: made_from(made_of, left), RHS: made_from(made_of, right)}


def _in_roles(orders: _Orders) -> list[Moved]:
    """Return what a kernel reads in each role, and by which other role each of them is held."""
    by_side = {side: reads(orders.body, needed) for side, needed in orders.needed.items()}
    order = dict.fromkeys(chain.from_iterable(by_side.values()))
    names = {operand.name: number for number, operand in enumerate(orders.body.operands)}
    keys = [
        (k, side) for k in sorted(order, key=lambda k: (names[k[0]], k[1])) for side in by_side if k in by_side[side]
    ]
    held: dict[int, list[tuple[int, frozenset[str]]]] = {}
    # A kernel may have thousands of operands, of which one is read in two roles.
    pairs = (permutations(list(own), 2) for _, own in groupby(enumerate(keys), key=lambda item: item[1][0]))
    for (mine, (key, side)), (holder, (_, its)) in chain.from_iterable(pairs):
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
    """In which order each role goes through what a kernel is made of, around products that share their loops."""

    def __init__(self, body: Body, demand: Demand, products: Sequence[tuple[int, Product]]) -> None:
        self.body, self.products = body, {at: _named(body, at, product) for at, product in products}
        starts = [needed_by(body, demand, at) for at in self.products]
        self.needed = {side: demand_behind(body, [s[number] for s in starts]) for number, side in enumerate((LHS, RHS))}
        self.needed[OUT] = demand_of(body, beside=self.products)
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
        starts = []
        for at, named in self.products.items():
            if named is None:
                return None
            dimensions = [d for d, its in enumerate(named.kinds[side]) if its == kind]
            if side == OUT:
                # Those of all products are alike.
                of_result = self._dimensions_of_result(at, named.shapes[OUT].dimensions, dimensions)
                return None if of_result is None else self._beside(of_result)
            operand = self.body.values[at].operands[(LHS, RHS).index(side)]
            starts.append((operand, (_first_of(named.shapes[side], dimensions),)))
        return demand_behind(self.body, starts)

    def _dimensions_of_result(self, at: int, sizes: Sequence[int], dimensions: Sequence[int]) -> list[int] | None:
        """Return the dimensions of the kernel's result that go with some of a product's; None if none do."""
        wanted, met, found = {d for d in dimensions if sizes[d] > 1}, set[int](), []
        shape = leaves(self.body.values[at].instruction.shape)[0]
        for d in range(self._results[0].rank):
            spans = [box.spans for box in boxes_of(self._beside([d]).values[at][0], shape)]
            narrow = {p for each in spans for p, size in enumerate(sizes) if each[p].count < size}
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
        return demand_of(self.body, tuple(parts), self.products)


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
