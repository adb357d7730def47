"""The work of a part of a kernel's body: whole-register operations in a graph, stage by stage.

Mosaic unrolls every vector of the body into registers, and one schedule fills the slots of all of them. What a product
is made of, or what must be reduced first, has to be there before it: that cuts the part into stages (as in
``kernels.stages``), within which the units of the core work side by side. Of registers that hold the same (a scalar
spread, a counter along one dimension) one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2, prod
from typing import NamedTuple

import msgspec

from tpusim.cost.models.arrays import array_of
from tpusim.cost.models.protocols import TileProduct
from tpusim.hardware.chip import Chip, OpCost
from tpusim.hardware.units import LOAD, STORE, VECTOR, WORD_BITS
from tpusim.ir.mosaic import Operation, Type
from tpusim.lowering.kernels.stages import stage_numbers
from tpusim.lowering.scope import entering
from tpusim.program.grid import CodeLine
from tpusim.program.work import TilePart, Work, scaled, sum_work
from tpusim.semantics.mosaic import OPCODES, PRODUCTS, REDUCTIONS, reduced_axes
from tpusim.semantics.precision import passes_of
from tpusim.shapes.dtype import DTYPES

Dimensions = frozenset[int]
"""Dimensions along which the registers of a vector differ, counted from the last one: -1, -2, ..."""


class Costed(msgspec.Struct, frozen=True):
    """A part with its floating-point operations in products by type; ``unknown`` are operations without a rule here."""

    part: TilePart
    flops: dict[str, float] = {}
    unknown: tuple[str, ...] = ()


class Site:
    """One part under way: what is known of each of its values, and the work of its stages so far."""

    def __init__(self, types: Sequence[Type], chip: Chip) -> None:
        self.types = types
        self.chip = chip
        self.differs: dict[int, Dimensions] = {}
        # Sums over lanes and sublanes come out spread over them.
        self.spread: set[int] = set()
        self.flops: dict[str, float] = {}
        # How many registers the operation at hand does the same to, one after another; 0 for its widest value's.
        self.repeats = 0.0
        self.unknown: dict[str, None] = {}

    def registers(self, number: int, differs: Dimensions | None = None) -> float:
        """Return the registers of a value that are not the same as another one of them."""
        own = self.differs.get(number) if differs is None else differs
        return register_count(self.types[number], self.chip, own)

    def differing(self, *numbers: int) -> Dimensions:
        """Return the dimensions along which vectors among some values differ, and so what is made of them."""
        vectors = [number for number in numbers if self.types[number].kind == "vector"]
        return frozenset().union(*(self.differs.get(n, every_dimension(self.types[n])) for n in vectors))


def every_dimension(kind: Type) -> Dimensions:
    """Return all dimensions of a type."""
    return frozenset(range(-len(kind.dimensions), 0))


def register_count(kind: Type, chip: Chip, differs: Dimensions | None = None) -> float:
    """Return the registers of a vector in the width that it is computed in, of those that differ one each."""
    words = 0.5 if kind.element == "bf16" and chip.vpu.native_bf16 else max(1.0, kind.element_bits / WORD_BITS)
    return _tile_count(kind, chip, differs) * words


def packed_registers(kind: Type, chip: Chip) -> float:
    """Return how many whole registers hold a vector as it lies in memory: narrow elements are packed, bits as bytes."""
    return _tile_count(kind, chip) * max(8, kind.element_bits) / WORD_BITS


def _tile_count(kind: Type, chip: Chip, differs: Dimensions | None = None) -> int:
    """Return how many times the lanes and sublanes of a register cover a vector, along some of its dimensions."""
    units, rank = {-1: chip.vpu.lanes, -2: chip.vpu.sublanes}, len(kind.dimensions)
    return prod(ceil(kind.dimensions[d] / units.get(d, 1)) for d in range(-rank, 0) if differs is None or d in differs)


Rule = Callable[[Site, Operation], Work]
_RULES: dict[str, Rule] = {}
_rule = entering(_RULES)


def costed(operations: Sequence[Operation], types: Sequence[Type], chip: Chip) -> Costed:
    """Return the work of operations that run one after another, by what has to wait for what."""
    site, works = Site(types, chip), list[Work]()
    longest = _gone_through(site, operations, works)
    depth = longest.cycles - longest.products * chip.mxu.result_latency_cycles
    found: dict[int, list[Work]] = {}
    for work, stage in zip(works, _stages(operations, works), strict=True):
        found.setdefault(stage, []).append(work)
    summed = (sum_work(found[stage]) for stage in sorted(found))
    stages = tuple(work for work in summed if work != Work())
    return Costed(TilePart(stages, depth, longest.products), site.flops, tuple(site.unknown))


def code_lines(part: int, operations: Sequence[Operation], types: Sequence[Type], chip: Chip) -> list[CodeLine]:
    """Return the same line by line of the source: the stages of a part, and the chain, are the sums of its lines'."""
    works: list[Work] = []
    longest = _gone_through(Site(types, chip), operations, works)
    chain = {link.at: link for link in longest.links()}
    found: dict[tuple[int, str, str], list[int]] = {}
    for at, (operation, stage) in enumerate(zip(operations, _stages(operations, works), strict=True)):
        if works[at] != Work() or at in chain:
            found.setdefault((stage, operation.source, operation.name.partition(".")[2]), []).append(at)
    return [
        CodeLine(
            part,
            *label,
            sum_work(works[at] for at in places),
            sum(chain[at].own_cycles for at in places if at in chain),
            sum(chain[at].own_products for at in places if at in chain),
        )
        for label, places in found.items()
    ]


def _gone_through(site: Site, operations: Sequence[Operation], works: list[Work]) -> _Chain:
    """Append the work of each of some operations; return the longest chain of them."""
    chains: dict[int, _Chain] = {}
    for at, operation in enumerate(operations):
        works.append(_work(site, operation))
        before = max((chains[n] for n in operation.operands if n in chains), default=_NO_CHAIN)
        latency = _latency(works[-1], site, operation)
        chain = before.then(at, latency, len(works[-1].matmuls), site.chip)
        chains.update(dict.fromkeys(operation.results or (-1 - len(chains),), chain))
    return max(chains.values(), default=_NO_CHAIN)


def _stages(operations: Sequence[Operation], works: Sequence[Work]) -> list[int]:
    """Return the stage of each operation: what all of one makes must be there before the next is begun."""
    made_at = {number: at for at, operation in enumerate(operations) for number in operation.results}
    made_of = [[made_at.get(number, -1) for number in operation.operands] for operation in operations]
    products = {at for at, work in enumerate(works) if work.matmuls}
    reductions = [at for at, operation in enumerate(operations) if operation.name in REDUCTIONS]
    return stage_numbers(made_of, products, reductions)


class _Chain(NamedTuple):
    """Operations that wait for each other: their cycles, and the products among them.

    The last of them stands at position ``at``, has ``own_cycles`` beside ``own_products``, and is ``behind`` the rest.
    """

    cycles: float
    products: int
    at: int = -1
    own_cycles: float = 0.0
    own_products: int = 0
    behind: _Chain | None = None

    def then(self, at: int, cycles: float, products: int, chip: Chip) -> _Chain:
        """Return the chain with one more operation at its end."""
        longer = self.cycles + cycles + products * chip.mxu.result_latency_cycles
        return _Chain(longer, self.products + products, at, cycles, products, self)

    def links(self) -> Iterator[_Chain]:
        """Return the chain up to each of its operations, the longest first."""
        link: _Chain | None = self
        while link is not None and link.at >= 0:
            yield link
            link = link.behind


_NO_CHAIN = _Chain(0.0, 0)


def _latency(work: Work, site: Site, operation: Operation) -> float:
    """Return how long an operation takes for one register, if all that it is made of waits for each other."""
    if operation.name in PRODUCTS:
        return 0.0
    numbers = [n for n in (*operation.operands, *operation.results) if site.types[n].kind == "vector"]
    widest = max([1.0, *(register_count(site.types[n], site.chip) for n in numbers)])
    latency = site.chip.vector_ops.latency
    return sum(ops * latency.get(unit, 1.0) for unit, ops in work.ops.items()) / (site.repeats or widest)


def _work(site: Site, operation: Operation) -> Work:
    """Return the work of one operation, and note what is known of its result."""
    site.repeats = 0.0
    rule = _RULES.get(operation.name)
    if rule:
        return rule(site, operation)
    results = [n for n in operation.results if site.types[n].kind == "vector"]
    if not results:
        # Scalars, references and semaphores: beside the vectors, on a core of their own.
        return Work()
    (result, *_) = results
    if operation.name in NAMES:
        site.differs[result] = differs = site.differing(*operation.operands)
        wide = max((*operation.operands, result), key=lambda n: register_count(site.types[n], site.chip))
        site.repeats = site.registers(wide, differs)
        return Work(ops=scaled(site.chip.vector_ops.ops[NAMES[operation.name]], site.repeats))
    site.unknown[operation.name] = None
    widest = max(site.registers(n) for n in (*operation.operands, result) if site.types[n].kind == "vector")
    return Work(ops={VECTOR: widest})


NAMES = (
    OPCODES
    | dict.fromkeys("arith.sitofp arith.uitofp arith.fptosi arith.fptoui tpu.sitofp tpu.fptosi".split(), "convert")
    | dict.fromkeys(("arith.mulsi_extended", "arith.mului_extended"), "mulhi")
    | dict.fromkeys(("arith.cmpf", "arith.cmpi"), "compare")
    | dict.fromkeys(("arith.select", "math.copysign"), "select")
    | {"arith.maxnumf": "maximum", "arith.minnumf": "minimum", "tpu.reciprocal": "divide"}
    | {"math.exp2": "exponential", "math.log2": "log"}
)
"""The opcodes of HLO under which the chip's table has what operations of MLIR cost."""


@_rule("arith.constant", "vector.constant_mask")
def _constant(site: Site, operation: Operation) -> Work:
    """One register stands for all of one value, as an immediate does."""
    is_one_value = not isinstance(operation.attributes.get("value"), tuple | None)
    for number in operation.results:
        site.differs[number] = frozenset() if is_one_value else every_dimension(site.types[number])
    return Work()


@_rule("vector.broadcast", "vector.splat", "tpu.broadcast_in_sublanes")
def _broadcast(site: Site, operation: Operation) -> Work:
    """Spread a value over lanes or sublanes; along other dimensions the same register is used again."""
    source, (result,) = operation.operands[0], operation.results
    given = site.types[source]
    if given.kind != "vector":
        site.differs[result] = frozenset()
        return Work()
    differs = frozenset(d for d in site.differing(source) if given.dimensions[d] > 1)
    site.differs[result] = differs
    target, moves = site.types[result].dimensions, site.chip.vector_ops.moves
    spread = {
        d for d in (-1, -2) if len(target) >= -d and (len(given.dimensions) < -d or given.dimensions[d] < target[d])
    }
    count = register_count(given, site.chip, differs)
    if source in site.spread or not spread:
        return Work()
    return Work(ops=scaled(moves["lane_broadcast" if -1 in spread else "sublane_broadcast"], count))


@_rule("tpu.iota", "vector.step")
def _iota(site: Site, operation: Operation) -> Work:
    """Count along some dimensions; along the others registers are the same."""
    (result,) = operation.results
    rank = len(site.types[result].dimensions)
    counted = operation.attributes.get("dimensions", (operation.attributes.get("dimension", rank - 1),))
    site.differs[result] = frozenset(int(d) - rank for d in counted)
    return Work(ops=scaled(site.chip.vector_ops.ops["iota"], site.registers(result)))


@_rule("vector.load", "tpu.vector_load", "tpu.load", "tpu.strided_load", "tpu.shuffled_load", "vector.transfer_read")
def _load(site: Site, operation: Operation) -> Work:
    """Load packed registers from VMEM."""
    site.repeats = sum(packed_registers(site.types[n], site.chip) for n in operation.results)
    return Work(ops={LOAD: site.repeats})


@_rule("tpu.vector_store", "vector.store", "tpu.store", "tpu.strided_store", "tpu.shuffled_store")
@_rule("vector.transfer_write")
def _store(site: Site, operation: Operation) -> Work:
    """Store packed registers to VMEM; what is added to is loaded first."""
    stored = site.types[operation.operands[0]]
    if stored.kind != "vector":
        return Work()
    count = site.repeats = packed_registers(stored, site.chip)
    if not operation.attributes.get("add"):
        return Work(ops={STORE: count})
    return Work(ops={STORE: count, LOAD: count}) + Work(ops=scaled(site.chip.vector_ops.ops["add"], count))


@_rule("vector.shape_cast", "tpu.reshape", "tpu.relayout")
def _reshape(site: Site, operation: Operation) -> Work:
    """Nothing while elements keep their lanes and sublanes, else shuffles."""
    (source, *_), (result,) = operation.operands, operation.results
    old, new = site.types[source].dimensions, site.types[result].dimensions
    if source in site.spread:
        site.spread.add(result)
    kept = _trailing(old, new)
    if kept < 2 and (kept or source in site.spread or 1 in (*new[-1:], *old[-1:])):
        # A reduced vector, with or without the dimension that is left: its registers stay.
        site.differs[result] = every_dimension(site.types[result])
        return Work() if source in site.spread or kept else _retiled(site, source, result)
    site.differs[result] = frozenset(d for d in site.differing(source) if d >= -kept) | frozenset(
        range(-len(new), -kept)
    )
    return Work() if kept >= min(2, len(new), len(old)) else _retiled(site, source, result)


def _trailing(old: Sequence[int], new: Sequence[int]) -> int:
    """Return how many of the last dimensions of two shapes are the same."""
    count = 0
    for one, other in zip(reversed(old), reversed(new), strict=False):
        if one != other:
            break
        count += 1
    return count


def _retiled(site: Site, source: int, result: int) -> Work:
    count = max(register_count(site.types[number], site.chip) for number in (source, result))
    return Work(ops=scaled(site.chip.vector_ops.moves["retile"], count))


@_rule("arith.extf", "tpu.extf", "arith.extsi", "arith.extui", "tpu.unpack_subelements")
def _widen(site: Site, operation: Operation) -> Work:
    """Take packed elements apart."""
    (source,), (result,) = operation.operands, operation.results
    if site.types[result].kind != "vector":
        return Work()
    site.differs[result] = site.differing(source)
    return Work(ops=scaled(_narrow(site.types[source], site.chip.vector_ops.unpack), site.registers(result)))


@_rule("arith.truncf", "tpu.truncf", "arith.trunci", "tpu.pack_subelements")
def _pack(site: Site, operation: Operation) -> Work:
    """Round and pack elements."""
    (source, *_), (result,) = operation.operands, operation.results
    if site.types[result].kind != "vector":
        return Work()
    site.differs[result] = site.differing(source)
    return Work(ops=scaled(_narrow(site.types[result], site.chip.vector_ops.pack), site.registers(source)))


def _narrow(kind: Type, table: dict[str, OpCost]) -> OpCost:
    """Return what a narrow type costs of a table of conversions; a mask of one bit stays a mask."""
    if kind.element_bits in (0, 1):
        return {VECTOR: 1.0}
    return table.get(_hlo_type(kind), table.get("s8", {}) if kind.element_bits <= 8 else {})


def _hlo_type(kind: Type) -> str:
    """Return the name that HLO has for an element type: ``s8`` of ``i8``, ``f8e4m3fn`` of ``f8E4M3FN``."""
    return ("s" + kind.element[1:] if kind.element[0] == "i" else kind.element).lower()


@_rule("arith.bitcast", "tpu.bitcast", "tpu.bitcast_vreg")
def _bits(site: Site, operation: Operation) -> Work:
    """The same bits under another name."""
    (source,), (result,) = operation.operands, operation.results
    same = site.types[source].dimensions == site.types[result].dimensions
    site.differs[result] = site.differing(source) if same else every_dimension(site.types[result])
    return Work()


@_rule(*REDUCTIONS)
def _reduce(site: Site, operation: Operation) -> Work:
    """Combine whole registers, then fold what is left over sublanes and lanes."""
    (source, *_), (result,) = operation.operands, operation.results
    given, rank = site.types[source], len(site.types[source].dimensions)
    reduced = {axis - rank for axis in reduced_axes(operation, rank)}
    kept = [1 if d in reduced else given.dimensions[d] for d in range(-rank, 0)]
    left = register_count(msgspec.structs.replace(given, dimensions=tuple(kept)), site.chip)
    moves, vpu = site.chip.vector_ops.moves, site.chip.vpu
    total = Work(ops=scaled(site.chip.vector_ops.ops["add"], register_count(given, site.chip) - left))
    if -2 in reduced:
        total += Work(ops=scaled(moves["sublane_reduce"], left * log2(vpu.sublanes)))
    if -1 in reduced:
        total += Work(ops=scaled(moves["lane_reduce"], left))
    site.repeats = left
    if reduced & {-1, -2}:
        site.spread.add(result)
    return total


@_rule("tpu.transpose", "vector.transpose", "tpu.einshape")
def _transpose(site: Site, operation: Operation) -> Work:
    """Exchange lanes and sublanes in the cross-lane unit; other dimensions only change places."""
    (source,), (result,) = operation.operands, operation.results
    order = operation.attributes.get("permutation", (1, 0))
    rank = len(order)
    if tuple(order[-2:]) == (rank - 2, rank - 1):
        return Work()
    move = "transpose" if order[-1] != rank - 1 else "sublane_swap"
    count = max(register_count(site.types[number], site.chip) for number in (source, result))
    return Work(ops=scaled(site.chip.vector_ops.moves[move], count))


@_rule("tpu.concatenate", "vector.extract_strided_slice", "vector.insert_strided_slice", "vector.extract")
@_rule("vector.insert", "tpu.shape_cast", "vector.extract_slice")
def _cut(site: Site, operation: Operation) -> Work:
    """Shift registers where a cut or a join does not fall on a register's edge."""
    (result,) = operation.results
    kind = site.types[result]
    if kind.kind != "vector" or not kind.dimensions:
        return Work()
    if operation.name == "tpu.concatenate":
        at = int(operation.attributes.get("dimension", 0)) - len(kind.dimensions)
        sizes = [site.types[n].dimensions[at] for n in operation.operands]
        offsets = {at: [sum(sizes[:n]) for n in range(1, len(sizes))]}
        if len(set(operation.operands)) == 1:
            # The same value again and again is the same registers.
            site.differs[result] = site.differing(operation.operands[0]) - {at}
    else:
        stated = operation.attributes.get("offsets", ())
        offsets = {number - len(stated): [int(offset)] for number, offset in enumerate(stated)}
    for d, unit, move in ((-1, site.chip.vpu.lanes, "lane_shift"), (-2, site.chip.vpu.sublanes, "sublane_shift")):
        if any(offset % unit for offset in offsets.get(d, ())):
            return Work(ops=scaled(site.chip.vector_ops.moves[move], register_count(kind, site.chip)))
    return Work()


@_rule("tpu.rotate", "tpu.dynamic_rotate")
def _rotate(site: Site, operation: Operation) -> Work:
    """Turn lanes in the cross-lane unit, or sublanes beside it."""
    (result,) = operation.results
    kind = site.types[result]
    is_lanes = int(operation.attributes.get("dimension", 0)) == len(kind.dimensions) - 1
    move = site.chip.vector_ops.moves["lane_shift" if is_lanes else "sublane_shift"]
    return Work(ops=scaled(move, register_count(kind, site.chip)))


@_rule("tpu.gather", "tpu.dynamic_gather")
def _gather(site: Site, operation: Operation) -> Work:
    """Take elements of each register by a register of indices, in the cross-lane unit."""
    (result, *_) = operation.results
    return Work(ops=scaled(site.chip.vector_ops.moves["lane_shift"], register_count(site.types[result], site.chip)))


@_rule("tpu.prng_random_bits")
def _random(site: Site, operation: Operation) -> Work:
    """Draw words from the core's own generator."""
    (result,) = operation.results
    return Work(ops=scaled(site.chip.vector_ops.ops["rng-bit-generator"], site.registers(result)))


@_rule("tpu.repeat")
def _repeat(site: Site, operation: Operation) -> Work:
    """Use the same registers again."""
    (source,), (result,) = operation.operands, operation.results
    at = int(operation.attributes.get("dimension", 0)) - len(site.types[result].dimensions)
    site.differs[result] = site.differing(source) - {at}
    return Work()


@_rule(*PRODUCTS)
def _product(site: Site, operation: Operation) -> Work:
    """Stream the rows of the left operand past the right one, which stays in the arrays a tile at a time."""
    left, right, out = (site.types[number] for number in (*operation.operands[:2], *operation.results))
    says = operation.attributes
    rows, columns = out.dimensions[-2] if len(out.dimensions) > 1 else 1, out.dimensions[-1]
    separate = prod(out.dimensions[:-2])
    depth = ceil(prod(left.dimensions) / max(1, separate * rows))
    element = _product_type(left, right)
    site.flops[element] = site.flops.get(element, 0.0) + 2.0 * separate * rows * columns * depth
    passes = passes_of("highest" if "fp32" in str(says.get("precision")) else "default", DTYPES[element])
    chip = site.chip
    tile = TileProduct(rows, columns, 1, depth, separate, element, passes)
    asked = array_of(chip).work(tile, chip)
    popped = register_count(out, chip)
    # The first part of a sum is popped, each further one popped and added, and so is what the sum begins with.
    added = 0.0 if chip.mxu.accumulates_in_array else popped * max(0.0, asked.parts - 1)
    if site.differs.get(operation.operands[2]) != frozenset():
        added += popped
    results = popped * (1 if chip.mxu.accumulates_in_array else asked.parts)
    work = Work((msgspec.structs.replace(asked.matmul, results=results),), {VECTOR: added})
    if says.get("transpose_lhs"):
        work += Work(ops=scaled(chip.vector_ops.moves["transpose"], register_count(left, chip)))
    for side in (left, right):
        if side.element[0] == "i" and element[0] != "s":
            work += Work(ops=scaled(_narrow(side, chip.vector_ops.unpack), register_count(side, chip)))
    return work


def _product_type(left: Type, right: Type) -> str:
    """Return the type that a product is made in: that of both sides, else what the arrays can multiply of either."""
    names = sorted({_hlo_type(left), _hlo_type(right)})
    if len(names) == 1 or {name[0] for name in names} == {"s"}:
        return max(names, key=lambda name: DTYPES[name].bits)
    # Of f32 the arrays take a pass of bf16, and what is narrower becomes bf16 before.
    return "bf16"
