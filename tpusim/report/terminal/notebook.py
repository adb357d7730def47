"""Reports as notebooks show them: the pages of the terminal, with their emphasis, as HTML of no other style."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tpusim.errors import TpusimError
from tpusim.report.terminal.explain import render_explanation
from tpusim.report.terminal.layout import render_layout
from tpusim.report.terminal.run import render_run
from tpusim.shapes.layout_facts import layout_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.shapes.shape import Shape

    Render = Callable[[Any, Console], None]

# The width at which no column of the widest table is left out.
_COLUMNS = 150
# Of the notebook's own colours, so that light and dark ones both can be read; long lines scroll.
_FORMAT = '<pre style="line-height:1.25;overflow-x:auto;white-space:pre;font-size:0.85em">{code}</pre>'


def page(shown: Any) -> str:
    """Return the report of an object as HTML; a shape that has no layout yet is its notation."""
    render = _renderer(shown)
    try:
        console = _recorded(render, shown)
    except TpusimError:
        return f"<code>{escape(str(shown))}</code>"
    # Rich escapes what it prints.
    return _trimmed(console.export_html(inline_styles=True, code_format=_FORMAT))


def text(shown: Any) -> str:
    """Return the report of an object as the terminal shows it, without colours."""
    return _trimmed(_recorded(_renderer(shown), shown).export_text())


def _renderer(shown: Any) -> Render:
    """Return the report of an object's class, or of a base of it."""
    return next(_REPORTS[base.__name__] for base in type(shown).__mro__ if base.__name__ in _REPORTS)


def _recorded(render: Render, shown: Any) -> Console:
    """Return a console that holds a report."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, force_jupyter=False)
    render(shown, console)
    return console


def _trimmed(page: str) -> str:
    """Return a page without the blanks that fill its lines."""
    return "\n".join(line.rstrip() for line in page.splitlines())


def _render_result(result: Any, console: Console) -> None:
    """Print the page of ``tpusim run``; ``result`` has a ``summary`` and ``groups``."""
    render_run(result.summary, result.groups(), "op", console)


def _render_shape(shape: Shape, console: Console) -> None:
    """Print the page of ``tpusim layout``."""
    render_layout(layout_facts(shape), console)


_REPORTS: dict[str, Render] = {
    "Shape": _render_shape,
    "Explanation": render_explanation,
    "Result": _render_result,
}
"""By the name of the class, since results live in the pipeline, which no report knows."""
