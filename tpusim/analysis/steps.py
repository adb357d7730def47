"""Whole steps whose times somebody published, beside ours: how far off, and which part of ours it may come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tpusim.analysis.bands import Band
from tpusim.analysis.estimates import known_cycles
from tpusim.analysis.roofline import roofline
from tpusim.hardware.chip import Chip
from tpusim.timeline.records import CORE, Record, Timeline
from tpusim.units import ps_to_us

COUNTED = ("good", "fair")
"""Grades of published times whose errors count; the others are weak."""


class CategoryTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a category of a run takes, in microseconds of the core.

    ``compiler_us`` is the compiler's estimate, and ``compared_us`` our time, of the kernels that it made one for;
    ``roofline_us`` what every step of the category takes at its own highest roof.
    """

    category: str
    predicted_us: float
    compared_us: float
    compiler_us: float
    roofline_us: float


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A published time of a whole step with what was predicted for it, in microseconds.

    ``low_us`` to ``high_us`` is the range that its source allows. ``use`` begins with how much the row says, its
    ``grade``; ``timing`` is how the time was taken, ``differs`` what our program has otherwise than the one that ran.
    ``bands`` are our time by family of kernels, with how far it was off where it was measured on this chip.
    """

    name: str
    program: str
    chip: str
    topology: str
    family: str
    use: str
    timing: str
    source: str
    differs: str
    measured_us: float
    low_us: float
    high_us: float
    predicted_us: float
    bands: tuple[Band, ...]
    categories: tuple[CategoryTime, ...]

    @property
    def grade(self) -> str:
        """How much the row says: good, fair or weak."""
        return self.use[:4]

    @property
    def ratio(self) -> float:
        """Ours over the measured time."""
        return self.predicted_us / self.measured_us

    @property
    def unmeasured_share(self) -> float:
        """The share of our time in families that were never measured on the chip."""
        return sum(band.share for band in self.bands if not band.rows)


class StepAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Whole steps, and the mean absolute error of the ``counted`` ones: those with good or fair times."""

    rows: tuple[StepOutcome, ...]
    counted: int
    mean_error: float | None


def step_accuracy(rows: Sequence[StepOutcome]) -> StepAccuracy:
    """Return the error of some steps; it is None if none of them counts."""
    errors = [abs(row.ratio - 1) for row in rows if row.grade in COUNTED]
    mean = sum(errors) / len(errors) if errors else None
    return StepAccuracy(rows=tuple(rows), counted=len(errors), mean_error=mean)


def category_times(timeline: Timeline, chip: Chip, clock_hz: float) -> tuple[CategoryTime, ...]:
    """Return the categories of a run on the core, the longest first; estimates are in cycles of ``clock_hz``."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in timeline.records:
        if record.row == CORE:
            found[record.category].append(record)
    times = [_category(name, records, timeline, chip, clock_hz) for name, records in found.items()]
    return tuple(sorted((one for one in times if one.predicted_us), key=lambda one: -one.predicted_us))


def _category(name: str, records: Sequence[Record], timeline: Timeline, chip: Chip, clock_hz: float) -> CategoryTime:
    estimated = [record for record in records if known_cycles(record) and clock_hz]
    # Of each by itself: no order of the same steps, one after the other, is faster.
    bounds = [roofline(msgspec.structs.replace(timeline, records=(record,)), chip).bound_ps for record in records]
    return CategoryTime(
        category=name,
        predicted_us=ps_to_us(sum(record.total_ps for record in records)),
        compared_us=ps_to_us(sum(record.total_ps for record in estimated)),
        compiler_us=sum(known_cycles(record) * record.count / clock_hz * 1e6 for record in estimated),
        roofline_us=ps_to_us(sum(bounds)),
    )
