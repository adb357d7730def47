"""How far the times of a run may be off, and what the compiler's estimates are worth: claims that need a warrant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpusim.hardware import units
from tpusim.hardware.accuracy import MATRIX, VECTOR, errors_of
from tpusim.hardware.load import load_chip
from tpusim.timeline.records import CORE

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.program.provenance import Provenance
    from tpusim.timeline.records import Timeline


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of kernel: its share of a run's time, and the mean absolute error of so many measured rows.

    Without measurements on this chip ``rows`` and ``error`` are 0.
    """

    kind: str
    share: float
    error: float
    rows: int


def error_bands(timeline: Timeline, chip_name: str) -> tuple[Band, ...]:
    """Return the bands of the kinds of kernels that a run consists of, the largest share first."""
    measured, times_ps = errors_of(chip_name), dict.fromkeys((MATRIX, VECTOR), 0)
    for record in timeline.records:
        if record.is_kernel and record.row == CORE:
            times_ps[MATRIX if units.MATRIX in record.units else VECTOR] += record.total_ps
    bands = []
    for kind, kind_ps in sorted(times_ps.items(), key=lambda item: -item[1]):
        found = measured.get(kind)
        share = kind_ps / max(1, timeline.total_ps)
        if share:
            error, rows = (found.error, found.rows) if found else (0.0, 0)
            bands.append(Band(kind=kind, share=share, error=error, rows=rows))
    return tuple(bands)


def compiler_clock_hz(provenance: Provenance | None, chip: Chip) -> float:
    """Return the clock that the compiler's estimates of cycles count in, 0 if they say nothing of this chip."""
    # Not the chip's own, which may have been replaced.
    return load_chip(chip.name).clock_hz if provenance and provenance.is_for(chip.name) else 0.0
