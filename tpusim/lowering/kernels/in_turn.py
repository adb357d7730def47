"""What waits for each other inside an instruction, and what does not.

A step of a decomposition or a solve of matrices works on all registers of what is left, and the next one begins with
its results: beside what keeps a unit busy, every step takes the whole way of a number through its operations. Matrices
of a batch are taken to go side by side. The stages of a selection follow each other in every register by itself, and
rows that are addressed do not wait for each other.
"""

from __future__ import annotations

from math import ceil, log2, prod

import msgspec

from tpusim.cost.classes import busiest
from tpusim.hardware.chip import Chip, OpCost
from tpusim.hardware.units import LOAD, STORE, WORD_BITS
from tpusim.ir.module import Computation, Instruction
from tpusim.lowering.kernels.decompositions import DECOMPOSING, SWEEPS, Decomposition, decomposition_of
from tpusim.lowering.kernels.tiles import is_streamed, streaming_tiles
from tpusim.lowering.kernels.vector import (
    CUSTOM_WORK,
    WORK_RULES,
    Site,
    addressed_rows,
    compiler_work,
    network_work,
    registers,
    rows_work,
    work_rule,
)
from tpusim.lowering.scope import entering
from tpusim.program.work import Work, scaled, sum_work
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import leaves


def chain_of(computation: Computation, instruction: Instruction, chip: Chip) -> float:
    """Return the cycles that the steps of an instruction take one after another, 0 of what has none."""
    found = decomposition_of(computation, instruction)
    if found is None:
        return 0.0
    return found.steps * sum(latency_cycles(cost, chip) for cost in _chain(found, chip))


def latency_cycles(ops: OpCost, chip: Chip) -> float:
    """Return how long operations take that all wait for each other."""
    latency = chip.vector_ops.latency
    return sum([count * latency.get(unit, 1.0) for unit, count in ops.items()])


def pieces_of(site: Site, instruction: Instruction) -> float:
    """Return in how many pieces that do not wait for each other an instruction's work is done.

    0 where these are the registers of its largest array, whichever that is.
    """
    rule = compiler_work(instruction) or WORK_RULES.get(instruction.opcode)
    if rule is rows_work:
        rows, per_row = addressed_rows(site, instruction)
        return rows * per_row
    return _way_to_select(site, instruction).pieces if rule is _selection else 0.0


def _chain(found: Decomposition, chip: Chip) -> list[OpCost]:
    """Return what a step does one after another."""
    ops, moves = chip.vector_ops.ops, chip.vector_ops.moves
    if found.half:
        # The diagonals are picked out and give the angles; then both sides turn, and rows and columns change places.
        turned = [moves["lane_reduce"], *[ops[name] for name in (*_ANGLE, *_ROTATION, *_ROTATION)]]
        return [{LOAD: 1.0}, *turned, moves["lane_shift"], {STORE: 1.0}]
    # A pivot goes to all lanes before anything is done with it; that of a triangle did long before.
    start = moves["pivot" if found.has_pivots else "sublane_broadcast"]
    return [start, *found.passes * [ops["triangular-solve"]]]


@entering(CUSTOM_WORK)(*DECOMPOSING)
@work_rule("cholesky", "triangular-solve")
def _work(site: Site, instruction: Instruction) -> Work:
    """Update the registers of what is left in every step, which has a pivot for each matrix."""
    found = decomposition_of(site.computation, instruction)
    assert found is not None
    if found.half:
        how = f"how often Jacobi's method sweeps depends on the values: {SWEEPS} times are taken"
        site.notes.estimated(instruction, how)
        return _round(found, site.chip) * found.steps
    table = site.chip.vector_ops
    updated = registers(found.array, site.chip) * found.share * found.passes
    step = Work(ops=table.ops["triangular-solve"]) * updated + Work(ops=table.moves["pivot"]) * found.matrices
    return step * found.steps


_ANGLE = ("subtract", "divide", "multiply", "add", "sqrt", "add", "divide", "multiply", "add", "rsqrt", "multiply")
"""The tangent of half of ``2 b / (a - c)``, its cosine and its sine, of two diagonals and what is between them."""

_ROTATION = ("multiply", "multiply", "subtract")


def _round(found: Decomposition, chip: Chip) -> Work:
    """Turn n / 2 pairs of rows and columns, and the rows of the eigenvectors; then all but one change places."""
    ops, moves, vpu = chip.vector_ops.ops, chip.vector_ops.moves, chip.vpu
    half, words = found.half, max(1.0, found.array.dtype.bits / WORD_BITS)
    of_matrix = 4 * ceil(half / vpu.sublanes) * ceil(half / vpu.lanes)
    each = [ops["select"], ops["add"], *[ops[name] for name in 3 * _ROTATION]]
    each += [moves["sublane_shift"], moves["sublane_shift"], moves["lane_shift"], {LOAD: 2.0, STORE: 2.0}]
    angles = sum_work(Work(ops=ops[name]) for name in _ANGLE) * ceil(half / vpu.lanes)
    spread = Work(ops=scaled(moves["lane_broadcast"], 2.0 * ceil(half / vpu.sublanes)))
    turned = sum_work(Work(ops=cost) for cost in each) * of_matrix
    return sum_work((angles, spread, turned)) * (found.matrices * words)


class Way(msgspec.Struct, frozen=True):
    """A way to the best of each row: what one register of it takes, stage after stage, and how many registers."""

    each: Work
    pieces: int


@entering(CUSTOM_WORK)("TopK")
@work_rule("topk")
def _selection(site: Site, instruction: Instruction) -> Work:
    """Select with each row in a lane of its own, or sort whole rows with their positions, whichever is done first."""
    way = _way_to_select(site, instruction)
    return way.each * way.pieces


def _way_to_select(site: Site, instruction: Instruction) -> Way:
    """Return the way that takes less time, by what a kernel of it takes."""
    chip, operand = site.chip, site.operand_shape(instruction, 0)
    moved = (operand, *leaves(instruction.shape))
    tiles = streaming_tiles(sum(physical_bytes(each) for each in moved if is_streamed(space_of(each))), chip)

    def cycles(way: Way) -> float:
        # What waits for each other is hidden by other registers, but for the last of a tile.
        return busiest(way.each * way.pieces, chip)[1] + tiles * latency_cycles(way.each.ops, chip)

    return min(ways_to_select(site, instruction), key=cycles)


def ways_to_select(site: Site, instruction: Instruction) -> list[Way]:
    """Return a selection, and a sorting network over whole rows.

    Selecting sorts runs of k and merges two of them into the better half until one is left: log k (log k + 1) / 2
    stages over everything, then 1 + log k over half as much each time (A. Shanbhag et al., Efficient Top-K Query
    Processing on Massively Parallel Hardware, SIGMOD 2018). Few rows leave most lanes empty, whatever the layout: the
    compiler itself turns its operand so that rows lie in lanes. Measured times agree: the top 64 of 32 rows of 201,088
    take 1,320 us on v5e and 1,010 us on v6e (oliverdutton/fast_exact_topk_tpu, XLA baseline), the top 5 of 16 rows of
    32,768 take 85 us on v5e (oliverdutton/tallax).
    """
    *outer, length = site.operand_shape(instruction, 0).dimensions
    rows, vpu, table = prod(outer), site.chip.vpu, site.chip.vector_ops
    depth = ceil(log2(max(1, leaves(instruction.shape)[0].dimensions[-1])))
    stages = depth * (depth + 1) / 2 + depth + 2
    selection = Way(Work(ops=table.ops["topk"]) * stages, ceil(rows / vpu.lanes) * ceil(length / vpu.sublanes))
    # Values are compared, positions where these tie, and the two answers joined.
    compare = Work(ops=table.ops["compare"]) * 2 + Work(ops=table.ops["and"])
    # Rows that are sorted lie along the lanes, and fill their registers.
    network = Way(network_work(site.chip, 1, length, 2, compare), ceil(rows * length / vpu.register_elements))
    return [selection, network]
