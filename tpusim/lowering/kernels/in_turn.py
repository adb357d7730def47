"""What decompositions and solves of matrices take: the vector unit's work, and how long steps wait for each other.

A step works on all registers of what is left, and the next one begins with its results: beside what keeps a unit busy,
every step takes the whole way of a number through its operations. Matrices of a batch are taken to go side by side.
"""

from __future__ import annotations

from tpusim.hardware.chip import Chip, OpCost
from tpusim.ir.module import Computation, Instruction
from tpusim.lowering.kernels.decompositions import DECOMPOSING, Decomposition, decomposition_of
from tpusim.lowering.kernels.vector import CUSTOM_WORK, Site, registers, work_rule
from tpusim.lowering.scope import entering
from tpusim.program.work import Work


def chain_of(computation: Computation, instruction: Instruction, chip: Chip) -> float:
    """Return the cycles that the steps of an instruction take one after another, 0 of what has none."""
    found = decomposition_of(computation, instruction)
    if found is None:
        return 0.0
    latency = chip.vector_ops.latency
    ways = (count * latency.get(unit, 1.0) for cost in _chain(found, chip) for unit, count in cost.items())
    return found.steps * sum(ways)


def _chain(found: Decomposition, chip: Chip) -> list[OpCost]:
    """Return what a step does one after another."""
    ops, moves = chip.vector_ops.ops, chip.vector_ops.moves
    # A pivot goes to all lanes before anything is done with it; that of a triangle did long before.
    start = moves["pivot" if found.has_pivots else "sublane_broadcast"]
    return [start, *found.passes * [ops["triangular-solve"]]]


@entering(CUSTOM_WORK)(*DECOMPOSING)
@work_rule("cholesky", "triangular-solve")
def _work(site: Site, instruction: Instruction) -> Work:
    """Update the registers of what is left in every step, which has a pivot for each matrix."""
    found = decomposition_of(site.computation, instruction)
    assert found is not None
    table = site.chip.vector_ops
    updated = registers(found.array, site.chip) * found.share * found.passes
    step = Work(ops=table.ops["triangular-solve"]) * updated + Work(ops=table.moves["pivot"]) * found.matrices
    return step * found.steps
