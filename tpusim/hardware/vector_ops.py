"""What operations cost the vector unit, as the configuration file ``vector_ops.toml`` states it."""

from __future__ import annotations

import msgspec

OpCost = dict[str, float]
"""Operations per vector register of the result, by unit; those of the scalar core per row or element."""


class VectorOps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of element-wise opcodes, of the moves that change where elements lie, and of changes of width.

    ``unpack`` and ``pack`` are by element type and per 32-bit register of elements that come from, or go to, memory.
    """

    ops: dict[str, OpCost] = {}
    moves: dict[str, OpCost] = {}
    unpack: dict[str, OpCost] = {}
    pack: dict[str, OpCost] = {}
    # One word for the whole table, unlike the chips: no entry of it is published.
    confidence: str = ""
    source: str = ""
