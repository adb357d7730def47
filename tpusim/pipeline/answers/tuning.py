"""Candidates of a tuned program: each is simulated by itself, and what fails says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpusim.analysis.tuning import Candidate
from tpusim.errors import TpusimError
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
    return ranked(programs.items(), chip)


def ranked(candidates: Candidates, chip: Chip | str | None = None) -> RankedPrograms:
    """Return candidates ranked by their simulated times, those without a time last."""
    found = [_candidate(what, program, chip) for what, program in candidates]
    found.sort(key=lambda each: (each.time_us is None, each.time_us or 0.0))
    return RankedPrograms(
        chip=", ".join(dict.fromkeys(each.chip for each in found if each.chip)), candidates=tuple(found)
    )


def _candidate(what: Any, program: Module | str | Path | Exception, chip: Chip | str | None) -> Candidate:
    if isinstance(program, Exception):
        return Candidate(what=what, fault=_first_line(program))
    try:
        result = simulate(program, chip)
    except TpusimError as error:
        return Candidate(what=what, fault=_first_line(error))
    summary = result.summary
    return Candidate(
        what=what,
        chip=result.chip.name,
        time_us=result.time_us,
        bound_by=summary.ops[0].bound_by if summary.ops else "",
        flops_utilisation=summary.flops_utilisation,
        hbm_bytes=summary.utilisation.hbm_bytes,
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), repr(error))
