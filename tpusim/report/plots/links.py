"""The heat map of a slice: how busy every link was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, prod, sqrt
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from tpusim.report.plots.colours import GREY, HEAT, INK
from tpusim.report.plots.style import figure_of, literal, new_figure, styled
from tpusim.report.plots.switches import draw_switches
from tpusim.report.tables import time_text
from tpusim.timeline.records import LinkUse, PodRun

# Both ways of a link lie beside each other, so far from the line between the chips.
_APART = 0.1
# From a chip to the end of a stub: a link round the back of the torus.
_STUB = 0.46
_MOST_NUMBERED = 64
_PANEL_COLUMNS = 4
_MOST_PANELS = 16

Shares = Sequence[tuple[LinkUse, float]]
"""Links, each with the share of the run that it was busy."""


@styled
def links(run: PodRun, ax: Axes | None = None) -> Figure:
    """Draw the links of a slice, coloured by the share of the run that they were busy; return the figure.

    Two axes: links are lines between the chips, stubs at the rim go round the back. Three, or many slices: a panel for
    each way along each axis, in which every chip has the link that leaves it so. With ``ax`` only the first plane is
    drawn, as lines.

    Where switches join the chips, they stand above them, and all links are in one picture.
    """
    total_ps = max(1, run.last.total_ps)
    joined = [(link, link.busy_ps / total_ps) for link in run.links if link.way.startswith(">")]
    if joined:
        return _switches(run, joined, ax)
    width, height, planes = _planes(run)
    shares = [(link, link.busy_ps / total_ps) for link in run.links if link.way[0] in "+-"]
    norm = _norm(shares)
    if ax is None and (len(run.sizes) > 2 or planes > _MOST_PANELS):
        return _by_way(run, shares, norm)
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
    return _with_scale(figure, grid, run, shares, norm)


def _switches(run: PodRun, shares: Shares, ax: Axes | None) -> Figure:
    """Draw links by way of switches."""
    norm = _norm(shares)
    if ax is not None:
        draw_switches(ax, run, shares, norm)
        return figure_of(ax)
    figure = new_figure(7.6, 3.6)
    place = figure.subplots()
    draw_switches(place, run, shares, norm)
    return _with_scale(figure, place, run, shares, norm)


def _norm(shares: Shares) -> Normalize:
    """Return the scale of colours, in per cent: up to the busiest link."""
    return Normalize(0, 100 * max([0.01, *(share for _, share in shares)]))


def _with_scale(figure: Figure, places: Any, run: PodRun, shares: Shares, norm: Normalize) -> Figure:
    """Return a figure with its colours' scale and its title."""
    bar = figure.colorbar(ScalarMappable(norm, HEAT), ax=places, shrink=0.9, pad=0.02)
    bar.set_label("link busy (% of the run)")
    bar.outline.set_linewidth(0.4)
    figure.suptitle(literal(_title(run, [share for _, share in shares])), x=0.01, ha="left", fontsize=8.5)
    return figure


def _by_way(run: PodRun, shares: Shares, norm: Normalize) -> Figure:
    """Draw a panel for each way along each axis: planes beside each other, in rows if many, a cell for each chip."""
    width, height, planes = _planes(run)
    rows, columns = _grid(run)
    axes, across, up = len(run.sizes), (width + 1) * columns, (height + 1) * rows
    size = min(0.26, 7.0 / (2 * across))
    figure = new_figure(max(6.4, 2 * size * across + 1.8), axes * (size * (up - 1) + 0.45) + 0.9)
    grid = figure.subplots(axes, 2, squeeze=False)
    for (axis, column), ax in np.ndenumerate(grid):
        way = f"{'+-'[column]}{axis}"
        # What carried nothing has no entry.
        chips = np.zeros((planes, height, width))
        for link, share in shares:
            if link.way == way:
                chips.flat[link.chip] = share * 100
        cells = np.full((up - 1, across - 1), np.nan)
        for plane, own in enumerate(chips):
            y, x = plane // columns * (height + 1), plane % columns * (width + 1)
            cells[y : y + height, x : x + width] = own
        ax.imshow(cells, cmap=HEAT, norm=norm, origin="lower", interpolation="nearest")
        words = f"{'up' if way[0] == '+' else 'down'} axis {axis}: mean {chips.mean():.1f} %"
        ax.set_title(f"{words}, {chips.min():.1f} to {chips.max():.1f}", fontsize=7.5)
        _label_planes(ax, run, axis == axes - 1, column == 0)
    return _with_scale(figure, grid, run, shares, norm)


def _grid(run: PodRun) -> tuple[int, int]:
    """Return the rows and columns that the planes of all slices lie in, where they lie beside each other."""
    width, height, planes = _planes(run)
    columns = planes if planes <= _MOST_PANELS else ceil(sqrt(2 * planes * (height + 1) / (width + 1)))
    return ceil(planes / columns), columns


def _label_planes(ax: Axes, run: PodRun, is_last: bool, is_first: bool) -> None:
    """Name the planes that lie beside each other, and the chips' axes at the rim of the picture."""
    width, height, planes = _planes(run)
    rows, columns = _grid(run)
    what, names = "slices", list(map(str, range(planes)))
    if len(run.sizes) > 2:
        what, per_slice = "planes: place on axis 2", prod(run.sizes[2:])
        names = [f"{f'{plane // per_slice}:' if run.slices > 1 else ''}{plane % per_slice}" for plane in range(planes)]
    every = max(1, columns // 8)
    middles = [column * (width + 1) + (width - 1) / 2 for column in range(columns)]
    ax.set(xticks=[], yticks=[])
    ax.tick_params(length=0, labelcolor=GREY)
    ax.spines[:].set_visible(False)
    if is_last:
        ax.set_xticks(middles[::every], names[:columns:every])
        ax.set_xlabel(f"{what}; in each axis 0, {width} chips, to the right")
    if is_first and rows == 1:
        ax.set_yticks([0, height - 1])
        ax.set_ylabel("axis 1 (chips)")
    elif is_first:
        ax.set_yticks([row * (height + 1) + (height - 1) / 2 for row in range(rows)], names[::columns])
        ax.set_ylabel(f"in each axis 1, {height} chips, up")


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


def _draw_plane(ax: Axes, run: PodRun, plane: int, shares: Shares, norm: Normalize) -> None:
    """Draw the chips of one plane and the links between them."""
    width, height, planes = _planes(run)
    shares = [(link, share) for link, share in shares if int(link.way[1:]) < 2]
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
        ax.set_title(f"slice {plane}", fontsize=8)


def _segment(run: PodRun, link: LinkUse) -> list[tuple[float, float]]:
    width, height, _ = _planes(run)
    x, y = link.chip % width, link.chip // width % height
    axis, sign = int(link.way[1:]), 1 if link.way[0] == "+" else -1
    side = sign * _APART
    place, size = ((x, width), (y, height))[axis]
    # Of a link round the back of the torus only a stub is drawn.
    reach = sign * (1.0 if 0 <= place + sign < size else _STUB)
    return [(x, y + side), (x + reach, y + side)] if axis == 0 else [(x - side, y), (x - side, y + reach)]
