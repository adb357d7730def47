"""Candidates of a tuned program: each is simulated by itself, and what fails says why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpusim.analysis.tuning import Candidate
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.pipeline.result import RankedPrograms, Result
from tpusim.pipeline.stages import simulate


def rank(programs: Mapping[Any, Module | str | Path | Exception], chip: Chip | str | None = None) -> RankedPrograms:
    """Return programs, by what tells them apart, ranked by their simulated times.

    One that could not be compiled is given as its error; it stands last, as do those that do not fit the chip.
    """
    found, chips = [], dict[str, None]()
    for what, program in programs.items():
        try:
            if isinstance(program, Exception):
                raise program
            result = simulate(program, chip)
        # Whatever is wrong with one says nothing of the others; the first line is the reason.
        except Exception as error:
            found.append(Candidate(what=what, fault=(str(error).splitlines() or [repr(error)])[0]))
            continue
        chips[result.chip.name] = None
        found.append(_candidate(what, result))
    found.sort(key=lambda each: (each.time_us is None, each.time_us or 0.0))
    return RankedPrograms(chip=", ".join(chips), candidates=tuple(found))


def _candidate(what: Any, result: Result) -> Candidate:
    summary = result.summary
    return Candidate(
        what=what,
        time_us=result.time_us,
        bound_by=summary.ops[0].bound_by if summary.ops else "",
        flops_utilisation=summary.flops_utilisation,
        hbm_bytes=summary.utilisation.hbm_bytes,
    )
