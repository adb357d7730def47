"""Pictures of utilisation: what the time of each layer went to and how busy the units were; arrays by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tpusim.analysis.utilisation import LayerUse, layer_use
from tpusim.hardware.units import UNITS
from tpusim.program.layers import Layer
from tpusim.report.plots.colours import BLUE, HEAT, INK, ORANGE, PALE, ink_on, kind_of, kind_order, kind_patch, look_of
from tpusim.report.plots.style import axes_or_new, figure_of, literal, new_figure, shortened, styled, time_unit
from tpusim.report.tables import time_text
from tpusim.timeline.folds import ArrayRun
from tpusim.timeline.records import Timeline

_SHOWN = 16
_LETTERS = 34


@styled
def utilisation(run: Timeline, ax: Axes | None = None, by: str = "source") -> Figure:
    """Draw a bar for each layer, stacked by what its time went to, and beside it how busy each unit was.

    ``by`` is what a layer is: a line of the ``source``, a ``category`` or an ``op``. With ``ax`` only the bars are
    drawn. Returns the figure.
    """
    layers = layer_use(run, by)
    shown, rest = layers[:_SHOWN], layers[_SHOWN:]
    heat = None
    if ax is None:
        figure = new_figure(8.6, 1.25 + 0.23 * max(3, len(shown) + bool(rest)))
        ax, heat = figure.subplots(1, 2, width_ratios=(3, 2))
    rows = [*shown, _together(rest)] if rest else list(shown)
    _draw_stacks(ax, rows)
    ax.set_title(literal(f"{run.program} on {run.chip} (simulated): {time_text(run.total_ps)}"), pad=18)
    ax.set_ylabel(f"{by} (longest first)")
    if heat is not None:
        _draw_heat(heat, rows)
    return figure_of(ax)


def _together(layers: Sequence[LayerUse]) -> LayerUse:
    parts, busy = Counter[str](), Counter[str]()
    time_ps = sum(layer.time_ps for layer in layers)
    for layer in layers:
        parts.update(layer.parts_ps)
        for unit, share in layer.busy.items():
            busy[unit] += share * layer.time_ps / time_ps  # type: ignore[assignment]
    return LayerUse(name=f"{len(layers)} more", time_ps=time_ps, parts_ps=dict(parts), busy=dict(busy))


def _draw_stacks(ax: Axes, layers: Sequence[LayerUse]) -> None:
    per_unit, unit = time_unit(max((layer.time_ps for layer in layers), default=1))
    stacks = [_by_kind(layer) for layer in layers]
    kinds = kind_order(kind for stack in stacks for kind in stack)
    feet = np.zeros(len(layers))
    for kind in kinds:
        widths = np.array([stack.get(kind, 0) / per_unit for stack in stacks])
        look = look_of(kind)
        ax.barh(range(len(layers)), widths, 0.72, left=feet, color=look.colour, hatch=look.hatch, ec=INK, lw=0.3)
        feet += widths
    ax.set_yticks(range(len(layers)), [shortened(layer.name, _LETTERS) for layer in layers])
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(layers) - 0.4, -0.6), xlabel=f"time on the core ({unit})")
    ax.grid(axis="x")
    handles = [kind_patch(kind) for kind in kinds]
    legend = ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles),
                       handlelength=1.2, columnspacing=0.9, borderaxespad=0.2)  # fmt: skip
    # It may reach over the neighbour, which has nothing there; the layout would else push the two apart.
    legend.set_in_layout(False)


def _by_kind(layer: LayerUse) -> dict[str, int]:
    found = Counter[str]()
    for part, part_ps in layer.parts_ps.items():
        found[kind_of(part)] += part_ps
    return {kind: ps for kind, ps in found.items() if ps}


def _draw_heat(ax: Axes, layers: Sequence[LayerUse]) -> None:
    units = [unit for unit in UNITS if any(layer.busy.get(unit, 0) >= 0.005 for layer in layers)]
    shares = np.array([[layer.busy.get(unit, 0.0) for unit in units] for layer in layers])
    shares = shares.reshape(len(layers), len(units))
    colours = mpl.colormaps[HEAT]
    if units:
        ax.imshow(shares, cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    for row, column in np.ndindex(shares.shape):
        ink = ink_on(to_hex(colours(shares[row, column])))
        ax.text(column, row, f"{shares[row, column]:.0%}"[:-1], ha="center", va="center", fontsize=6, color=ink)
    ax.set_xticks(range(len(units)), [UNITS[unit].short or UNITS[unit].label for unit in units])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(yticks=[], ylim=(len(layers) - 0.4, -0.6), xlabel="unit: share of the layer's time busy (%)")


MOST_LAYERS = 200
"""Bars of one figure, which is then as tall as a door; each takes its time and memory to draw."""


@styled
def layers(rows: Sequence[tuple[Layer, ArrayRun]], ax: Axes | None = None, title: str = "") -> Figure:
    """Draw a bar for each product on a systolic array: what its slots for multiply-accumulates did, in per cent.

    ``rows`` are what ``run_layers`` returns. Useful ones, those beyond ragged edges while rows streamed, and those
    that waited while tiles loaded and results drained. Of more than ``MOST_LAYERS`` those with most slots are drawn.
    Returns the figure.
    """
    label = "layer (in order of the file)"
    if len(rows) > MOST_LAYERS:
        label = f"layer (the {MOST_LAYERS} with most slots of {len(rows):,}, in order of the file)"
        largest = sorted(range(len(rows)), key=lambda number: -rows[number][1].slots)[:MOST_LAYERS]
        rows = [rows[number] for number in sorted(largest)]
    ax = axes_or_new(ax, 7.4, 1.2 + 0.17 * max(4, len(rows)))
    useful = np.array([run.macs / max(1, run.slots) for _, run in rows])
    ragged = np.array([max(0, run.streamed_slots - run.macs) / max(1, run.slots) for _, run in rows])
    feet = np.zeros(len(rows))
    stacks = (
        ("useful", useful, BLUE, ""),
        ("beyond ragged edges", ragged, ORANGE, "////"),
        ("loading and draining", np.clip(1 - useful - ragged, 0, 1), PALE, ""),
    )
    for name, widths, colour, hatch in stacks:
        shares = widths * 100
        ax.barh(range(len(rows)), shares, 0.78, left=feet, color=colour, hatch=hatch, ec=INK, lw=0.3, label=name)
        feet += shares
    ax.set_yticks(range(len(rows)), [shortened(layer.name, 28) for layer, _ in rows], fontsize=6)
    ax.set(xlim=(0, 100), ylim=(len(rows) - 0.4, -0.6))
    ax.set(xlabel="multiply-accumulate slots (%)", ylabel=label)
    ax.set_title(literal(title) or "systolic array (simulated)", pad=18)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
    return figure_of(ax)
