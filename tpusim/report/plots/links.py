"""The heat map of a slice: how busy every link was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from tpusim.report.plots.colours import GREY, HEAT, INK
from tpusim.report.plots.style import figure_of, new_figure, styled
from tpusim.report.plots.switches import draw_switches
from tpusim.report.tables import time_text
from tpusim.timeline.records import LinkUse, PodRun

# Both ways of a link lie beside each other, so far from the line between the chips.
_APART = 0.1
# From a chip to the end of a stub: a link round the back of the torus, or to the plane above or below.
_STUB = 0.46
_MOST_NUMBERED = 64
_PANEL_COLUMNS = 4


@styled
def links(run: PodRun, ax: Axes | None = None) -> Figure:
    """Draw the links of a slice as lines coloured by the share of the run that they were busy; return the figure.

    Chips of the third axis are panels, its links stubs to the upper right (up the axis) and the lower left (down it);
    stubs at the rim go round the back. With ``ax`` only the first plane is drawn.

    Where switches join the chips, they stand above them, and all links are in one picture.
    """
    total_ps = max(1, run.last.total_ps)
    joined = [(link, link.busy_ps / total_ps) for link in run.links if link.way.startswith(">")]
    if joined:
        return _switches(run, joined, ax)
    width, height, planes = _planes(run)
    shares = [(link, link.busy_ps / total_ps) for link in run.links if link.way[0] in "+-"]
    norm = Normalize(0, max([share for _, share in shares] + [0.01]) * 100)
    by_plane: dict[int, list[tuple[LinkUse, float]]] = defaultdict(list)
    for link, share in shares:
        by_plane[link.chip // (width * height)].append((link, share))
    if ax is not None:
        _draw_plane(ax, run, 0, by_plane[0], norm)
        return figure_of(ax)
    columns = min(_PANEL_COLUMNS, planes)
    rows = ceil(planes / columns)
    size = min(3.2, 7.6 / columns) if planes > 1 else min(7.0, 1.1 + 0.9 * width)
    across = max(3.4, size * columns + 0.9)
    figure = new_figure(across, max(2.0, size * rows * min(1.6, (height + 0.9) / (width + 0.9))) + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False)
    for number, place in enumerate(grid.flat):
        if number >= planes:
            place.set_axis_off()
            continue
        _draw_plane(place, run, number, by_plane[number], norm)
    _name(figure, grid, norm, _title(run, [share for _, share in shares]))
    return figure


def _switches(run: PodRun, shares: Sequence[tuple[LinkUse, float]], ax: Axes | None) -> Figure:
    """Draw links by way of switches."""
    norm = Normalize(0, max([share for _, share in shares] + [0.01]) * 100)
    if ax is not None:
        draw_switches(ax, run, shares, norm)
        return figure_of(ax)
    figure = new_figure(7.6, 3.6)
    place = figure.subplots()
    draw_switches(place, run, shares, norm)
    _name(figure, place, norm, _title(run, [share for _, share in shares]))
    return figure


def _name(figure: Figure, places: Any, norm: Normalize, title: str) -> None:
    """Say what colours mean, and what ran."""
    bar = figure.colorbar(ScalarMappable(norm, HEAT), ax=places, shrink=0.9, pad=0.02)
    bar.set_label("link busy (% of the run)")
    bar.outline.set_linewidth(0.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=8.5)


def _planes(run: PodRun) -> tuple[int, int, int]:
    """Return the chips across and up a plane, and the planes of all slices."""
    sizes = (*run.sizes, 1, 1)
    return sizes[0], sizes[1], prod(run.sizes[2:]) * run.slices


def _title(run: PodRun, shares: Sequence[float]) -> str:
    """Return what ran where, the busiest and the mean link, and how busy the other networks were."""
    total_ps = max(1, run.last.total_ps)
    sizes = "x".join(map(str, run.sizes)) + (f" in {run.slices} slices" if run.slices > 1 else "")
    words = f"{run.last.program} on {run.last.chip} {sizes} (simulated): {time_text(run.last.total_ps)}\n"
    if shares:
        words += f"links: busiest {max(shares):.1%}, mean {sum(shares) / len(shares):.1%} of the run"
    else:
        words += "no link between chips carried anything"
    for ways, name in ((("local",), "within chips"), (("out", "in"), "data-centre network")):
        others = [link.busy_ps / total_ps for link in run.links if link.way in ways]
        words += f"; {name}: busiest {max(others):.1%}" if others else ""
    return words


def _draw_plane(ax: Axes, run: PodRun, plane: int, shares: Sequence[tuple[LinkUse, float]], norm: Normalize) -> None:
    """Draw the chips of one plane and the links that leave them."""
    width, height, planes = _planes(run)
    places = [(chip % width, chip // width) for chip in range(width * height)]
    segments = [_segment(run, link) for link, _ in shares]
    colours = [mpl.colormaps[HEAT](norm(share * 100)) for _, share in shares]
    thick = 2.4 if max(width, height) <= 8 else 1.1
    ax.add_collection(LineCollection(segments, colors=colours, linewidths=thick, capstyle="butt", zorder=2))
    dot = 150 if max(width, height) <= 4 else 70 if max(width, height) <= 8 else 3
    across, up = zip(*places, strict=True)
    ax.scatter(across, up, s=dot, facecolor="white", edgecolor=INK, linewidth=0.6, zorder=3)
    if run.slices * prod(run.sizes) <= _MOST_NUMBERED:
        for number, place in enumerate(places, start=plane * width * height):
            ax.text(*place, str(number), ha="center", va="center", fontsize=6, zorder=4)
    ax.set(xlim=(-0.75, width - 0.25), ylim=(-0.75, height - 0.25), aspect="equal")
    ax.set_xticks(range(0, width, max(1, width // 8)))
    ax.set_yticks(range(0, height, max(1, height // 8)))
    ax.tick_params(length=0, labelcolor=GREY)
    ax.set(xlabel="axis 0 (chips)", ylabel="axis 1 (chips)")
    if planes > 1:
        per_slice = prod(run.sizes[2:])
        slice_ = f"slice {plane // per_slice}, " if run.slices > 1 else ""
        ax.set_title(f"{slice_}axis 2 at {plane % per_slice}" if len(run.sizes) > 2 else f"slice {plane}", fontsize=8)


def _segment(run: PodRun, link: LinkUse) -> list[tuple[float, float]]:
    width, height, _ = _planes(run)
    x, y = link.chip % width, link.chip // width % height
    axis, sign = int(link.way[1:]), 1 if link.way[0] == "+" else -1
    if axis > 1:
        # Out of the plane.
        return [(x + sign * 0.12, y + sign * 0.12), (x + sign * _STUB * 0.8, y + sign * _STUB * 0.8)]
    side = sign * _APART
    place, size = ((x, width), (y, height))[axis]
    # Of a link round the back of the torus only a stub is drawn.
    reach = sign * (1.0 if 0 <= place + sign < size else _STUB)
    return [(x, y + side), (x + reach, y + side)] if axis == 0 else [(x - side, y), (x - side, y + reach)]
