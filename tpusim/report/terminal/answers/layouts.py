"""The layouts of an array on a terminal, the best for its users, or the least padded, first."""

from __future__ import annotations

from rich.text import Text

from tpusim.report.tables import Printer, escape, plain_table, size_text, time_text
from tpusim.shapes.layout_choices import LayoutChoice, UsedLayouts


def render_layouts(found: UsedLayouts, console: Printer) -> None:
    """Print a row a layout: what its users take, what it takes itself, what of that is padding, what it is good for."""
    choices, used_by = found.choices, found.users
    users = (">its users", ">of the best") if used_by else ()
    # What a layout is good for is a guess where nobody says what it is for.
    good_for = () if used_by else ("sums without moving",)
    table = plain_table("layout", *users, ">bytes", ">padding", ">of the least", "in lanes", "in sublanes", *good_for)
    least = max(1, min(choice.physical_bytes for choice in choices))
    fastest_ps = max(1, min(choice.users_ps or 0 for choice in choices))
    for choice in choices:
        mark = "  (here)" * choice.is_present + "  (default)" * choice.is_default
        table.add_row(
            # Text, not markup: the brackets of a shape would be taken for a style.
            Text(choice.shape + mark),
            *_users(choice, fastest_ps),
            size_text(choice.physical_bytes),
            f"{choice.wasted_share:.1%}",
            f"{choice.physical_bytes / least:.2f}x",
            _dimension(choice.lanes),
            _dimension(choice.sublanes),
            *((", ".join(map(str, choice.others)) or "none",) if good_for else ()),
        )
    console.print(table)
    here = "here: as it lies now; " if any(choice.is_present for choice in choices) else ""
    console.print(f"\n{here}default: as arguments and results lie of which a program does not say how")
    if used_by:
        console.print(f"\nIts users are {escape(', '.join(used_by))}: {_how(found)}", soft_wrap=True)
        if found.fixed_by:
            call = escape(found.fixed_by)
            console.print(f"It is the only layout: {call} is a custom call, which fixes how they lie.", soft_wrap=True)
        return
    console.print(
        "\nProducts want the dimensions that they sum over, or those of their result, in lanes and sublanes; sums over "
        "lanes\ntake the cross-lane unit, over other dimensions additions alone; slices are cheap along the others."
    )


def _how(found: UsedLayouts) -> str:
    """Return how the times of the users came about."""
    if not found.compiled_ps:
        return "compiled by tpusim for each layout, and run."
    here = f"as in the run, {time_text(found.compiled_ps)} where tpusim compiles them"
    return f"here {here}; with other layouts in proportion." if len(found.choices) > 1 else f"{here}."


def _users(choice: LayoutChoice, fastest_ps: int) -> tuple[str, ...]:
    """Return what the users of an array take with a layout, and how much more than with the best one."""
    if choice.users_ps is None:
        return ()
    return time_text(choice.users_ps), f"{choice.users_ps / fastest_ps:.2f}x"


def _dimension(number: int) -> str:
    return f"dimension {number}" if number >= 0 else "none"
