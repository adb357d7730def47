"""The advisor: every rule looks at a run, what it proposes is run, and what helps is ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tpusim.advice.rules import (  # noqa: F401 (each enters its rule)
    alike,
    batch,
    blocks,
    copies,
    donation,
    dtype,
    host,
    mesh_order,
    overlap,
    padding,
    prefetch,
    remat,
    small_kernels,
    unroll,
)
from tpusim.advice.trials import LEAST_SHARE, RULES, Case
from tpusim.analysis.answers.findings import Finding, Findings
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology, parse_topology
from tpusim.ir.module import Module
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Program


class Advice(Findings, frozen=True, kw_only=True):
    """Findings that show themselves as ``tpusim advise`` prints them."""

    def __str__(self) -> str:
        """Return the report of ``tpusim advise``."""
        from tpusim.report.terminal.notebook import printed_advice, text_of

        return text_of(printed_advice(self))


def advise(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
    allow_overflow: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Advice:
    """Return what would make a program faster, each finding with the time that its alternative saved when it was run.

    The arguments are those of ``simulate``; ``progress`` is called with the name of each rule before it looks.
    """
    slice_ = parse_topology(topology) if isinstance(topology, str) else topology
    rest: dict[str, Any] = {"topology": slice_, "overrides": overrides, "schedule": schedule}
    case = Case(simulate(program, chip, **rest, allow_overflow=allow_overflow), slice_)
    findings, tried = list[Finding](), dict[str, int]()
    for name, rule in RULES.items():
        if progress is not None:
            progress(name)
        outcomes = [case.try_out(name, trial) for trial in rule(case)]
        tried[name] = len(outcomes)
        findings += [one for one in outcomes if one is not None and _helps(one, case)]
    return Advice(
        program=case.program.name,
        chip=case.chip.name,
        time_ps=case.total_ps,
        findings=tuple(sorted(findings, key=lambda one: (-one.share, -one.saved_bytes))),
        tried=tried,
    )


def _helps(finding: Finding, case: Case) -> bool:
    room = LEAST_SHARE * case.chip.hbm.available_bytes
    return finding.share >= LEAST_SHARE or (finding.saved_ps >= 0 and finding.saved_bytes >= room)
