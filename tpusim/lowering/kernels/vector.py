"""The vector unit's share of an instruction: register operations by unit, for the whole of its result.

Padding is paid for: what counts are registers that hold the physical, tile-padded array. Each opcode has a rule here;
costs per register come from the chip's table of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import ceil, log2, prod

import msgspec

from tpusim.cost.operations.applied import by_doubling, computation_cost
from tpusim.cost.operations.table import operation_cost, wide_array, words_of
from tpusim.hardware.chip import Chip, OpCost
from tpusim.hardware.units import EUP, LOAD, STORE, VECTOR, XLU
from tpusim.ir.attributes import SliceDimension, Window, WindowDimension, sorted_along
from tpusim.ir.custom_calls import registered_for
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import DEVICE_IDS, FREE, RESHAPES
from tpusim.lowering.kernels.asked import scan_steps
from tpusim.lowering.kernels.products import roots_work
from tpusim.lowering.scope import Notes, entering
from tpusim.program.work import Matmul, Work, scaled, sum_work
from tpusim.semantics.products import MOST_ROOTS, transform_lengths, transform_parts
from tpusim.semantics.scalars import literal_number, origin_of
from tpusim.shapes.address import padded_element_count
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, leaves

WorkRule = Callable[["Site", Instruction], Work]


class Site(msgspec.Struct, frozen=True, gc=False):
    """Where an instruction stands: its module, its computation, the chip it will run on, and where estimates go."""

    module: Module
    computation: Computation
    chip: Chip
    notes: Notes

    def operand_shape(self, instruction: Instruction, position: int) -> ArrayShape:
        """Return the shape of operand ``position``, which must be an array or a buffer that holds one."""
        shape = self.computation[instruction.operands[position]].shape
        if isinstance(shape, BufferShape):
            shape = shape.element
        assert isinstance(shape, ArrayShape)
        return shape


WORK_RULES: dict[str, WorkRule] = {}
work_rule = entering(WORK_RULES)
"""Enters a function as the vector work of some opcodes."""


def vector_work(site: Site, instruction: Instruction) -> Work:
    """Return the vector work of one instruction, its operands' loads and its result's stores not included."""
    found = WORK_RULES.get(instruction.opcode)
    if found:
        return found(site, instruction)
    taken = [operand.shape for operand in site.computation.operands_of(instruction)]
    cost = operation_cost(site.chip, instruction.opcode, instruction.attributes, instruction.shape, taken)
    if cost is not None:
        # A comparison of long numbers makes short ones.
        largest = wide_array((instruction.shape, *taken)) or instruction.shape
        return Work(ops=scaled(cost, element_registers(largest, site.chip)))
    # Nothing is free in silence.
    site.notes.estimated(instruction, "no cost of its own: one operation per register of its largest array")
    return Work(ops={VECTOR: widest(site.computation, instruction, site.chip)})


def is_waiting(opcode: str) -> bool:
    """Return whether an opcode's steps wait for each other: its work is then cycles that take all slots of the unit."""
    rule = WORK_RULES.get(opcode)
    return rule is _scan or (rule is _cut and opcode.startswith("dynamic"))


def widest(computation: Computation, instruction: Instruction, chip: Chip) -> float:
    """Return the registers of the largest value that an instruction takes or makes."""
    values = (instruction, *computation.operands_of(instruction))
    return max(registers_of([value.shape for value in values], chip))


def registers(shape: Shape, chip: Chip) -> float:
    """Return how many vector registers the physical array fills in the width that it is computed in."""
    return registers_of((shape,), chip)[0]


def element_registers(shape: Shape, chip: Chip) -> float:
    """Return the same for one word of each element: what is done to long ones is counted with all their words."""
    return sum([registers(leaf, chip) * _elements_by_word(leaf) for leaf in leaves(shape)])


def _elements_by_word(array: ArrayShape) -> float:
    return 1 / words_of(array.dtype)


def registers_of(shapes: Iterable[Shape], chip: Chip) -> list[float]:
    """Return ``registers`` of many shapes."""
    native_bf16, elements = chip.vpu.native_bf16, chip.vpu.register_elements
    return [_words_of(shape, native_bf16) / elements for shape in shapes]


# Shapes repeat thousands of times, and know their hash.
@lru_cache(maxsize=1 << 14)
def _words_of(shape: Shape, native_bf16: bool) -> float:
    return sum(padded_element_count(leaf) * _words(leaf, native_bf16=native_bf16) for leaf in leaves(shape))


def stored_registers(n_bytes: float, chip: Chip) -> float:
    """Return how many whole-register loads or stores move ``n_bytes`` of physical data."""
    # Packed words fill a register whatever the type: 4 bytes a lane, unlike while computing.
    return n_bytes / chip.vpu.register_bytes


def _words(shape: ArrayShape, *, native_bf16: bool) -> float:
    """Return the 32-bit words that one element takes while it is computed with."""
    if native_bf16 and shape.dtype.name == "bf16":
        return 0.5
    # Narrow types are widened to 32 bits before arithmetic (JAX, Pallas TPU details).
    return words_of(shape.dtype)


# The number of a device is the scalar core's.
@work_rule(*FREE, *DEVICE_IDS)
def _free(site: Site, instruction: Instruction) -> Work:
    """Return no work."""
    return Work()


@work_rule("bitcast-convert")
def _bits(site: Site, instruction: Instruction) -> Work:
    """Nothing while elements keep their width; else they come to lie in other places."""
    (source,), (target,) = leaves(site.operand_shape(instruction, 0)), leaves(instruction.shape)
    if source.dtype.bits == target.dtype.bits:
        return Work()
    return Work(ops=scaled(site.chip.vector_ops.moves["retile"], widest(site.computation, instruction, site.chip)))


@work_rule("scan")
def _scan(site: Site, instruction: Instruction) -> Work:
    """Run the computation once per step: each instruction waits for the one before, and other slots stay empty."""
    attributes, carries = instruction.attributes, instruction.attributes["num_carries"]
    operands = site.computation.operands_of(instruction)
    inputs = [leaves(operand.shape)[0] for operand in operands[: len(operands) - carries]]
    results = leaves(instruction.shape)
    outputs = results[: len(results) - carries]
    applied = site.module[attributes["to_apply"]]
    inside = Site(site.module, applied, site.chip, site.notes)
    steps = scan_steps(site.computation, instruction)
    slots = site.chip.vpu.alu_slots
    chain = (
        (vector_work(inside, i), widest(inside.computation, i, site.chip)) for i in inside.computation.instructions
    )
    # Even a scalar takes a whole cycle.
    step = sum_work(work * max(1.0, slots / width) for work, width in chain if width)
    moved = {LOAD: sum(max(1.0, registers(shape, site.chip) / max(1, steps)) for shape in inputs)}
    moved[STORE] = sum(max(1.0, registers(shape, site.chip) / max(1, steps)) for shape in outputs)
    return (step + Work(ops=moved)) * steps


@work_rule("broadcast")
def _broadcast(site: Site, instruction: Instruction) -> Work:
    """Spread elements over the lanes or sublanes of a register; along major dimensions a register is used again."""
    target, kept = instruction.shape, instruction.attributes.get("dimensions", ())
    assert isinstance(target, ArrayShape)
    source = site.operand_shape(instruction, 0)
    # One element fills a register as an immediate does.
    if source.element_count <= 1:
        return Work()
    lane, *rest = minor_to_major(target)
    sublane, vpu, moves = rest[0] if rest else lane, site.chip.vpu, site.chip.vector_ops.moves
    # What is spread is spread once for each register that differs (the reverse of a reduction's folds).
    units = {sublane: vpu.sublanes, lane: vpu.lanes}
    differing = prod(ceil(target.dimensions[d] / units.get(d, 1)) for d in kept) * words_of(target.dtype)
    if lane not in kept:
        turned = minor_to_major(source) and kept[minor_to_major(source)[0]] == sublane
        spread = Work(ops=scaled(moves["lane_broadcast"], differing))
        # Elements that lie along the lanes must first come to stand below each other.
        return spread + Work(ops=scaled(moves["transpose"], registers(source, site.chip))) if turned else spread
    return Work(ops=scaled(moves["sublane_broadcast"], differing)) if sublane not in kept else Work()


@work_rule("reduce")
def _reduce(site: Site, instruction: Instruction) -> Work:
    """Combine every register of the inputs, then fold sublanes and lanes where those dimensions go."""
    inputs = len(instruction.operands) // 2
    combine = computation_cost(site.module, instruction.attributes["to_apply"], site.chip)
    total = Work()
    for position in range(inputs):
        shape = site.operand_shape(instruction, position)
        # One call combines an element of every input: each input is charged its part.
        total += combine * (element_registers(shape, site.chip) / inputs)
        total += _fold(site, shape, instruction.attributes["dimensions"])
    return total


def _fold(site: Site, shape: ArrayShape, reduced: tuple[int, ...]) -> Work:
    """Return the work of folding the lanes and sublanes of what the combination of whole registers leaves."""
    order = minor_to_major(shape)
    minor, second = order[:1], order[1:2]
    # Major dimensions need no fold: adding whole registers has reduced them (JAX, Pallas TPU details).
    kept = prod(shape.dimensions[d] for d in order[2:] if d not in reduced) * words_of(shape.dtype)
    moves, total = site.chip.vector_ops.moves, Work()
    rows = 1 if not second or second[0] in reduced else ceil(shape.dimensions[second[0]] / site.chip.vpu.sublanes)
    columns = ceil(shape.dimensions[minor[0]] / site.chip.vpu.lanes) if minor else 1
    if minor and minor[0] in reduced:
        total += Work(ops=scaled(moves["lane_reduce"], kept * rows))
    if second and second[0] in reduced:
        # Lanes have been folded by then, so that one register is left of a row of them.
        left = 1 if minor[0] in reduced else columns
        total += Work(ops=scaled(moves["sublane_reduce"], kept * left * log2(site.chip.vpu.sublanes)))
    return total


def minor_to_major(shape: ArrayShape) -> tuple[int, ...]:
    """Return the dimension order of a shape, major-to-minor by default."""
    return shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))


@work_rule("reduce-window")
def _reduce_window(site: Site, instruction: Instruction) -> Work:
    """Combine one shifted register per window position, or, where that is fewer, by doubling as a scan does."""
    # The text of a scalar has none.
    window: Window = instruction.attributes.get("window", Window())
    combine = computation_cost(site.module, instruction.attributes["to_apply"], site.chip)
    source = site.operand_shape(instruction, 0)
    # A window that reaches every element from every position is a reduction whose result is spread out again.
    whole = [d for d, w in enumerate(window.dimensions) if w.size > 1 and _sees_all(w, source.dimensions[d])]
    folded = combine * element_registers(source, site.chip) + _fold(site, source, tuple(whole)) if whole else Work()
    # One dimension after another: 3x3 takes two neighbours twice, not eight.
    sliding = {
        d: _neighbours(w, source.dimensions[d], d in minor_to_major(source)[:2])
        for d, w in enumerate(window.dimensions)
        if d not in whole
    }
    count, extra = registers(instruction.shape, site.chip), sum(sliding.values())
    combined = combine * ((extra if whole else max(1, extra)) * element_registers(instruction.shape, site.chip))
    return folded + combined + sum_work(_shift(site, source, d) * (taps * count) for d, taps in sliding.items())


def _neighbours(window: WindowDimension, size: int, is_minor: bool) -> int:
    """Return how many others each register is combined with for a window over a dimension of ``size`` elements."""
    # Registers that lie in one sum after the other: each is the one before, and itself.
    if not is_minor and window.size >= size and max(window.pad_low, window.pad_high) == window.size - 1:
        return min(1, window.size - 1)
    # A stride would skip what doubling needs.
    return min(window.size - 1, by_doubling(window.size)) if window.stride == 1 else window.size - 1


def _shift(site: Site, shape: ArrayShape, dimension: int) -> Work:
    """Return what brings a register's neighbours along a dimension to its places."""
    # Along all but the two minor ones they are registers of their own.
    kinds = dict(zip(minor_to_major(shape), ("lane_shift", "sublane_shift"), strict=False))
    return Work(ops=site.chip.vector_ops.moves[kinds[dimension]]) if dimension in kinds else Work()


def _sees_all(window: WindowDimension, size: int) -> bool:
    """Tell whether a window covers a dimension of ``size`` elements from its first to its last position."""
    reach = (window.size - 1) * window.rhs_dilate + 1
    return min(window.pad_low, window.pad_high) >= size - 1 and reach >= 2 * size - 1


@work_rule("select-and-scatter")
def _select_and_scatter(site: Site, instruction: Instruction) -> Work:
    """Compare every window position, then add the source where it was chosen."""
    window: Window = instruction.attributes.get("window", Window())
    taps = prod(d.size for d in window.dimensions)
    source = site.operand_shape(instruction, 1)
    count = registers(source, site.chip)
    select = computation_cost(site.module, instruction.attributes["select"], site.chip)
    scatter = computation_cost(site.module, instruction.attributes["scatter"], site.chip)
    own = Work(ops=site.chip.vector_ops.ops[instruction.opcode])
    return ((select + scatter) * _elements_by_word(source) + own) * (taps * count)


@work_rule("copy", "transpose", "reshape", "dynamic-reshape")
def _relayout(site: Site, instruction: Instruction) -> Work:
    """Nothing if elements keep their place in registers, else shuffles within them."""
    target = instruction.shape
    if not isinstance(target, ArrayShape):
        # A copied tuple is a few addresses.
        return Work()
    source = site.operand_shape(instruction, 0)
    permutation = instruction.attributes.get("dimensions", tuple(range(target.rank)))
    move = _move_kind(instruction.opcode, source, target, permutation, site.chip.vpu.lanes)
    return Work(ops=scaled(site.chip.vector_ops.moves[move], registers(target, site.chip))) if move else Work()


def _move_kind(opcode: str, source: ArrayShape, target: ArrayShape, permutation: tuple[int, ...], lanes: int) -> str:
    """Return which move of the table takes ``source`` to ``target``, or an empty string for none."""
    same_tiles = (source.layout.tiles if source.layout else ()) == (target.layout.tiles if target.layout else ())
    if opcode in RESHAPES:
        before, after = (_minor(shape) for shape in (source, target))
        # With equal minor dimensions only major ones are renamed, and no element leaves its register.
        if before == after and same_tiles:
            return ""
        if before[:1] == after[:1] and [apart for apart, _ in before] != [apart for apart, _ in after] and same_tiles:
            return "sublane_swap"
        lanes_of = [shape.dimensions[minor_to_major(shape)[0]] if shape.rank else 1 for shape in (source, target)]
        ends = [shape.dimensions[-1] if shape.rank else 1 for shape in (source, target)]
        # Rows of whole registers are split or joined: what lay in the lanes of others goes to their sublanes.
        splits = lanes_of[0] != lanes_of[1] and ends[0] != ends[1] and not any(end % lanes for end in ends)
        return "sublane_swap" if splits else "retile"
    rows = minor_to_major(source)[:2]
    rows_then = tuple(permutation[d] for d in minor_to_major(target)[:2])
    # Between lanes only the cross-lane unit can move anything.
    if rows[:1] != rows_then[:1]:
        return "transpose"
    if rows != rows_then:
        return "sublane_swap"
    return "" if same_tiles else "retile"


def _minor(shape: ArrayShape) -> list[tuple[int, int]]:
    """Return of an array's two minor dimensions how far apart in it elements along them are, and the sizes."""
    sizes = shape.dimensions
    return [(prod(sizes[d + 1 :]) if sizes[d] > 1 else 0, sizes[d]) for d in minor_to_major(shape)[:2]]


@work_rule("slice", "dynamic-slice", "dynamic-update-slice", "pad", "concatenate")
def _cut(site: Site, instruction: Instruction) -> Work:
    """Shift registers where a cut or a join does not fall on a register's edge."""
    shape = instruction.shape
    if instruction.opcode == "dynamic-update-slice":
        shape = site.operand_shape(instruction, 1)
    assert isinstance(shape, ArrayShape)
    if instruction.opcode.startswith("dynamic"):
        return _dynamic_cut(site, instruction, shape)
    count = registers(shape, site.chip)
    order, vpu = minor_to_major(shape), site.chip.vpu
    shifts = _cut_offsets(site, instruction)
    if order and any(offset % vpu.lanes for offset in shifts.get(order[0], ())):
        return Work(ops=scaled(site.chip.vector_ops.moves["lane_shift"], count))
    if len(order) > 1 and any(offset % vpu.sublanes for offset in shifts.get(order[1], ())):
        return Work(ops=scaled(site.chip.vector_ops.moves["sublane_shift"], count))
    return Work()


def _dynamic_cut(site: Site, instruction: Instruction, moved: ArrayShape) -> Work:
    """Go row by row where a dynamic slice or its update is known to begin inside a register.

    Starts of which nothing is known are taken to be aligned, as those of a scan over layers or of a cache line are.
    """
    order, vpu, moves = minor_to_major(moved), site.chip.vpu, site.chip.vector_ops.moves
    ones = _known_ones(site, instruction, moved)
    units = dict(zip(order, (vpu.lanes, vpu.sublanes), strict=False))
    inside = [d for d, unit in units.items() if d < len(ones) and ones[d] % unit]
    if not inside or not moved.element_count:
        return Work()
    minor = moved.dimensions[order[0]]
    rows, per_row = moved.element_count // minor, ceil(minor / vpu.lanes)
    touched = {LOAD: per_row, STORE: per_row, VECTOR: vpu.alu_slots * _row_cycles(site.chip, per_row)}
    rotated = moves["lane_shift"] if order[0] in inside else {}
    return Work(ops=scaled(touched, rows)) + Work(ops={XLU: rotated.get(XLU, 0.0) * rows * per_row})


def _known_ones(site: Site, instruction: Instruction, moved: ArrayShape) -> tuple[int, ...]:
    """Return, by dimension, the bits of a start that are known: of a constant all, else what the text says."""
    whole, stated = site.operand_shape(instruction, 0), instruction.backend_config.known_index_ones
    found = []
    for d, name in enumerate(instruction.operands[-moved.rank :]):
        start = literal_number(origin_of(site.computation, name).immediate)
        # What would reach over the edge begins earlier (XLA, Operation Semantics).
        last = whole.dimensions[d] - moved.dimensions[d]
        found.append(sum(stated[d : d + 1]) if start is None else min(max(0, int(start)), last))
    return tuple(found)


def _row_cycles(chip: Chip, per_row: int) -> float:
    """Return what a row of ``per_row`` registers takes to be put between others: they are its neighbours' as well.

    It is loaded, shifted, joined with what stays, stored, and the next one addressed; that one changes the same
    registers and waits. As in a scan other slots stay empty.
    """
    table, latency = chip.vector_ops, chip.vector_ops.latency
    steps = table.moves["sublane_shift"][VECTOR] + table.ops["select"][VECTOR]
    chain = latency[LOAD] + steps * latency[VECTOR] + latency[STORE]
    return chain + (per_row - 1) / chip.vpu.store_slots + chip.fixed.tile_cycles


def _cut_offsets(site: Site, instruction: Instruction) -> dict[int, tuple[int, ...]]:
    """Return, by dimension, the offsets at which an instruction cuts or joins; what depends on values is not in it."""
    if instruction.opcode == "slice":
        # A stride, or holes of a padding, tears registers apart as a crooked offset does: both stand as one.
        cuts: tuple[SliceDimension, ...] = instruction.attributes["slice"]
        return {d: (cut.start, cut.stride - 1) for d, cut in enumerate(cuts)}
    if instruction.opcode == "pad":
        edges = instruction.attributes["padding"]
        return {d: (edge.low, edge.interior) for d, edge in enumerate(edges)}
    (dimension,) = instruction.attributes["dimensions"]
    starts, position = [], 0
    for index in range(len(instruction.operands)):
        starts.append(position)
        position += site.operand_shape(instruction, index).dimensions[dimension]
    return {dimension: tuple(starts)}


@work_rule("reverse")
def _reverse(site: Site, instruction: Instruction) -> Work:
    """Turn registers round if the dimension lies in them."""
    shape = instruction.shape
    assert isinstance(shape, ArrayShape)
    inside = set(instruction.attributes["dimensions"]) & set(minor_to_major(shape)[:2])
    return Work(ops=scaled(site.chip.vector_ops.moves["reverse"], registers(shape, site.chip))) if inside else Work()


@work_rule("gather", "scatter")
def rows_work(site: Site, instruction: Instruction) -> Work:
    """Address one row (slice or update window) at a time, then move or combine its registers."""
    rows, per_row = addressed_rows(site, instruction)
    moves = Work(ops=dict.fromkeys((VECTOR, LOAD, STORE), rows * per_row))
    return Work(ops=scaled(site.chip.vector_ops.moves["row_access"], rows)) + moves


def addressed_rows(site: Site, instruction: Instruction) -> tuple[int, float]:
    """Return how many rows a gather or scatter addresses, and the registers of each."""
    # A scatter has its operands, the indices, then as many updates as operands.
    indices = site.operand_shape(instruction, len(instruction.operands) // 2 if instruction.opcode == "scatter" else 1)
    vector_dim = instruction.attributes["index_vector_dim"]
    rows = prod(size for d, size in enumerate(indices.dimensions) if d != vector_dim)
    moved = instruction.shape if instruction.opcode == "gather" else site.operand_shape(instruction, -1)
    # A row shorter than a register still takes a whole access.
    return rows, max(1.0, registers(moved, site.chip) / max(1, rows))


@work_rule("sort")
def _sort(site: Site, instruction: Instruction) -> Work:
    """Run a bitonic network: log n (log n + 1) / 2 stages, each comparing and exchanging every pair."""
    shape = site.operand_shape(instruction, 0)
    length = shape.dimensions[sorted_along(instruction.attributes, shape.rank)] if shape.rank else 1
    compare = computation_cost(site.module, instruction.attributes["to_apply"], site.chip) * _elements_by_word(shape)
    count = registers(shape, site.chip)
    return network_work(site.chip, count, length, len(instruction.operands), compare)


def network_work(chip: Chip, count: float, length: int, operands: int, compare: Work) -> Work:
    """Return the work of a sorting network over rows of ``length`` elements in ``operands`` arrays.

    ``count`` is how many registers each of the arrays fills.
    """
    depth = ceil(log2(max(2, length)))
    stages = depth * (depth + 1) / 2
    exchange = Work(ops=chip.vector_ops.ops["sort"]) * operands
    # Pairs within a register meet by a rotation of the cross-lane unit; wider ones by addressing alone.
    lane_stages = min(stages, depth * log2(chip.vpu.lanes))
    rotations = Work(ops=chip.vector_ops.moves["lane_exchange"]) * (lane_stages * count * operands)
    # One comparison decides over two elements.
    return (compare * (1 / 2) + exchange) * (stages * count) + rotations


def _partial_reduce(site: Site, instruction: Instruction) -> Work:
    """Keep the best of each bin, which lies in a place of a register of its own: one comparison, two selections.

    F. Chern et al., TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s, algorithm 1.
    """
    table, count = site.chip.vector_ops, registers(site.operand_shape(instruction, 0), site.chip)
    return (Work(ops=table.ops["compare"]) + Work(ops=table.ops["select"]) * 2) * count


@work_rule("rng-bit-generator")
def _random_bits(site: Site, instruction: Instruction) -> Work:
    """Draw words from the core's own generator, or encrypt a counter with the algorithm that is asked for.

    ThreeFry-2x32 and Philox-4x32 as in J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011. Each
    word has a place in a register, so that what two (or four) of them take is shared among so many registers. Keys
    are scalars.
    """
    bits = leaves(instruction.shape)[-1]
    ops, algorithm = site.chip.vector_ops.ops, instruction.attributes.get("algorithm", "rng_default")
    if algorithm not in _GENERATORS:
        return Work(ops=scaled(ops[instruction.opcode], registers(bits, site.chip)))
    words, needed = _GENERATORS[algorithm]
    drawn = sum_work(Work(ops=scaled(ops[opcode], count / words)) for opcode, count in needed.items())
    return drawn * registers(bits, site.chip)


_GENERATORS = {
    # 20 rounds: add, rotate (two shifts, or) and mix; a key into both words before them and after every fourth.
    # The words begin as a counter: numbers of elements added to its start.
    "rng_three_fry": (
        2,
        {"add": 20 + 12 + 2, "shift-left": 20, "shift-right-logical": 20, "or": 20, "xor": 20},
    ),
    # 10 rounds: two products of which both halves are taken, and two sums of three words; the counter as above.
    "rng_philox": (4, {"multiply": 20, "mulhi": 20, "xor": 40, "add": 4}),
}
"""By algorithm the words that are drawn together, and the operations that takes."""


@work_rule("fft")
def _fft(site: Site, instruction: Instruction) -> Work:
    """Do n log n butterflies on complex pairs, with a transpose between the passes.

    Or, of a transform whose matrix of roots is too large to be an array, the products that the compiler makes of it.
    """
    shape = site.operand_shape(instruction, 0)
    lengths = transform_lengths(instruction.attributes, shape)
    parts = [part for length in lengths for part in transform_parts(length)]
    if max(parts, default=0) > MOST_ROOTS:
        elements = max(leaf.element_count for leaf in (shape, *leaves(instruction.shape)))
        return sum_work(roots_work(site.chip, part, elements / part) for part in parts)
    # Both words of a complex element are in the count of registers.
    count = registers(shape, site.chip) * max(1.0, log2(max(2, prod(lengths))))
    return Work(ops=site.chip.vector_ops.ops["fft"]) * count


def _by_register_of_operand(cost: OpCost, site: Site, instruction: Instruction) -> Work:
    return Work(ops=scaled(cost, registers(site.operand_shape(instruction, 0), site.chip)))


@work_rule("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def _batch_norm(site: Site, instruction: Instruction) -> Work:
    """Take moments, normalise, scale and offset every register of the input."""
    return _by_register_of_operand(site.chip.vector_ops.ops[instruction.opcode], site, instruction)


def _repack(site: Site, instruction: Instruction) -> Work:
    """Split, join or pack the words of every register of the operand."""
    return _by_register_of_operand(site.chip.vector_ops.moves["repack"], site, instruction)


@work_rule("map")
def _map(site: Site, instruction: Instruction) -> Work:
    cost = computation_cost(site.module, instruction.attributes["to_apply"], site.chip)
    return cost * element_registers(instruction.shape, site.chip)


CUSTOM_WORK: dict[str, WorkRule] = {
    "PartialReduce": _partial_reduce,
    **dict.fromkeys(("X64Combine", "X64SplitHigh", "X64SplitLow", "GatherScatterIndicesBitpacked"), _repack),
}
"""The vector work of custom calls that the compiler makes, by target."""


def compiler_work(instruction: Instruction) -> WorkRule | None:
    """Return the rule of a custom call that the compiler makes, None of any other: users say what theirs cost."""
    target = instruction.attributes.get("custom_call_target", "")
    return CUSTOM_WORK.get(target) if registered_for(instruction) is None else None


# Left behind by the partitioner, the allocator and the scheduler; no code is made of them.
FREE_TARGETS = frozenset(
    "AllocateBuffer AssumeGatherIndicesInBound ConcatBitcast LayoutConstraint MoveToDevice MoveToHost"
    " PrepareAsyncCallDone PrepareAsyncCallStart SPMDFullToShardShape SPMDShardToFullShape Sharding"
    " annotate_device_placement xla.sdy.FuncResultSharding".split()
)
"""Targets that name memory, promise something or mark a place, and take no time."""


@work_rule("custom-call")
def _custom_call(site: Site, instruction: Instruction) -> Work:
    """Work of a custom call by its target; of any other at least what it states itself, if it does."""
    if (rule := compiler_work(instruction)) is not None:
        return rule(site, instruction)
    target = instruction.attributes.get("custom_call_target", "")
    registered = registered_for(instruction)
    if target in FREE_TARGETS or (registered is not None and registered.cost is not None):
        return Work()
    estimate = instruction.backend_config.cost_estimate
    # Nothing is free in silence: inside a fusion nothing else tells of it.
    site.notes.estimated(instruction, f"custom call to {target!r}: by its {'stated cost' if estimate else 'bytes'}")
    if estimate is None:
        return Work()
    mxu, operand_type = site.chip.mxu, estimated_type(site.computation, instruction, site.chip)
    # All arrays full, and no weights to wait for: nothing says how they are used.
    rows = estimate.flops / 2 / (mxu.rows * mxu.columns)
    matmuls = (Matmul(0.0, rows, operand_type=operand_type),) if rows else ()
    return Work(matmuls, {EUP: estimate.transcendentals / site.chip.vpu.register_elements})


def estimated_type(computation: Computation, instruction: Instruction, chip: Chip) -> str:
    """Return the type whose products a custom call is taken to make: of those it touches the fastest, or bf16."""
    values = (instruction, *computation.operands_of(instruction))
    names = {leaf.dtype.name for value in values for leaf in leaves(value.shape)} | {"bf16"}
    rates = {name: rate for name, rate in chip.mxu.rate_by_type.items() if name in names}
    return max(rates, key=lambda name: (rates[name], name == "bf16"), default="bf16")
