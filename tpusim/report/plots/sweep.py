"""Pictures of sweeps over designs: which are worth their price, and which parameter matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tpusim.analysis.compare import pareto_front
from tpusim.errors import ConfigError
from tpusim.report.plots.colours import BLUE, GREY, INK, ORANGE, VERMILION
from tpusim.report.plots.style import axes_or_new, figure_of, place_labels, shortened, styled

_NAMED = 12


@styled
def pareto(records: Sequence[Mapping[str, object]], x: str, y: str, name: str = "", ax: Axes | None = None) -> Figure:
    """Draw designs by two figures of which less is better (cost and time, say), the best trade-offs joined by a line.

    ``x`` and ``y`` are keys of the records and, with their units, the names of the axes; ``name`` is the key of what
    designs are called. Raises ConfigError if a record lacks a figure. Returns the figure.
    """
    points = [(_figure(record, x), _figure(record, y)) for record in records]
    if not points:
        raise ConfigError("pareto: expected at least one design, found none")
    ax = axes_or_new(ax, 6.4, 4.4)
    front = pareto_front(points)
    others = [point for number, point in enumerate(points) if number not in front]
    if others:
        across, up = zip(*others, strict=True)
        ax.scatter(across, up, s=16, color=GREY, marker="x", linewidth=0.9, label="beaten by another")
    across, up = zip(*(points[number] for number in front), strict=True)
    ax.step(across, up, where="post", color=BLUE, linewidth=1.0)
    ax.scatter(across, up, s=26, color=BLUE, edgecolor=INK, linewidth=0.5, zorder=3, label="best for its price")
    ax.margins(0.12)
    ax.grid()
    title = f"{len(points)} designs, {len(front)} on the Pareto front (simulated; less is better)"
    ax.set(xlabel=x, ylabel=y, title=title)
    ax.legend(loc="upper right")
    if name:
        named = front[:_NAMED]
        figure_of(ax).draw_without_rendering()
        place_labels(ax, [points[n] for n in named], [shortened(str(records[n].get(name, "")), 30) for n in named])
    return figure_of(ax)


def _figure(record: Mapping[str, object], key: str) -> float:
    if key not in record:
        raise ConfigError(f"expected the key {key!r} in every record, found {', '.join(map(str, record))}")
    try:
        found = float(str(record[key]))
    except ValueError:
        raise ConfigError(f"{key}: expected a number, found {record[key]!r}") from None
    if not isfinite(found):
        raise ConfigError(f"{key}: expected a finite number, found {record[key]!r}")
    return found


def effects_of(records: Sequence[Mapping[str, object]]) -> list[tuple[str, float, float]]:
    """Return the rows that ``sensitivity`` takes from records with the keys ``parameter``, ``low`` and ``high``."""
    return [(str(record.get("parameter", "")), _figure(record, "low"), _figure(record, "high")) for record in records]


@styled
def sensitivity(rows: Sequence[tuple[str, float, float]], measure: str = "time (%)", ax: Axes | None = None) -> Figure:
    """Draw what a change of each parameter does, the largest effect on top (a tornado diagram).

    ``rows`` are (parameter, effect with less of it, effect with more of it), effects as changes in the unit that
    ``measure`` names. Raises ConfigError without rows. Returns the figure.
    """
    if not rows:
        raise ConfigError("sensitivity: expected at least one parameter, found none")
    ordered = sorted(rows, key=lambda row: -max(abs(row[1]), abs(row[2])))
    ax = axes_or_new(ax, 6.4, 1.2 + 0.26 * len(ordered))
    places = range(len(ordered))
    ax.barh(places, [row[1] for row in ordered], 0.66, color=ORANGE, hatch="////", edgecolor=INK, linewidth=0.4,
            label="parameter lowered")  # fmt: skip
    ax.barh(places, [row[2] for row in ordered], 0.66, color=BLUE, edgecolor=INK, linewidth=0.4,
            label="parameter raised")  # fmt: skip
    ax.axvline(0, color=VERMILION, linewidth=0.8)
    ax.set_yticks(places, [shortened(row[0], 44) for row in ordered])
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)
    ax.grid(axis="x")
    ax.set(ylim=(len(ordered) - 0.4, -0.6), xlabel=f"change of {measure}", ylabel="parameter (largest effect first)")
    ax.set_title("sensitivity (simulated)", pad=18)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
    return figure_of(ax)
