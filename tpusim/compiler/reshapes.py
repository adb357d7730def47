"""Work on the elements of a reshaped array moves to the shape in which the array lies.

Where rows are split into groups, and what is made of them element by element is summed up or put together again,
nothing has to be split but the sums: a group norm takes its sums over the pixels first, and then over the few channels
of each group. Only where every reshape goes are arrays treated, and only reshapes that would move elements. Others come
behind what is made of them alone.

A product makes what it is split into itself, as a layer's projection does queries, keys and values by heads, where
something that it takes is reshaped anyhow: the weights of a loop's layer, for one.

Source: XLA, ReshapeMover, by idea; a group norm compiled ahead of time for v5e (libtpu 0.0.52), and 48 programs with
products that are split: in all 29 in which these take something reshaped they make the parts, in none of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.layouts.bitcasts import carried_orders
from tpusim.compiler.layouts.orders import boundary_order, laid_out
from tpusim.compiler.simplify.rules import starts_from_nothing
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import ALIKE_IN_ANY_SHAPE, PRODUCTS
from tpusim.shapes.shape import ArrayShape

_MOST_OF_WHOLE = 8
"""What is broadcast may be spread at most to one in so many of the elements."""


def move_reshapes(draft: Draft, target: Target) -> None:
    """Take arrays to the shape that they are split from, where nothing else is asked of what they are split into."""
    for graph in draft.reachable():
        _split_products(graph, target)
        seen: set[Node] = set()
        for node in graph.order():
            # What has been moved is used no more.
            if node not in seen and node.users and _moves_elements(node, target):
                seen.update(_Move(graph, node, target).make())
                if node.operands:
                    _sink(graph, node, target)


def _sink(graph: Graph, reshape: Node, target: Target) -> None:
    """Move a reshape that gives whole registers other places behind what is made of it alone, element by element.

    Not behind a conversion alone where rows are longer than a register: what moves them converts them as well. Nor what
    a product makes, directly or with one operation between, which can write it as it is to lie.

    Source: 71 programs compiled ahead of time for v5e (libtpu 0.0.52).
    """
    if any(one.opcode in PRODUCTS for one in (*reshape.operands, *reshape.operands[0].operands)):
        return
    vpu, before = target.chip.vpu, reshape.operands[0].array
    lying = laid_out(before, boundary_order(before, target.chip), target.chip)
    order = next(iter(carried_orders(lying, reshape.array.dimensions)), tuple(reversed(range(reshape.array.rank))))
    columns, rows = (*(reshape.array.dimensions[d] for d in order[:2]), 1)[:2]
    if rows % vpu.sublanes or columns % vpu.lanes:
        return
    first = list(reshape.users)
    if columns > vpu.lanes and all(user.opcode == "convert" and not _can_sink(user) for user in first):
        return
    todo = [reshape]
    while todo:
        node = todo.pop()
        (operand,) = node.operands
        for user in list(node.users) if _can_sink(node) else ():
            taken = [
                operand if one is node else _number_like(Build(graph, one, target), operand) for one in user.operands
            ]
            made = graph.clone(user, taken)
            made.shape = ArrayShape(user.array.dtype, operand.array.dimensions)
            sunk = graph.clone(node, [made])
            sunk.shape = ArrayShape(user.array.dtype, user.array.dimensions)
            graph.replace(user, sunk)
            user.take(())
            todo.append(sunk)


def _can_sink(node: Node) -> bool:
    """Return whether all users of a node make something of it, and perhaps of single numbers, element by element."""
    return bool(node.users) and all(_is_of_one(user, node) for user in node.users)


def _is_of_one(user: Node, node: Node) -> bool:
    if user.opcode not in ALIKE_IN_ANY_SHAPE or user.array.dimensions != node.array.dimensions:
        return False
    return all(one is node or _is_number(one) for one in user.operands)


def _number_like(build: Build, like: Node) -> Node:
    """Return a number, or an array of it, for work on an array of other dimensions."""
    node = build.like
    return build.broadcast(node.operands[0], like.array.dimensions, ()) if node.array.rank else node


def _is_number(node: Node) -> bool:
    return not node.array.rank or (node.opcode == "broadcast" and not node.operands[0].array.rank)


def _split_products(graph: Graph, target: Target) -> None:
    """Let products make what they are split into, and nothing else, where they take something reshaped."""
    for node in graph.order():
        dot = node.operands[0] if node.opcode == "reshape" else node
        if dot.opcode != "dot" or list(dot.users) != [node] or dot is graph.root or node.is_dynamic or dot.is_dynamic:
            continue
        # What is empty is split in any way.
        if not node.array.element_count:
            continue
        if not dot.attributes.get("lhs_batch_dims") and any(map(_is_reshaped, dot.operands)):
            groups = _groups(dot.array.dimensions, node.array.dimensions)
            if all(len(group.before) == 1 for group in groups) and _splits(groups, node):
                graph.replace(node, _split_product(Build(graph, dot, target), dot, node, groups))


def _is_reshaped(operand: Node) -> bool:
    """Return whether an operand is reshaped, and perhaps converted."""
    while operand.opcode == "convert":
        (operand,) = operand.operands
    return operand.opcode == "reshape"


def _splits(groups: Sequence[_Group], node: Node) -> bool:
    """Return whether a dimension becomes several of more than one element."""
    sizes = node.array.dimensions
    return any(sum(sizes[d] > 1 for d in group.after) > 1 for group in groups)


def _split_product(build: Build, dot: Node, node: Node, groups: Sequence[_Group]) -> Node:
    """Return the product of operands that are split as its result is."""
    rest = list(groups)
    operands, named = [], dict(dot.attributes)
    for side, operand in zip(("lhs", "rhs"), dot.operands, strict=True):
        # A text need not say that nothing is summed up.
        summed = dot.attributes.get(f"{side}_contracting_dims", ())
        sizes: list[int] = []
        places: dict[int, int] = {}
        for d, size in enumerate(operand.array.dimensions):
            if d in summed:
                places[d] = len(sizes)
                sizes.append(size)
            else:
                sizes += [node.array.dimensions[part] for part in rest.pop(0).after]
        named[f"{side}_contracting_dims"] = tuple(places[d] for d in summed)
        operands.append(build.reshape(operand, *sizes))
    return build.graph.add("dot", node.shape, operands, named, like=dot)


def _moves_elements(node: Node, target: Target) -> bool:
    """Return whether a node splits or joins the dimension that lies in the lanes, before or after."""
    if node.opcode != "reshape" or not node.array.rank or any(node.array.dynamic):
        return False
    before, after = node.operands[0].array, node.array
    if not before.rank or not before.element_count or any(before.dynamic):
        return False
    arrays = before, after
    kept = [
        group
        for group in _groups(before.dimensions, after.dimensions)
        if all(sum(array.dimensions[d] > 1 for d in side) <= 1 for array, side in zip(arrays, group, strict=True))
    ]
    lanes = [boundary_order(array, target.chip)[0] for array in arrays]
    return not all(any(lane in group[side] for group in kept) for side, lane in enumerate(lanes))


class _Group(NamedTuple):
    """Neighbouring dimensions before a reshape, and those after it that have the same elements."""

    before: Sequence[int]
    after: Sequence[int]


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[_Group]:
    """Return the smallest groups of dimensions that a reshape takes to each other."""
    found: list[_Group] = []
    at = to = 0
    while at < len(before) or to < len(after):
        ends = [at, to]
        sizes = [1, 1]
        # A dimension that stays is a group, also one of a single element.
        if before[at : at + 1] == after[to : to + 1]:
            ends = [at + 1, to + 1]
        while ends == [at, to] or sizes[0] != sizes[1]:
            side = 0 if ends[1] == len(after) or (ends[0] < len(before) and sizes[0] <= sizes[1]) else 1
            sizes[side] *= (before, after)[side][ends[side]]
            ends[side] += 1
        found.append(_Group(range(at, ends[0]), range(to, ends[1])))
        at, to = ends
    return found


def _in_order(members: Mapping[Node, None]) -> Iterator[Node]:
    """Yield nodes, each behind those of its operands that are among them."""
    missing = {node: len(members.keys() & set(node.operands)) for node in members}
    todo = [node for node, count in missing.items() if not count]
    while todo:
        node = todo.pop()
        yield node
        for user in node.users:
            if user in missing:
                missing[user] -= 1
                if not missing[user]:
                    todo.append(user)


class _Move:
    """All that is done element by element between reshapes from one shape to another one."""

    def __init__(self, graph: Graph, reshape: Node, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._before = reshape.operands[0].array.dimensions
        self._after = reshape.array.dimensions
        self._groups = _groups(self._before, self._after)
        self._start = reshape

    def make(self) -> dict[Node, None]:
        """Move the work, if all of it can be; return what need not be looked at again."""
        members, moves = self._members()
        moved: dict[Node, Node] = {}
        for node in _in_order(members) if moves else ():
            moved[node] = self._moved(node, moved)
        ends = [(user, node) for node in moved for user in node.users if user not in members]
        for user, node in ends:
            there = moved[node]
            self._graph.replace(user, there if user.opcode == "reshape" else self._reduced(user, there))
        for node in (*moved, *(user for user, _ in ends)):
            node.take(())
        return members

    def _members(self) -> tuple[dict[Node, None], bool]:
        """Return the reshapes and the work between them, and whether none of it has to be as it is."""
        members = {self._start: None}
        todo = [self._start]
        while todo:
            node = todo.pop()
            new = [user for user in node.users if not self._ends(user, node)]
            new += [] if node.opcode == "reshape" else [one for one in node.operands if not self._is_spread(one)]
            for other in new:
                if other in members:
                    continue
                if not self._is_moved(other):
                    return members, False
                members[other] = None
                todo.append(other)
        return members, self._graph.root not in members

    def _is_moved(self, node: Node) -> bool:
        if not isinstance(node.shape, ArrayShape) or node.shape.dimensions != self._after or any(node.shape.dynamic):
            return False
        return node.opcode in ALIKE_IN_ANY_SHAPE or (
            node.opcode == "reshape" and node.operands[0].array.dimensions == self._before
        )

    def _is_spread(self, node: Node) -> bool:
        """Return whether an operand is a number, or few that are broadcast: spread over groups they are few still."""
        if not isinstance(node.shape, ArrayShape) or not node.shape.rank:
            return True
        if node.opcode != "broadcast" or any(node.operands[0].array.dynamic):
            return False
        touched = self._touched(node.attributes["dimensions"])
        return prod(self._after[d] for group in touched for d in group.after) * _MOST_OF_WHOLE <= prod(self._after)

    def _touched(self, dimensions: Iterable[int]) -> list[_Group]:
        return [group for group in self._groups if set(group.after).intersection(dimensions)]

    def _whole(self, dimensions: Collection[int]) -> list[_Group]:
        return [group for group in self._groups if set(dimensions).issuperset(group.after)]

    def _ends(self, user: Node, node: Node) -> bool:
        """Return whether a user takes an array back to the shape before, or sums it up where that is one way."""
        if user.opcode == "reshape":
            return user.array.dimensions == self._before
        if user.opcode != "reduce" or len(user.operands) != 2 or user.operands[0] is not node:
            return False
        gone = user.attributes["dimensions"]
        whole = self._whole(gone)
        parts = [group for group in self._touched(gone) if group not in whole]
        if not any(group.before and group.after for group in whole):
            return False
        return not parts or starts_from_nothing(self._graph, user)

    def _moved(self, node: Node, moved: dict[Node, Node]) -> Node:
        """Return a member in the shape before."""
        if node.opcode == "reshape":
            return node.operands[0]
        operands = [moved[operand] if operand in moved else self._spread(operand) for operand in node.operands]
        made = self._graph.clone(node, operands)
        made.shape = ArrayShape(node.array.dtype, self._before)
        return made

    def _spread(self, node: Node) -> Node:
        """Return what is broadcast in the shape before: first over the rest of its groups, which are then joined."""
        if not node.array.rank:
            return node
        build = Build(self._graph, node, self._target)
        (few,) = node.operands
        dimensions = node.attributes["dimensions"]
        touched = self._touched(dimensions)
        after = [d for group in touched for d in group.after]
        before = [d for group in touched for d in group.before]
        whole = build.broadcast(few, [self._after[d] for d in after], [after.index(d) for d in dimensions])
        joined = build.reshape(whole, *(self._before[d] for d in before))
        return build.broadcast(joined, self._before, before)

    def _reduced(self, node: Node, there: Node) -> Node:
        """Return a reduction of an array in the shape before: of whole groups first, then of parts of them."""
        build = Build(self._graph, node, self._target)
        start, gone, region = node.operands[1], node.attributes["dimensions"], node.attributes["to_apply"]
        whole = self._whole(gone)
        rest = [group for group in self._groups if group not in whole]
        first = build.combined(there, start, [d for group in whole for d in group.before], region)
        after = [d for group in rest for d in group.after]
        parts = [at for at, d in enumerate(after) if d in gone]
        split = build.reshape(first, *(self._after[d] for d in after))
        return build.combined(split, start, parts, region) if parts else split
