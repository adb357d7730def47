"""Grids of labelled cells, of which long ones show both ends: what pictures of arrays consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from tpusim.report.plots.colours import GREY, INK, PADDING_HATCH, TILE_TINTS, VERMILION

Shown = Sequence[int | None]
"""The numbers along one axis that are drawn, ``None`` for a gap that stands for all between its neighbours."""


class Cell(NamedTuple):
    """What a cell shows: words, and the tint of its tile; ``padded`` is the share of it that is padding, 0 to 1."""

    words: str
    tint: str
    padded: float = 0.0


def shown_of(count: int, head: int, tail: int) -> Shown:
    """Return which of ``count`` numbers are drawn: all, or the first and the last ones around a gap."""
    if count <= head + tail + 1:
        return range(count)
    return [*range(head), None, *range(count - tail, count)]


def tint_of(row: int, column: int) -> str:
    """Return the tint of a tile; neighbours along either axis never share one."""
    return TILE_TINTS[(column + 2 * row) % len(TILE_TINTS)]


def places_of(rows: Shown, columns: Shown) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield for each cell that is shown where it is drawn, (across, down), and its (row, column)."""
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            if row is not None and column is not None:
                yield (x, y), (row, column)


def draw_grid(ax: Axes, rows: Shown, columns: Shown, cell: Callable[[int, int], Cell]) -> None:
    """Draw a cell for each row and column that is shown, row 0 on top, each one unit wide and high."""
    for corner, place in places_of(rows, columns):
        draw_cell(ax, corner, (1.0, 1.0), cell(*place), 6.5)
    draw_gaps(ax, rows, columns)


def draw_cell(ax: Axes, corner: tuple[float, float], size: tuple[float, float], cell: Cell, font: float) -> None:
    """Draw one cell with its words in the middle; what is all padding is white and hatched."""
    if cell.padded >= 1:
        draw_padding(ax, corner, size)
    else:
        ax.add_patch(Rectangle(corner, *size, facecolor=cell.tint, edgecolor=INK, linewidth=0.4))
    if cell.words:
        middle = corner[0] + size[0] / 2, corner[1] + size[1] / 2
        words = ax.text(*middle, cell.words, ha="center", va="center", fontsize=font)
        if cell.padded >= 1:
            # A white ground, since lines through figures make them hard to read.
            words.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})


def draw_plain(ax: Axes, cells: Mapping[tuple[float, float], Cell]) -> None:
    """Draw cells of one unit without words or padding, by their corners, as one: thousands take seconds one by one."""
    corners = [((x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)) for x, y in cells]
    tints = [cell.tint for cell in cells.values()]
    ax.add_collection(PolyCollection(corners, facecolors=tints, edgecolors=INK, linewidths=0.4))


def draw_padding(ax: Axes, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """Draw a stretch that holds no element."""
    ax.add_patch(
        Rectangle(corner, *size, facecolor="white", edgecolor=GREY, linewidth=0.4, hatch=PADDING_HATCH, gid="padding")
    )


def draw_borders(ax: Axes, rows: Shown, columns: Shown, block: tuple[int, int]) -> None:
    """Draw the border of each block of so many rows and columns that is shown, whole ones only, above the cells."""
    for (x, y), (row, column) in places_of(rows, columns):
        begins = row % block[0] == 0 and column % block[1] == 0
        if begins and row + block[0] - 1 in rows and column + block[1] - 1 in columns:
            corner, width, height = (x + 0.06, y + 0.06), block[1] - 0.12, block[0] - 0.12
            ax.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=VERMILION, lw=1.1, gid="subtile"))


def finish_grid(ax: Axes, rows: Shown, columns: Shown, least_columns: float = 0.0) -> None:
    """Give a grid its limits and number its rows and columns; a narrow grid keeps to the left."""
    # A little more than the cells, whose outer borders would else be cut in half.
    ax.set(xlim=(-0.02, max(len(columns), least_columns) + 0.02), ylim=(len(rows) + 0.02, -0.02))
    ax.set_xticks(*_ticks(columns))
    ax.set_yticks(*_ticks(rows))
    bare(ax)


def bare(ax: Axes) -> None:
    """Take the frame off an axes whose cells have borders of their own, and number its columns on top."""
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, pad=1.5)
    ax.spines[:].set_visible(False)


def _ticks(shown: Shown) -> tuple[list[float], list[str]]:
    """Return places and words of the numbers along an axis; where many are shown, of some."""
    every = max(1, len(shown) // 24)
    found = [(place + 0.5, str(n)) for place, n in enumerate(shown) if n is not None and place % every == 0]
    return [place for place, _ in found], [words for _, words in found]


def draw_gaps(ax: Axes, rows: Shown, columns: Shown) -> None:
    """Write dots where rows or columns are left out."""
    across = [x for x, column in enumerate(columns) if column is None]
    down = [y for y, row in enumerate(rows) if row is None]
    for x in across:
        for y in range(len(rows)):
            ax.text(x + 0.5, y + 0.5, "\N{MIDLINE HORIZONTAL ELLIPSIS}", ha="center", va="center", color=GREY)
    for y in down:
        for x in (x for x in range(len(columns)) if x not in across):
            ax.text(x + 0.5, y + 0.5, "\N{VERTICAL ELLIPSIS}", ha="center", va="center", color=GREY)
