"""The commands that answer a question about a run."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import OVERFLOW, RUN, TRIPS, WARM, command, json_option, machine
from tpusim.cli.output import answer

_PATH = """\
What the end of a run waits for, back to its start, through kernels, copies, collectives and other devices; how much
later each op may start without moving the end (one execution of it, all else lasting as long as it did); and what ran
behind what."""


@command(
    "path",
    "what the end of a run waits for, what could come later, what hides behind what",
    *RUN,
    TRIPS,
    OVERFLOW,
    WARM,
    json_option("print one JSON object with every stretch"),
    description=_PATH,
)
def path(options: Namespace) -> None:
    """Report the critical path."""
    from tpusim.pipeline.stages import simulate
    from tpusim.report.json.answers import path_page
    from tpusim.report.terminal.answers.path import render_path

    result = simulate(
        options.program,
        options.chip,
        **machine(options),
        default_trip_count=options.default_trip_count,
        warm=options.warm,
        allow_overflow=options.allow_overflow,
    )
    answer(options, path_page, render_path, result.critical_path)
