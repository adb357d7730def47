"""The picture of the tiles that were tried for one kernel: into how many, along which loops, and what each takes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tpusim.analysis.explanation import Explanation
from tpusim.errors import ConfigError
from tpusim.program.compilation import TriedTiles
from tpusim.report.plots.colours import BLUE, GREY, INK, ORANGE, VERMILION
from tpusim.report.plots.style import axes_or_new, figure_of, literal, place_labels, shortened, styled, time_unit
from tpusim.report.tables import time_text

_LOOKS = ((BLUE, "o"), (ORANGE, "s"), (VERMILION, "^"), (INK, "D"), (GREY, "v"), (BLUE, "P"), (ORANGE, "X"))


@styled
def tiles(kernel: Explanation, ax: Axes | None = None) -> Figure:
    """Draw what each way to cut a kernel takes against its number of tiles, and return the figure.

    Ways that cut along the same loops look alike; a line is at what the kernel takes in the program, a ring at its
    tiles. The fastest is named by its loops, outermost first. Raises ConfigError if
    nothing was tried.
    """
    tried, own_ps = kernel.tried, kernel.alone_ps
    if not tried:
        raise ConfigError(
            f"{kernel.name}: expected a kernel whose tiles can be stated, found one that has its own rule"
        )
    ax = axes_or_new(ax, 6.4, 4.2)
    divisor, unit = time_unit(max(own_ps, *(one.alone_ps for one in tried)))
    groups: dict[str, list[TriedTiles]] = {}
    for one in tried:
        along = dict.fromkeys(loop.over.replace("_", " ") for loop in one.loops)
        groups.setdefault(literal(", ".join(along)) or "major dimensions", []).append(one)
    for number, (name, found) in enumerate(groups.items()):
        colour, marker = _LOOKS[min(number, len(_LOOKS) - 1)]
        label = name if number < len(_LOOKS) else None
        places = [one.tiles for one in found], [one.alone_ps / divisor for one in found]
        ax.scatter(*places, s=26, color=colour, marker=marker, edgecolor=INK, linewidth=0.4, label=label, zorder=3)
    ax.axhline(own_ps / divisor, color=GREY, linewidth=0.8, linestyle="--", label="as the program has it")
    ax.scatter([kernel.tiles], [own_ps / divisor], s=110, facecolor="none", edgecolor=INK, linewidth=1.0, zorder=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
        axis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.set_ylim(0.7 * min(own_ps, tried[0].alone_ps) / divisor, 1.5 * max(own_ps, tried[-1].alone_ps) / divisor)
    ax.margins(x=0.12)
    ax.grid()
    title = (
        f"{shortened(kernel.name, 40)}: {len(tried)} ways to cut it, best {time_text(tried[0].alone_ps)} (simulated)"
    )
    ax.set(xlabel="tiles", ylabel=f"time of the kernel by itself ({unit})", title=title)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, title="cut along")
    figure_of(ax).draw_without_rendering()
    place_labels(ax, [(tried[0].tiles, tried[0].alone_ps / divisor)], [_loops(tried[0])])
    return figure_of(ax)


def _loops(one: TriedTiles) -> str:
    bounds = one.stated.get("iteration_bounds", ())
    trips = [f"{loop.trips} x {loop.over.replace('_', ' ')}" for loop in one.loops] or [" x ".join(map(str, bounds))]
    return literal(" > ".join(trips)) if one.tiles > 1 else "a single tile"
