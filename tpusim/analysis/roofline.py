"""The roofline: the least time in which a chip's arithmetic and its memory could have done the same work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tpusim.units import bytes_to_ps

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.timeline.records import Timeline


class Roofline(msgspec.Struct, frozen=True, gc=False):
    """Picoseconds that the work takes at the advertised rates, each as if nothing else held it up."""

    compute_ps: int
    hbm_ps: int

    @property
    def bound_ps(self) -> int:
        """The larger of the two: no run on this chip is faster."""
        return max(self.compute_ps, self.hbm_ps)


def roofline(timeline: Timeline, chip: Chip) -> Roofline:
    """Return the roofline bound of a run: floating-point work at the peak of its type, HBM bytes at full bandwidth."""
    flops: Counter[str] = Counter()
    for record in timeline.records:
        if record.row == "core" and record.flops:
            flops[record.flops_type] += record.flops * record.count  # type: ignore[assignment]
    hbm_bytes = sum(record.hbm_bytes * record.count for record in timeline.records)
    seconds = sum(count / peak_flops_per_second(chip, name) for name, count in flops.items())
    return Roofline(int(seconds * 1e12), bytes_to_ps(hbm_bytes, chip.hbm.bandwidth_bytes_per_second))


def peak_flops_per_second(chip: Chip, operand_type: str) -> float:
    """Return the device's peak for operands of a type; types that are converted first run at the rate of bf16."""
    return chip.peak_flops_per_second * chip.mxu.rate_by_type.get(operand_type, 1.0)
