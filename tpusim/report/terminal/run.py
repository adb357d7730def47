"""A run on a terminal: total time, what bounds it, the longest ops, memory, and what to be careful with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.analysis.bands import OTHER, Band, CompiledError, compiler_us
from tpusim.analysis.energy.price import Cost
from tpusim.analysis.energy.run import IDLE, Energy, group_joules
from tpusim.analysis.summary import Summary
from tpusim.analysis.utilisation import Group
from tpusim.hardware.units import HBM, UNITS
from tpusim.report.provenance import provenance_text
from tpusim.report.result import ResultLike
from tpusim.report.tables import (
    Printer,
    Table,
    changed_text,
    count_text,
    dollars_text,
    energy_text,
    escape,
    plain_table,
    power_text,
    shares_text,
    size_text,
    time_text,
    times_text,
    us_text,
    whole_text,
)
from tpusim.report.terminal.memory import use_text
from tpusim.report.terminal.pod import render_pod
from tpusim.units import PS_PER_SECOND

# With head, categories and memory this fills a screen and no more.
SHOWN_OPS = 20
# Below this many characters every column would leave the names too little room.
_WIDE = 110


def render_run(
    summary: Summary,
    groups: Sequence[Group],
    by: str,
    console: Printer,
    cost: Cost | None = None,
    all_devices_j: float | None = None,
) -> None:
    """Print a run: head line, how busy the machine was, groups, memory, energy, and what to be careful with.

    ``all_devices_j`` are the joules of all devices of a slice.
    """
    _print_head(summary, console)
    console.print(_group_table(summary, groups[:SHOWN_OPS], by, console.width))
    if len(groups) > SHOWN_OPS:
        rest = sum(group.time_ps for group in groups[SHOWN_OPS:])
        console.print(f"... and {len(groups) - SHOWN_OPS} more, {time_text(rest)} together (--json has them all)")
    if by == "op":
        console.print()
        console.print(_category_table(summary))
    console.print()
    _print_memory(summary, console)
    head = _energy_head(summary.energy, all_devices_j)
    units_fj = {UNITS[key].label if key != IDLE else key: fj for key, fj in summary.energy.units_fj.items()}
    console.print(f"energy    {head}: {shares_text(units_fj)}")
    if cost is not None:
        _print_cost(cost, summary.total_ps, console)
    _print_notes(summary, console)


def render_result(result: ResultLike, by: str, console: Printer, cost: Cost | None) -> None:
    """Print a whole result: the run, and where it is one of many devices these, their collectives and links."""
    is_slice = result.pod.device_count > 1
    render_run(result.summary, result.groups(by), by, console, cost, result.all_devices_j if is_slice else None)
    if is_slice:
        render_pod(result.communication, console)


def _print_head(summary: Summary, console: Printer) -> None:
    """Print what ran, how long, against which bound, and how busy the machine was."""
    busy = summary.utilisation
    # Escaped, since brackets in a name would be read as a style.
    point = f", operating point {summary.operating_point}" if summary.operating_point else ""
    chip = summary.chip + changed_text(summary.changed) + point
    console.print(f"[bold]{escape(summary.program)}[/bold] on {escape(chip)} (simulated)")
    console.print()
    if summary.devices_run > 1:
        other = f" (it runs {escape(summary.device_program)})" if summary.device_program != summary.program else ""
        first = f"{summary.device} of {summary.devices_run}, the first of those that ended last"
        console.print(f"  device    {first}{other}")
    time, *compiled = _times(summary)
    beside = "; {} of it in kernels that the compiler puts at {}".format(*compiled) if compiled else ""
    console.print(f"  time      [bold]{time}[/bold]{beside}")
    if summary.prefetch_wait_ps >= _MUCH * summary.total_ps:
        waits = time_text(summary.prefetch_wait_ps)
        console.print(
            f"  first     {waits} wait for what of many runs the one before brings in: --warm leaves that out"
        )
    console.print(f"  bound by  {shares_text(busy.bound_ps)}")
    roof = UNITS[summary.roofline.bound_by].label
    console.print(f"  roofline  {time_text(summary.roofline.bound_ps)} at least, by {roof}")
    # The share of HBM is of the advertised rate, and comes from the roofline.
    shares = {key: busy.busy[key] for key in UNITS if key in busy.busy and key != HBM} | {HBM: summary.hbm_utilisation}
    console.print(f"  in use    {', '.join(f'{UNITS[key].label} {share:.1%}' for key, share in shares.items())}")
    console.print(
        f"  work      {whole_text(busy.kernels)} kernels, {count_text(busy.flops)}FLOP,"
        f" {size_text(busy.hbm_bytes)} of HBM traffic"
    )
    if busy.flops:
        share = f"{summary.model_flops_utilisation:.1%} of the {_peaks_text(summary)}"
        console.print(f"  MFU       {share}{_hfu_text(summary)}")
    console.print()


_MUCH = 0.01
"""The share of a run from which on a report says that a run of many takes less."""


def _peaks_text(summary: Summary) -> str:
    """Return whose peaks the operations are measured against."""
    return f"{' and '.join(summary.peak_types)} peak{'s' if len(summary.peak_types) > 1 else ''}"


def _hfu_text(summary: Summary) -> str:
    """Return the utilisation of the hardware, where it does more than it is asked for, and whether that is all."""
    is_alike = summary.flops_utilisation == summary.model_flops_utilisation
    hfu = "" if is_alike else f", HFU {summary.flops_utilisation:.1%} with what is computed again or not asked for"
    masked = f" (kernels by hand that state no cost: {summary.unstated}; what these mask counts as asked for)"
    return hfu + (masked if summary.unstated else "")


def _times(summary: Summary) -> list[str]:
    """Return the time, and where the compiler made estimates that of the same kernels and what it puts them at."""
    estimate = compiler_us(summary.compiler_cycles, summary.compiler_clock_hz)
    # It makes none of copies, collectives, waits and hand-written kernels, so that totals may not be compared.
    same_ps = sum(op.time_ps for op in summary.ops if op.compiler_cycles)
    return times_text(summary.total_ps, *((same_ps, round(estimate * 1e6)) if estimate else ()))


def _group_table(summary: Summary, groups: Sequence[Group], by: str, width: int) -> Table:
    """Return the table of the longest groups; the last columns only where ``width`` characters leave them room."""
    columns = [
        # The ends of paths tell them apart.
        f"<{by}" if by == "source" else by,
        ">time",
        ">share",
        ">count",
        "bound by",
        ">FLOP",
        f">{UNITS[HBM].label}",
        ">energy",
        ">compiler",
        "category",
    ]
    shown = columns if by == "op" else columns[:-1]
    if width < _WIDE:
        shown = columns[:-3]
    table = plain_table(*shown, cut=("bound by", "category"))
    total = max(1, summary.total_ps)
    joules = group_joules(groups, by, summary.ops, summary.energy)
    # Of the ops there are more than are shown.
    for group, taken in zip(groups, joules, strict=False):
        cells = [
            escape(group.name),
            # In parentheses stands what ran beside the core, which is no part of the total.
            time_text(group.time_ps) if group.time_ps else f"({time_text(group.beside_ps)})",
            f"{group.time_ps / total:.1%}",
            whole_text(group.count),
            escape(group.bound_by),
            count_text(group.flops),
            size_text(group.hbm_bytes),
            energy_text(taken),
            us_text(compiler_us(group.compiler_cycles, summary.compiler_clock_hz)),
            escape(group.category),
        ]
        table.add_row(*cells[: len(shown)])
    return table


def _category_table(summary: Summary) -> Table:
    """Return time by category; in parentheses what ran beside the core."""
    table = plain_table("category", ">time", ">share", ">beside", ">count")
    total = max(1, summary.total_ps)
    for group in summary.categories:
        beside = time_text(group.beside_ps) if group.beside_ps else ""
        share = f"{group.time_ps / total:.1%}"
        table.add_row(escape(group.name), time_text(group.time_ps), share, beside, whole_text(group.count))
    return table


def _print_memory(summary: Summary, console: Printer) -> None:
    use = summary.memory
    console.print(f"memory    {use_text(use)}")
    console.print(
        f"          peak HBM {size_text(use.peak_hbm_bytes)} of {size_text(summary.hbm_capacity_bytes)}, "
        f"peak VMEM {size_text(use.peak_vmem_bytes)} of {size_text(summary.vmem_capacity_bytes)}"
    )


def _energy_head(energy: Energy, all_devices_j: float | None) -> str:
    """Return the energy and the mean power of the device and of its chip, and the energy of all devices of a slice."""
    of_chip = f" ({power_text(energy.chip_power_w)} a chip of such devices)" if energy.devices_per_chip > 1 else ""
    joules, watts = energy_text(energy.total_j), power_text(energy.average_power_w)
    if all_devices_j is None:
        return f"{joules}, {watts} on average{of_chip}"
    one = "device" if energy.devices_per_chip > 1 else "chip"
    return f"{joules} a {one}, {energy_text(all_devices_j)} in all, {watts} a {one} on average{of_chip}"


def _print_cost(cost: Cost, total_ps: int, console: Printer) -> None:
    """Print what the run costs to rent on all its chips."""
    each = cost.usd_per_million_tokens
    rate = count_text(cost.tokens / max(1, total_ps) * PS_PER_SECOND).strip()
    tokens = "" if each is None else f", {rate} tokens a second, {dollars_text(each)} a million tokens"
    price = f"{dollars_text(cost.usd_per_chip_hour)} a chip-hour"
    listed = f" (listed {cost.price_date})" if cost.price_date else ""
    console.print(f"cost      {dollars_text(cost.usd)}{tokens}, at {price}{listed}")


def _print_notes(summary: Summary, console: Printer) -> None:
    """Print how far the times may be off, what was estimated without a rule, and warnings."""
    made_by = provenance_text(summary.provenance, summary.chip)
    if made_by:
        console.print(f"[yellow]compiled[/yellow]  {escape(made_by)}")
    if not summary.is_as_shipped:
        console.print(f"accuracy  not known: figures of {escape(summary.chip)} were replaced")
    elif summary.compiled_error is not None:
        console.print(f"accuracy  {_compiled_accuracy(summary.compiled_error)}")
    elif summary.bands and not made_by:
        for number, text in enumerate(_accuracy(summary.bands)):
            console.print(f"{'' if number else 'accuracy':<10}{escape(text)}")
    if summary.by_hand:
        counts = ", ".join(f"{count:,} timed by {basis}" for basis, count in summary.by_hand.items())
        console.print(f"by hand   kernels written elsewhere: {counts}")
    for item in summary.unsupported:
        console.print(f"[yellow]estimated[/yellow] {escape(item.name)} ({escape(item.opcode)}): {escape(item.how)}")
    for warning in summary.warnings:
        console.print(f"[yellow]warning[/yellow]   {escape(warning)}")


def _compiled_accuracy(error: CompiledError) -> str:
    """Return how far programs of our own compiler are off."""
    return (
        f"such programs are off by a factor of {error.factor:.2f} on average from those that the TPU compiler makes "
        f"({error.pairs} pairs, both simulated, on which the rules were worked out)"
    )


def _accuracy(bands: Sequence[Band]) -> Iterator[str]:
    """Yield how far kernels of each family were off, and which families were not measured."""
    for band in bands:
        if band.rows:
            rows = f"{band.rows} measured rows of this chip{f' ({band.of})' if band.of else ''}"
            yield f"{_family(band)} off by {band.error:.1%} on average in {rows}"
    unmeasured = [_family(band) for band in bands if not band.rows]
    if unmeasured:
        yield f"not measured on this chip: {', '.join(unmeasured)}"


def _family(band: Band) -> str:
    return f"{'all else' if band.kind == OTHER else f'{band.kind} kernels'} ({band.share:.0%} of the time)"
