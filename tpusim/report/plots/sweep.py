"""Pictures of sweeps over designs: which are worth their price, which parameter matters, and what it does; and of
families of programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from math import inf, isfinite, isqrt
from statistics import fmean, geometric_mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from tpusim.analysis.answers.scaling import ScaleRow
from tpusim.analysis.compare import pareto_front
from tpusim.errors import ConfigError
from tpusim.report.plots.colours import BLUE, GREY, INK, LINES, ORANGE, VERMILION
from tpusim.report.plots.style import (
    axes_or_new,
    figure_of,
    legend_entry,
    literal,
    new_figure,
    place_labels,
    shortened,
    styled,
)
from tpusim.report.tables import count_text, size_text
from tpusim.units import ps_to_us

Records = Sequence[Mapping[str, object]]
Effects = Sequence[tuple[str, float, float]]
Labels = tuple[list[tuple[float, float]], list[str]]
"""What is to be written beside which points once all else stands in its place."""

_NAMED = 12
_MOST_LINES = len(LINES)
_MOST_TICKS = 5
_MOST_PICTURES = 64
_MOST_BARS = 500
_LONG = 1e6
_FAR_APART = 8.0
"""An axis whose greatest figure is so many times the least is logarithmic."""


@styled
def pareto(
    records: Records, x: str, y: str, name: str = "", ax: Axes | None = None, *, per: str = "", normalise: str = ""
) -> Figure:  # fmt: skip
    """Draw designs by two figures of which less is better (cost and time, say), the best trade-offs joined by a line.

    ``x`` and ``y`` are keys of the records and, with their units, the names of the axes; ``name`` is the key of what
    designs are called. With ``per``, a key as well, each value of it has a picture of its own. With ``normalise``, one
    such as ``program``, figures are multiples of the least one that has the same value of it. Records that leave a
    figure empty, as those of designs that a program does not fit, are left out. Raises ConfigError if a record lacks
    the key of a figure, or none has figures. Returns the figure.
    """
    found: Records = [record for record in records if _figure(record, x) is not None and _figure(record, y) is not None]
    if not found:
        raise ConfigError("pareto: expected at least one design, found none with both figures")
    if normalise:
        found, (x, y) = _normalised(found, (x, y), normalise)

    def draw(ax: Axes, part: Records) -> Labels:
        return _pareto(ax, part, (x, y, name))

    if per:
        return _multiples(found, per, draw, "Pareto fronts (simulated; less is better)")
    ax = axes_or_new(ax, 6.4, 4.4)
    labels = draw(ax, found)
    ax.legend(loc="upper right")
    ax.set_title(f"{len(found)} designs, {len(labels[0])} on the Pareto front (simulated; less is better)")
    figure_of(ax).draw_without_rendering()
    _write(ax, labels)
    return figure_of(ax)


def _normalised(records: Records, keys: tuple[str, str], by: str) -> tuple[list[Mapping[str, object]], tuple[str, str]]:
    """Return records with figures as multiples of the least of their value of ``by``, and what these are called."""
    names = {key: f"{key}, times the least of its {by}" for key in keys}
    least: dict[tuple[str, str], float] = {}
    for record in records:
        for key in keys:
            place = key, str(_value(record, by))
            least[place] = min(least.get(place, inf), _figure(record, key) or 0.0)
    if not all(least.values()):
        raise ConfigError("pareto: expected figures above 0 to take multiples of, found a 0")
    found: list[Mapping[str, object]] = []
    for record in records:
        value = str(_value(record, by))
        found.append({**record, **{names[key]: (_figure(record, key) or 0.0) / least[key, value] for key in keys}})
    return found, (names[keys[0]], names[keys[1]])


def _pareto(ax: Axes, records: Records, keys: tuple[str, str, str]) -> Labels:
    """Draw designs, and return what those of the front are called."""
    x, y, name = keys
    points = [(_figure(record, x) or 0.0, _figure(record, y) or 0.0) for record in records]
    front = pareto_front(points)
    others = [point for number, point in enumerate(points) if number not in front]
    if others:
        across, up = zip(*others, strict=True)
        ax.scatter(across, up, s=16, color=GREY, marker="x", linewidth=0.9, label="beaten by another")
    across, up = zip(*(points[number] for number in front), strict=True)
    ax.step(across, up, where="post", color=BLUE, linewidth=1.0)
    ax.scatter(across, up, s=26, color=BLUE, edgecolor=INK, linewidth=0.5, zorder=3, label="on the front")
    ax.margins(0.12)
    ax.grid()
    ax.set(xlabel=literal(x), ylabel=literal(y))
    texts = [shortened(str(records[n].get(name, "")), 30) if name else "" for n in front]
    return [points[n] for n in front], texts


def _write(ax: Axes, labels: Labels) -> None:
    # Equal designs stand at one place, which has one name.
    named = dict(reversed(list(zip(*labels, strict=True))))
    points, texts = list(reversed(named)), list(reversed(named.values()))
    if any(texts):
        legend = ax.get_legend()
        place_labels(ax, points[:_NAMED], texts[:_NAMED], avoid=[legend.get_window_extent()] if legend else [])


def _multiples(
    records: Records, per: str, draw: Callable[[Axes, Records], Labels], title: str, legend: str = ""
) -> Figure:
    """Return a figure with a picture for each value of a key."""
    groups: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for record in records:
        groups[str(_value(record, per))].append(record)
    if len(groups) > _MOST_PICTURES:
        raise ConfigError(f"{per}: expected at most {_MOST_PICTURES} values, one for each picture, found {len(groups)}")
    figure, places = _side_by_side(list(groups), (2.9, 2.4), title, 32)
    labels = [draw(ax, part) for ax, part in zip(places, groups.values(), strict=True)]
    _legend(figure, places, legend)
    figure.draw_without_rendering()
    for ax, texts in zip(places, labels, strict=True):
        _write(ax, texts)
    return figure


def _side_by_side(
    names: Sequence[str], size: tuple[float, float], title: str, letters: int
) -> tuple[Figure, list[Axes]]:
    """Return a figure under a title with room of a size, in inches, for each of some names; at most three in a row.

    Names have so many letters at most.
    """
    across = min(3, isqrt(len(names) - 1) + 1)
    down = -(-len(names) // across)
    figure = new_figure(0.4 + size[0] * across, 0.8 + size[1] * down)
    places = list(figure.subplots(down, across, squeeze=False).flat)
    for ax, name in zip(places, names, strict=False):
        ax.set_title(shortened(name, letters), fontsize=7.5)
        ax.locator_params(axis="x", nbins=5)
    for ax in places[len(names) :]:
        ax.remove()
    figure.suptitle(literal(title), fontsize=9, fontweight="bold", x=0.01, ha="left")
    return figure, places[: len(names)]


def _legend(figure: Figure, places: Sequence[Axes], title: str = "") -> None:
    """Write one legend for all pictures below them, of what any of them has."""
    found = {label: handle for ax in places for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(found) > 1:
        place: Any = {"loc": "outside lower left", "ncols": len(found), "title_fontsize": 7}
        figure.legend(list(found.values()), list(found), title=literal(title) or None, **place)


@styled
def sweep(records: Records, x: str, y: str, by: str = "", ax: Axes | None = None, *, per: str = "") -> Figure:
    """Draw a figure over a parameter: a line for each value of ``by``, a picture for each of ``per``, both keys.

    Where records differ in other keys as well, a point is their geometric mean; records without the figure are left
    out. A parameter that is no number stands at even distances. Raises ConfigError if there is nothing to draw, and for
    more values of ``by`` than lines can be told apart. Returns the figure.
    """
    found = [record for record in records if _figure(record, y) is not None and _value(record, x) != ""]
    if not found:
        raise ConfigError("sweep: expected at least one point, found none with the figure")
    values = list(dict.fromkeys(str(_value(record, by)) for record in found)) if by else [""]
    if len(values) > _MOST_LINES:
        raise ConfigError(f"{by}: expected at most {_MOST_LINES} values, found {len(values)}: give it as --per")

    def draw(ax: Axes, part: Records) -> Labels:
        return _lines(ax, part, (x, y, by), values)

    if per:
        return _multiples(found, per, draw, f"{y} over {x} (simulated)", by)
    ax = axes_or_new(ax, 6.4, 4.0)
    draw(ax, found)
    ax.set_title(f"{len(found)} points (simulated)")
    if by:
        ax.legend(title=literal(by), title_fontsize=7, loc="best")
    return figure_of(ax)


def _mean(figures: Sequence[float]) -> float:
    """Return the geometric mean of figures, of which there is none but of positive ones: else the arithmetic one."""
    return geometric_mean(figures) if min(figures) > 0 else fmean(figures)


def _lines(ax: Axes, records: Records, keys: tuple[str, str, str], values: Sequence[str]) -> Labels:
    x, y, by = keys
    numbers = [_number(record, x) for record in records]
    texts = list(dict.fromkeys(str(record[x]) for record in records)) if None in numbers else []
    for value, (colour, marker, dash) in zip(values, LINES, strict=False):
        chosen = [record for record in records if not by or str(record[by]) == value]
        places: dict[float, list[float]] = defaultdict(list)
        for record in chosen:
            place = texts.index(str(record[x])) if texts else _number(record, x) or 0.0
            places[place].append(_figure(record, y) or 0.0)
        line = [(place, _mean(figures)) for place, figures in sorted(places.items())]
        if line:
            ax.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=4, linestyle=dash, linewidth=1.2,
                    label=legend_entry(value, 24))  # fmt: skip
    _scale(ax, records, keys, texts)
    return [], []


def _scale(ax: Axes, records: Records, keys: tuple[str, str, str], texts: list[str]) -> None:
    """Choose the scales of both axes, and name them."""
    x, y, _ = keys
    ups = [_figure(record, y) or 0.0 for record in records]
    ax.grid()
    ax.set(xlabel=literal(x), ylabel=literal(y))
    if texts:
        ax.set_xticks(range(len(texts)), [shortened(text, 16) for text in texts])
    elif _is_far(across := sorted({_number(record, x) or 0.0 for record in records})):
        ax.set_xscale("log")
        if len(across) <= _MOST_TICKS:
            ax.set_xticks(across, [_tick(x, value) for value in across])
            ax.minorticks_off()
    if _is_far(ups):
        ax.set_yscale("log")
    else:
        ax.set_ylim(None if min(ups) < 0 else 0, None)


def _tick(key: str, value: float) -> str:
    """Return a number on an axis: bytes in a unit, whole numbers in full as far as they are short."""
    if key.endswith("_bytes"):
        return size_text(value)
    return f"{value:,.0f}" if value == int(value) and value < _LONG else f"{value:.3g}"


def _is_far(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= _FAR_APART


def _value(record: Mapping[str, object], key: str) -> object:
    if key not in record:
        raise ConfigError(f"expected the key {key!r} in every record, found {', '.join(map(str, record))}")
    found = record[key]
    return "" if found is None else found


def _number(record: Mapping[str, object], key: str) -> float | None:
    """Return a value of a record as a number, None if it is none. Raises ConfigError for one that is not finite."""
    value = _value(record, key)
    try:
        found = float(str(value))
    except ValueError:
        return None
    if not isfinite(found):
        raise ConfigError(f"{key}: expected a finite number, found {value!r}")
    return found


def _figure(record: Mapping[str, object], key: str) -> float | None:
    """Return a figure of a record, None where it has none. Raises ConfigError for what is no number."""
    value = _value(record, key)
    if value == "":
        return None
    found = _number(record, key)
    if found is None:
        raise ConfigError(f"{key}: expected a number, found {value!r}")
    return found


def effects_of(records: Records, figure: str = "", program: str = "") -> list[tuple[str, float, float]]:
    """Return the rows that ``sensitivity`` takes from records with the keys ``parameter``, ``low`` and ``high``.

    Of records that say of which ``figure`` and ``program`` they are, those of the ones named.
    """
    wanted = {"figure": figure, "program": program}
    found = [
        (str(record.get("parameter", "")), _figure(record, "low") or 0.0, _figure(record, "high") or 0.0)
        for record in records
        if all(not text or record.get(key, text) == text for key, text in wanted.items())
    ]
    if not found:
        known = dict.fromkeys(str(record["figure"]) for record in records if record.get("figure"))
        others = f"those on {', '.join(known)}" if known else "none"
        raise ConfigError(f"sensitivity: expected effects on {figure or 'a figure'}, found {others}")
    return found


@styled
def sensitivity(rows: Effects, measure: str = "time (%)", ax: Axes | None = None) -> Figure:
    """Draw what a change of each parameter does, the largest effect on top (a tornado diagram).

    ``rows`` are (parameter, effect with less of it, effect with more of it), effects as changes in the unit that
    ``measure`` names. Raises ConfigError without rows. Returns the figure.
    """
    if not rows:
        raise ConfigError("sensitivity: expected at least one parameter, found none")
    _require_few(rows)
    ax = axes_or_new(ax, 6.4, 1.2 + 0.26 * len(rows))
    _tornado(ax, rows, measure)
    ax.set_title("sensitivity (simulated), largest effect first", pad=18)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
    return figure_of(ax)


@styled
def sensitivities(parts: Mapping[str, Effects], measure: str = "time (%)") -> Figure:
    """Draw ``sensitivity`` side by side for each of several, programs say, by name. Returns the figure."""
    most = max(len(rows) for rows in parts.values())
    _require_few(max(parts.values(), key=len))
    if len(parts) > _MOST_PICTURES:
        raise ConfigError(f"sensitivity: expected at most {_MOST_PICTURES} pictures, found {len(parts)}")
    size, title = (3.6, 0.8 + 0.26 * most), "sensitivity (simulated), largest effect first"
    # The names of parameters take half of the room, and titles stand above the other half.
    figure, places = _side_by_side(list(parts), size, title, 26)
    for ax, rows in zip(places, parts.values(), strict=True):
        _tornado(ax, rows, measure)
    _legend(figure, places)
    return figure


def _require_few(rows: Effects) -> None:
    if len(rows) > _MOST_BARS:
        raise ConfigError(f"sensitivity: expected at most {_MOST_BARS} parameters, found {len(rows)}")


def _tornado(ax: Axes, rows: Effects, measure: str) -> None:
    ordered = sorted(rows, key=lambda row: -max(abs(row[1]), abs(row[2])))
    places = range(len(ordered))
    ax.barh(places, [row[1] for row in ordered], 0.66, color=ORANGE, hatch="////", edgecolor=INK, linewidth=0.4,
            label="parameter lowered")  # fmt: skip
    ax.barh(places, [row[2] for row in ordered], 0.66, color=BLUE, edgecolor=INK, linewidth=0.4,
            label="parameter raised")  # fmt: skip
    ax.axvline(0, color=VERMILION, linewidth=0.8)
    ax.set_yticks(places, [shortened(row[0], 34) for row in ordered])
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)
    ax.grid(axis="x")
    ax.set(ylim=(len(ordered) - 0.4, -0.6), xlabel=literal(f"change of {measure}"), ylabel="parameter")


@styled
def scaling(rows: Sequence[ScaleRow]) -> Figure:
    """Draw throughput (or time, where no items are counted) and peak HBM; return the figure.

    Over items or, where no slice has several programs, over devices; then with what the smallest slice promises.
    """
    counted = any(row.items for row in rows)
    over_devices = not counted or len({(row.chip, row.topology) for row in rows}) == len(rows)
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    lines: dict[str, list[ScaleRow]] = defaultdict(list)
    for row in rows:
        lines[row.chip if over_devices else f"{row.chip} {row.topology}"].append(row)
    for (name, own), style in zip(lines.items(), cycle(LINES), strict=False):
        _draw_family((left, right), name, sorted(own, key=lambda row: (row.items, row.devices)), style, over_devices)
    across = "devices" if over_devices else "items a run"
    left.set(xlabel=across, ylabel="items per second" if counted else "time (us)", title="Throughput (simulated)")
    right.set(xlabel=across, ylabel="share of the HBM", title="Peak memory of a device")
    right.axhline(1.0, color=GREY, linestyle="--", linewidth=0.9)
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.grid()
    if over_devices and counted and len(rows) > 1:
        left.set_yscale("log", base=2)
        left.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: count_text(rate)))
    else:
        left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    left.legend(loc="lower right")
    return figure


def _draw_family(
    axes: tuple[Axes, Axes], name: str, rows: Sequence[ScaleRow], style: tuple[str, str, str], over_devices: bool
) -> None:
    left, right = axes
    name = legend_entry(name, 40)
    counted = any(row.items for row in rows)
    colour, marker, line = style
    across = [row.devices if over_devices else row.items for row in rows]
    rates = [row.items_per_second if counted else ps_to_us(row.total_ps) for row in rows]
    if over_devices and counted:
        promised = [rates[0] / across[0] * devices for devices in across]
        left.plot(across, promised, color=GREY, linestyle=":", label=f"{name}, as the smallest slice")
    # What does not fit has no time that the chip could take.
    shown = [rate if row.fits else float("nan") for rate, row in zip(rates, rows, strict=True)]
    left.plot(across, shown, marker=marker, linestyle=line, color=colour, label=name)
    shares = [row.peak_hbm_bytes / row.hbm_capacity_bytes for row in rows]
    right.plot(across, shares, marker=marker, linestyle=line, color=colour)
