"""A run as a file for another tool: a browser, XProf, Perfetto, Model Explorer, Accelergy.

    from tpusim import export
    result = tpusim.simulate("step.v5e.hlo.txt.gz")
    export.html(result, "report.html")
    export.xprof(result, "profile")  # then: xprof --logdir profile

Each says in itself that it is simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpusim import __version__
from tpusim.analysis.compare import RunFigures, run_figures
from tpusim.errors import ConfigError
from tpusim.frontends.xla import module_proto
from tpusim.pipeline.stages import figures
from tpusim.report.accelergy import write_accelergy
from tpusim.report.viewers.html.page import write_page
from tpusim.report.viewers.model_explorer import write_model_explorer
from tpusim.report.viewers.perfetto import write_trace
from tpusim.report.viewers.xprof.profile import write_xprof

if TYPE_CHECKING:
    from tpusim.pipeline.result import Result

__all__ = ["accelergy", "html", "model_explorer", "perfetto", "xprof"]


def accelergy(result: Result, path: str | Path) -> None:
    """Write what was done, with energies and areas, for ``accelergy FILE.yaml -f energy_estimation``."""
    write_accelergy(result.counts, result.chip, path)


def html(result: Result, path: str | Path, before: Result | RunFigures | str | Path | None = None) -> None:
    """Write one page for a browser, which loads nothing else: op table, time line, memory, roofline, warnings.

    With another run ``before`` it, its figures, or the name of a program or of a saved result, the page compares the
    two.
    """
    if isinstance(before, str | Path):
        before = figures(before)
    elif before is not None and not isinstance(before, RunFigures):
        before = run_figures(before.summary)
    write_page(result, path, __version__, before)


def perfetto(result: Result, path: str | Path) -> None:
    """Write a time line for https://ui.perfetto.dev (``.json``, or ``.json.gz``): rows, counters, arrows."""
    write_trace(result.pod, path, result.program, result.chip)


def xprof(result: Result, directory: str | Path) -> Path:
    """Write a profile for ``xprof --logdir directory``, in a folder of its own; return the profile's file.

    With jaxlib (``tpusim[jax]``) it holds the program as XLA itself writes it, which XProf's graph viewer needs;
    without it what memory and the tables of ops need.
    """
    return write_xprof(result, directory, __version__, _full_proto(result))


def _full_proto(result: Result) -> bytes:
    """Return XLA's own message of the program, nothing where jaxlib is missing or does not take the text."""
    try:
        return module_proto(result.module.text, "the program of a profile") if result.module else b""
    # XLA's errors are of a class that jaxlib makes itself, below this one.
    except (ConfigError, RuntimeError):
        return b""


def model_explorer(result: Result, path: str | Path) -> Path:
    """Write a graph (``.json``) and beside it the time of every node; return the name of the latter file."""
    return write_model_explorer(result, path)
