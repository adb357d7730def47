"""The least time that a kernel computes: products at the matrix unit's peak, all else at the vector unit's."""

from __future__ import annotations

from tpusim.hardware.chip import Chip
from tpusim.ir.ops import FREE, PLAIN_PRODUCTS
from tpusim.semantics.demand.inlining import Body, Inner
from tpusim.semantics.products import canonical_product
from tpusim.shapes.shape import leaves


def compute_seconds(body: Body, chip: Chip) -> float:
    """Return a lower bound of the time that a kernel computes."""
    flops = vector_elements = 0.0
    for item in body.values:
        if item.instruction.opcode in PLAIN_PRODUCTS:
            flops += _flops(item)
        elif item.instruction.opcode not in FREE:
            vector_elements += sum(leaf.element_count for leaf in leaves(item.instruction.shape))
    per_cycle = chip.vpu.register_elements * chip.vpu.alu_slots
    # The units work at the same time.
    return max(flops / chip.peak_flops_per_second, vector_elements / per_cycle / chip.clock_hz)


def _flops(item: Inner) -> float:
    shapes = [leaves(operand.shape)[0] for operand in item.computation.operands_of(item.instruction)]
    return canonical_product(item.instruction, shapes).flops
