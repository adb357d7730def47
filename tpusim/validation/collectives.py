"""Collectives against measured times: an index of rows in, one outcome per row out.

The columns of an index are ``topology``, ``kind``, ``payload_bytes`` (the larger of what one device puts in and what it
gets out), ``groups`` (as in HLO text; empty for one of all devices, and for a permute, which goes round them) and
``measured_us``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tpusim.analysis.accuracy import Outcome
from tpusim.errors import ConfigError, ProgramError, did_you_mean
from tpusim.hardware.load import override_chip
from tpusim.hardware.pod import make_pod, parse_topology
from tpusim.ir.ops import KEEPS_OWN_PART
from tpusim.pipeline.stages import run_program
from tpusim.program.module import Program
from tpusim.program.steps import COLLECTIVE_KINDS, Collective
from tpusim.source import SourceText
from tpusim.text.attributes.devices import take_replica_groups
from tpusim.text.lexer import Lexer
from tpusim.units import ps_to_us
from tpusim.validation.rows import Positive, Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tpusim.hardware.chip import Chip
    from tpusim.hardware.pod import Topology

# Where a chip has no measurements: what the scaling book's rates are of those in the documentation, and a mean launch.
_USUAL_EFFICIENCY = 0.9
_LEAST_APART = 1e-9
"""Of rows whose sizes differ by less, in parts of their squares, what is left of them is rounding."""


def predict_collectives(index: str | Path, chips: Callable[[str], Chip], chip_name: str | None = None) -> list[Outcome]:
    """Return the outcomes of an index's rows, only those of one chip if ``chip_name`` is given.

    Raises ConfigError for a file that is no such index.
    """
    outcomes = [_outcome(row, chips) for row in read_rows(index, _Row)]
    return [outcome for outcome in outcomes if chip_name in (None, outcome.chip)]


def cross_validate(index: str | Path, chips: Callable[[str], Chip]) -> tuple[list[Outcome], list[Outcome]]:
    """Return the outcomes of rows that the links' efficiency and the launch were not fitted to.

    First with each row left out of the fit of its chip, then with its whole source left out. What then has no rows to
    be fitted to is as for a chip without measurements. The fit is by least squares of the shares by which
    predictions are off; they are linear in the launch and in the inverse of the efficiency.
    """
    rows = read_rows(index, _Row)
    shifts = [_Line(_outcome(row, chips), row.source, *_line(row, chips)) for row in rows]
    return (
        [line.with_fit(_fit([o for o in shifts if o is not line], line.outcome.chip)) for line in shifts],
        [line.with_fit(_fit([o for o in shifts if o.source != line.source], line.outcome.chip)) for line in shifts],
    )


class _Row(Row, frozen=True, kw_only=True):
    """A row of an index."""

    topology: str
    kind: str
    payload_bytes: Positive
    groups: str
    measured_us: Positive
    source: str = ""


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


def _line(row: _Row, chips: Callable[[str], Chip]) -> tuple[float, float]:
    """Return what of a row's time is fixed, and what goes by the inverse of the efficiency."""

    def predicted_us(efficiency: float) -> float:
        changes = {"ici.efficiency": efficiency, "ici.launch_seconds": 0.0}
        return _outcome(row, lambda name: override_chip(chips(name), changes)).predicted_us

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
    aa, ab, bb, ac, bc = _sums(own)
    determinant = aa * bb - ab * ab
    return max(0.0, (ac * bb - bc * ab) / determinant), (aa * bc - ab * ac) / determinant


def _sums(lines: Iterable[_Line]) -> tuple[float, ...]:
    """Return the coefficients of the equations for a launch and the inverse of an efficiency, by least squares."""
    weighted = [(1 / line.outcome.measured_us, line) for line in lines]
    left = [(w, w * line.links_us, w * (line.outcome.measured_us - line.fixed_us)) for w, line in weighted]
    return tuple(sum(row[i] * row[j] for row in left) for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))


def _can_fit(lines: Sequence[_Line]) -> bool:
    """Return whether there are rows of sizes that differ: a launch and an efficiency follow from no less."""
    aa, ab, bb, *_ = _sums(lines)
    return aa * bb - ab * ab > _LEAST_APART * aa * bb


def _outcome(row: _Row, chips: Callable[[str], Chip]) -> Outcome:
    topology, chip = _slice(row, chips)
    count = topology.chip_count * chip.devices_per_chip
    step = _step(row, count)
    timeline = run_program(Program(name=step.kind, chip=chip.name, steps=(step,), device_count=count), chip, topology)
    return Outcome(
        program=f"{step.kind} {row.payload_bytes / 1e6:.3g} MB on {row.topology}",
        chip=chip.name,
        family=f"{chip.name} {step.kind}",
        measured_us=row.measured_us,
        predicted_us=ps_to_us(timeline.total_ps),
        compiler_us=0.0,
        roofline_us=_roofline_us(step, chip),
        bound_by=timeline.records[0].bound_by if timeline.records else "",
        units={},
    )


def _slice(row: _Row, chips: Callable[[str], Chip]) -> tuple[Topology, Chip]:
    """Return the slice of a row and its chip, which must be able to form it."""
    try:
        topology = parse_topology(row.topology)
        chip = chips(topology.chip) if topology.chip else None
        if chip is not None:
            make_pod(topology, chip)
    except ConfigError as error:
        raise ConfigError(f"{row.where}: {error}") from error
    if chip is None:
        raise row.refused("topology", "a slice with its chip, as in v5e:2x4")
    return topology, chip


def _step(row: _Row, count: int) -> Collective:
    kind = row.kind
    if kind not in COLLECTIVE_KINDS:
        known = f"one of {', '.join(sorted(COLLECTIVE_KINDS))}"
        raise ConfigError(f"{row.where}: kind: expected {known}, found {kind!r}{did_you_mean(kind, COLLECTIVE_KINDS)}")
    is_permute = kind == "collective-permute"
    groups = () if is_permute else _groups(row, count)
    if is_permute and row.groups.strip():
        raise row.refused("groups", "nothing for a permute, which goes round all devices")
    return Collective(
        name=kind,
        opcode=kind,
        kind=kind,
        n_bytes=row.payload_bytes,
        # Operand and result in HBM, as in every benchmark: read once, written once.
        hbm_bytes=2 * row.payload_bytes,
        group_size=len(groups[0]) if groups else count,
        groups=groups,
        pairs=tuple((n, (n + 1) % count) for n in range(count)) if is_permute else (),
    )


def _groups(row: _Row, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a row among so many devices, written as in HLO text; none are one of all."""
    text = row.groups.strip()
    if not text:
        return (tuple(range(count)),)
    lexer = Lexer(SourceText(row.where, text))
    try:
        groups = take_replica_groups(lexer).groups
        lexer.take("end", "the end of the groups")
    except ProgramError as error:
        raise row.refused("groups", "groups such as {{0,1},{2,3}} or [2,2]<=[4]") from error
    ids = [number for group in groups for number in group]
    if not ids or len(set(ids)) < len(ids) or not set(ids) <= set(range(count)) or len(set(map(len, groups))) > 1:
        raise row.refused("groups", f"groups of one size that hold numbers below {count}, each once")
    return groups


def _roofline_us(step: Collective, chip: Chip) -> float:
    """Return the time of the bytes at the raw rate of all links: what a spreadsheet would say."""
    ways = 1 if step.pairs else chip.ici.links
    share = (step.group_size - 1) / step.group_size if step.kind in KEEPS_OWN_PART else 1.0
    return step.n_bytes * share / (ways * chip.ici.link_bytes_per_second) * 1e6
