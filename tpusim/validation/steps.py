"""Whole steps against published times: an index of programs in, one outcome per row out.

An index is a CSV file beside its programs with the columns ``name``, ``program``, ``chip``, ``measured_us`` and
``use``, a text that begins with how much the row says: good, fair or weak. It may have ``topology`` (the slice that the
program ran on), ``low`` and ``high`` (the range that the source allows, in microseconds), ``family`` (what kind of step
it is), ``timing`` (how the time was taken), ``source``, and ``differs`` (what the program has otherwise than the one
that ran).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from msgspec import Meta

from tpusim.analysis.steps import COUNTED, StepAccuracy, StepOutcome, category_times, step_accuracy
from tpusim.errors import ConfigError, TpusimError
from tpusim.files import is_file
from tpusim.hardware.load import resolve_chip_name
from tpusim.pipeline.stages import simulate
from tpusim.program.provenance import MEGACORE
from tpusim.validation.kernels import HOST_CLOCK
from tpusim.validation.rows import FileName, Positive, Row, in_turn, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Timing = Literal["", "device_trace", "log_step", "host_wall"]
"""How a time can have been taken: by a profiler, from what a training loop logs, by a host's clock around one call."""

_GRADES = (*COUNTED, "weak")


class _StepRow(Row, frozen=True, kw_only=True):
    """A row as it stands in an index; the times in microseconds."""

    name: Annotated[str, Meta(min_length=1, description="the name of a step")]
    program: FileName
    chip: Annotated[str, Meta(min_length=1, description="a chip")]
    measured_us: Positive
    use: Annotated[
        str, Meta(pattern=rf"^({'|'.join(_GRADES)})\b", description=f"a text that begins with {', '.join(_GRADES)}")
    ]
    topology: str = ""
    low: Positive = 0.0
    high: Positive = 0.0
    family: str = ""
    timing: Annotated[_Timing, Meta(description=f"one of {', '.join(filter(None, get_args(_Timing)))}")] = ""
    source: str = ""
    differs: str = ""


def validate_steps(
    indexes: Sequence[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> StepAccuracy:
    """Return our times of whole steps beside the published ones of some indexes, only rows of ``chip`` if it is named.

    ``progress`` is told how many steps of how many are done. Raises ConfigError for a file that is no such index, by
    file and line for a row that names no program or cannot be run, and if no row is of the chip.
    """
    wanted = _plain(chip) if chip else None
    found = [(Path(index).parent, row) for index in indexes for row in read_rows(index, _StepRow)]
    # All before the first one runs: some take long.
    for folder, row in found:
        _check(folder, row)
    rows = [(folder, row) for folder, row in found if wanted in (None, _plain(row.chip))]
    if not rows:
        raise ConfigError(f"{', '.join(map(str, indexes))}: expected measured steps of {chip}, found none")
    outcomes = []
    for folder, row in in_turn(rows, progress):
        outcomes.append(_outcome(folder, row))
    return step_accuracy(outcomes)


def _plain(chip_name: str) -> str:
    """Return the name of a chip, the same for both ways to see a v4."""
    return resolve_chip_name(chip_name).removesuffix(MEGACORE)


def _check(folder: Path, row: _StepRow) -> None:
    """Refuse a row whose chip or program there is none of, or whose range leaves out what was measured."""
    try:
        _plain(row.chip)
    except ConfigError as error:
        raise ConfigError(f"{row.where}: {error}") from error
    if not is_file(folder / row.program):
        raise row.refused("program", "the name of a file beside the index")
    if row.low > row.measured_us:
        raise row.refused("low", f"at most the measured {row.measured_us:g}")
    if row.high and row.high < row.measured_us:
        raise row.refused("high", f"at least the measured {row.measured_us:g}")


def _outcome(folder: Path, row: _StepRow) -> StepOutcome:
    try:
        # One of many runs: what is prefetched across them has come in.
        result = simulate(folder / row.program, row.chip, topology=row.topology or None, warm=True, allow_overflow=True)
    except TpusimError as error:
        raise ConfigError(f"{row.where}: {error}") from error
    summary, chip = result.summary, result.chip
    beyond_us = chip.host.dispatch_seconds * 1e6 if row.timing == HOST_CLOCK else 0.0
    return StepOutcome(
        name=row.name,
        program=row.program,
        chip=chip.name,
        topology=row.topology,
        family=row.family,
        use=row.use,
        timing=row.timing,
        source=row.source,
        differs=row.differs,
        measured_us=row.measured_us,
        low_us=row.low or row.measured_us,
        high_us=row.high or row.measured_us,
        predicted_us=result.time_us + beyond_us,
        bands=summary.bands,
        categories=category_times(result.timeline, chip, summary.compiler_clock_hz),
    )
