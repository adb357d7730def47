"""Register pressure: values of a fusion that are alive at once beyond the vector registers are spilled to VMEM.

A fused loop computes one register of every value at a time. What is needed later has to stay; names, views and
broadcasts take no register of their own, and operands are loaded where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.hardware.units import LOAD, STORE
from tpusim.ir.ops import UNHELD
from tpusim.lowering.kernels.vector import registers
from tpusim.program.work import Work
from tpusim.semantics.demand.inlining import behind_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.hardware.chip import Chip
    from tpusim.semantics.demand.inlining import Body, Inner


def spill_work(body: Body, shares: Sequence[float], chip: Chip) -> Work:
    """Return the stores and loads of what does not fit into the registers, for the whole of a kernel.

    ``shares`` says how much of each value is computed.
    """
    computed = [at for at, item in enumerate(body.values) if shares[at] and item.instruction.opcode not in UNHELD]
    # Most kernels have fewer values than registers: no need to ask which of them are alive.
    if len(computed) <= chip.vpu.registers:
        return Work()
    excess = most_alive(computed, body.values) - chip.vpu.registers
    if excess <= 0:
        return Work()
    moved = excess * max(registers(body.values[at].instruction.shape, chip) * shares[at] for at in computed)
    return Work(ops={LOAD: moved, STORE: moved})


def most_alive(computed: Sequence[int], values: Sequence[Inner]) -> int:
    """Return how many of the values at some positions are alive at the most crowded moment, computed in their order."""
    uses = ((number, operand) for number, at in enumerate(computed) for operand in values[at].operands)
    last = {behind_views(values, operand): number for number, operand in uses}
    ends = [0] * len(computed)
    for number, at in enumerate(computed):
        # A value that nothing in the kernel uses is a result, and is stored at once.
        ends[last.get(at, number)] += 1
    alive = most = 0
    for ended in ends:
        alive += 1
        most = max(most, alive)
        alive -= ended
    return most
