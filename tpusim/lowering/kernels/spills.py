"""Register pressure: values of a fusion that are alive at once beyond the vector registers are spilled to VMEM.

A fused loop computes one register of every value at a time. What is needed later has to stay; names, views and
broadcasts take no register of their own, and operands are loaded where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.hardware.units import LOAD, STORE
from tpusim.lowering.kernels.vector import FREE, registers
from tpusim.program.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.hardware.chip import Chip
    from tpusim.lowering.scope import Inner


def spill_work(inner: Sequence[Inner], chip: Chip) -> Work:
    """Return the stores and loads of what does not fit into the registers, for the whole of a kernel."""
    computed = [item for item in inner if item.instruction.opcode not in (*FREE, "broadcast")]
    # Most kernels have fewer values than registers: no need to ask which of them are alive.
    if len(computed) <= chip.vpu.registers:
        return Work()
    excess = most_alive(computed) - chip.vpu.registers
    if excess <= 0:
        return Work()
    moved = excess * max(registers(item.instruction.shape, chip) for item in computed)
    return Work(ops={LOAD: moved, STORE: moved})


def most_alive(computed: Sequence[Inner]) -> int:
    """Return how many of the values are alive at the most crowded moment, computed in their order."""
    # Names repeat between the computations of nested fusions: a computation's name tells them apart.
    last = {(item.computation.name, name): at for at, item in enumerate(computed) for name in item.instruction.operands}
    ends = [0] * len(computed)
    for at, item in enumerate(computed):
        # A value that nobody in the kernel uses is a result, and is stored at once.
        ends[last.get((item.computation.name, item.instruction.name), at)] += 1
    alive = most = 0
    for ended in ends:
        alive += 1
        most = max(most, alive)
        alive -= ended
    return most
