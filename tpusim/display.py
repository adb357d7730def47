"""What a notebook shows of an object: a page of the reports, loaded by name, since nouns know no report."""

from __future__ import annotations

from importlib import import_module

_PAGES = {"Shape": "shape_html", "Explanation": "explanation_html", "Result": "result_html"}


def page_of(shown: object) -> str:
    """Return the HTML of an object whose class, or a base of it, has a page in ``report/notebook.py``."""
    name = next(base.__name__ for base in type(shown).__mro__ if base.__name__ in _PAGES)
    page: str = getattr(import_module("tpusim.report.notebook"), _PAGES[name])(shown)
    return page
