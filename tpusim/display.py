"""What an object shows of itself, in a notebook or when printed: a report, loaded by name, since nouns know none."""

from __future__ import annotations

from importlib import import_module


def page_of(shown: object) -> str:
    """Return the report of a result, an explanation or a shape as HTML."""
    page: str = import_module("tpusim.report.terminal.notebook").page(shown)
    return page


def text_of(shown: object) -> str:
    """Return the report of a result or an explanation as the command line prints it."""
    text: str = import_module("tpusim.report.terminal.notebook").text(shown)
    return text
