"""Candidates of a tuned program: each is simulated by itself, and what fails says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpusim.analysis.summary import Summary
from tpusim.analysis.tuning import Candidate
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.pipeline.answers.shown import RankedPrograms
from tpusim.pipeline.stages import simulate

Candidates = Iterable[tuple[Any, Module | str | Path | Exception]]
"""Programs, each behind what tells it from the others; one that could not be compiled as its error."""


def rank(programs: Mapping[Any, Module | str | Path], chip: Chip | str | None = None) -> RankedPrograms:
    """Return programs, by what tells them apart, ranked by their simulated times.

    What cannot be read, or does not fit the chip, stands last, with the reason.
    """
    if not isinstance(programs, Mapping):
        raise ConfigError(f"rank: expected programs by what tells them apart, found {programs!r:.80}")
    return ranked(programs.items(), chip)


def ranked(candidates: Candidates, chip: Chip | str | None = None) -> RankedPrograms:
    """Return candidates ranked by their simulated times, those without a time last."""
    runs = [(what, _run(program, chip)) for what, program in candidates]
    flops = [run.utilisation.model_flops for _, run in runs if isinstance(run, Summary)]
    least = min((count for count in flops if count), default=0.0)
    found = [_candidate(what, run, least) for what, run in runs]
    found.sort(key=lambda each: (each.time_us is None, each.time_us or 0.0))
    ran_on = ", ".join(dict.fromkeys(each.chip for each in found if each.chip))
    # Where none ran there is what they were to run on.
    asked = chip.name if isinstance(chip, Chip) else chip
    return RankedPrograms(chip=ran_on or asked or "", candidates=tuple(found))


def _run(program: Module | str | Path | Exception, chip: Chip | str | None) -> Summary | Exception:
    if isinstance(program, Exception):
        return program
    try:
        return simulate(program, chip).summary
    except TpusimError as error:
        return error


def _candidate(what: Any, run: Summary | Exception, least_flops: float) -> Candidate:
    if isinstance(run, Exception):
        return Candidate(what=what, fault=_first_line(run))
    own_flops = run.utilisation.model_flops
    return Candidate(
        what=what,
        chip=run.chip,
        time_us=run.time_us,
        bound_by=run.ops[0].bound_by if run.ops else "",
        flops_utilisation=run.model_flops_utilisation * least_flops / own_flops if own_flops else 0.0,
        hbm_bytes=run.utilisation.hbm_bytes,
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), repr(error))
