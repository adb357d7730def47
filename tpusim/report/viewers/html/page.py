"""The page: template, style and script of this folder and the data of a run, in one file that loads nothing else."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path

from tpusim.report.result import ResultLike
from tpusim.report.viewers.html.data import report_data

_FOLDER = Path(__file__).parent
SCRIPTS = ("format", "store", "chart", "table", "timeline", "memory", "roofline", "summary", "main")
"""In the order in which they need each other; they share one scope."""

# A comment in HTML, in CSS and in JavaScript, so that the template itself is a valid page.
_PLACE = re.compile(r"(?:<!--|/\*)(title|style|script|data)(?:-->|\*/)")


def write_page(result: ResultLike, path: str | Path, version: str = "") -> None:
    """Write the report of a run. The same run always gives the same bytes."""
    Path(path).write_text(page(result, version), encoding="utf-8")


def page(result: ResultLike, version: str = "") -> str:
    """Return the report of a run, which this version of the simulator made, as the text of an HTML file."""
    data = json.dumps(report_data(result, version), separators=(",", ":"), ensure_ascii=False).encode()
    parts = {
        "title": html.escape(f"{result.program.name} on {result.chip.name} (simulated)"),
        "style": (_FOLDER / "style.css").read_text(encoding="utf-8"),
        "script": "\n".join((_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
        # Base64 can hold nothing that a browser would take for markup.
        "data": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    text = (_FOLDER / "page.html").read_text(encoding="utf-8")
    # In one go: what a program's name says is never taken for a place of the template.
    return _PLACE.sub(lambda found: parts[found[1]], text)
