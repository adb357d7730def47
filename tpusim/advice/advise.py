"""The advisor: every rule looks at a run, what it proposes is run, and what helps is ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from tpusim.advice.rules import (  # noqa: F401 (each enters its rule)
    activations,
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
from tpusim.errors import CapacityError
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology, as_topology
from tpusim.ir.module import Module
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.stages import load_any, simulate
from tpusim.program.module import Program
from tpusim.report.shown import Shown
from tpusim.report.tables import Printer, size_text

_LEAST_OF_PEAK = 0.1
"""What saves less of a program's peak of HBM is no finding, if it is little of the HBM as well."""

_FOR_MEMORY = ("activations", "donation")
"""Rules for what does not fit."""


class Advice(Shown, Findings, frozen=True, kw_only=True):
    """Findings that show themselves as ``tpusim advise`` prints them."""

    def _render(self, console: Printer) -> None:
        from tpusim.report.terminal.answers.advice import render_advice

        render_advice(self, console)


def advise(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
    default_trip_count: int = DEFAULT_TRIPS,
    allow_overflow: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Advice:
    """Return what would make a program faster, each finding with the time that its alternative saved when it was run.

    The arguments are those of ``simulate``; ``progress`` is called with the name of each rule before it looks.
    CapacityError, if the program does not fit, names what would take less memory.
    """
    rest = as_topology(topology), default_trip_count
    loaded = load_any(program)
    given = loaded if isinstance(loaded, Module) else None
    run = partial(
        simulate,
        loaded,
        chip,
        topology=rest[0],
        overrides=overrides,
        default_trip_count=default_trip_count,
        schedule=schedule,
    )
    try:
        case = Case(run(allow_overflow=allow_overflow), *rest, given)
    except CapacityError as error:
        mends = _findings(Case(run(allow_overflow=True), *rest, given), _FOR_MEMORY)[0]
        lines = [f"  {size_text(one.saved_bytes)} less: {one.change}" for one in mends if one.saved_bytes > 0]
        if not lines:
            raise
        raise CapacityError("\n".join((str(error), "what would take less of HBM:", *lines))) from None
    findings, tried = _findings(case, RULES, progress)
    return Advice(
        program=case.program.name,
        chip=case.chip.name,
        time_ps=case.total_ps,
        findings=tuple(findings),
        tried=tried,
        **structs.asdict(case.result.caveats),
    )


def _findings(
    case: Case, rules: Iterable[str], progress: Callable[[str], None] | None = None
) -> tuple[list[Finding], dict[str, int]]:
    """Return what some rules find, and how much each tried: what saves most time first, or most memory if it lacks."""
    findings, tried = list[Finding](), dict[str, int]()
    for name in rules:
        if progress is not None:
            progress(name)
        outcomes = [case.try_out(name, trial) for trial in RULES[name](case)]
        tried[name] = len(outcomes)
        findings += [one for one in outcomes if one is not None and _helps(one, case)]
    findings.sort(key=lambda one: (-one.share, -one.saved_bytes))
    if case.room_bytes < 0:
        findings.sort(key=lambda one: -max(0, one.saved_bytes))
    return findings, tried


def _helps(finding: Finding, case: Case) -> bool:
    """Return whether a change saves time, or memory: of the HBM, or much of what a large program needs.

    Of one that fits, no memory that costs time.
    """
    small = LEAST_SHARE * case.chip.hbm.available_bytes
    peak = case.peak_hbm_bytes
    least = min(small, _LEAST_OF_PEAK * peak) if peak >= small else small
    return finding.share >= LEAST_SHARE or (
        finding.saved_bytes >= least and (finding.saved_ps >= 0 or case.room_bytes < 0)
    )
