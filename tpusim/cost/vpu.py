"""The vector unit: cycles that a tile's register operations keep its slots and side units busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.hardware.units import UNITS, Unit, chip_value

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.program.work import Work


def vector_cycles(work: Work, chip: Chip) -> dict[str, float]:
    """Return the cycles that each unit with slots is busy, at its peak."""
    return {unit.key: _cycles(unit, work.ops.get(unit.key, 0.0), chip) for unit in UNITS.values() if unit.slots}


def _cycles(unit: Unit, count: float, chip: Chip) -> float:
    """Return the cycles of some operations; a chip need not have a unit that nothing is asked of."""
    per_op = chip_value(chip, unit.op_cycles) if count and unit.op_cycles else 1.0
    return count * per_op / chip_value(chip, unit.slots) if count else 0.0
