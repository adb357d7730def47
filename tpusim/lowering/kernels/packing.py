"""Narrow element types at the edges of a kernel: what comes in is widened, what goes out is packed again.

The vector unit computes in 32 bits (and in bf16 where the generation has it); memory holds 16- and 8-bit elements
packed. Inside a kernel values stay wide, so that the price is paid once per element that is loaded or stored, and again
each time that a tile is loaded anew (JAX documentation, Pallas TPU details).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.hardware.units import WORD_BITS
from tpusim.lowering.kernels.tiles import LHS, RHS
from tpusim.program.work import Work, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpusim.hardware.chip import Chip, OpCost, VectorOps
    from tpusim.lowering.kernels.tiles import Nest
    from tpusim.semantics.demand.needs import Access

_NEVER_PACKED = frozenset(
    {"f16", "f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"}
)
"""Types that no register holds as they are: even a copy widens and packs them (a copy of f16 is measured to cost what a
maximum costs)."""


def conversion_work(
    touched: list[Access], sides: dict[str, str], nest: Nest | None, chip: Chip, *, computes: bool
) -> Work:
    """Return the work of widening and packing all that a kernel touches; ``sides`` says what feeds its product.

    A kernel that ``computes`` nothing moves packed elements as they are.
    """
    total = Work()
    for access in touched:
        side = "" if access.is_output else sides.get(access.name, "")
        is_moved = not computes and access.shape.dtype.name not in _NEVER_PACKED
        if is_moved or not _is_converted(access, side, chip):
            continue
        # A tile of a product's operand is widened each time that it is used, fetched anew or not.
        uses = nest.tiles * nest.block_share[side] if nest and side in (LHS, RHS) else 1.0
        elements = access.n_bytes * 8 / access.shape.dtype.bits
        for cost in _costs(access, side, chip.vector_ops):
            total += Work(ops=scaled(cost, uses * elements / chip.vpu.register_elements))
    return total


def _costs(access: Access, side: str, ops: VectorOps) -> Iterator[OpCost]:
    """Yield what one register of elements costs on its way in or out."""
    name = access.shape.dtype.name
    yield (ops.pack if access.is_output else ops.unpack).get(name, {})
    if side in (LHS, RHS):
        # The matrix unit wants bf16 of what it cannot take as it is.
        yield ops.pack.get("bf16", {})


def _is_converted(access: Access, side: str, chip: Chip) -> bool:
    """Tell whether the elements of an operand or result have another width in registers than in memory."""
    dtype = access.shape.dtype
    if dtype.bits >= WORD_BITS or (dtype.name == "bf16" and chip.vpu.native_bf16):
        return False
    # What the matrix unit takes as it is goes past the vector unit.
    return not (side and dtype.name in chip.mxu.rate_by_type)
