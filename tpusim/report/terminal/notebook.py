"""Reports as notebooks show them: the pages of the terminal, with their emphasis, as HTML of no other style."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from tpusim.report.console import PageConsole, visible

# The width at which no column of the widest table is left out.
_COLUMNS = 160
# Of the notebook's own colours, so that light and dark ones both can be read; long lines scroll.
_FORMAT = '<pre style="line-height:1.25;overflow-x:auto;white-space:pre;font-size:0.85em">{code}</pre>'


def html_of(render: Callable[[Console], None]) -> str:
    """Return what a function prints as HTML; Rich escapes what it prints."""
    return _trimmed(_recorded(render).export_html(inline_styles=True, code_format=_FORMAT))


def text_of(render: Callable[[Console], None]) -> str:
    """Return what a function prints as the terminal shows it, without colours."""
    return _trimmed(_recorded(render).export_text())


def _recorded(render: Callable[[Console], None]) -> Console:
    """Return a console that has kept what a function prints, and shown it nowhere."""
    console = visible(
        PageConsole(file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, force_jupyter=False)
    )
    render(console)
    return console


def _trimmed(page: str) -> str:
    """Return a page without the blanks that fill its lines."""
    return "\n".join(line.rstrip() for line in page.splitlines())
