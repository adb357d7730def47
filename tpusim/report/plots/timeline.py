"""The picture of a run over time: what the core did, how busy its units and memories were, transfers beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tpusim.analysis.busy import Values, busy_over_time
from tpusim.analysis.energy.power import mean_watts
from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import ICI, UNITS
from tpusim.report.lanes import Lanes
from tpusim.report.plots.colours import GREY, INK, ink_on, kind_of, kind_order, kind_patch, look_of
from tpusim.report.plots.fold import Fold, fold_of
from tpusim.report.plots.style import axes_or_new, figure_of, literal, place_labels, shortened, styled, time_unit
from tpusim.report.tables import time_text
from tpusim.timeline.records import CORE, SPARSECORE, Record, Repeat, Timeline
from tpusim.units import PS_PER_US

_BESIDE = {"dma": "copies", ICI: "collectives", SPARSECORE: "sparse cores"}
_WIDTH = 7.4
_PIXELS = 900
# A row whose unit is less busy than this all over is empty to the eye.
_LEAST_SHARE = 0.004
_LANES = 4
_CALLOUTS = 6
# Blocks below this share of the picture's width are not named.
_CALLOUT_SHARE = 0.004
_FONT = 6.0
# An average letter of DejaVu Sans is 0.6 of the size wide.
_LETTER_INCHES = 0.62 * _FONT / 72


class _Block(NamedTuple):
    """A stretch that is drawn as one: in picoseconds, what most of it went to, and its name if it is one record's."""

    start_ps: int
    end_ps: int
    kind: str
    name: str


@styled
def timeline(
    run: Timeline,
    ax: Axes | None = None,
    window_us: tuple[float, float] | None = None,
    chip: Chip | None = None,
    unfold: bool = False,
) -> Figure:
    """Draw one device's run and return the figure; ``window_us`` is the part that is drawn, by default all of it.

    The core's row says what bounds each step; rows of units how busy they were, full height being all the time; of a
    known ``chip`` one its power, full height being the most; rows below them what ran beside the core. Hatched is what
    a loop repeats; the axis is folded there, unless it is to ``unfold``, so that the trip before is seen in full.
    """
    first_ps, last_ps = _window(run, window_us)
    fold = fold_of(() if unfold else run.repeats, first_ps, last_ps)
    edges_ps = fold.edges(_PIXELS)
    shares = busy_over_time(run, edges_ps)
    units = [u for u in UNITS.values() if u.key in shares and shares[u.key].mean() >= _LEAST_SHARE]
    beside = _beside_rows(run, first_ps, last_ps)
    height = (
        1.35 + 0.26 * (len(units) + bool(chip)) + 0.2 * sum(min(_LANES, max(lanes) + 1) for lanes, _ in beside.values())
    )
    ax = axes_or_new(ax, _WIDTH, max(2.2, height))
    per_unit, unit_name = time_unit(last_ps - first_ps)
    kinds, unnamed = _draw_core(ax, run, fold, per_unit)
    labels = [(0.5, "core")]
    y = 1.25
    edges = edges_ps / per_unit
    if chip:
        watts = mean_watts(run, chip, edges_ps[:-1], edges_ps[1:])
        _draw_unit(ax, y, edges, watts / max(watts.max(), 1.0), GREY)
        labels.append((y + 0.4, f"power (most: {watts.max():.0f} W)"))
        y += 0.95
    for unit in units:
        _draw_unit(ax, y, edges, shares[unit.key], unit.colour)
        labels.append((y + 0.4, unit.label))
        y += 0.95
    for row, (lanes, records) in beside.items():
        high = _draw_beside(ax, y, (lanes, records), per_unit)
        _draw_repeats_beside(ax, run.repeats, records, (y, high), per_unit)
        many = f"\n(up to {max(lanes) + 1} at once)" if max(lanes) >= _LANES else ""
        labels.append((y + high / 2, _BESIDE.get(row, row) + many))
        y += high + 0.2
    trips = _trips_in_full(ax, run.repeats, (first_ps, last_ps), per_unit)
    fold.apply(ax, per_unit)
    ax.set(xlim=(first_ps / per_unit, last_ps / per_unit), ylim=(y + 0.1, -1.3 if unnamed or trips else -0.15))
    ax.set_yticks([place for place, _ in labels], [literal(name) for _, name in labels])
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel=f"time ({unit_name})", ylabel="unit (height: busy)")
    ax.set_title(literal(f"{run.program} on {run.chip} (simulated): {time_text(run.total_ps)}"), pad=18)
    handles = [kind_patch(kind) for kind in kind_order(kinds)]
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), borderaxespad=0.2)
    longest = sorted(unnamed, key=lambda block: block.start_ps - block.end_ps)[:_CALLOUTS]
    points = [((block.start_ps + block.end_ps) / 2 / per_unit, 0.0) for block in longest]
    figure_of(ax).draw_without_rendering()
    words = [shortened(block.name, 28) for block in longest]
    place_labels(ax, [*trips.values(), *points], [*map(literal, trips), *words], only_above=True)
    return figure_of(ax)


def _window(run: Timeline, window_us: tuple[float, float] | None) -> tuple[int, int]:
    """Return the drawn part in picoseconds; a run that takes no time still has a width."""
    if window_us is None:
        return 0, max(1, run.total_ps)
    if fault := window_fault(run, window_us):
        raise ConfigError(f"window_us: {fault}")
    # Cut to the run before they are rounded: an end may be infinite.
    first_ps, last_ps = (round(min(run.total_ps, at_us * PS_PER_US)) for at_us in window_us)
    return first_ps, max(first_ps + 1, last_ps)


def window_fault(run: Timeline, window_us: Any) -> str:
    """Return what is wrong with a part of a run that is to be drawn, or nothing."""
    times = tuple(window_us) if isinstance(window_us, Iterable) else ()
    is_pair = len(times) == 2 and all(isinstance(at, Real) for at in times)
    run_us = run.total_ps / PS_PER_US
    if is_pair and 0 <= times[0] < min(times[1], run_us):
        return ""
    found = f"{times[0]:g} to {times[1]:g}" if is_pair else f"{window_us!r:.80}"
    return f"expected a part of the run's {run_us:,.2f} us, found {found}"


def _draw_unit(ax: Axes, y: float, edges: Values, shares: Values, colour: str) -> None:
    ax.axhspan(y, y + 0.8, facecolor="#F6F6F6", linewidth=0)
    ax.stairs(y + 0.8 * (1 - shares), edges, baseline=y + 0.8, fill=True, color=colour, linewidth=0)
    ax.axhline(y + 0.8, color=GREY, linewidth=0.4)


def _trips_in_full(
    ax: Axes, repeats: Sequence[Repeat], window: tuple[int, int], per_unit: float
) -> dict[str, tuple[float, float]]:
    """Mark the trips that stand for those behind them, and return how often each happens and where to write that."""
    found = {}
    for repeat in repeats:
        if window[0] <= repeat.trip_start_ps and repeat.start_ps <= window[1]:
            ends = repeat.trip_start_ps / per_unit, repeat.start_ps / per_unit
            ax.plot(ends, (-0.06, -0.06), color=INK, linewidth=1.2, marker="|", markersize=4, gid="trip")
            found[f"{repeat.name}: x {repeat.trips + 1:,}"] = sum(ends) / 2, -0.06
    return found


def _draw_core(ax: Axes, run: Timeline, fold: Fold, per_unit: float) -> tuple[set[str], list[_Block]]:
    """Draw the core's row and return the kinds of time in it, and blocks that are large but have no room for a name."""
    window = int(fold.at_ps[0]), int(fold.at_ps[-1])
    least_ps = int(fold.length / _PIXELS)
    records = (r for r in run.records if r.row == CORE and r.end_ps > window[0] and r.start_ps < window[1])
    blocks = _blocks(records, least_ps)
    inches_per_ps = ax.get_position().width * figure_of(ax).get_figwidth() / fold.length
    by_kind = defaultdict(list)
    unnamed = []
    for block in blocks:
        by_kind[block.kind].append((block.start_ps / per_unit, (block.end_ps - block.start_ps) / per_unit))
        if not _name_block(ax, block, window, (inches_per_ps, per_unit)):
            unnamed.append(block)
    for kind, spans in by_kind.items():
        ax.broken_barh(
            spans, (0, 1), facecolor=look_of(kind).colour, hatch=look_of(kind).hatch, edgecolor="white", linewidth=0.15
        )
    kinds = set(by_kind)
    for repeat in run.repeats:
        _draw_repeat(ax, repeat, fold, (inches_per_ps, per_unit))
        kinds.update(_draw_trip(ax, run, repeat, per_unit))
    wide_ps = fold.length * _CALLOUT_SHARE
    return kinds, [block for block in unnamed if block.name and block.end_ps - block.start_ps >= wide_ps]


def _draw_trip(ax: Axes, run: Timeline, repeat: Repeat, per_unit: float) -> list[str]:
    """Draw what the time of a repeated trip went to, as shares of the row's height, and return its kinds."""
    spent: dict[str, int] = defaultdict(int)
    for record in run.records:
        if record.row == CORE and repeat.trip_start_ps <= record.start_ps and record.end_ps <= repeat.start_ps:
            # Counted, since a loop within the trip is itself drawn once.
            spent[kind_of(record.bound_by)] += record.total_ps
    kinds = kind_order(kind for kind, ps in spent.items() if ps)
    foot = 0.0
    for kind in kinds:
        high = spent[kind] / sum(spent.values())
        span = (repeat.start_ps / per_unit, (repeat.end_ps - repeat.start_ps) / per_unit)
        ax.broken_barh([span], (foot, high), facecolor=look_of(kind).colour, hatch=look_of(kind).hatch, linewidth=0)
        foot += high
    return kinds


def _blocks(records: Iterable[Record], least_ps: int) -> list[_Block]:
    """Return what is drawn of the core: records, and one block for neighbours too short to be told apart."""
    blocks: list[_Block] = []
    crowd: list[Record] = []
    for record in sorted(records, key=lambda record: record.start_ps):
        if record.duration_ps < least_ps and (not crowd or record.end_ps - crowd[0].start_ps < least_ps):
            crowd.append(record)
            continue
        blocks += _crowded(crowd)
        crowd = [record] if record.duration_ps < least_ps else []
        if not crowd:
            blocks.append(_Block(record.start_ps, record.end_ps, kind_of(record.bound_by), record.name))
    return blocks + _crowded(crowd)


def _crowded(crowd: list[Record]) -> list[_Block]:
    """Return short records as one block of the kind that most of their time went to."""
    spent: dict[str, int] = defaultdict(int)
    for record in crowd:
        spent[kind_of(record.bound_by)] += record.duration_ps
    if not any(spent.values()):
        return []
    return [_Block(crowd[0].start_ps, crowd[-1].end_ps, max(spent, key=lambda kind: spent[kind]), "")]


def _name_block(ax: Axes, block: _Block, window: tuple[int, int], scale: tuple[float, float]) -> bool:
    """Write a block's name into it where there is room for enough of it, and return whether there was."""
    start_ps, end_ps = max(block.start_ps, window[0]), min(block.end_ps, window[1])
    letters = int((end_ps - start_ps) * scale[0] / _LETTER_INCHES) - 1
    if letters < min(len(block.name), 10) or not block.name:
        return False
    middle = (start_ps + end_ps) / 2 / scale[1]
    look = look_of(block.kind)
    # On a hatch it has a ground of its own, which is white.
    ink = INK if look.hatch else ink_on(look.colour)
    text = ax.text(middle, 0.5, shortened(block.name, letters), ha="center", va="center", fontsize=_FONT, color=ink)
    if look.hatch:
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    return True


def _draw_repeat(ax: Axes, repeat: Repeat, fold: Fold, scale: tuple[float, float]) -> None:
    """Draw the stretch of the trips that equal the one before it."""
    start_ps, end_ps = max(repeat.start_ps, fold.at_ps[0]), min(repeat.end_ps, fold.at_ps[-1])
    if end_ps <= start_ps:
        return
    inches_per_ps, per_unit = scale
    span = (start_ps / per_unit, (end_ps - start_ps) / per_unit)
    ax.broken_barh(
        [span], (0, 1), facecolor="none", hatch="////", edgecolor="white", linewidth=0.4, gid="repeat", zorder=2
    )
    begin, end = np.interp([start_ps, end_ps], fold.at_ps, fold.drawn)
    room = int((end - begin) * inches_per_ps / _LETTER_INCHES) - 2
    count = f"{repeat.trips:,} more equal trip{'s' if repeat.trips > 1 else ''}"
    words = next((w for w in (f"{repeat.name}: {count}", count, f"+{repeat.trips:,}") if len(w) <= room), "")
    if words:
        middle = np.interp((begin + end) / 2, fold.drawn, fold.at_ps) / per_unit
        text = ax.text(middle, 0.5, literal(words), ha="center", va="center", fontsize=_FONT)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})


def _beside_rows(run: Timeline, first_ps: int, last_ps: int) -> dict[str, tuple[list[int], list[Record]]]:
    """Return by row what ran beside the core, each record with the lane in which it overlaps no other."""
    found: dict[str, tuple[list[int], list[Record]]] = defaultdict(lambda: ([], []))
    free: dict[str, Lanes] = defaultdict(Lanes)
    for record in sorted(run.records, key=lambda record: record.start_ps):
        seen = record.start_ps < last_ps and record.end_ps > first_ps
        if record.row == CORE or not record.duration_ps or not seen:
            continue
        found[record.row][0].append(free[record.row].take(record.start_ps, record.end_ps))
        found[record.row][1].append(record)
    return found


def _draw_beside(ax: Axes, y: float, row: tuple[list[int], list[Record]], per_unit: float) -> float:
    """Draw transfers beside the core and return the height of the row: each in its lane, or many by their number."""
    lanes, records = row
    count = max(lanes) + 1
    if count > _LANES:
        _draw_count(ax, y, records, per_unit)
        return 1.2
    by_kind = defaultdict(list)
    for lane, record in zip(lanes, records, strict=True):
        by_kind[lane, kind_of(record.bound_by)].append((record.start_ps / per_unit, record.duration_ps / per_unit))
    for (lane, kind), spans in by_kind.items():
        ax.broken_barh(spans, (y + 0.4 * lane, 0.36), facecolor=look_of(kind).colour, edgecolor="white", linewidth=0.15)
    return max(0.6, 0.4 * count)


def _draw_count(ax: Axes, y: float, records: list[Record], per_unit: float) -> None:
    """Draw how many transfers were under way, the most being the height of the row."""
    changes: dict[int, int] = defaultdict(int)
    for record in records:
        changes[record.start_ps] += 1
        changes[record.end_ps] -= 1
    times = sorted(changes)
    under_way = np.cumsum([changes[time] for time in times])[:-1]
    edges = np.array(times) / per_unit
    colour = look_of(kind_of(records[0].bound_by)).colour
    heights = y + 1.2 * (1 - under_way / under_way.max())
    ax.stairs(heights, edges, baseline=y + 1.2, fill=True, color=colour, linewidth=0)
    ax.axhline(y + 1.2, color=GREY, linewidth=0.4)


def _draw_repeats_beside(
    ax: Axes, repeats: Sequence[Repeat], records: list[Record], place: tuple[float, float], per_unit: float
) -> None:
    """Hatch where trips of a loop repeat that have transfers of this row in them."""
    for repeat in repeats:
        if any(repeat.trip_start_ps <= record.start_ps < repeat.start_ps for record in records):
            span = (repeat.start_ps / per_unit, (repeat.end_ps - repeat.start_ps) / per_unit)
            ax.broken_barh([span], place, facecolor="#F6F6F6", hatch="////", edgecolor=GREY, linewidth=0.4)
