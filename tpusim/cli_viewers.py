"""The options of ``tpusim run`` that write files for viewers: Perfetto, a browser, XProf, Model Explorer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tpusim.pipeline import Result
    from tpusim.report.viewed import Viewed


def add_viewers(run: argparse.ArgumentParser) -> None:
    """Add the options to the command."""
    views = run.add_argument_group("files for viewers", "each says that it is simulated")
    views.add_argument("--trace", metavar="FILE", help="a time line for Perfetto (.json or .json.gz)")
    views.add_argument("--html", metavar="FILE", help="a report to open in a browser: tables and charts in one file")
    views.add_argument("--xprof", metavar="DIR", help="a profile in DIR, for xprof --logdir DIR and TensorBoard")
    graph = "a graph for Model Explorer, and in FILE.node_data.json the times to lay over it"
    views.add_argument("--model-explorer", metavar="FILE.json", help=graph)


def write_views(result: Result, options: argparse.Namespace) -> None:
    """Write every file that was asked for."""
    for name, write in _WRITERS.items():
        target = getattr(options, name)
        if target:
            write(result, target)


def _write_trace(result: Result, path: str) -> None:
    """Write the time line for Perfetto."""
    from tpusim.report.perfetto import write_trace

    write_trace(result.pod, path)


def _write_xprof(result: Result, directory: str) -> None:
    """Write the profile for XProf."""
    from tpusim.report.xprof import write_xprof

    write_xprof(_viewed(result), directory)


def _write_html(result: Result, path: str) -> None:
    """Write the page for a browser."""
    from tpusim.report.html.page import write_page

    write_page(_viewed(result), path)


def _write_model_explorer(result: Result, path: str) -> None:
    """Write the graph for Model Explorer."""
    from tpusim.report.model_explorer import write_model_explorer

    write_model_explorer(_viewed(result), path)


def _viewed(result: Result) -> Viewed:
    """Return what the reports take."""
    from tpusim import __version__
    from tpusim.report.viewed import Viewed

    return Viewed(result.pod, result.summary, result.chip, result.program, result.module, __version__)


_WRITERS: dict[str, Callable[[Result, str], None]] = {
    "trace": _write_trace,
    "html": _write_html,
    "xprof": _write_xprof,
    "model_explorer": _write_model_explorer,
}
