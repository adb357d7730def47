"""What ``tpusim compile`` prints as JSON."""

from __future__ import annotations

from typing import Any

from tpusim.analysis.summary import Summary
from tpusim.program.compilation import Compilation
from tpusim.report.json.page import document, fill, page

_Run = page(
    "CompiledRun",
    Summary,
    "total_ps memory",
    {"total_ps": "time_us"},
    hbm_bytes=float,
    kernels=int,
)
CompilationPage = document("Compilation", Compilation, cpu_seconds=float, run=_Run | None)


def compilation_page(found: Compilation, run: Summary | None) -> Any:
    """Return how a program was compiled, and the figures of its run if it has a schedule."""
    shown = None if run is None else fill(_Run, run, run.utilisation)
    return fill(CompilationPage, found, run=shown)
