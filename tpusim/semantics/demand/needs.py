"""What a kernel needs: which region of each operand and of each value inside it its results are made of.

One pass from the results backwards. Element-wise operations, views, copies, transposes, broadcasts, slices, pads,
joins, reductions, windows, gathers, products and fusions inside fusions are followed (``preimages``);
of what an unknown operation takes all is needed. Bytes that move, vector work and room for inner values come from it.

    demand = demand_of(inline(module, computation, instruction))
    demand.operands[0]          # what is read of the first operand, by leaf
    demand.values[3]            # what is computed of the kernel's fourth value, by leaf

Asked for one tile of the results (``of``) the same pass says what that tile is made of, halo included; a tile at any
place is a box whose spans have no start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

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

    An operand that is only updated in place is not needed, but for what the kernel reads of it besides.
    """

    operands: tuple[Parts, ...]
    values: tuple[Parts, ...]


class Access(msgspec.Struct, frozen=True, gc=False):
    """One operand or result of a kernel: bytes that move, the memory they move to or from, the shortest run of them."""

    name: str
    shape: ArrayShape
    n_bytes: float
    space: MemorySpace
    is_output: bool = False
    chunk_bytes: int = 0


def demand_of(body: Body, of: Parts | None = None) -> Demand:
    """Return what a kernel needs to make the regions ``of`` its results, by leaf; of all of them if that is None."""
    if of is None and not any(item.instruction.opcode in PARTIAL_READS for item in body.values):
        return _demand_of_all(body)
    backwards = _Backwards(body)
    backwards.returned[body.root] = of or (WHOLE,) * len(leaves(body.values[body.root].instruction.shape))
    for at in reversed(range(len(body.values))):
        backwards.step(at)
    return Demand(
        tuple([backwards.needed(-1 - number) for number in range(len(body.operands))]),
        tuple([backwards.needed(at) for at in range(len(body.values))]),
    )


def needed_share(parts: Parts, shape: Shape) -> float:
    """Return the share of a value's physical bytes that its regions take: 1 for all of it."""
    if parts is _ALL or all(region.is_whole for region in parts):
        return 1.0
    whole = physical_bytes(shape)
    pairs = zip(parts, leaves(shape), strict=True)
    return sum(region_bytes(region, leaf) for region, leaf in pairs) / whole if whole else 1.0


def accesses(body: Body, demand: Demand, instruction: Instruction) -> list[Access]:
    """Return what the kernel ``instruction`` reads and writes. Operands that no use reads are left out."""
    # An operand that is named twice is fetched once: no more than all of it moves.
    merged: dict[tuple[str, int], Access] = {}
    for operand, parts in zip(body.operands, demand.operands, strict=True):
        for number, (leaf, region) in enumerate(zip(leaves(operand.shape), parts, strict=True)):
            before = merged.get((operand.name, number))
            read = region_bytes(region, leaf) + (before.n_bytes if before else 0.0)
            if read:
                n_bytes = min(read, float(physical_bytes(leaf)))
                access = Access(operand.name, leaf, n_bytes, space_of(leaf), chunk_bytes=run_of(region, leaf))
                merged[operand.name, number] = access
    return [*merged.values(), *_writes(body, instruction)]


def _writes(body: Body, instruction: Instruction) -> Iterator[Access]:
    """Yield the writes, one per leaf of the result."""
    for leaf, at in zip(leaves(instruction.shape), _results(body.values, body.root), strict=True):
        n_bytes = physical_bytes(leaf)
        update = _update(body.values, behind_views(body.values, at))
        if update is not None:
            n_bytes = min(n_bytes, physical_bytes(update))
        if n_bytes:
            yield Access(instruction.name, leaf, float(n_bytes), space_of(leaf), is_output=True)


def _results(values: Sequence[Inner], at: int) -> list[int]:
    """Return the position of the value that each leaf of a result is, or is a part of."""
    item = values[at] if at >= 0 else None
    if item is not None and item.instruction.opcode == "tuple":
        return [result for operand in item.operands for result in _results(values, operand)]
    return [at] * (len(leaves(item.instruction.shape)) if item is not None else 1)


def _update(values: Sequence[Inner], at: int) -> Shape | None:
    """Return the shape of what a value writes over an operand of the kernel; None if it is not such an update."""
    if not _is_in_place(values, at):
        return None
    item = values[at]
    return item.computation[
        item.instruction.operands[1 if item.instruction.opcode == "dynamic-update-slice" else -1]
    ].shape


def _is_in_place(values: Sequence[Inner], at: int) -> bool:
    """Tell whether a value is an operand of the kernel with some elements changed."""
    # What the kernel makes itself has no buffer yet to be updated in.
    return at >= 0 and values[at].instruction.opcode in IN_PLACE and behind_views(values, values[at].operands[0]) < 0


def _demand_of_all(body: Body) -> Demand:
    """Return what a kernel needs in which every operation needs its operands whole."""
    used = made_from(body.values, (body.root,))
    operands = enumerate(body.operands)
    return Demand(
        tuple([_alike(operand.shape, WHOLE if -1 - number in used else NOTHING) for number, operand in operands]),
        tuple([_alike(i.instruction.shape, WHOLE if at in used else NOTHING) for at, i in enumerate(body.values)]),
    )


_ALL, _NONE = (WHOLE,), (NOTHING,)


def _alike(shape: Shape, region: Region) -> Parts:
    """Return WHOLE or NOTHING for all leaves of a shape."""
    if isinstance(shape, ArrayShape):
        # Nearly all values are arrays of which all or nothing is needed.
        return _ALL if region is WHOLE else _NONE
    return (region,) * len(leaves(shape))


class _Backwards:
    """The pass over a kernel's values from the last to the first.

    What leaves the kernel (``returned``) is told from what it uses itself (``used``): an update in place hands on what
    leaves, and reads what is used.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.used: dict[int, Parts] = {}
        self.returned: dict[int, Parts] = {}

    def needed(self, at: int) -> Parts:
        """Return what is needed of a value or, by its negative number, of an operand of the kernel."""
        shape, used, returned = self._shape(at), self.used.get(at), self.returned.get(at)
        if used is None or returned is None:
            return used or returned or _alike(shape, NOTHING)
        return tuple(map(union, used, returned, leaves(shape)))

    def step(self, at: int) -> None:
        """Add what the value at a position is made of to what is needed of its operands."""
        item = self.body.values[at]
        if item.is_view or item.instruction.opcode in TUPLES:
            for table in (self.used, self.returned):
                if at in table:
                    self._through(table, item, table[at])
            return
        whole = self._behind(item, self.needed(at))
        if at in self.returned and _is_in_place(self.body.values, at):
            # Whatever the update does not touch stays where it is.
            whole[0] = self._behind(item, self.used.get(at, ()))[0]
        for operand, parts in zip(item.operands, whole, strict=True):
            self._add(self.used, operand, parts)

    def _through(self, table: dict[int, Parts], item: Inner, parts: Parts) -> None:
        """Hand on what is needed of a tuple, of an element of one, or of a view."""
        if item.instruction.opcode == "tuple":
            begin = 0
            for operand in item.operands:
                end = begin + len(leaves(self._shape(operand)))
                self._add(table, operand, parts[begin:end])
                begin = end
            return
        operand = item.operands[0]
        if item.instruction.opcode == "get-tuple-element":
            shape = self._shape(operand)
            assert isinstance(shape, TupleShape)
            counts = [len(leaves(element)) for element in shape.elements]
            before = sum(counts[: item.instruction.attributes["index"]])
            parts = (NOTHING,) * before + parts + (NOTHING,) * (sum(counts) - before - len(parts))
        elif item.instruction.opcode == "bitcast":
            (parts,) = self._behind(item, parts)
        self._add(table, operand, parts)

    def _behind(self, item: Inner, parts: Parts) -> list[Parts]:
        """Return what the regions of a value need of each of its operands."""
        shapes = [self._shape(operand) for operand in item.operands]
        results = leaves(item.instruction.shape)
        if not any(parts) or not results[0].element_count:
            return [_alike(shape, NOTHING) for shape in shapes]
        arrays = [shape for shape in shapes if isinstance(shape, ArrayShape)]
        # Results that differ in shape, and tuples that come in, are nothing that a box can tell of.
        if len(arrays) < len(shapes) or any(result.dimensions != results[0].dimensions for result in results):
            return [_alike(shape, WHOLE) for shape in shapes]
        region = reduce(lambda first, second: union(first, second, results[0]), parts)
        if region.is_whole and item.instruction.opcode not in PARTIAL_READS:
            return [(WHOLE,)] * len(arrays)
        found = [boxes_behind(item.instruction, box, arrays) for box in boxes_of(region, results[0])]
        columns = zip(zip(*found, strict=True), arrays, strict=True)
        return [(region_of([box for box in column if box is not None], shape),) for column, shape in columns]

    def _shape(self, at: int) -> Shape:
        """Return the shape of a value, or of an operand of the kernel."""
        return self.body.values[at].instruction.shape if at >= 0 else self.body.operands[-1 - at].shape

    def _add(self, table: dict[int, Parts], at: int, parts: Parts) -> None:
        """Add regions to what is needed of a value."""
        if any(parts):
            before = table.get(at)
            table[at] = parts if before is None else tuple(map(union, before, parts, leaves(self._shape(at))))
