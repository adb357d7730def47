"""What waits for each other inside an instruction, and what does not.

A step of a decomposition or a solve of matrices works on all registers of what is left, and the next one begins with
its results: beside what keeps a unit busy, every step takes the whole way of a number through its operations. Matrices
of a batch are taken to go side by side. Rows that are addressed do not wait for each other.
"""

from __future__ import annotations

from math import ceil

from tpusim.hardware.chip import Chip, OpCost
from tpusim.hardware.units import LOAD, STORE, WORD_BITS
from tpusim.ir.module import Computation, Instruction
from tpusim.lowering.kernels.decompositions import DECOMPOSING, SWEEPS, Decomposition, decomposition_of
from tpusim.lowering.kernels.vector import (
    CUSTOM_WORK,
    WORK_RULES,
    Site,
    addressed_rows,
    registers,
    rows_work,
    work_rule,
)
from tpusim.lowering.scope import entering
from tpusim.program.work import Work, scaled, sum_work


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
    if WORK_RULES.get(instruction.opcode) is not rows_work:
        return 0.0
    rows, per_row = addressed_rows(site, instruction)
    return rows * per_row


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
