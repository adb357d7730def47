"""The roofline picture: the ops of a run as dots under the roofs of its chip (Williams et al., CACM 2009)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from matplotlib.transforms import Bbox

from tpusim.analysis.roofline import Roof, RoofPoint, roof_points, roofs
from tpusim.cost.peaks import flops_by_type, peak_flops_per_second
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, MATRIX, UNITS, VMEM
from tpusim.report.plots.colours import GREY, INK, kind_of, kind_order, look_of
from tpusim.report.plots.style import figure_of, literal, new_figure, place_labels, shortened, styled
from tpusim.report.tables import COUNTS, scaled_text, time_text
from tpusim.timeline.records import Timeline

_LABELS = 8
# Areas in square points: what takes all the time, and what can still be seen.
_LARGEST, _SMALLEST = 900.0, 8.0
# Dots below this share of the peak, or outside these intensities, are drawn at the rim.
_LOWEST = 1e-6


@styled
def roofline(run: Timeline, chip: Chip, ax: Axes | None = None) -> Figure:
    """Draw the ops of a run under the roofs of ``chip`` and return the figure.

    A dot's area is the op's share of the time; a hollow one touches HBM not at all and stands at its bytes of VMEM.
    What computes nothing is a dot in the strip below, at the bandwidth that it reached. With ``ax`` only the upper part
    is drawn.
    """
    points = roof_points(run, chip)
    dots = [point for point in points if point.flops and point.memory]
    rest = [point for point in points if not (point.flops and point.memory)]
    total_ps = max(1, run.total_ps)
    lower = None
    if ax is None:
        figure = new_figure(7.4, 5.6 if rest else 4.6)
        ax, lower = figure.subplots(2, 1, height_ratios=(4.2, 1)) if rest else (figure.add_subplot(), None)
    found = roofs(chip, *_types(run, chip))
    limits = _limits(found, dots)
    _draw_roofs(ax, found, limits)
    _draw_dots(ax, dots, total_ps, limits)
    _finish(ax, limits, points, f"{run.program} on {run.chip} (simulated): {time_text(run.total_ps)}")
    if lower is not None:
        _draw_rest(lower, rest, total_ps, chip)
    figure_of(ax).draw_without_rendering()
    if lower is not None:
        place_labels(lower, [_rest_place(p) for p in rest[:4]], [shortened(p.name, 30) for p in rest[:4]])
    _turn_slopes(ax)
    _label_dots(ax, dots, limits, total_ps)
    return figure_of(ax)


def _types(run: Timeline, chip: Chip) -> list[str]:
    """Return the types of the operands of products, those of most work first: one for each peak."""
    work = Counter[str]()
    for record in run.records:
        if MATRIX in record.units:
            work.update(flops_by_type(record, record.flops * record.count))
    found: dict[float, str] = {}
    for name, _ in work.most_common():
        found.setdefault(peak_flops_per_second(chip, name), name)
    return list(found.values())


_Limits = tuple[float, float, float, float]


def _limits(found: Sequence[Roof], dots: Sequence[RoofPoint]) -> _Limits:
    """Return the least and the most intensity and rate of the picture: round powers of ten around dots and ridges."""
    peak = max(roof.per_second for roof in found if not roof.is_memory)
    hbm = next(roof.per_second for roof in found if roof.name == UNITS[HBM].label)
    # An op that fetches a few bytes of HBM has an intensity of millions: beyond the ridge it stands at the rim.
    across = [0.1, peak / hbm * 10, *(min(dot.intensity, peak / hbm * 100) for dot in dots)]
    up = [peak * 1e-3, *(dot.flops_per_second for dot in dots if dot.flops_per_second > peak * _LOWEST)]
    left, right = np.floor(np.log10(max(1e-3, min(across)))), np.ceil(np.log10(max(across)))
    return 10.0**left, 10.0**right, 10.0 ** np.floor(np.log10(min(up))), peak * 4


def _draw_roofs(ax: Axes, found: Sequence[Roof], limits: _Limits) -> None:
    left, right, low, _ = limits
    peak = max(roof.per_second for roof in found if not roof.is_memory)
    for number, roof in enumerate(found):
        dashes = ("-", "--", "-", ":")[number % 4]
        if roof.is_memory:
            ax.plot([left, peak / roof.per_second], [left * roof.per_second, peak], dashes, color=INK, linewidth=1.1)
            # Each farther along its roof than the one before, so that names of near roofs do not meet.
            start = max(left, low / roof.per_second) * 1.3 * 5**number
            words = f"{roof.name} {_rate(roof.per_second)}B/s"
            ax.text(start, start * roof.per_second, words, fontsize=6.5, color=INK, gid="slope")
        else:
            begin = min(peak, roof.per_second) / max(r.per_second for r in found if r.is_memory)
            ax.plot([max(left, begin), right], [roof.per_second] * 2, dashes, color=INK, linewidth=1.1)
            words = f"{roof.name} {_rate(roof.per_second)}FLOP/s"
            ax.text(right * 0.93, roof.per_second * 1.1, words, ha="right", va="bottom", fontsize=6.5, color=INK)


def _turn_slopes(ax: Axes) -> None:
    """Turn the names of memories along their roofs, and lift them off the line."""
    for text in ax.texts:
        if text.get_gid() == "slope":
            x, y = text.get_position()
            # On logarithmic axes every memory's roof rises by the same angle.
            (left, low), (right, high) = ax.transData.transform([(x, y), (10 * x, 10 * y)])
            text.set(rotation=np.degrees(np.arctan2(high - low, right - left)), rotation_mode="anchor", va="bottom")
            text.set_position((x, y * 1.15))


def _rate(per_second: float) -> str:
    return scaled_text(per_second, COUNTS, lambda rate, _: f"{rate:.3g}")


def _area(point: RoofPoint, total_ps: int) -> float:
    return max(_SMALLEST, _LARGEST * point.time_ps / total_ps)


def _draw_dots(ax: Axes, dots: Sequence[RoofPoint], total_ps: int, limits: _Limits) -> None:
    """Draw a dot per op; those of one kind together, since thousands drawn one by one take seconds."""
    for kind in kind_order(kind_of(dot.bound_by) for dot in dots):
        for hollow in (False, True):
            alike = [d for d in dots if kind_of(d.bound_by) == kind and (d.memory == VMEM) == hollow]
            if alike:
                _scatter(ax, [_place(dot, limits) for dot in alike], [_area(d, total_ps) for d in alike], kind, hollow)


def _scatter(
    ax: Axes, places: Sequence[tuple[float, float]], areas: Sequence[float], kind: str, hollow: bool = False
) -> None:
    across, up = zip(*places, strict=True)
    colour = look_of(kind).colour
    face, edge = ("none", INK if kind == "latency" else colour) if hollow else (colour, INK)
    # Not clipped: those at the rim are drawn whole.
    ax.scatter(across, up, s=areas, marker=_dot_marker(kind), facecolor=face, edgecolor=edge,
               linewidth=1.0 if hollow else 0.5, alpha=0.85, zorder=3, clip_on=False)  # fmt: skip


def _dot_marker(kind: str) -> str:
    """Return the marker of a kind, large enough to have a colour."""
    return look_of(kind).marker.replace(".", "o")


def _place(dot: RoofPoint, limits: _Limits) -> tuple[float, float]:
    """Return where a dot is drawn: what lies outside, at the rim."""
    left, right, low, high = limits
    return min(max(dot.intensity, left), right), min(max(dot.flops_per_second, low), high)


def _label_dots(ax: Axes, dots: Sequence[RoofPoint], limits: _Limits, total_ps: int) -> None:
    """Name the dots that took longest; dots of one place share the first one's name."""
    longest: list[RoofPoint] = []
    for dot in dots:
        # Dots that cannot be told apart need one name.
        if not any(
            0.9 < dot.intensity / other.intensity < 1.1 and 0.9 < dot.flops_per_second / other.flops_per_second < 1.1
            for other in longest
        ):
            longest.append(dot)
    shown = longest[:_LABELS]
    avoid = []
    for dot in shown:
        x, y = ax.transData.transform(_place(dot, limits))
        # Square points to pixels.
        reach = np.sqrt(_area(dot, total_ps)) / 2 * figure_of(ax).dpi / 72 * 0.8
        avoid.append(Bbox([(x - reach, y - reach), (x + reach, y + reach)]))
    legend = ax.get_legend()
    if legend is not None:
        avoid.append(legend.get_window_extent())
    place_labels(ax, [_place(dot, limits) for dot in shown], [shortened(dot.name, 26) for dot in shown], avoid=avoid)


def _finish(ax: Axes, limits: _Limits, points: Sequence[RoofPoint], title: str) -> None:
    """Scale and name the axes, and say what colours and markers mean."""
    ax.set(xscale="log", yscale="log", xlim=limits[:2], ylim=limits[2:])
    ax.grid(which="major")
    for axis in (ax.xaxis, ax.yaxis):
        # Decades have labels; asking whether the ticks between them might takes most of the time of a drawing.
        axis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("arithmetic intensity (FLOP per byte of HBM; hollow: of VMEM, for ops without HBM traffic)")
    ax.set(ylabel="rate (FLOP/s)", title=literal(title))
    handles = [
        Line2D([], [], ls="", marker=_dot_marker(kind), color=look_of(kind).colour, markeredgecolor=INK, label=kind)
        for kind in kind_order(kind_of(point.bound_by) for point in points)
    ]
    ax.legend(handles=handles, title="bound by (area: time)", title_fontsize=7, loc="lower right", markerscale=0.8)


def _draw_rest(ax: Axes, rest: Sequence[RoofPoint], total_ps: int, chip: Chip) -> None:
    """Draw what computes nothing by the HBM bandwidth that it reaches."""
    peak = chip.hbm.bandwidth_bytes_per_second
    for kind in kind_order(kind_of(point.bound_by) for point in rest):
        alike = [point for point in rest if kind_of(point.bound_by) == kind]
        _scatter(ax, [_rest_place(point) for point in alike], [_area(p, total_ps) for p in alike], kind)
    ax.axvline(peak / 1e9, color=INK, linewidth=1.1)
    ax.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    ax.set(xlim=(-0.03 * peak / 1e9, 1.08 * peak / 1e9), ylim=(-1, 1), yticks=[])
    ax.spines["left"].set_visible(False)
    share = sum(point.time_ps for point in rest) / total_ps
    ops = f"{len(rest)} op{'s' if len(rest) > 1 else ''}"
    ax.set_title(f"without floating-point work: {ops}, {share:.0%} of the time", fontsize=8)
    ax.set_xlabel(f"HBM bandwidth reached (GB/s; line: the chip's {peak / 1e9:,.0f})")


def _rest_place(point: RoofPoint) -> tuple[float, float]:
    return (point.bytes_per_second / 1e9 if point.memory == HBM else 0.0), 0.0
