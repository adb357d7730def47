"""The console, tables without borders, and quantities in readable units: what the pages of a terminal share."""

from __future__ import annotations

import sys

from rich.console import Console, JustifyMethod
from rich.table import Table

from tpusim.units import ps_to_us

# Without a terminal to ask, Rich takes 80 columns and cuts names that are searched for.
_PIPE_WIDTH = 160


def make_console() -> Console:
    """Return a console on standard output; in a pipe it is wide enough for the tables, and plain."""
    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else _PIPE_WIDTH, highlight=False, soft_wrap=False)


def plain_table(*titles: str, wraps: str = "") -> Table:
    """Return an empty table without borders; ``>`` before a title puts its column to the right.

    Only the column that ``wraps``, by default the first one, may be narrower than its longest cell.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        justify: JustifyMethod = "right" if title.startswith(">") else "left"
        name = title.removeprefix(">")
        # Only the names may be cut: Rich takes the room that is missing from what may wrap before all else.
        table.add_column(name, justify=justify, no_wrap=name != (wraps or titles[0]), overflow="ellipsis")
    return table


def time_text(ps: float) -> str:
    """Return a time in a unit that keeps it readable."""
    return us_text(ps_to_us(int(ps)))


def us_text(microseconds: float | None) -> str:
    """Return microseconds in a unit that keeps them readable; nothing for None."""
    if microseconds is None:
        return ""
    # From microseconds up, the unit that profilers of TPU programs give.
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if microseconds < limit:
            return f"{microseconds * factor:.2f} {unit}"
    return f"{microseconds * 1e-6:.3f} s"


def size_text(n_bytes: float) -> str:
    """Return bytes in a binary unit that keeps them readable; nothing for 0."""
    if not n_bytes:
        return "0 B"
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.1f} {unit}" if unit != "B" else f"{n_bytes:.0f} B"
        n_bytes /= 1024
    return f"{n_bytes:.2f} GiB"


def count_text(number: float) -> str:
    """Return a count with a decimal prefix."""
    for limit, factor, prefix in ((1e3, 1.0, ""), (1e6, 1e-3, "k"), (1e9, 1e-6, "M"), (1e12, 1e-9, "G")):
        if number < limit:
            return f"{number * factor:.4g} {prefix}"
    return f"{number * 1e-12:.4g} T"
