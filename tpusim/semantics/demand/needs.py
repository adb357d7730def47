"""What a kernel needs: the regions of its operands, and of the values inside it, that its results are made of.

One pass from the results backwards. Element-wise operations, views, copies, transposes, broadcasts, slices, pads,
joins, reductions, windows, gathers, products and nested fusions are followed (``preimages``); any other operation needs
its operands whole. Bytes that move, vector work and room for inner values follow from it.

    demand = demand_of(inline(module, computation, instruction))
    demand.operands[0]          # what is read of the first operand, by leaf
    demand.values[3]            # what is computed of the kernel's fourth value, by leaf

Asked for one tile of the results (``of``), the same pass says what that tile is made of, halo included; a tile at any
place is a box whose spans have no start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from tpusim.hardware.units import MemorySpace
from tpusim.ir.module import Instruction
from tpusim.ir.ops import IN_PLACE, PARTIAL_READS, TUPLES
from tpusim.semantics.demand.inlining import Body, Inner, behind_views, made_from
from tpusim.semantics.demand.preimages import boxes_behind
from tpusim.semantics.demand.regions import NOTHING, WHOLE, Region, boxes_of, region_bytes, region_of, run_of, union
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves

Parts = tuple[Region, ...]


class Demand(msgspec.Struct, frozen=True, gc=False):
    """The regions that a kernel needs, by leaf of each value: of its operands, and of what it computes inside.

    Of an operand that is only updated in place nothing is needed.
    """

    operands: tuple[Parts, ...]
    values: tuple[Parts, ...]


class Access(msgspec.Struct, frozen=True, gc=False):
    """One operand or result of a kernel: the bytes that move, from or to which memory, in pieces of which size."""

    name: str
    shape: ArrayShape
    n_bytes: float
    space: MemorySpace
    is_output: bool = False
    chunk_bytes: int = 0


def demand_of(body: Body, of: Parts | None = None, beside: Collection[int] = ()) -> Demand:
    """Return what a kernel needs to make the regions ``of`` its results, by leaf; of all of them if that is None.

    Only what is needed ``beside`` the two sides of the products at these positions.
    """
    count, shapes = len(body.values), _shapes(body)
    if of is None and not beside and PARTIAL_READS.isdisjoint(body.opcodes):
        found: list[Parts] = [_NONE] * len(shapes)
        for at in made_from([item.operands for item in body.values], (body.root,)):
            found[at] = _ALL
        # Nearly all values are arrays: of any other the same is so of each leaf.
        for at, shape in enumerate(shapes):
            if not isinstance(shape, ArrayShape):
                found[at] *= len(leaves(shape))
    else:
        found = _Backwards(body, shapes, beside).needed_for(of or (WHOLE,) * len(leaves(shapes[body.root])))
    return Demand(tuple(reversed(found[count:])), tuple(found[:count]))


def needed_shares(body: Body, demand: Demand) -> list[float]:
    """Return the share of its physical bytes that is needed of each value of a kernel: 1 for all of it."""
    pairs = zip(demand.values, body.values, strict=True)
    return [1.0 if parts is _ALL else _needed_share(parts, item.instruction.shape) for parts, item in pairs]


def _needed_share(parts: Parts, shape: Shape) -> float:
    if all(region.is_whole for region in parts):
        return 1.0
    whole = physical_bytes(shape)
    return sum(map(region_bytes, parts, leaves(shape))) / whole if whole else 1.0


def demand_behind(body: Body, starts: Sequence[tuple[int, Parts]]) -> Demand:
    """Return what a kernel needs to make some regions of its values, given by position; operands count themselves."""
    return _Backwards(body, _shapes(body)).demand_behind(starts)


def needed_by(body: Body, demand: Demand, at: int) -> list[tuple[int, Parts]]:
    """Return, for each operand of the value at a position, where it stands and what of it the value needs."""
    item = body.values[at]
    behind = _Backwards(body, _shapes(body)).behind(item, demand.values[at])
    return list(zip(item.operands, behind, strict=True))


def _shapes(body: Body) -> list[Shape]:
    # Positions in a body count its operands from -1 down, as indices of this list do.
    return [item.instruction.shape for item in body.values] + [o.shape for o in reversed(body.operands)]


def accesses(body: Body, demand: Demand, instruction: Instruction) -> list[Access]:
    """Return what the kernel ``instruction`` reads and writes. Operands that no use reads are left out."""
    return [*reads(body, demand).values(), *_writes(body, instruction)]


def reads(body: Body, demand: Demand) -> dict[tuple[str, int], Access]:
    """Return what a kernel reads of its operands, by name and number of the leaf: those of which some is needed."""
    # An operand that is named twice is fetched once: no more than all of it moves.
    merged: dict[tuple[str, int], Access] = {}
    for operand, parts in zip(body.operands, demand.operands, strict=True):
        for number, (leaf, region) in enumerate(zip(leaves(operand.shape), parts, strict=True)):
            before = merged.get((operand.name, number))
            # Nearly always it is needed whole.
            n_bytes = float(physical_bytes(leaf)) if region is WHOLE else region_bytes(region, leaf)
            if before:
                n_bytes = min(n_bytes + before.n_bytes, float(physical_bytes(leaf)))
            if n_bytes:
                run = 0 if region is WHOLE else run_of(region, leaf)
                access = Access(operand.name, leaf, n_bytes, space_of(leaf), chunk_bytes=run)
                merged[operand.name, number] = access
    return merged


def _writes(body: Body, instruction: Instruction) -> Iterator[Access]:
    """Yield the writes, one per leaf of the result: of an update in place no more than the update."""
    for leaf, result in zip(leaves(instruction.shape), _results(body, body.root), strict=True):
        n_bytes, at = physical_bytes(leaf), behind_views(body.values, result)
        if is_in_place(body.values, at):
            computation, inner = body.values[at].computation, body.values[at].instruction
            n_bytes = min(n_bytes, physical_bytes(computation[inner.operands[update_number(inner)]].shape))
        if n_bytes:
            yield Access(instruction.name, leaf, float(n_bytes), space_of(leaf), is_output=True)


def _results(body: Body, at: int) -> list[int]:
    """Return the position of the value that each leaf of a result is, or is a part of."""
    value = body.values[at].instruction if at >= 0 else body.operands[-1 - at]
    if at >= 0 and value.opcode == "tuple":
        return [result for operand in body.values[at].operands for result in _results(body, operand)]
    return [at] * len(leaves(value.shape))


def is_in_place(values: Sequence[Inner], at: int) -> bool:
    """Return whether a value is an operand of the kernel with some elements changed."""
    # What the kernel makes itself has no buffer yet to be updated in.
    return at >= 0 and values[at].instruction.opcode in IN_PLACE and behind_views(values, values[at].operands[0]) < 0


def update_number(instruction: Instruction) -> int:
    """Return which operand of an update in place, or of its last array, is what is put there."""
    return 1 if instruction.opcode == "dynamic-update-slice" else -1


_ALL, _NONE = (WHOLE,), (NOTHING,)


def _alike(shape: Shape, region: Region) -> Parts:
    """Return WHOLE or NOTHING for all leaves of a shape."""
    if isinstance(shape, ArrayShape):
        # Nearly all values are arrays of which all or nothing is needed.
        return _ALL if region is WHOLE else _NONE
    return (region,) * len(leaves(shape))


class _Backwards:
    """The pass over a kernel's values from the last to the first.

    What leaves the kernel (``returned``) is kept apart from what it uses itself (``used``): an update in place hands on
    what leaves, and reads what is used. Both are by position, operands included.
    """

    def __init__(self, body: Body, shapes: Sequence[Shape], beside: Collection[int] = ()) -> None:
        self.body = body
        self.beside = beside
        self.shapes = shapes
        self.used: list[list[Parts]] = [[] for _ in shapes]
        self.returned: list[list[Parts]] = [[] for _ in shapes]

    def needed_for(self, results: Parts) -> list[Parts]:
        """Return what is needed of each value and operand for these regions of the results."""
        self.returned[self.body.root].append(results)
        for at in reversed(range(len(self.body.values))):
            self.step(at)
        return [self.needed(at) for at in range(len(self.shapes))]

    def demand_behind(self, starts: Sequence[tuple[int, Parts]]) -> Demand:
        """Return what is needed of each value and operand for these regions of some of them."""
        for at, parts in starts:
            self._add(self.used, at, parts)
        for at in reversed(range(max((at for at, _ in starts), default=-1) + 1)):
            self.step(at)
        count = len(self.body.values)
        found = [self.needed(at) for at in range(len(self.shapes))]
        return Demand(tuple(reversed(found[count:])), tuple(found[:count]))

    def needed(self, at: int) -> Parts:
        """Return what is needed of the value at a position."""
        return self._together([*self.used[at], *self.returned[at]], at)

    def _together(self, found: list[Parts], at: int) -> Parts:
        """Return what several users need of a value: once for all of them, so that their order is of no account."""
        if len(found) < 2:
            return found[0] if found else _alike(self.shapes[at], NOTHING)
        return tuple(map(union, zip(*found, strict=True), leaves(self.shapes[at])))

    def step(self, at: int) -> None:
        """Add what the value at a position is made of to what is needed of its operands."""
        item = self.body.values[at]
        if item.is_view or item.instruction.opcode in TUPLES:
            for table in (self.used, self.returned):
                if table[at]:
                    self._through(table, item, self._together(table[at], at))
            return
        behind = self.behind(item, self.needed(at))
        if self.returned[at] and is_in_place(self.body.values, at):
            # Elements that the update does not touch stay where they are.
            behind[0] = self.behind(item, self._together(self.used[at], at))[0]
        skipped = 2 if at in self.beside else 0
        for operand, parts in zip(item.operands[skipped:], behind[skipped:], strict=True):
            self._add(self.used, operand, parts)

    def _through(self, table: list[list[Parts]], item: Inner, parts: Parts) -> None:
        """Hand on what is needed of a tuple, of an element of one, or of a view."""
        if item.instruction.opcode == "tuple":
            begin = 0
            for operand in item.operands:
                end = begin + len(leaves(self.shapes[operand]))
                self._add(table, operand, parts[begin:end])
                begin = end
            return
        operand = item.operands[0]
        if item.instruction.opcode == "get-tuple-element":
            shape = self.shapes[operand]
            assert isinstance(shape, TupleShape)
            before = sum(len(leaves(element)) for element in shape.elements[: item.instruction.attributes["index"]])
            parts = (NOTHING,) * before + parts + (NOTHING,) * (len(leaves(shape)) - before - len(parts))
        elif item.instruction.opcode == "bitcast":
            (parts,) = self.behind(item, parts)
        self._add(table, operand, parts)

    def behind(self, item: Inner, parts: Parts) -> list[Parts]:
        """Return what the regions of a value need of each of its operands."""
        shapes = [self.shapes[operand] for operand in item.operands]
        results = leaves(item.instruction.shape)
        if not any(parts) or not results[0].element_count:
            return [_alike(shape, NOTHING) for shape in shapes]
        arrays = [shape for shape in shapes if isinstance(shape, ArrayShape)]
        # A box describes neither results that differ in shape nor operands that are tuples.
        if len(arrays) < len(shapes) or any(result.dimensions != results[0].dimensions for result in results):
            return [_alike(shape, WHOLE) for shape in shapes]
        region = union(parts, results[0])
        if region.is_whole and item.instruction.opcode not in PARTIAL_READS:
            return [_ALL] * len(arrays)
        found = [boxes_behind(item.instruction, box, arrays) for box in boxes_of(region, results[0])]
        columns = zip(zip(*found, strict=True), arrays, strict=True)
        return [(region_of([box for box in column if box is not None], shape),) for column, shape in columns]

    def _add(self, table: list[list[Parts]], at: int, parts: Parts) -> None:
        if any(parts):
            table[at].append(parts)
