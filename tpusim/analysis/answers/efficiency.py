"""What a larger slice makes of its devices: the rate of each beside that on the smallest, and what takes the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from tpusim.analysis.answers.scaling import ScaleRow

Scaling = Literal["strong", "weak", ""]
"""The same work on more devices, as much for each as before, or neither."""

_ALIKE = 0.1
"""How far, as a share, the operations of two programs may differ that do the same work, cut up otherwise."""


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a device of a run over that of a device of the run it is compared with (``base``, by its place).

    Rates are items a second, or operations where no items are counted: what several devices compute alike then counts
    for each. ``lost_ps`` is what the run takes beyond what it would at the rate of ``base``, below 0 where it takes
    less; ``compute_ps``, ``exposed_ps`` and ``waiting_ps`` are its parts.
    """

    base: int
    kind: Scaling
    efficiency: float
    lost_ps: int
    compute_ps: int
    exposed_ps: int
    waiting_ps: int


def efficiencies(rows: Sequence[ScaleRow]) -> tuple[Efficiency | None, ...]:
    """Return for each row how it scales from the run on the fewest devices of its chip that does as much work.

    As much in all or, where there is none such, as much for each device; where one run alone is on the fewest devices,
    any work. None for rows without such a run, with a chip of one slice only, and for what does not fit.
    """
    counts: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row.fits and _work(row, row):
            counts[row.chip].add(row.devices)
    several = {chip: min(found) for chip, found in counts.items() if len(found) > 1}
    return tuple(_efficiency(row, rows, several.get(row.chip, 0)) for row in rows)


def _efficiency(row: ScaleRow, rows: Sequence[ScaleRow], fewest: int) -> Efficiency | None:
    first = [n for n, one in enumerate(rows) if (one.chip, one.devices) == (row.chip, fewest) and one.fits]
    strong = [n for n in first if _is_alike(_work(rows[n], row), _work(row, row))]
    weak = [n for n in first if _is_alike(_each(rows[n], row), _each(row, row))]
    found = strong or weak or (first if len(first) == 1 else [])
    if not found or not row.fits or not _work(row, row) or not _work(rows[found[0]], row):
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
        **lost,
    )


def _work(row: ScaleRow, like: ScaleRow) -> float:
    """Return what a run does, counted as in another row."""
    return row.items if like.items else row.flops


def _each(row: ScaleRow, like: ScaleRow) -> float:
    return _work(row, like) / row.devices


def _is_alike(one: float, other: float) -> bool:
    return abs(one - other) <= _ALIKE * max(one, other)
