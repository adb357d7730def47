"""The roofline: the least time in which a chip could have done the same work.

Its roofs are the matrix unit at the peak of the operands' type (on the work that the program asks for, before padding),
HBM at the advertised bandwidth, and every other unit and link that the program keeps busy, at its own peak rate. No
order of the same work on the same chip is faster than the highest of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tpusim.hardware.units import HBM, MATRIX, UNITS
from tpusim.timeline.records import SPARSECORE
from tpusim.units import PS_PER_SECOND, bytes_to_ps

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.timeline.records import Timeline


class Roofline(msgspec.Struct, frozen=True):
    """Picoseconds that the work takes at each roof alone, by the roof's name."""

    roofs_ps: dict[str, int]

    @property
    def bound_by(self) -> str:
        """The highest roof."""
        return max(self.roofs_ps, key=lambda name: self.roofs_ps[name])

    @property
    def bound_ps(self) -> int:
        """The time at the highest roof: no run on this chip is faster."""
        return max(self.roofs_ps.values())


def roofline(timeline: Timeline, chip: Chip) -> Roofline:
    """Return the roofs of a run's work."""
    busy = Counter[str]()
    flops: Counter[str] = Counter()
    for record in timeline.records:
        # The sparse cores have units of their own beside the core's; only its memories and links are shared with them.
        units = record.units if record.row != SPARSECORE else [key for key in record.units if UNITS[key].rate]
        for unit in units:
            # Units count their busy time at their peak rate, so that the sum is a roof already.
            busy[unit] += record.units[unit] * record.count
        if record.is_kernel and MATRIX in record.units:
            flops[record.flops_type] += int(record.flops * record.count)
    # What the arrays do is padded; what they were asked to do is not.
    rates = {name: peak_flops_per_second(chip, name) for name in flops}
    busy[MATRIX] = sum(int(count / rates[name] * PS_PER_SECOND) for name, count in flops.items())
    # Advertised bandwidth: a roof must not move with what transfers are found to reach.
    hbm_bytes = sum(record.hbm_bytes * record.count for record in timeline.records)
    busy[HBM] = bytes_to_ps(hbm_bytes, chip.hbm.bandwidth_bytes_per_second)
    return Roofline(dict(busy))


def peak_flops_per_second(chip: Chip, operand_type: str) -> float:
    """Return the device's peak for operands of a type; types that are converted first run at the rate of bf16."""
    return chip.peak_flops_per_second * chip.mxu.rate_by_type.get(operand_type, 1.0)
