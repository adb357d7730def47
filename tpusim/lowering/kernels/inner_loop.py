"""The loop inside a tile: what the vector unit does for one register of every value, as a graph of dependences.

The loop is taken to be software pipelined, as the compiler's are: turns overlap as far as slots and registers allow
(modulo scheduling; Rau, MICRO 1994). Slots are counted by unit (``vector``); this is the rest: how long one turn takes
from its first load to its last store, and for how many cycles of it registers are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import LOAD, STORE
from tpusim.lowering.kernels.values import ValueCost
from tpusim.lowering.kernels.vector import registers_of
from tpusim.program.work import VectorLoop
from tpusim.semantics.demand.inlining import Body, sources_of
from tpusim.semantics.demand.needs import is_in_place, update_number
from tpusim.shapes.shape import ArrayShape


def inner_loop(body: Body, costs: Mapping[int, ValueCost], shares: Sequence[float], chip: Chip) -> VectorLoop:
    """Return the loop of a whole kernel; ``costs`` are its values' by position, ``shares`` how much is needed."""
    values, sources, sizes = body.values, sources_of(body), _sizes(body, chip)
    # What comes from VMEM is loaded where it is used.
    ready, last_use = [chip.vector_ops.latency[LOAD]] * len(sizes), [0.0] * len(sizes)
    for at, cost in costs.items():
        begin, widest = 0.0, sizes[at]
        # Compared here and not by ``max``, which takes three times as long: kernels have thousands of values.
        for operand in values[at].operands:
            source, size = sources[operand], sizes[operand]
            begin = ready[source] if ready[source] > begin else begin
            widest = size if size > widest else widest
        # Of a table that rows are taken from only these are gone through, whatever its size.
        apart = cost.pieces or widest
        ready[at] = begin + (cost.chain_cycles / apart if apart > 1.0 else cost.chain_cycles)
        for operand in values[at].operands:
            source = sources[operand]
            if begin > last_use[source]:
                last_use[source] = begin
    counts = [_made(body, at, sizes) * shares[at] for at in costs]
    turns = max(counts, default=0.0)
    if not turns:
        return VectorLoop()
    # A register is taken from the cycle in which it is written to that of its last reader.
    lives = [last_use[at] - ready[at] if last_use[at] > ready[at] else 0.0 for at in costs]
    held = sum([(cycles + 1) * count for cycles, count in zip(lives, counts, strict=True)])
    return VectorLoop(turns, max([ready[at] for at in costs]) + chip.vector_ops.latency[STORE], held / turns)


def _made(body: Body, at: int, sizes: Sequence[float]) -> float:
    """Return the registers that are made of a value: of what is updated in place those of the update."""
    value = body.values[at]
    if not is_in_place(body.values, at) or not isinstance(value.instruction.shape, ArrayShape):
        return sizes[at]
    return min(sizes[at], sizes[value.operands[update_number(value.instruction)]])


def _sizes(body: Body, chip: Chip) -> list[float]:
    """Return the registers of each value of a kernel, and at negative positions of its operands."""
    made = [*[item.instruction for item in body.values], *reversed(body.operands)]
    return registers_of([instruction.shape for instruction in made], chip)
