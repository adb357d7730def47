"""Whole steps beside published times: how far off each is, and which part of our time it may come from."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.analysis.bands import OTHER, Band
from tpusim.analysis.steps import COUNTED, CategoryTime, StepAccuracy, StepOutcome
from tpusim.report.tables import Printer, Table, escape, plain_table, us_text

_LEAST_SHARE = 0.01


def render_steps(found: StepAccuracy, console: Printer) -> None:
    """Print the table of steps and their mean error, then where the time of each goes."""
    console.print(_steps(found.rows))
    if found.mean_error is not None:
        console.print(
            f"mean absolute error of the {found.counted} {' and '.join(COUNTED)} rows: {found.mean_error:.1%}; "
            "never measured: share of our time in families of kernels without measurements on the chip"
        )
    for row in found.rows:
        console.print()
        _print_step(row, console)


def _steps(rows: Sequence[StepOutcome]) -> Table:
    table = plain_table("step", "chip", "use", ">measured", ">low to high", ">ours", ">ratio", ">never measured")
    for row in rows:
        is_range = row.low_us < row.high_us
        span = f"{us_text(row.low_us)} to {us_text(row.high_us)}" if is_range else ""
        times = (us_text(row.measured_us), span, us_text(row.predicted_us), f"{row.ratio:.2f}")
        place = escape(row.topology or row.chip)
        table.add_row(escape(row.name), place, row.grade, *times, f"{row.unmeasured_share:.0%}")
    return table


def _print_step(row: StepOutcome, console: Printer) -> None:
    title = ", ".join(filter(None, (row.family, row.timing)))
    console.print(f"[bold]{escape(row.name)}[/bold]{escape(f' ({title})' if title else '')}: {escape(row.use)}")
    for name in ("source", "differs"):
        text = getattr(row, name)
        if text:
            console.print(f"  {name}: {escape(text)}")
    shares = {
        "measured on this chip": [f"{_share(band)} (off by {band.error:.1%})" for band in row.bands if band.rows],
        "never measured on it": [_share(band) for band in row.bands if not band.rows],
    }
    for name, texts in shares.items():
        if texts:
            console.print(f"  {name}: {escape(', '.join(texts))}")
    console.print(_categories(row))


def _share(band: Band) -> str:
    return f"{'all else' if band.kind == OTHER else band.kind} {band.share:.0%}"


def _categories(row: StepOutcome) -> Table:
    table = plain_table("  category", ">ours", ">share", ">compiler", ">ours/compiler", ">roofline", ">ours/roofline")
    total_us = sum(one.predicted_us for one in row.categories)
    shown = [one for one in row.categories if one.predicted_us >= _LEAST_SHARE * total_us]
    for one in shown:
        table.add_row(f"  {escape(one.category)}", *_cells(one, total_us))
    rest = [one for one in row.categories if one not in shown]
    if rest:
        table.add_row(f"  {len(rest)} more", *_cells(_together(rest), total_us))
    return table


def _cells(one: CategoryTime, total_us: float) -> tuple[str, ...]:
    return (
        us_text(one.predicted_us),
        f"{one.predicted_us / total_us:.1%}",
        us_text(one.compiler_us) if one.compiler_us else "-",
        # Only of what the compiler has an estimate for.
        f"{one.compared_us / one.compiler_us:.2f}" if one.compiler_us else "-",
        us_text(one.roofline_us) if one.roofline_us else "-",
        f"{one.predicted_us / one.roofline_us:.2f}" if one.roofline_us else "-",
    )


def _together(parts: Sequence[CategoryTime]) -> CategoryTime:
    return CategoryTime(
        category="",
        predicted_us=sum(one.predicted_us for one in parts),
        compared_us=sum(one.compared_us for one in parts),
        compiler_us=sum(one.compiler_us for one in parts),
        roofline_us=sum(one.roofline_us for one in parts),
    )
