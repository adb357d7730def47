"""A family of programs on a terminal: a row a program, the largest that fits, and how well larger slices are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.analysis.answers.efficiency import Efficiency, efficiencies
from tpusim.analysis.answers.scaling import Exposed, Largest, Refused, ScaleRow
from tpusim.analysis.explained.facts import DeviceOrder
from tpusim.report.provenance import provenance_text
from tpusim.report.tables import (
    Printer,
    count_text,
    dollars_text,
    energy_text,
    escape,
    plain_table,
    print_caveats,
    size_text,
    time_text,
    times_text,
)
from tpusim.report.terminal.answers.explain import order_text
from tpusim.report.terminal.pod import OPEN_ORDER

_NOTABLE = 0.02
"""Rates nearer to each other than this share are called equal."""

_SHOWN = 6


def render_scaling(
    rows: Sequence[ScaleRow], largest: Sequence[Largest], console: Printer, refused: Sequence[Refused] = ()
) -> None:
    """Print a row for each program, chip and slice, and what is the most that fits."""
    variables = list(dict.fromkeys(name for row in rows for name in row.variables))
    counted = any(row.items for row in rows)
    throughput = (">items/s",) if counted else ()
    costs = (">J/item", ">$/million") if counted else (">energy", ">cost")
    scaled = efficiencies(rows)
    scaling = (">exposed", ">efficiency") if any(scaled) else ()
    own = tuple(f">{name}" for name in variables)
    head = ("program", "chip", "slice", ">devices", *own, ">time", "bound by", *scaling, *throughput)
    table = plain_table(*head, ">MFU", ">peak HBM", ">left", *costs)
    for row, found in zip(rows, scaled, strict=True):
        told = (str(row.variables.get(name, "")) for name in variables)
        made = (count_text(row.items_per_second).strip(),) if counted else ()
        left = size_text(row.headroom_bytes) if row.fits else "does not fit"
        time = time_text(row.total_ps) if row.fits else f"({time_text(row.total_ps)})"
        share = f"{row.exposed_ps / max(1, row.total_ps):.0%}"
        shares = (share, f"{found.efficiency:.0%}" if found else "") if scaling else ()
        cells = (row.chip, row.topology, f"{row.devices:,}", *told, time, _bound(row), *shares, *made, f"{row.mfu:.1%}")
        table.add_row(escape(row.program), *cells, size_text(row.peak_hbm_bytes), left, *_costs(row, counted))
    console.print(table)
    _print_scaled(rows, scaled, counted, console)
    for one in largest:
        console.print(f"\nlargest on {one.chip} {one.topology}: {_largest(one)}")
    for none in refused:
        sizes = ", ".join(f"{name}={value}" for name, value in none.variables.items())
        console.print(f"\nno program of {escape(sizes)}: {escape(none.reason)}")
    _print_notes(rows, console)


def _print_scaled(
    rows: Sequence[ScaleRow], scaled: Sequence[Efficiency | None], counted: bool, console: Printer
) -> None:
    """Print how well larger slices are used."""
    if any(scaled):
        counted_as = "items" if counted else "operations"
        text = f"the rate of a device, in {counted_as}, over that on the smallest slice; exposed: communication alone"
        console.print(f"\nefficiency: {text}")
    for row, found in zip(rows, scaled, strict=True):
        if found is not None and row is not rows[found.base]:
            lines = "\n".join(_scaling(row, rows[found.base], found))
            console.print(f"\n{escape(lines)}", soft_wrap=True)
    for row in rows:
        if row.order is not None:
            lines = "\n".join(_base_order(row, row.order))
            console.print(f"\n{escape(lines)}", soft_wrap=True)


def _print_notes(rows: Sequence[ScaleRow], console: Printer) -> None:
    """Print which programs another chip or slice was meant for, and whether runs have warnings."""
    for row in rows:
        if row.copies > 1:
            what = f"{row.copies} copies of {escape(row.program)} side by side, which exchange nothing"
            other = "compile it for this slice to see how it scales"
            console.print(f"\n{row.devices:,} devices ({row.topology}) run {what}: {other}", soft_wrap=True)
    open_orders = dict.fromkeys(row.topology for row in rows if row.is_order_open)
    if open_orders:
        where = f"on {', '.join(open_orders)} the programs state no order of their meshes' devices"
        console.print(f"\n{where}; {OPEN_ORDER}", soft_wrap=True)
    for program, text in dict.fromkeys(
        (row.program, provenance_text(row.provenance, row.chip_name or row.chip)) for row in rows
    ):
        if text:
            console.print(f"\n[yellow]compiled[/yellow]  {escape(program)} {escape(text)}", soft_wrap=True)
    print_caveats(console, *((row.estimates, row.warnings) for row in rows))


def _bound(row: ScaleRow) -> str:
    """Return what most of the time went to, with its share."""
    return f"{escape(row.bound_by)} {row.bound_share:.0%}" if row.bound_by else ""


def _scaling(row: ScaleRow, base: ScaleRow, found: Efficiency) -> Iterator[str]:
    """Yield how a device of a larger slice does beside one of the smallest, and what takes the difference."""
    kind = f"{found.kind} scaling" if found.kind else "other work than there"
    yield f"{row.devices:,} devices ({row.topology}): {found.efficiency:.0%} of the rate on {base.topology} ({kind})"
    if abs(found.efficiency - 1) < _NOTABLE:
        return
    parts = {"exposed communication": found.exposed_ps, "computing": found.compute_ps, "waiting": found.waiting_ps}
    shown = ", ".join(f"{_more(ps)} {part}" for part, ps in parts.items() if abs(ps) > _NOTABLE * abs(found.lost_ps))
    yield f"  {_more(found.lost_ps)} than at that rate: {shown}"
    grown = [one for one in found.grown if abs(one.more_ps) > _NOTABLE * abs(found.lost_ps)]
    for one in grown[:_SHOWN]:
        beside = f"; on {base.topology} {_exposed(one.there)}" if one.there else f"; on {base.topology} there is none"
        yield f"    {_more(one.more_ps)} in {one.here.name}, {one.here.kind} of {_exposed(one.here)}{beside}"
    if len(grown) > _SHOWN:
        rest_ps = sum(one.more_ps for one in grown[_SHOWN:])
        yield f"    ... and {len(grown) - _SHOWN} more, {_more(rest_ps)} together (--json has them all)"


def _base_order(row: ScaleRow, order: DeviceOrder) -> Iterator[str]:
    """Yield that the run that others are compared with could be faster."""
    saved = 1 - order.run_ps / max(1, row.total_ps)
    yield f"{row.topology} itself, to which rates are compared, could take {saved:.0%} less time: its devices lie badly"
    times = " instead of ".join(times_text(order.run_ps, row.total_ps))
    yield f"  {times} with the mesh over {order_text(order)}"
    yield "  (larger slices may have such orders as well: `tpusim advise` tries them)"


def _more(ps: int) -> str:
    return f"{time_text(abs(ps))} {'more' if ps > 0 else 'less'}"


def _exposed(one: Exposed) -> str:
    along = (f"axis {on.axis} ({on.chips} chips, {'a ring' if on.is_ring else 'a line'})" for on in one.along)
    group = f" among {one.group_size:,} devices along {' and '.join(along) or 'no axis'}" if one.group_size else ""
    return f"{size_text(one.payload_bytes)}{group}, {time_text(one.exposed_ps)}"


def _costs(row: ScaleRow, counted: bool) -> tuple[str, str]:
    joules = row.joules_per_item if counted else row.joules
    usd = row.usd_per_million if counted else row.usd
    return ("" if joules is None else energy_text(joules), "" if usd is None else dollars_text(usd))


def _largest(one: Largest) -> str:
    """Return the most items that fit: of those that were run, and of those that were not, with how that is known."""
    ran = f"{one.items:,.0f} items of those that were run" if one.items else "none of those that were run fits"
    if one.estimate is None:
        return ran
    first, last = one.line
    found, between = f"{ran}; about {max(0.0, one.estimate):,.0f} would", f"between {first:,.0f} and {last:,.0f}"
    if first <= one.estimate <= last:
        return f"{found}, if HBM grows evenly {between}"
    times = f"{max(0.0, one.estimate) / last:.1f} times {last:,.0f}"
    return f"{found} ({times}), if HBM grows on as {between}: a guess, as compilers choose anew at every size"
