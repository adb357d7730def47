"""A study on a terminal: its points, how many came to what, and which axes moved nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from tpusim.report.tables import plain_table, us_text

_SHOWN = 40
_MESSAGES = 5


def render_sweep(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], unmoved: Sequence[str], console: Console
) -> None:
    """Print the first points in the columns that tell them apart, and what is to be said of all of them."""
    telling = [key for key in ("program", *keys) if len({row[key] for row in rows}) > 1] or ["program"]
    table = plain_table(*(("" if key == "program" else ">") + key for key in telling), ">time", "bound", "status")
    for row in rows[:_SHOWN]:
        cells = (_cell(row[key]) for key in telling)
        table.add_row(*cells, us_text(row["time_us"]), row["bound"], row["status"])
    console.print(table)
    if len(rows) > _SHOWN:
        console.print(f"... and {len(rows) - _SHOWN:,} more (--csv has them all)")
    counts = Counter(row["status"] for row in rows)
    words = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    console.print(f"\n{len(rows):,} points (simulated): {words}")
    for message in list(dict.fromkeys(row["message"] for row in rows if row["status"] == "error"))[:_MESSAGES]:
        console.print(f"error: {escape(message)}")
    for sentence in unmoved:
        console.print(escape(sentence))


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(str(value))
