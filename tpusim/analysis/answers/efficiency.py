"""What a larger slice makes of its devices: the rate of each beside that on the smallest, and what takes the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from tpusim.analysis.answers.scaling import Exposed, ScaleRow

ScalingKind = Literal["strong", "weak", ""]
"""The same work on more devices, as much for each as before, or neither."""

_ALIKE = 0.1
"""How far, as a share, the operations of two programs may differ that do the same work, cut up otherwise."""


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """A collective of a run, the one of the run it is compared with that is most like it, and how much more it takes.

    ``more_ps`` is beyond what it would take at the rate of that run, below 0 where it takes less.
    """

    here: Exposed
    there: Exposed | None
    more_ps: int


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a device of a run over that of a device of the run it is compared with (``base``, by its place).

    Rates are items a second, or operations where no items are counted: what several devices compute alike then counts
    for each. ``lost_ps`` is what the run takes beyond what it would at the rate of ``base``, below 0 where it takes
    less; ``compute_ps``, ``exposed_ps`` and ``waiting_ps`` are its parts, and ``grown`` those of ``exposed_ps``, the
    largest first.
    """

    base: int
    kind: ScalingKind
    efficiency: float
    lost_ps: int
    compute_ps: int
    exposed_ps: int
    waiting_ps: int
    grown: tuple[Grown, ...] = ()


def efficiencies(rows: Sequence[ScaleRow]) -> tuple[Efficiency | None, ...]:
    """Return for each row how it scales from the run on the fewest devices of its chip that does as much work.

    As much in all or, where there is none such, as much for each device; where one run alone is on the fewest devices,
    any work. None for rows without such a run, with a chip of one slice only, for what does not fit, and for copies of
    a program side by side, which are no way to do its work on more devices.
    """
    counts: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if _counts(row):
            counts[row.chip].add(row.devices)
    several = {chip: min(found) for chip, found in counts.items() if len(found) > 1}
    return tuple(_efficiency(row, rows, several.get(row.chip, 0)) for row in rows)


def _efficiency(row: ScaleRow, rows: Sequence[ScaleRow], fewest: int) -> Efficiency | None:
    first = [n for n, one in enumerate(rows) if (one.chip, one.devices) == (row.chip, fewest) and _counts(one)]
    strong = [n for n in first if _is_alike(_work(rows[n], row), _work(row, row))]
    weak = [n for n in first if _is_alike(_each(rows[n], row), _each(row, row))]
    found = strong or weak or (first if len(first) == 1 else [])
    if not found or not _counts(row) or not _work(rows[found[0]], row):
        return None
    base = rows[found[0]]
    more = _each(row, row) / _each(base, row)
    lost = {part: round(getattr(row, part) - more * getattr(base, part)) for part in ("exposed_ps", "waiting_ps")}
    lost_ps = round(row.total_ps - more * base.total_ps)
    return Efficiency(
        base=found[0],
        kind="strong" if strong else "weak" if weak else "",
        efficiency=more * base.total_ps / max(1, row.total_ps),
        lost_ps=lost_ps,
        compute_ps=lost_ps - sum(lost.values()),
        grown=_grown(row, base, more),
        **lost,
    )


def _grown(row: ScaleRow, base: ScaleRow, more: float) -> tuple[Grown, ...]:
    """Return how the exposed collectives of two runs differ; ``more`` is the work of a device over that of the base."""
    others, found = list(base.exposed), []
    for one in row.exposed:
        alike = [other for other in others if other.kind == one.kind]
        # Names go first: a compiler gives programs that differ in sizes alone the same ones.
        there = min(
            alike,
            key=lambda other: (other.name != one.name, abs(other.payload_bytes - one.payload_bytes)),
            default=None,
        )
        if there is not None:
            others.remove(there)
        before_ps = more * there.exposed_ps if there else 0
        found.append(Grown(here=one, there=there, more_ps=round(one.exposed_ps - before_ps)))
    return tuple(sorted(found, key=lambda one: -abs(one.more_ps)))


def _counts(row: ScaleRow) -> bool:
    return row.fits and row.copies == 1 and _work(row, row) > 0


def _work(row: ScaleRow, like: ScaleRow) -> float:
    """Return what a run does, counted as in another row."""
    return row.items if like.items else row.flops


def _each(row: ScaleRow, like: ScaleRow) -> float:
    return _work(row, like) / row.devices


def _is_alike(one: float, other: float) -> bool:
    return abs(one - other) <= _ALIKE * max(one, other)
