"""Memory as a strip: the positions of a buffer one after the other, in the colours of the tiles that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tpusim.report.plots.cells import Cell, bare, draw_cell, draw_padding, shown_of, tint_of
from tpusim.report.plots.colours import GREY, INK
from tpusim.report.plots.plane import Plane

Tint = Callable[["Plane", int], str]
"""Gives the colour of what is at a position of a plane's buffer."""

_PER_LINE = 24
_MOST_LINES = 8
# Stretches of a tile that are drawn apart: fewer than pixels, more than a tile has rows.
_BINS = 64


def strip_lines(plane: Plane) -> int:
    """Return how many lines the strip takes."""
    return min(_MOST_LINES, -(-plane.count // _PER_LINE)) if plane.is_small else 2


def draw_strip(ax: Axes, plane: Plane, tint: Tint | None = None) -> None:
    """Draw the buffer from its first byte: a small array element by element, else tile by tile.

    ``tint`` gives the colour of what is at a position; by default tiles have the colours that they have in the array.
    """
    (_draw_elements if plane.is_small else _draw_tiles)(ax, plane, tint or _own_tint)
    bare(ax)
    ax.xaxis.tick_bottom()
    ax.xaxis.set_label_position("bottom")


def _own_tint(plane: Plane, position: int) -> str:
    return tint_of(*plane.tile_at(position // plane.tile_elements))


def _draw_elements(ax: Axes, plane: Plane, tint: Tint) -> None:
    lines = strip_lines(plane)
    drawn = min(plane.count, lines * _PER_LINE)
    for position in range(drawn):
        line, place = divmod(position, _PER_LINE)
        # The position is that of an element, or of padding.
        cell = Cell("", "#FFFFFF", 1.0)
        if not plane.is_padding(position):
            cell = Cell(plane.name_at(position), tint(plane, position))
        draw_cell(ax, (place, line * 1.2), (1.0, 1.0), cell, 5.5)
    ax.set(xlim=(-0.02, _PER_LINE + 0.02), ylim=(lines * 1.2, -0.02), xticks=[], ylabel="position")
    ax.set_yticks([line * 1.2 + 0.5 for line in range(lines)], [str(line * _PER_LINE) for line in range(lines)])
    rest = f"; {plane.count - drawn:,} positions more" if drawn < plane.count else ""
    ax.set_xlabel(f"memory (elements of {plane.bits} bits), {_PER_LINE} in a line{rest}", loc="left")
    ax.set_title(f"memory: {plane.name_words} of the element at each position")


def _draw_tiles(ax: Axes, plane: Plane, tint: Tint) -> None:
    """Draw the first tiles and the last one as blocks, the padding in each where it lies."""
    shown = shown_of(plane.tiles, 5, 1)
    tile_bytes = plane.tile_elements * plane.bits / 8
    for x, number in enumerate(shown):
        if number is None:
            ax.text(x + 0.5, 0.5, "\N{MIDLINE HORIZONTAL ELLIPSIS}", ha="center", va="center", color=GREY)
        else:
            _draw_block(ax, plane, tint, x, number)
    ax.set(xlim=(-0.02, max(len(shown), 3) + 0.02), ylim=(1.02, -0.02), yticks=[])
    places = [x for x, number in enumerate(shown) if number is not None]
    # One unit along the axis, in which tiles begin at whole numbers.
    unit, name = (1024, "KiB") if tile_bytes % 1024 == 0 else (1, "bytes")
    ax.set_xticks(places, [f"{number * tile_bytes / unit:,.0f}" for number in shown if number is not None])
    ax.set_xlabel(f"memory ({name} from the start of the buffer)", loc="left")
    ax.set_title("memory: tiles one after the other, padding where it lies")


def _draw_block(ax: Axes, plane: Plane, tint: Tint, x: int, number: int) -> None:
    """Draw one tile of the strip; where a stretch is padding in part, its colour is paler."""
    bins = min(_BINS, plane.tile_elements)
    firsts = [number * plane.tile_elements + place * plane.tile_elements // bins for place in range(bins + 1)]
    seen = [_seen(plane, tint, *ends) for ends in pairwise(firsts)]
    begin = 0
    # Neighbours of one kind are one rectangle, so that hatches run through.
    for place in range(1, bins + 1):
        if place == bins or seen[place] != seen[begin]:
            _draw_stretch(ax, x + begin / bins, (place - begin) / bins, *seen[begin])
            begin = place
    ax.add_patch(Rectangle((x, 0), 1, 1, fill=False, edgecolor=INK, linewidth=0.6))
    words = ax.text(x + 0.5, 0.5, f"tile {number:,}", ha="center", va="center", fontsize=7)
    words.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})


def _draw_stretch(ax: Axes, x: float, width: float, tint: str, share: float) -> None:
    """Draw a stretch in its tint; its share of padding hatched if there is nothing else, else as paleness."""
    if share >= 1:
        draw_padding(ax, (x, 0), (width, 1))
        return
    ax.add_patch(Rectangle((x, 0), width, 1, facecolor=tint, edgecolor="none"))
    if share > 0:
        ax.add_patch(Rectangle((x, 0), width, 1, facecolor="white", alpha=share, edgecolor="none"))


def _seen(plane: Plane, tint: Tint, first: int, last: int) -> tuple[str, float]:
    """Return the tint of a stretch's first element and how much of it is padding, from some 32 positions in it."""
    step = max(1, (last - first) // 32)
    filled = [position for position in range(first, last, step) if not plane.is_padding(position)]
    share = 1 - len(filled) / len(range(first, last, step))
    return (tint(plane, filled[0]) if filled else ""), share
