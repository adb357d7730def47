"""The picture of memory over a program's schedule: what is alive, where it lies, and what fills it at the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tpusim.analysis.memory import MemoryProfile
from tpusim.hardware.units import MemorySpace
from tpusim.report.plots.colours import BLUE, GREY, INK, PALE, TILE_TINTS, VERMILION
from tpusim.report.plots.style import figure_of, literal, new_figure, shortened, styled
from tpusim.report.tables import BYTES, size_text, unit_of

_NAMED = 8
_NAME_LETTERS = 34
# A capacity farther away than this would leave the curve no height.
_CAPACITY_IN_SIGHT = 1.6


@styled
def memory(
    profiles: Sequence[MemoryProfile],
    capacities: Mapping[MemorySpace, int],
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw memory spaces over the schedule, and beside each the largest buffers at its peak; return the figure.

    Every block is a buffer from its first to its last instruction, at its place in memory: white between blocks below
    the line of the heap's end is fragmentation. ``capacities`` is what a program may have of each space. With
    ``ax`` only the first space is drawn there, without the buffers.
    """
    if ax is not None:
        _draw_space(ax, profiles[0], capacities.get(profiles[0].space, 0))
        return figure_of(ax)
    figure = new_figure(9.2, 0.35 + 2.75 * len(profiles))
    grid = figure.subplots(len(profiles), 2, width_ratios=(3, 2.1), squeeze=False)
    for (left, right), profile in zip(grid, profiles, strict=True):
        _draw_space(left, profile, capacities.get(profile.space, 0))
        _draw_peak(right, profile)
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=9, fontweight="bold")
    return figure


def _draw_space(ax: Axes, profile: MemoryProfile, capacity: int) -> None:
    """Draw one space: what is held throughout, the buffers at their places, the line of what is alive."""
    top = max(profile.peak_bytes, profile.held_bytes + profile.heap_bytes, 1)
    per_unit, unit = unit_of(top, BYTES)
    count = max(1, len(profile.alive_bytes))
    held = profile.held_bytes / per_unit
    if held:
        words = f"arguments, outputs, constants: {size_text(profile.held_bytes)}"
        ax.axhspan(0, held, facecolor=PALE, linewidth=0, label=words)
    _draw_blocks(ax, profile, held, per_unit)
    edges = np.arange(count + 1)
    ax.stairs([n / per_unit for n in profile.alive_bytes] or [held], edges, color=INK, linewidth=0.7, label="alive")
    ax.axvline(profile.peak_position + 0.5, color=VERMILION, linewidth=0.8, linestyle="--", label="peak")
    if profile.heap_bytes:
        end = (profile.held_bytes + profile.heap_bytes) / per_unit
        ax.axhline(end, color=BLUE, linewidth=0.8, linestyle=":", label="end of the heap")
    seen_bytes = capacity if capacity < _CAPACITY_IN_SIGHT * top else 0
    if seen_bytes:
        ax.axhline(capacity / per_unit, color=INK, linewidth=1.4, label="capacity of the chip")
    ax.set(xlim=(0, count), ylim=(0, max(top, seen_bytes) * 1.04 / per_unit), title=_space_title(profile, capacity))
    ax.set(xlabel="position in the schedule (instructions)", ylabel=f"{profile.space.upper()} ({unit})")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=4, handlelength=1.6, columnspacing=1.0)


def _space_title(profile: MemoryProfile, capacity: int) -> str:
    words = f"{profile.space.upper()}: peak {size_text(profile.peak_bytes)}"
    holes = profile.fragmentation_bytes
    of = f" of {size_text(capacity)}" if capacity else ""
    return words + of + (f", {size_text(holes)} lost in holes" if holes > 0 else "")


def _draw_blocks(ax: Axes, profile: MemoryProfile, held: float, per_unit: float) -> None:
    placed = [buffer for buffer in profile.buffers if buffer.offset_bytes is not None]
    corners, tints = [], []
    for number, buffer in enumerate(sorted(placed, key=lambda b: (b.first, b.name))):
        low = held + (buffer.offset_bytes or 0) / per_unit
        high = low + buffer.n_bytes / per_unit
        corners.append([(buffer.first, low), (buffer.last + 1, low), (buffer.last + 1, high), (buffer.first, high)])
        tints.append(TILE_TINTS[number % len(TILE_TINTS)])
    # One collection: thousands of patches would make the file large and slow.
    ax.add_collection(PolyCollection(corners, facecolors=tints, edgecolors=GREY, linewidths=0.15), autolim=False)


def _draw_peak(ax: Axes, profile: MemoryProfile) -> None:
    """Draw the largest buffers alive at the peak as bars, each with its name and size."""
    alive = [buffer for buffer in profile.alive_at(profile.peak_position) if not buffer.within]
    shown, rest = alive[:_NAMED], alive[_NAMED:]
    most = max((buffer.n_bytes for buffer in shown), default=1)
    per_unit, unit = unit_of(most, BYTES)
    for place, buffer in enumerate(shown):
        name, n_bytes = shortened(buffer.name, _NAME_LETTERS), buffer.n_bytes
        source = f" ({shortened(buffer.source, 22)})" if buffer.source else ""
        filled = min(n_bytes, buffer.unpadded_bytes or n_bytes)
        ax.barh(place, filled / per_unit, 0.42, color=BLUE)
        ax.barh(place, (n_bytes - filled) / per_unit, 0.42, left=filled / per_unit, color="white", edgecolor=GREY,
                hatch="////", linewidth=0.5)  # fmt: skip
        ax.text(0, place - 0.33, f"{name}{source}, {size_text(n_bytes)}", fontsize=6.3, va="bottom", gid="buffer")
    if rest:
        words = f"and {len(rest):,} more, {size_text(sum(buffer.n_bytes for buffer in rest))} together"
        ax.text(0, _NAMED - 0.33, words, fontsize=6.3, va="bottom", gid="buffer")
    ax.spines["left"].set_visible(False)
    peak = f"position {profile.peak_position}"
    if profile.peak_position < len(profile.schedule):
        peak = shortened(profile.schedule[profile.peak_position], 26)
    ax.set(xlim=(0, most * 1.05 / per_unit), ylim=(_NAMED + 0.1, -0.95), yticks=[])
    ax.set(xlabel=f"size ({unit}; hatched: padding)", title=f"at the peak ({peak})")
