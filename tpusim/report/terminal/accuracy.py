"""Predicted against measured times, by family and row by row; our figures of memory and power beside others'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log

from tpusim.analysis.accuracy import LEAST_BYTES, Accuracy, Fit, MemoryOutcome, Outcome, Validation, memory_accuracy
from tpusim.analysis.energy.measured import ChipPower
from tpusim.report.tables import Printer, Table, escape, plain_table, size_text

_WORST = 10
_SPANS = ("least", "mean", "most")


def render_accuracy(found: Validation, console: Printer) -> None:
    """Print the table of families and the rows that are furthest off."""
    ours, *baselines = found.families
    others = {f"{name} error": found.families[name] for name in baselines}
    console.print(_families(found.families[ours], others))
    console.print("error: mean absolute, of the measured time; bias above 0: predicted too long; tau: Kendall's")
    means = found.mean_error
    if "row_held_out" in means:
        console.print(
            f"all rows: {means['all']:.1%}; {means['row_held_out']:.1%} if the efficiency of links and the launch are "
            f"fitted without the row, {means['source_held_out']:.1%} without its whole source"
        )
    if found.rows_at_floor:
        console.print(f"left out, hardly longer than an empty launch by the host's clock: {found.rows_at_floor:,} rows")
    for text in _estimated(found.rows):
        console.print(escape(text), soft_wrap=True)
    console.print()
    console.print(_worst(found.rows))


def _estimated(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield how many rows have kernels that were estimated without a rule, for each way in which they were."""
    rows = Counter(how for outcome in outcomes for how in dict.fromkeys(outcome.estimates))
    for how, count in rows.most_common(_WORST):
        yield f"{count:,} of {len(outcomes):,} rows have kernels that were estimated: {how}"


def render_fit(fit: Fit, console: Printer) -> None:
    """Print the values of a fit and its errors, on the rows themselves and cross-validated."""
    values = plain_table("parameter", "chips", ">value", ">interval of 90%", ">range", ">rows", "")
    for p in fit.parameters:
        figures = (f"{p.value:g}", f"{p.least:.3g} to {p.most:.3g}", f"{p.low:g} to {p.high:g}", str(p.rows))
        values.add_row(p.key, " ".join(p.chips), *figures, "at the edge" if p.at_edge else "")
    console.print(values)
    console.print(f"fitted on {escape(', '.join(fit.sources))}")
    console.print()
    console.print(_families(fit.fitted, {"cross-validated": fit.cross_validated}))


def render_memory_accuracy(outcomes: Sequence[MemoryOutcome], console: Printer) -> None:
    """Print the table of programs, and median and worst error of those with enough temporaries."""
    table = plain_table("program", "chip", ">heap", ">ours, bytes", ">compiler's", ">error")
    for outcome in outcomes:
        error = "-" if outcome.error is None else f"{outcome.error:+.2%}"
        figures = (f"{outcome.heap_bytes:,}", f"{outcome.temp_bytes:,}", f"{outcome.compiler_temp_bytes:,}", error)
        table.add_row(escape(outcome.program), escape(outcome.chip), *figures)
    console.print(table)
    console.print(
        "ours: as the program's compiler counts it, the older ones what is unused where the heap is fullest twice"
    )
    console.print()
    total = memory_accuracy(outcomes)
    least = size_text(LEAST_BYTES)
    if not total.count:
        console.print(f"HBM temporaries: no program has more than {least} of them")
        return
    console.print(
        f"HBM temporaries of {total.count} programs with more than {least}: "
        f"median error {total.median_error:.2%}, worst {total.worst_error:.2%} ({escape(total.worst)})"
    )


def _families(families: Mapping[str, Accuracy], others: Mapping[str, Mapping[str, Accuracy]]) -> Table:
    """Return the table of the errors by family, and beside them the mean ones of others, by title."""
    table = plain_table("family", ">rows", ">error", ">bias", ">p90", ">tau", *(f">{title}" for title in others))
    for family, own in families.items():
        errors = (f"{own.mape:.1%}", f"{own.bias:+.1%}", f"{own.p90:.1%}", f"{own.tau:.3f}")
        beside = (found[family].mape if family in found else None for found in others.values())
        means = ("-" if mape is None else f"{mape:.1%}" for mape in beside)
        table.add_row(escape(family), str(own.count), *errors, *means)
    return table


def _worst(outcomes: Sequence[Outcome]) -> Table:
    """Return the table of the rows that are furthest off, with what they are predicted to spend their time on."""
    wraps = ("furthest off", "busiest units")
    table = plain_table(wraps[0], ">measured us", ">predicted us", ">ratio", "bound by", wraps[1], wraps=wraps)
    # A third and three times are as far off: the ratio's logarithm is what counts.
    # A program without kernels is predicted to take nothing, which has no logarithm.
    predicted = [outcome for outcome in outcomes if outcome.predicted_us > 0]
    ranked = sorted(predicted, key=lambda o: -abs(log(o.predicted_us / o.measured_us)))
    for outcome in ranked[:_WORST]:
        units = ", ".join(f"{unit} {share:.0%}" for unit, share in outcome.units.items())
        ratio = outcome.predicted_us / outcome.measured_us
        figures = (f"{outcome.measured_us:,.1f}", f"{outcome.predicted_us:,.1f}", f"{ratio:.2f}")
        table.add_row(escape(outcome.program), *figures, escape(outcome.bound_by), escape(units))
    return table


def render_power(found: Sequence[ChipPower], console: Printer) -> None:
    """Print the table of chips, watts of a chip each, then the programs of each chip and what was published."""
    table = plain_table("chip", ">idle", "", *(f">{name}" for name in _SPANS), *(f">our {n}" for n in _SPANS), ">ratio")
    for one in found:
        published = (one.least_w, one.mean_w, one.most_w)
        ours = (one.our_least_w, one.our_mean_w, one.our_most_w)
        cells = ["-" if watts is None else f"{watts:.0f} W" for watts in (*published, *ours)]
        table.add_row(escape(one.chip), f"{one.idle_w:.0f} W", one.idle_confidence, *cells, f"{one.ratio:.2f}")
    console.print(table)
    for one in found:
        console.print()
        console.print(f"[bold]{escape(one.chip)}[/bold] {escape(', '.join(filter(None, (one.of, one.source))))}")
        by_power = sorted(one.programs, key=lambda program: -program.watts)
        console.print(escape("  " + ", ".join(f"{program.program} {program.watts:.0f} W" for program in by_power)))
