"""The links of chips that switches join, by levels: chips below, each switch above what hangs on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from tpusim.report.plots.colours import GREY, HEAT, INK
from tpusim.timeline.records import LinkUse, PodRun

Place = tuple[float, float]

_MOST_NUMBERED = 64
# Both ways of a link lie beside each other, so far from the line between its ends.
_APART = 0.12
_STEPS = 16
_NAMES = {0: "chips", 1: "switches"}
"""Of levels."""


def draw_switches(ax: Axes, run: PodRun, shares: Sequence[tuple[LinkUse, float]], norm: Normalize) -> None:
    """Draw every link that carried something as a line coloured by the share of the run that it was busy."""
    ends = [(link.chip, int(link.way[1:])) for link, _ in shares]
    chips = run.slices * prod(run.sizes)
    places = _places(ends, chips)
    height = max(1.0, chips / 6)
    lines = [_line(places[one], places[other], height) for one, other in ends]
    colours = [mpl.colormaps[HEAT](norm(100 * share)) for _, share in shares]
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=2.0 if chips <= 16 else 1.0, zorder=2))
    for number, (x, level) in places.items():
        shape, size = ("o", 70) if number < chips else ("s", 110)
        ax.scatter([x], [level * height], s=size if chips <= 32 else size / 5, marker=shape, facecolor="white",
                   edgecolor=INK, linewidth=0.6, zorder=3)  # fmt: skip
        if number < chips <= _MOST_NUMBERED / 2:
            ax.text(x, level * height, str(number), ha="center", va="center", fontsize=6, zorder=4)
    levels = sorted({level for _, level in places.values()})
    names = [_NAMES.get(int(level), f"switches, level {int(level)}") for level in levels]
    ax.set_yticks([level * height for level in levels], names)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlim=(-1.0, chips), ylim=(-0.4 * height, (levels[-1] + 0.6) * height), xlabel="chips")
    ax.tick_params(length=0, labelcolor=GREY)


def _places(ends: Sequence[tuple[int, int]], chips: int) -> Mapping[int, Place]:
    """Return where chips and switches stand: along, and by levels, a switch above the middle of what hangs on it."""
    beside: dict[int, set[int]] = defaultdict(set)
    for one, other in ends:
        beside[one].add(other)
        beside[other].add(one)
    places: dict[int, Place] = {chip: (float(chip), 0.0) for chip in range(chips)}
    level, above = 0.0, set(places)
    while above := {one for low in above for one in beside[low] if one not in places}:
        level += 1
        found = {one: [places[low][0] for low in beside[one] if low in places] for one in above}
        middles = sorted((sum(xs) / len(xs), one) for one, xs in found.items())
        # Those above the same chips stand side by side.
        apart = chips / len(middles)
        crowded = len({x for x, _ in middles}) < len(middles)
        for number, (x, one) in enumerate(middles):
            places[one] = ((number + 0.5) * apart - 0.5 if crowded else x, level)
    return places


def _line(start: Place, end: Place, height: float) -> list[Place]:
    """Return a way from one place to another, to its right; between switches of one level an arc above, or below."""
    (x0, y0), (x1, y1) = (start[0], start[1] * height), (end[0], end[1] * height)
    if y0 != y1:
        side = _APART if y1 > y0 else -_APART
        return [(x0 + side, y0), (x1 + side, y1)]
    bow = 0.35 * height * (1 if x1 > x0 else -1)
    steps = [step / _STEPS for step in range(_STEPS + 1)]
    return [(x0 + (x1 - x0) * t, y0 + bow * 4 * t * (1 - t)) for t in steps]
