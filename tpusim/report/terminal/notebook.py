"""Reports as notebooks show them: the pages of the terminal, with their emphasis, as HTML of no other style."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from tpusim.analysis.answers.findings import Findings
from tpusim.analysis.answers.scaling import Largest, Refused, ScaleRow
from tpusim.analysis.explained.facts import StepExplanation
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.tuning import Ranking
from tpusim.report.console import visible
from tpusim.report.result import ResultLike
from tpusim.report.terminal.answers.advice import render_advice
from tpusim.report.terminal.answers.explain import render_explained
from tpusim.report.terminal.answers.scaling import render_scaling
from tpusim.report.terminal.explain import render_ranking
from tpusim.report.terminal.run import render_result

# The width at which no column of the widest table is left out.
_COLUMNS = 160
# Of the notebook's own colours, so that light and dark ones both can be read; long lines scroll.
_FORMAT = '<pre style="line-height:1.25;overflow-x:auto;white-space:pre;font-size:0.85em">{code}</pre>'


def printed_run(result: ResultLike) -> Console:
    """Return a console that holds the page of ``tpusim run``."""
    console = _recorder()
    render_result(result, "op", console, result.cost())
    return console


def printed_explanation(explained: Explanation | StepExplanation) -> Console:
    """Return a console that holds the page of ``tpusim explain``."""
    console = _recorder()
    render_explained(explained, console)
    return console


def printed_advice(found: Findings) -> Console:
    """Return a console that holds the page of ``tpusim advise``."""
    console = _recorder()
    render_advice(found, console)
    return console


def printed_scaling(rows: Sequence[ScaleRow], largest: Sequence[Largest], refused: Sequence[Refused]) -> Console:
    """Return a console that holds the page of ``tpusim scale``."""
    console = _recorder()
    render_scaling(rows, largest, console, refused)
    return console


def printed_ranking(ranking: Ranking) -> Console:
    """Return a console that holds the table of ranked programs."""
    console = _recorder()
    render_ranking(ranking, console)
    return console


def html_of(console: Console) -> str:
    """Return what a console holds as HTML; Rich escapes what it prints."""
    return _trimmed(console.export_html(inline_styles=True, code_format=_FORMAT))


def text_of(console: Console) -> str:
    """Return what a console holds as the terminal shows it, without colours."""
    return _trimmed(console.export_text())


def _recorder() -> Console:
    """Return a console that keeps what is printed, and shows it nowhere."""
    return visible(Console(file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, force_jupyter=False))


def _trimmed(page: str) -> str:
    """Return a page without the blanks that fill its lines."""
    return "\n".join(line.rstrip() for line in page.splitlines())
