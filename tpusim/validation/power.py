"""Mean power of programs against what was published of their chips: an index of chips in, one outcome per chip out.

An index is a CSV file with the columns ``chip``, ``mean_w`` (published, in watts), ``programs`` (names of files beside
the index, blanks between them) and, where they are known, ``least_w``, ``most_w``, ``of`` (what was measured) and
``source``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from tpusim.analysis.energy.measured import ChipPower, ProgramPower
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.load import chip_facts, resolve_chip_name
from tpusim.pipeline.stages import simulate
from tpusim.validation.rows import FileNames, Positive, Row, in_turn, read_rows


class _ChipRow(Row, frozen=True, kw_only=True):
    """A row of an index."""

    chip: Annotated[str, Meta(min_length=1, description="a chip")]
    mean_w: Positive
    programs: FileNames
    least_w: Positive | None = None
    most_w: Positive | None = None
    of: str = ""
    source: str = ""


def validate_power(
    indexes: Iterable[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> list[ChipPower]:
    """Return the power of the programs of some indexes beside the published one, only of ``chip`` if it is named.

    ``progress`` is told how many chips of how many are done. Raises ConfigError for a file that is no such index, by
    file and line for a row that names no chip or program, and if no row is of the chip.
    """
    wanted = resolve_chip_name(chip) if chip else None
    found = [(Path(index).parent, row) for index in indexes for row in read_rows(index, _ChipRow)]
    rows = [(folder, row) for folder, row in found if wanted in (None, _name(row))]
    if not rows:
        raise ConfigError(f"expected the published power of {chip}, found none in {len(found)} rows")
    outcomes = []
    for folder, row in in_turn(rows, progress):
        outcomes.append(_outcome(folder, row))
    return outcomes


def _name(row: _ChipRow) -> str:
    try:
        return resolve_chip_name(row.chip)
    except ConfigError as error:
        raise ConfigError(f"{row.where}: {error}") from error


def _outcome(folder: Path, row: _ChipRow) -> ChipPower:
    name = _name(row)
    idle = next(fact for fact in chip_facts(name) if fact.key == "power.idle_watts")
    return ChipPower(
        chip=name,
        of=row.of,
        source=row.source,
        idle_w=idle.value,
        idle_confidence=idle.confidence,
        least_w=row.least_w,
        mean_w=row.mean_w,
        most_w=row.most_w,
        programs=tuple(_power(folder / program, name, row) for program in row.programs.split()),
    )


def _power(path: Path, chip: str, row: _ChipRow) -> ProgramPower:
    try:
        watts = simulate(path, chip, allow_overflow=True).energy.chip_power_w
    except TpusimError as error:
        raise ConfigError(f"{row.where}: {error}") from error
    return ProgramPower(program=path.name.partition(".")[0], watts=watts)
