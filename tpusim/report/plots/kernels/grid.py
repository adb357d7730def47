"""The picture of a hand-written kernel's grid: what each step computes, which blocks come and go, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tpusim.analysis.explained.grid import LANES, GridWindow, KernelGrid, Span
from tpusim.hardware.units import VMEM
from tpusim.report.plots.colours import GREY, HEAT, INK, LINES, PALE
from tpusim.report.plots.style import legend_entry, literal, new_figure, shortened, styled, time_unit
from tpusim.report.tables import size_text, time_text
from tpusim.units import seconds_to_ps

_MOST_ROWS = 16
"""Rows of a panel, beyond which outer dimensions are left out: their steps are drawn for the first index alone."""

_MOST_WINDOWS = 7
_PER_ROW = 4
_BAR = 0.7
_ROOM = 0.07
"""Of an excerpt, which the indices of a step take."""


class _Plane(NamedTuple):
    """The part of a grid that is drawn: ``rows`` of ``columns`` steps, the first in their order; what its axes are."""

    rows: int
    columns: int
    down: str
    along: str
    left_out: str

    def cut(self, steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return numbers of the steps that are drawn, as a plane."""
        return steps[: self.rows * self.columns].reshape(self.rows, self.columns)


@styled
def pallas(kernel: KernelGrid) -> Figure:
    """Draw the grid of a hand-written kernel with the blocks that each step fetches, and its pipeline of steps.

    A panel for what each step computes, one for each operand and result (those that move most): coloured where its
    block is another one than in the step before. Below, when the first, middle and last steps fetch, compute and write.
    """
    plane, shown = _plane(kernel), _shown(kernel)
    count = 1 + len(shown)
    rows = ceil(count / _PER_ROW)
    figure = new_figure(10.0, 0.9 + 2.1 * rows + 2.2)
    parts: Any = figure.subfigures(2, 1, height_ratios=(0.4 + 2.1 * rows, 2.2), hspace=0.04)
    upper, lower = parts
    axes = upper.subplots(rows, ceil(count / rows), squeeze=False).reshape(-1)
    _draw_work(axes[0], kernel, plane)
    for ax, (number, colour) in zip(axes[1:], shown.items(), strict=False):
        _draw_window(ax, kernel.windows[number], plane, colour)
    for ax in axes[count:]:
        ax.set_visible(False)
    grid = " x ".join(map(str, kernel.bounds)) or "1"
    title = f"{shortened(kernel.name, 40)} on {literal(kernel.chip)}: grid {grid}, {time_text(kernel.alone_ps)}"
    figure.suptitle(f"{title} (simulated)", fontsize=10, fontweight="bold", x=0.01, ha="left")
    left_out = f", drawn for {plane.left_out}" if plane.left_out else ""
    says = f"Steps of the grid{left_out}; coloured: another block than in the step before"
    upper.suptitle(says, x=0.01, ha="left", fontsize=8)
    _draw_pipeline(lower, kernel, shown)
    return figure


def _plane(kernel: KernelGrid) -> _Plane:
    """Return the inner dimensions that are drawn: one along, and as many down as have room."""
    sizes = {number: size for number, size in enumerate(kernel.bounds) if size > 1}
    *outer, along = sizes or {0: 1}
    down: list[int] = []
    while outer and (not down or prod(sizes[n] for n in (outer[-1], *down)) <= _MOST_ROWS):
        down.insert(0, outer.pop())

    def named(numbers: Sequence[int]) -> str:
        words = sorted({kernel.semantics[n] for n in numbers if n < len(kernel.semantics)})
        what = "dimension" if len(numbers) == 1 else "dimensions"
        return f"{what} {', '.join(map(str, numbers))}" + (f" ({', '.join(words)})" if words else "")

    left_out = f"index 0 of {named(outer).partition(' (')[0]}" if outer else ""
    rows = prod(sizes[n] for n in down)
    return _Plane(rows, sizes.get(along, 1), named(down) if down else "", named([along]), left_out)


def _shown(kernel: KernelGrid) -> dict[int, str]:
    """Return the windows to draw, those that move most in the kernel's order, by number, with the colour of each."""
    moved = [0.0 if w.space == VMEM else w.block_bytes * int(w.new.sum()) for w in kernel.windows]
    most = sorted(sorted(range(len(moved)), key=lambda n: -moved[n])[:_MOST_WINDOWS])
    return {number: line[0] for number, line in zip(most, LINES, strict=False)}


def _draw_work(ax: Axes, kernel: KernelGrid, plane: _Plane) -> None:
    """Draw what each step computes, grey where it skips that."""
    cycles = plane.cut(np.array(kernel.cycles)[kernel.order])
    skipped = plane.cut(np.array(kernel.skipped)[kernel.order])
    shown = ax.imshow(np.ma.array(cycles, mask=skipped), cmap=HEAT, aspect="auto", interpolation="nearest", vmin=0)
    ax.set_facecolor(PALE)
    bar = ax.figure.colorbar(shown, ax=ax, location="right", fraction=0.06, pad=0.02)
    bar.ax.tick_params(labelsize=6)
    bar.set_label("cycles a step", fontsize=7)
    share = float(np.array(kernel.skipped)[kernel.order].mean())
    what = f", {share:.0%} of the steps skip" if share else ""
    _name(ax, "computes", f"{len(kernel.order):,} steps{what}")
    _label(ax, plane)


def _draw_window(ax: Axes, window: GridWindow, plane: _Plane, colour: str) -> None:
    """Draw in which steps the block of an operand or a result is a new one."""
    looks = ListedColormap([PALE, colour])
    ax.imshow(plane.cut(window.new), cmap=looks, aspect="auto", interpolation="nearest", vmin=0, vmax=1)
    count = int(window.new.sum())
    way = "out" if window.is_output else "in"
    block = " x ".join(str(size) for size in window.block if size > 1) or "1"
    times = f"{count:,} times" if count > 1 else "once"
    moved = "stays in VMEM" if window.space == VMEM else f"{times}, {size_text(count * window.block_bytes)}"
    _name(ax, f"{shortened(window.name, 20)} ({way})", f"{block}: {moved}")
    _label(ax, plane)


def _name(ax: Axes, title: str, text: str) -> None:
    ax.set_title(title, pad=14)
    ax.text(0, 1.02, text, transform=ax.transAxes, fontsize=7)


def _label(ax: Axes, plane: _Plane) -> None:
    for axis, size, name in ((ax.xaxis, plane.columns, plane.along), (ax.yaxis, plane.rows, plane.down)):
        axis.set_major_locator(MaxNLocator(min(6, max(1, size)), integer=True))
        axis.set_label_text(literal(name) if size > 1 else "", fontsize=7)
    if plane.rows == 1:
        ax.set_yticks([])
    # Borders between steps, where there are few enough to see them.
    if max(plane.rows, plane.columns) <= 32:
        for place in range(1, plane.columns):
            ax.axvline(place - 0.5, color="white", linewidth=0.6)
        for place in range(1, plane.rows):
            ax.axhline(place - 0.5, color="white", linewidth=0.6)
    ax.spines[:].set_visible(False)


def _draw_pipeline(figure: Any, kernel: KernelGrid, shown: Mapping[int, str]) -> None:
    """Draw when some steps fetch, compute and write; a colour is that of the operand's or result's panel."""
    axes = figure.subplots(1, len(kernel.excerpts), squeeze=False)[0]
    names = ("the first steps", "in the middle", "the last steps") if len(axes) > 1 else ("all steps",)
    for ax, spans, name in zip(axes, kernel.excerpts, names, strict=True):
        length = max(span.end for span in spans) - min(span.begin for span in spans)
        divisor, unit = time_unit(seconds_to_ps(length))
        for span in spans:
            _draw_span(ax, span, kernel, shown, 1e12 / divisor, named=span.end - span.begin > _ROOM * length)
        ax.set(title=name, xlabel=f"{unit} from the start of the kernel", ylim=(2.5, -0.5))
        ax.set_yticks([])
        ax.margins(x=0.02)
        ax.grid(axis="x")
    axes[0].set_yticks(range(len(LANES)), ["fetch", "compute", "write back"])
    axes[0].set_ylabel("part of a step")
    figure.suptitle(f"Pipeline{f' of one of {kernel.cores} cores' if kernel.cores > 1 else ''}", x=0.01, ha="left")
    entries = [_entry(colour, legend_entry(kernel.windows[n].name, 20)) for n, colour in shown.items()]
    entries += [_entry("white", "computes"), _entry("white", "latency", hatch="....")]
    if any(kernel.skipped):
        entries.append(_entry(PALE, "skips", hatch="////"))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(8, len(entries)))


def _entry(colour: str, label: str, hatch: str = "") -> Patch:
    return Patch(facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.4, label=label)


def _draw_span(
    ax: Axes, span: Span, kernel: KernelGrid, shown: Mapping[int, str], scale: float, *, named: bool
) -> None:
    """Draw one bar; one that computes has the indices of its step in it where it is ``named``."""
    colour, hatch = "white", ""
    if span.window is not None:
        colour = shown.get(span.window, GREY)
    elif span.lane != "compute":
        hatch = "...."
    elif kernel.skipped[kernel.order[span.step]]:
        colour, hatch = PALE, "////"
    begin, length = span.begin * scale, (span.end - span.begin) * scale
    row = LANES.index(span.lane)
    ax.barh(row, length, _BAR, begin, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.4)
    if named and span.lane == "compute":
        bounds = kernel.bounds or (1,)
        index = zip(np.unravel_index(span.step, bounds), bounds, strict=True)
        text = ",".join(str(int(i)) for i, size in index if size > 1) or "0"
        ax.text(begin + length / 2, row, text, ha="center", va="center", fontsize=6)
