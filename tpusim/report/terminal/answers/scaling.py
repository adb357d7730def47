"""A family of programs on a terminal: a row a program, and the largest that fits."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from tpusim.analysis.answers.scaling import Largest, Refused, ScaleRow
from tpusim.report.tables import count_text, dollars_text, energy_text, plain_table, size_text, time_text


def render_scaling(
    rows: Sequence[ScaleRow], largest: Sequence[Largest], console: Console, refused: Sequence[Refused] = ()
) -> None:
    """Print a row for each program, chip and slice, and what is the most that fits."""
    variables = list(dict.fromkeys(name for row in rows for name in row.variables))
    counted = any(row.items for row in rows)
    throughput = (">items/s",) if counted else ()
    costs = (">J/item", ">$/million") if counted else (">energy", ">cost")
    own = tuple(f">{name}" for name in variables)
    head = ("program", "chip", "slice", ">devices", *own, ">time", "bound by", *throughput)
    table = plain_table(*head, ">MFU", ">peak HBM", ">left", *costs)
    for row in rows:
        told = (str(row.variables.get(name, "")) for name in variables)
        made = (count_text(row.items_per_second).strip(),) if counted else ()
        left = size_text(row.headroom_bytes) if row.fits else "does not fit"
        time = time_text(row.total_ps) if row.fits else f"({time_text(row.total_ps)})"
        cells = (row.chip, row.topology, f"{row.devices:,}", *told, time, _bound(row), *made, f"{row.mfu:.1%}")
        table.add_row(escape(row.program), *cells, size_text(row.peak_hbm_bytes), left, *_costs(row, counted))
    console.print(table)
    for one in largest:
        console.print(f"\nlargest on {one.chip} {one.topology}: {_largest(one)}")
    for none in refused:
        sizes = ", ".join(f"{name}={value}" for name, value in none.variables.items())
        console.print(f"\nno program of {escape(sizes)}: {escape(none.reason)}")
    if any(row.warnings for row in rows):
        console.print("\nsome of these runs have warnings: `tpusim run` prints them")


def _bound(row: ScaleRow) -> str:
    """Return what most of the time went to, with its share."""
    return f"{escape(row.bound_by)} {row.bound_share:.0%}" if row.bound_by else ""


def _costs(row: ScaleRow, counted: bool) -> tuple[str, str]:
    joules = row.joules_per_item if counted else row.joules
    usd = row.usd_per_million if counted else row.usd
    return ("" if joules is None else energy_text(joules), "" if usd is None else dollars_text(usd))


def _largest(one: Largest) -> str:
    """Return the most items that fit, of those that were run and of those that were not."""
    ran = f"{one.items:,.0f} items of those that were run" if one.items else "none of those that were run fits"
    if one.estimate is None:
        return ran
    return f"{ran}; about {max(0.0, one.estimate):,.0f} would, as memory grows from run to run"
