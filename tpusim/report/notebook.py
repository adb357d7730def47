"""Reports as notebooks show them: the pages of the terminal, with their emphasis, as HTML of no other style."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tpusim.errors import TpusimError
from tpusim.report.explain import render_explanation
from tpusim.report.layout import render_layout
from tpusim.report.run import render_run
from tpusim.shapes.facts import layout_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.analysis.explanation import Explanation
    from tpusim.shapes.shape import Shape

# The width at which no column of the widest table is left out.
_COLUMNS = 150
# Of the notebook's own colours, so that light and dark ones both can be read; long lines scroll.
_FORMAT = '<pre style="line-height:1.25;overflow-x:auto;white-space:pre;font-size:0.85em">{code}</pre>'


def result_html(result: Any) -> str:
    """Return the page of ``tpusim run``; ``result`` has a ``summary`` and ``groups``."""
    return _html(lambda console: render_run(result.summary, result.groups(), "op", console))


def explanation_html(found: Explanation) -> str:
    """Return the page of ``tpusim explain``."""
    return _html(lambda console: render_explanation(found, console))


def shape_html(shape: Shape) -> str:
    """Return the page of ``tpusim layout``; of a shape that has no layout yet, its notation."""
    try:
        facts = layout_facts(shape)
    except TpusimError:
        return f"<code>{escape(str(shape))}</code>"
    return _html(lambda console: render_layout(facts, console))


def _html(render: Callable[[Console], None]) -> str:
    """Return what a report prints as HTML; Rich escapes it."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, force_jupyter=False)
    render(console)
    page = console.export_html(inline_styles=True, code_format=_FORMAT)
    return "\n".join(line.rstrip() for line in page.splitlines())
