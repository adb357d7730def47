"""The least time that a kernel computes: products at the matrix unit's peak, all else at the vector unit's."""

from __future__ import annotations

from tpusim.cost.peaks import seconds_at_peak
from tpusim.hardware.chip import Chip
from tpusim.ir.ops import FREE, PRODUCTS
from tpusim.semantics.demand.inlining import Body, Inner
from tpusim.semantics.products import Product, canonical_product, done_flops_by_operands
from tpusim.shapes.shape import leaves


def compute_seconds(body: Body, chip: Chip) -> float:
    """Return a lower bound of the time that a kernel computes."""
    products, vector_elements = list[Product](), 0.0
    for item in body.values:
        if item.instruction.opcode in PRODUCTS:
            products.append(_product(item))
        elif item.instruction.opcode not in FREE:
            vector_elements += sum(leaf.element_count for leaf in leaves(item.instruction.shape))
    per_cycle = chip.vpu.register_elements * chip.vpu.alu_slots
    # The units work at the same time.
    return max(seconds_at_peak(done_flops_by_operands(products), chip), vector_elements / per_cycle / chip.clock_hz)


def _product(item: Inner) -> Product:
    shapes = [leaves(operand.shape)[0] for operand in item.computation.operands_of(item.instruction)]
    return canonical_product(item.instruction, shapes)
