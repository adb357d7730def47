"""Runs side by side on a terminal: two, or the points of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpusim.analysis.compare import Change, Comparison, OpFigures
from tpusim.hardware.units import HBM, UNITS
from tpusim.report.provenance import provenance_text
from tpusim.report.tables import (
    Printer,
    Table,
    caveats_text,
    changed_text,
    count_text,
    energy_text,
    escape,
    plain_table,
    print_caveats,
    size_text,
    us_text,
)

_SHOWN = 20
_SHOWN_POINTS = 40
_SHOWN_MESSAGES = 5
_SHOWN_COLUMNS = 6
_FIGURES = (">time", ">energy", "bound", "status")
_WORDS: tuple[Callable[[OpFigures], str], ...] = (
    lambda op: op.name,
    lambda op: f"{op.count:,}",
    lambda op: op.bound_by,
    lambda op: size_text(op.hbm_bytes),
)
"""What is said of an op in both runs."""


def render_comparison(comparison: Comparison, console: Printer) -> None:
    """Print totals of both runs, what changed by op, the largest change first, and by category."""
    before, after = comparison.before, comparison.after
    for mark, run in (("A", before), ("B", after)):
        who = provenance_text(run.provenance, run.chip) if run.provenance else ""
        compiled = f", compiled {escape(who)}" if who else ""
        chip = escape(run.chip + changed_text(run.changed))
        console.print(f"{mark}  [bold]{escape(run.program)}[/bold] on {chip} (simulated){compiled}")
    console.print()
    console.print(_totals(comparison))
    for mark, run in (("A", before), ("B", after)):
        if text := caveats_text((run.caveats.estimates, run.caveats.warnings)):
            console.print(f"{mark}: {text}")
    console.print()
    changed = [c for c in comparison.ops if c.change_us or c.beside_change_us]
    if not changed:
        console.print("No op takes longer or shorter.")
        return
    console.print(_table("op", changed[:_SHOWN]))
    if len(changed) > _SHOWN:
        rest = sum(change.change_us for change in changed[_SHOWN:])
        console.print(f"... and {len(changed) - _SHOWN} more, {_signed(rest)} together (--json has them all)")
    console.print()
    console.print(_table("category", [c for c in comparison.categories if c.change_us or c.beside_change_us]))


def _totals(comparison: Comparison) -> Table:
    before, after = comparison.before, comparison.after
    table = plain_table("", ">A", ">B", ">B / A")
    rows = (
        ("time", us_text, before.time_us, after.time_us),
        ("roofline", us_text, before.roofline_us, after.roofline_us),
        ("FLOP", count_text, before.flops, after.flops),
        ("HBM traffic", size_text, before.hbm_bytes, after.hbm_bytes),
        ("energy of a device", energy_text, before.energy_j, after.energy_j),
        ("temporaries", size_text, before.memory.heap_bytes, after.memory.heap_bytes),
        ("peak HBM", size_text, before.memory.peak_hbm_bytes, after.memory.peak_hbm_bytes),
        ("peak VMEM", size_text, before.memory.peak_vmem_bytes, after.memory.peak_vmem_bytes),
    )
    for name, text, one, other in rows:
        table.add_row(name, text(one), text(other), f"{other / one:.3f}" if one else "-")
    table.add_row("bound by", escape(before.bound_by), escape(after.bound_by), "")
    return table


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = plain_table(title, ">A", ">B", ">change", ">count", "bound by", UNITS[HBM].label, cut=("bound by",))
    for change in changes:
        one, other = change.before, change.after
        times = ("-" if op is None else _either(op.time_us, op.overlapped_us, us_text) for op in (one, other))
        figures = (*times, _either(change.change_us, change.beside_change_us, _signed))
        # Once where both are the same or only one run has it.
        both = (dict.fromkeys(text(op) for op in (one, other) if op) for text in _WORDS)
        name, *words = map(" -> ".join, both)
        table.add_row(*(escape(word) for word in (name, *figures, *words)))
    return table


def _either(core_us: float, beside_us: float, text: Callable[[float], str]) -> str:
    """Return a time on the core, in parentheses one beside the core alone."""
    return text(core_us) if core_us or not beside_us else f"({text(beside_us)})"


def _signed(microseconds: float) -> str:
    return ("-" if microseconds < 0 else "+") + us_text(abs(microseconds))


def render_sweep(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], unmoved: Sequence[str], excluded: int, console: Printer
) -> None:
    """Print the first points in the columns that tell them apart, and what is to be said of all of them.

    ``unmoved`` are sentences; ``excluded`` is how many points the constraints exclude. Energies are those of all
    devices, which have a column where there are several.
    """
    telling = [key for key in ("program", *keys) if len({row[key] for row in rows}) > 1] or ["program"]
    telling = telling[:_SHOWN_COLUMNS]
    if any((row["devices"] or 1) > 1 for row in rows):
        telling.append("devices")
    table = plain_table(*(("" if key == "program" else ">") + key for key in telling), *_FIGURES)
    for row in rows[:_SHOWN_POINTS]:
        cells = (_figure(key, row[key]) for key in telling)
        joules = row["all_devices_energy_j"]
        energy = "" if joules is None else energy_text(joules)
        table.add_row(*cells, us_text(row["time_us"]), energy, row["bound"], row["status"])
    console.print(table)
    if len(rows) > _SHOWN_POINTS:
        console.print(f"... and {len(rows) - _SHOWN_POINTS:,} more (--csv has them all)")
    counts = Counter(row["status"] for row in rows)
    words = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    beyond = f" ({excluded:,} more excluded by constraints)" if excluded else ""
    console.print(f"\n{len(rows):,} points (simulated): {words}{beyond}")
    messages = list(dict.fromkeys(row["message"] for row in rows if row["status"] in ("error", "fault")))
    for message in messages[:_SHOWN_MESSAGES]:
        console.print(f"error: {escape(message)}")
    if len(messages) > _SHOWN_MESSAGES:
        console.print(f"... and {len(messages) - _SHOWN_MESSAGES} more kinds of errors (--csv has them all)")
    for sentence in unmoved:
        console.print(escape(sentence))
    ran = [row for row in rows if row["status"] == "ok"]
    print_caveats(console, *((row["estimates"], row["warnings"]) for row in ran))


def render_search(rows: Sequence[Mapping[str, Any]], console: Printer) -> None:
    """Print the machines of a search that none beats in all its figures, by the first of them."""
    columns = [key for key in rows[0] if key != "front"]
    # A search may try one machine again.
    found = {tuple(row[key] for key in columns[1:]): row for row in reversed(rows) if row["front"]}
    front = sorted(found.values(), key=lambda row: list(row.values())[::-1])
    table = plain_table(*(f">{key}" for key in columns))
    for row in front[:_SHOWN_POINTS]:
        table.add_row(*(_figure(key, row[key]) for key in columns))
    console.print(table)
    if len(front) > _SHOWN_POINTS:
        console.print(f"... and {len(front) - _SHOWN_POINTS:,} more (--csv has them all)")
    console.print(f"\n{len(front)} of {len(rows):,} machines on the Pareto front (simulated; --csv has all)")


def _figure(key: str, value: Any) -> str:
    """Return a figure of a chip as one gives it: sizes in MiB, rates and clocks with a prefix."""
    if isinstance(value, int | float):
        if key.endswith("_bytes"):
            return size_text(value)
        if key.endswith(("_per_second", "_hz")):
            return count_text(value)
    return _cell(value)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape("" if value is None else str(value))
