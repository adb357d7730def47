"""Chips on a terminal: the list of them, and one with every number, its unit and where it is from.

Numbers are rounded, in the unit that people say (GB/s, MiB, GHz); JSON has the exact ones in the unit of their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.text import Text

from tpusim.analysis.energy.price import listed_price
from tpusim.cost.area import area_mm2
from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import Fact
from tpusim.report.tables import Printer, dollars_text, escape, plain_table, scaled_text

# Yellow asks for doubt; the words themselves are printed too, for terminals without colours.
_GUESSED = ("estimated", "fitted")
_STYLES = {"published": "green", "measured": "green", "user": "magenta"} | dict.fromkeys(_GUESSED, "yellow")
# Memories are sold in powers of two, rates and clocks in powers of ten.
_SCALES: dict[str, Sequence[tuple[float, str]]] = {
    "B": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "B/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")),
    "Hz": ((1e9, "GHz"), (1e6, "MHz")),
    "s": ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
}
_LIST_COLUMNS = (
    *("chip", ">year", ">cores", ">GHz", "MXUs", ">bf16\nTFLOP/s"),
    *(">HBM\nGB/s", ">HBM\nGiB", ">VMEM\nMiB", "also called"),
)


def render_chip_list(chips: Iterable[Chip], console: Printer) -> None:
    """Print one line per chip: what a simulated device has (VMEM: each of its cores)."""
    table = plain_table(*_LIST_COLUMNS, wraps=("also called",))
    for chip in chips:
        table.add_row(*(escape(cell) for cell in _list_row(chip)))
    console.print(table)


def render_chip(chip: Chip, facts: Sequence[Fact], console: Printer) -> None:
    """Print a chip with all its quantities by section: value, confidence, source and, below it, the note."""
    console.print(Text(f"{chip.name}: {chip.description}", style="bold"))
    if chip.aliases:
        console.print(Text(f"also called {', '.join(chip.aliases)}"))
    console.print(Text(_summary(chip)))
    console.print(Text(_of_chip(chip)))
    table = plain_table("quantity", ">value", "confidence", "source, and why", wraps=("source, and why",))
    # Facts come in the order of the chip, so that neighbours share a section.
    for section, members in groupby(facts, key=lambda fact: fact.key.rpartition(".")[0] or "device"):
        table.add_row(Text(section, style="bold"))
        for fact in members:
            table.add_row(*_fact_row(fact))
    console.print(table)
    # Last, where it is still on the screen after a long table.
    guessed = sum(fact.confidence in _GUESSED for fact in facts)
    console.print(Text(f"{guessed} of {len(facts)} quantities are estimated or fitted: nobody published them."))


def _list_row(chip: Chip) -> tuple[str, ...]:
    return (
        chip.name,
        str(chip.year),
        str(chip.cores_per_device),
        f"{chip.clock_hz / 1e9:g}",
        f"{chip.cores_per_device * chip.mxu.count} x {chip.mxu.rows}x{chip.mxu.columns}",
        f"{chip.peak_flops_per_second / 1e12:.4g}",
        f"{chip.hbm.bandwidth_bytes_per_second / 1e9:.4g}",
        f"{chip.hbm.capacity_bytes / 2**30:.3g}",
        f"{chip.vmem.capacity_bytes / 2**20:.4g}",
        ", ".join(chip.aliases),
    )


def _summary(chip: Chip) -> str:
    """Return the two roofs of the chip in a line, and the intensity at which they meet."""
    peak, bandwidth = chip.peak_flops_per_second, chip.hbm.bandwidth_bytes_per_second
    return (
        f"peak {peak / 1e12:.4g} TFLOP/s in bf16 at {_human(chip.clock_hz, 'Hz')}, HBM {_human(bandwidth, 'B/s')}: "
        f"bound by HBM below {peak / bandwidth:.0f} FLOP per byte"
    )


def _of_chip(chip: Chip) -> str:
    """Return what a whole chip draws while idle, how large it is by our estimate, and what an hour of it costs."""
    price = listed_price(chip)
    listed = "" if price is None else f", {dollars_text(price)} an hour as listed"
    return f"a chip: {chip.power.idle_watts:g} W idle, a die of about {area_mm2(chip):.0f} mm2 (an estimate){listed}"


def _fact_row(fact: Fact) -> tuple[Text, Text, Text, Text]:
    why = Text(fact.source)
    if fact.is_report_only:
        why.append("\nreport only: no simulated time depends on it", style="dim")
    if fact.note:
        why.append(f"\n{fact.note}", style="dim")
    confidence = Text(fact.confidence, style=_STYLES.get(fact.confidence, ""))
    return Text(f"  {fact.key.rpartition('.')[2]}"), Text(_human(fact.value, fact.unit)), confidence, why


def _human(value: Any, unit: str) -> str:
    """Return a value in the unit that people say: 819e9 B/s is ``819 GB/s``, 2**24 B is ``16 MiB``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in _SCALES and value:
        return scaled_text(value, _SCALES[unit], lambda number, _: f"{number:.4g}")
    number = f"{value:g}" if isinstance(value, float) else str(value)
    # A year explains itself.
    return f"{number} {unit}".rstrip() if unit != "year" else number
