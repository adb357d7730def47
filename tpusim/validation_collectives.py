"""Collectives against measured times: an index of rows in, one outcome per row out.

The columns of an index are ``topology``, ``kind``, ``payload_bytes`` (the larger of what one device puts in and what it
gets out), ``groups`` (empty for a permute, which goes round all devices) and ``measured_us``.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tpusim.analysis.accuracy import Outcome
from tpusim.errors import ConfigError
from tpusim.hardware.load import override_chip
from tpusim.hardware.pod import parse_topology
from tpusim.pipeline import run_program
from tpusim.program.module import Program
from tpusim.program.steps import Collective
from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpusim.hardware.chip import Chip

# Where a chip has no measurements: what the scaling book's rates are of those in the documentation, and a mean launch.
_USUAL_EFFICIENCY = 0.9
_COLUMNS = ("topology", "kind", "payload_bytes", "groups", "measured_us")
_GROUP = re.compile(r"\{([\d,\s]+)\}")
# Kinds in which each link's share of the larger side is what the others have.
_ONCE = ("all-gather", "reduce-scatter", "all-to-all")


def predict_collectives(index: str | Path, chips: Callable[[str], Chip], chip_name: str | None = None) -> list[Outcome]:
    """Return the outcomes of an index's rows, only those of one chip if ``chip_name`` is given.

    Raises ConfigError for a file that is no such index.
    """
    path = Path(index)
    outcomes = [_outcome(f"{path}:{line}", row, chips) for line, row in enumerate(_rows(path), start=2)]
    return [outcome for outcome in outcomes if chip_name in (None, outcome.chip)]


def cross_validate(index: str | Path, chips: Callable[[str], Chip]) -> tuple[list[Outcome], list[Outcome]]:
    """Return the outcomes of rows that the links' efficiency and the launch were not fitted to.

    First with each row left out of the fit of its chip, then with its whole source left out. What then has no rows to
    be fitted to is as for a chip that nobody has measured. The fit is by least squares of the shares by which
    predictions are off; they are linear in the launch and in the inverse of the efficiency.
    """
    path, outcomes = Path(index), predict_collectives(index, chips)
    rows = list(enumerate(_rows(path), start=2))
    shifts = [
        _Line(outcome, row.get("source", ""), *_line(f"{path}:{at}", row, chips))
        for (at, row), outcome in zip(rows, outcomes, strict=True)
    ]
    return (
        [line.with_fit(_fit([o for o in shifts if o is not line], line.outcome.chip)) for line in shifts],
        [line.with_fit(_fit([o for o in shifts if o.source != line.source], line.outcome.chip)) for line in shifts],
    )


class _Line(NamedTuple):
    """A row whose time is ``fixed_us``, the launch, and ``links_us`` over the efficiency."""

    outcome: Outcome
    source: str
    fixed_us: float
    links_us: float

    def with_fit(self, fit: tuple[float, float]) -> Outcome:
        """Return the outcome that another launch and efficiency predict."""
        launch_us, inverse = fit
        predicted_us = launch_us + self.fixed_us + self.links_us * inverse
        return msgspec.structs.replace(self.outcome, predicted_us=predicted_us)


def _line(where: str, row: Mapping[str, str], chips: Callable[[str], Chip]) -> tuple[float, float]:
    """Return what of a row's time is fixed, and what goes by the inverse of the efficiency."""

    def predicted_us(efficiency: float) -> float:
        changes = {"ici.efficiency": efficiency, "ici.launch_seconds": 0.0}
        return _outcome(where, row, lambda name: override_chip(chips(name), changes)).predicted_us

    whole, half = predicted_us(1.0), predicted_us(0.5)
    return 2 * whole - half, half - whole


def _fit(lines: Sequence[_Line], chip: str) -> tuple[float, float]:
    """Return the launch in microseconds and the inverse of the efficiency that fit a chip's rows best."""
    own = [line for line in lines if line.outcome.chip == chip]
    if not _can_fit(own):
        others = sorted({line.outcome.chip for line in lines})
        rows = [[line for line in lines if line.outcome.chip == other] for other in others]
        launches = [_fit(lines, other)[0] for other, row in zip(others, rows, strict=True) if _can_fit(row)]
        return sum(launches) / max(1, len(launches)), 1 / _USUAL_EFFICIENCY
    weights = [1 / line.outcome.measured_us for line in own]
    left = [
        (w, w * line.links_us, w * (line.outcome.measured_us - line.fixed_us))
        for w, line in zip(weights, own, strict=True)
    ]
    aa, ab, bb = (sum(row[i] * row[j] for row in left) for i, j in ((0, 0), (0, 1), (1, 1)))
    ac, bc = (sum(row[i] * row[2] for row in left) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return max(0.0, (ac * bb - bc * ab) / determinant), (aa * bc - ab * ac) / determinant


def _can_fit(lines: Sequence[_Line]) -> bool:
    """Tell whether rows of more than one size are there: a launch and an efficiency follow from no less."""
    return len({line.links_us for line in lines}) > 1


def _rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of an index."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot read this index: {error}") from error
    missing = [column for column in _COLUMNS if column not in (rows[0] if rows else {})]
    if missing:
        raise ConfigError(f"{path}: expected columns {', '.join(_COLUMNS)}, found none named {', '.join(missing)}")
    return rows


def _outcome(where: str, row: Mapping[str, str], chips: Callable[[str], Chip]) -> Outcome:
    """Return what is predicted for one row."""
    topology = parse_topology(row["topology"])
    chip = chips(topology.chip)
    try:
        n_bytes, measured_us = float(row["payload_bytes"]), float(row["measured_us"])
    except ValueError as error:
        raise ConfigError(f"{where}: expected numbers of bytes and microseconds, found {error}") from error
    count = topology.chip_count * chip.devices_per_chip
    step = _step(row, n_bytes, count)
    timeline = run_program(Program(name=row["kind"], chip=chip.name, steps=(step,), device_count=count), chip, topology)
    return Outcome(
        program=f"{row['kind']} {n_bytes / 1e6:.3g} MB on {row['topology']}",
        chip=chip.name,
        family=f"{chip.name} {row['kind']}",
        measured_us=measured_us,
        predicted_us=ps_to_us(timeline.total_ps),
        compiler_us=0.0,
        roofline_us=_roofline_us(step, chip),
        bound_by=timeline.records[0].bound_by if timeline.records else "",
        units={},
    )


def _step(row: Mapping[str, str], n_bytes: float, count: int) -> Collective:
    """Return the collective of a row."""
    groups = tuple(tuple(int(n) for n in group.split(",")) for group in _GROUP.findall(row["groups"]))
    return Collective(
        name=row["kind"],
        opcode=row["kind"],
        kind=row["kind"],
        n_bytes=n_bytes,
        # Operand and result in HBM, as in every benchmark: read once, written once.
        hbm_bytes=2 * n_bytes,
        group_size=len(groups[0]) if groups else count,
        groups=groups,
        pairs=() if groups else tuple((n, (n + 1) % count) for n in range(count)),
    )


def _roofline_us(step: Collective, chip: Chip) -> float:
    """Return the time of the bytes at the raw rate of all links: what a spreadsheet would say."""
    ways = 1 if step.pairs else chip.ici.links
    share = (step.group_size - 1) / step.group_size if step.kind in _ONCE else 1.0
    return step.n_bytes * share / (ways * chip.ici.link_bytes_per_second) * 1e6
