"""A family of programs drawn: throughput, and memory against what the chip has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tpusim.analysis.scaling import ScaleRow
from tpusim.report.plots.colours import GREY, LINES
from tpusim.report.plots.style import new_figure, styled
from tpusim.units import ps_to_us


@styled
def scaling(rows: Sequence[ScaleRow]) -> Figure:
    """Draw throughput (or time, where no items are counted) and peak HBM over items (or devices); return the figure."""
    counted = any(row.items for row in rows)
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    lines: dict[str, list[ScaleRow]] = defaultdict(list)
    for row in rows:
        lines[f"{row.chip} {row.topology}" if counted else row.chip].append(row)
    for (name, own), style in zip(lines.items(), cycle(LINES), strict=False):
        _draw((left, right), name, sorted(own, key=lambda row: (row.items, row.devices)), style)
    across = "items a run" if counted else "devices"
    left.set(xlabel=across, ylabel="items per second" if counted else "time (us)", title="Throughput (simulated)")
    right.set(xlabel=across, ylabel="share of the HBM", title="Peak memory of a device")
    right.axhline(1.0, color=GREY, linestyle="--", linewidth=0.9)
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.grid()
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    left.legend()
    return figure


def _draw(axes: tuple[Axes, Axes], name: str, rows: Sequence[ScaleRow], style: tuple[str, str, str]) -> None:
    left, right = axes
    counted = any(row.items for row in rows)
    colour, marker, line = style
    across = [row.items if counted else row.devices for row in rows]
    rates = [row.items_per_second if counted else ps_to_us(row.total_ps) for row in rows]
    # What does not fit has no time that the chip could take.
    shown = [rate if row.fits else float("nan") for rate, row in zip(rates, rows, strict=True)]
    left.plot(across, shown, marker=marker, linestyle=line, color=colour, label=name)
    shares = [row.peak_hbm_bytes / row.hbm_capacity_bytes for row in rows]
    right.plot(across, shares, marker=marker, linestyle=line, color=colour)
