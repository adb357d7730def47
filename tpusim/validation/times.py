"""Predicted beside measured times, of programs or of collectives by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.analysis.accuracy import Validation, validation
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip, resolve_chip_name
from tpusim.validation.collectives import cross_validate, predict_collectives
from tpusim.validation.kernels import measured_as, predict_all, read_index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpusim.analysis.accuracy import Outcome


def validate(
    index: str | Path | Sequence[str | Path],
    chip: str | None = None,
    *,
    collectives: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Return predictions beside the measured times of one index or several, only the rows of ``chip`` if it is named.

    An index is a CSV file of programs with their times (``validation/kernels.py`` has its columns), or with
    ``collectives`` one of collectives (``validation/collectives.py``), whose predictions are also made without the
    row and its source. ``progress`` is told how many programs of how many are done. Raises ConfigError for a file that
    is no such index, and if no row is of the chip.
    """
    indexes = [index] if isinstance(index, str | Path) else index
    wanted = measured_as(resolve_chip_name(chip)) if chip else None
    if collectives:
        found = [row for path in indexes for row in predict_collectives(path, load_chip, wanted)]
        _require(found, indexes, wanted)
        by_row, by_source = zip(*(cross_validate(path, load_chip) for path in indexes), strict=True)
        return validation(found, row_held_out=_of(wanted, by_row), source_held_out=_of(wanted, by_source))
    found_in = [read_index(path) for path in indexes]
    cases = [case for found in found_in for case in found.cases if wanted in (None, case.chip)]
    # A row that is left out is read no further: without a chip of its own it may be of any.
    at_floor = sum(wanted in (None, chip) or not chip for found in found_in for chip in found.at_floor)
    _require(cases, indexes, wanted, at_floor)
    report = progress or (lambda done, count: None)
    return validation(predict_all(cases, load_chip, lambda done: report(done, len(cases))), at_floor)


def _of(chip: str | None, outcomes: Sequence[Sequence[Outcome]]) -> list[Outcome]:
    return [row for rows in outcomes for row in rows if chip in (None, row.chip)]


def _require(rows: Sequence[object], indexes: Sequence[str | Path], chip: str | None, at_floor: int = 0) -> None:
    """Refuse indexes without a row of the chip that was asked for."""
    if not rows:
        of_chip = f" of {chip}" if chip else ""
        but = f" but {at_floor} that are all launch floor" if at_floor else ""
        raise ConfigError(f"{', '.join(map(str, indexes))}: expected measured rows{of_chip}, found none{but}")
