"""The layouts of an array on a terminal, the least padded first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tpusim.report.tables import plain_table, size_text
from tpusim.shapes.layout_choices import LayoutChoice


def render_layouts(choices: Sequence[LayoutChoice], console: Console) -> None:
    """Print a row a layout: what it takes, what of that is padding, and what it is good for."""
    table = plain_table(
        "layout", ">bytes", ">padding", ">of the best", "in lanes", "in sublanes", "sums without moving"
    )
    least = max(1, min(choice.physical_bytes for choice in choices))
    for choice in choices:
        mark = "  (arguments and results)" if choice.is_default else ""
        others = [d for d in range(_rank(choice)) if d not in (choice.lanes, choice.sublanes)]
        table.add_row(
            # Text, not markup: the brackets of a shape would be taken for a style.
            Text(choice.shape + mark),
            size_text(choice.physical_bytes),
            f"{choice.wasted_share:.1%}",
            f"{choice.physical_bytes / least:.2f}x",
            _dimension(choice.lanes),
            _dimension(choice.sublanes),
            ", ".join(map(str, others)) or "none",
        )
    console.print(table)
    console.print(
        "\nProducts want the dimensions that they sum over, or those of their result, in lanes and sublanes; sums over "
        "lanes\ntake the cross-lane unit, over other dimensions additions alone; slices are cheap along the others."
    )


def _rank(choice: LayoutChoice) -> int:
    return choice.shape.partition("[")[2].partition("]")[0].count(",") + 1


def _dimension(number: int) -> str:
    return f"dimension {number}" if number >= 0 else "none"
