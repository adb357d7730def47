"""The options of ``tpusim run`` that write files for viewers: a browser, Perfetto, XProf, Model Explorer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from tpusim.pipeline.result import Result

_EXPORTS = {"trace": "perfetto", "html": "html", "xprof": "xprof", "model_explorer": "model_explorer"}
"""By option the function of ``tpusim.export``."""


def add_viewers(run: argparse.ArgumentParser) -> None:
    """Add the options to the command."""
    views = run.add_argument_group("files for viewers", "each says that it is simulated")
    views.add_argument("--html", metavar="FILE", help="a report to open in a browser: tables and charts in one file")
    views.add_argument("--trace", metavar="FILE", help="a time line for Perfetto (.json or .json.gz)")
    views.add_argument("--xprof", metavar="DIR", help="a profile in DIR, for xprof --logdir DIR and TensorBoard")
    graph = "a graph for Model Explorer, and in FILE.node_data.json the times to lay over it"
    views.add_argument("--model-explorer", metavar="FILE.json", help=graph)


def write_views(result: Result, options: argparse.Namespace) -> None:
    """Write every file that was asked for."""
    wanted = {name: getattr(options, option) for option, name in _EXPORTS.items() if getattr(options, option)}
    if wanted:
        from tpusim import export

        for name, target in wanted.items():
            getattr(export, name)(result, target)
