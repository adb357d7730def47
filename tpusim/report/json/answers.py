"""What commands that answer a question print as JSON."""

from __future__ import annotations

from typing import Any

from tpusim.analysis.path.critical import CriticalPath, Hidden, OnPath, Slack, Stretch
from tpusim.report.json.page import document, fill, page, rows

PathPage = document(
    "CriticalPath",
    CriticalPath,
    "program chip device total_ps",
    {"total_ps": "time_us"},
    ops=rows(page("OnPath", OnPath)),
    stretches=rows(page("Stretch", Stretch)),
    slacks=rows(page("Slack", Slack)),
    hidden=rows(page("Hidden", Hidden)),
)


def path_page(found: CriticalPath) -> Any:
    """Return what the end of a run waits for."""
    return fill(PathPage, found)
