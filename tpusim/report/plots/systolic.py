"""The wavefront in a systolic array: which step of the stream every element works on in one cycle, or in all of them.

For the first fold of a product on an array into which one step enters per cycle. With the tile in after ``load``
cycles, element (i, j) works on step ``cycle - load - i - j`` (``systolic/closed_form.py`` derives the cycles from it).
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tpusim.errors import ConfigError
from tpusim.files import whole_file
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.report.plots.cells import Cell, draw_cell, draw_plain
from tpusim.report.plots.colours import BLUE, GREY, INK, PALE, TILE_TINTS, VERMILION
from tpusim.report.plots.style import figure_of, new_figure, styled

_CHARACTERS_PER_INCH = 11
"""Of a title, with room to spare for wide letters."""

# Steps that wait at the left and results that leave at the bottom, as far as they are drawn.
_WAITING = 4
_LEAVING = 2
_MOST_DRAWN = 32
_MOST_NAMED = 16
# Each takes a quarter of a second to draw.
_MOST_FRAMES = 48
_FRAMES_PER_SECOND = 8
_STREAMS = {
    "ws": ("weights stay; rows of the left operand enter at the left, sums leave below", "m"),
    "is": ("the left operand stays; columns of the right one enter at the left, sums leave below", "n"),
    "os": ("sums stay; steps along k enter at the left and from above", "k"),
}


class Fold(NamedTuple):
    """The first fold of a product: elements that it covers, steps that stream, cycles before they begin."""

    rows: int
    columns: int
    height: int
    width: int
    stream: int
    load: int
    dataflow: str

    @property
    def cycles(self) -> int:
        """Cycles from the start of loading to the last multiply-accumulate."""
        return self.load + self.stream + self.height + self.width - 2

    def step(self, cycle: int, row: int, column: int) -> int | None:
        """Return the step of the stream that an element works on, ``None`` if it has none."""
        found = cycle - self.load - row - column
        covered = row < self.height and column < self.width
        return found if covered and 0 <= found < self.stream else None

    def active(self, cycle: int) -> int:
        """Return how many elements work in a cycle: the first step has come to them, and the last has not left."""
        entered = cycle - self.load
        return self._within(entered) - self._within(entered - self.stream)

    def _within(self, far: int) -> int:
        """Return how many elements lie at most so many down and right of the first, both together."""
        high, wide = self.height, self.width
        # All of a quadrant, less what is below the last row, less what is right of the last column, but both once.
        inside, both = _triangle(far + 1), _triangle(far + 1 - high - wide)
        return inside - _triangle(far + 1 - high) - _triangle(far + 1 - wide) + both


def _triangle(side: int) -> int:
    return side * (side + 1) // 2 if side > 0 else 0


def first_fold(layer: Layer, array: Array) -> Fold:
    """Return the first fold of a product. Raises ConfigError for arrays that take several rows per cycle."""
    if array.rows_per_cycle != 1:
        raise ConfigError(f"rows per cycle: expected 1 for a picture of the wavefront, found {array.rows_per_cycle}")
    high, wide, stream = array.extent(layer.m, layer.n, layer.k)
    height, width = min(high, array.rows), min(wide, array.columns)
    load = 0 if array.dataflow == "os" else height if array.overlaps else array.rows
    return Fold(array.rows, array.columns, height, width, stream, load, array.dataflow)


@styled
def systolic(layer: Layer, array: Array, cycle: int | None = None, ax: Axes | None = None) -> Figure:
    """Draw an array in one ``cycle`` (by default half way through) and, below, how many elements work in every cycle.

    Colours tell the steps of the stream apart, white elements wait, hatched ones lie beyond the tile's edge. With
    ``ax`` only the array is drawn. Returns the figure. Raises ConfigError for a cycle that there is not.
    """
    fold = first_fold(layer, array)
    cycle = fold.cycles // 2 if cycle is None else cycle
    if not 0 <= cycle < fold.cycles:
        raise ConfigError(f"cycle: expected 0 to {fold.cycles - 1}, found {cycle}")
    if ax is not None:
        _draw_array(ax, fold, cycle)
        return figure_of(ax)
    figure = _empty(fold)
    _draw_frame(figure, fold, cycle)
    return figure


@styled
def animate_systolic(layer: Layer, array: Array, path: str | Path) -> None:
    """Write all cycles of the first fold as a film: GIF, or MP4 where ffmpeg is installed.

    Long streams skip cycles evenly. Raises ConfigError for another ending, or without ffmpeg.
    """
    writer = _writer(Path(path))
    fold = first_fold(layer, array)
    figure = _empty(fold)
    with whole_file(path) as beside, writer.saving(figure, str(beside), dpi=90):
        for cycle in range(0, fold.cycles, ceil(fold.cycles / _MOST_FRAMES)):
            _draw_frame(figure, fold, cycle)
            writer.grab_frame()


def _writer(path: Path) -> PillowWriter | FFMpegWriter:
    if path.suffix.lower() == ".gif":
        return PillowWriter(fps=_FRAMES_PER_SECOND)
    if path.suffix.lower() != ".mp4":
        raise ConfigError(f"{path}: expected a film's name to end in .gif or .mp4, found {path.suffix!r}")
    if not FFMpegWriter.isAvailable():
        raise ConfigError(f"{path}: writing MP4 needs ffmpeg, which is not installed; write a .gif")
    return FFMpegWriter(fps=_FRAMES_PER_SECOND)


def _empty(fold: Fold) -> Figure:
    rows, columns = min(fold.rows, _MOST_DRAWN), min(fold.columns, _MOST_DRAWN)
    across = max(4.8, min(7.4, 0.42 * (columns + _WAITING + 1) + 0.8))
    cell = min(0.42, (across - 0.8) / (columns + _WAITING + 1))
    return new_figure(across, cell * (rows + _below(fold)) + 2.35)


def _below(fold: Fold) -> float:
    """Return the room below the array, in elements: of one that is drawn in part nothing is seen to leave."""
    leaves = fold.dataflow != "os" and fold.rows <= _MOST_DRAWN
    return _LEAVING if leaves else 0.3


def _draw_frame(figure: Figure, fold: Fold, cycle: int) -> None:
    """Draw one cycle into a figure, in the place of what it showed."""
    figure.clear()
    upper, lower = figure.subplots(2, 1, height_ratios=(figure.get_figheight() - 1.6, 1.0))
    _draw_array(upper, fold, cycle)
    _draw_activity(lower, fold, cycle)


def _draw_array(ax: Axes, fold: Fold, cycle: int) -> None:
    rows, columns = min(fold.rows, _MOST_DRAWN), min(fold.columns, _MOST_DRAWN)
    cells = {(column, row): _element(fold, cycle, row, column) for row, column in np.ndindex(rows, columns)}
    plain = {corner: cell for corner, cell in cells.items() if not cell.words and cell.padded < 1}
    draw_plain(ax, plain)
    for corner in cells.keys() - plain.keys():
        draw_cell(ax, corner, (1, 1), cells[corner], 6.0)
    _draw_waiting(ax, fold, cycle, rows)
    if fold.dataflow != "os":
        _draw_leaving(ax, fold, cycle, rows, columns)
    ax.add_patch(Rectangle((0, 0), columns, rows, fill=False, edgecolor=INK, linewidth=1.2))
    ax.set(xlim=(-_WAITING - 0.3, columns + 0.3), ylim=(rows + _below(fold), -0.3), aspect="equal")
    for axis, count in ((ax.xaxis, columns), (ax.yaxis, rows)):
        numbers = range(0, count, max(1, count // 8))
        axis.set_ticks([number + 0.5 for number in numbers], map(str, numbers))
    # On top, where nothing leaves.
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    cut = "" if (rows, columns) == (fold.rows, fold.columns) else f", first {rows} x {columns} drawn"
    ax.set(xlabel="column (elements)", ylabel="row (elements)")
    words, _ = _STREAMS[fold.dataflow]
    title = f"{fold.rows} x {fold.columns} array{cut}, cycle {cycle:,} of {fold.cycles:,}\n{words}"
    # Small arrays make narrow pictures: the words then take more lines.
    wide = max(18, int(figure_of(ax).get_figwidth() * _CHARACTERS_PER_INCH))
    ax.set_title("\n".join(fill(line, wide) for line in title.splitlines()), fontsize=8)


def _element(fold: Fold, cycle: int, row: int, column: int) -> Cell:
    if row >= fold.height or column >= fold.width:
        return Cell("", "#FFFFFF", 1.0)
    step = fold.step(cycle, row, column)
    return Cell("", "#FFFFFF") if step is None else _step_cell(fold, step)


def _step_cell(fold: Fold, step: int) -> Cell:
    """Return a step's name, for which only the cells of small arrays have room, and its colour."""
    is_named = max(fold.rows, fold.columns) <= _MOST_NAMED and step <= 999
    return Cell(f"{_STREAMS[fold.dataflow][1]}{step}" if is_named else "", TILE_TINTS[step % len(TILE_TINTS)])


def _draw_waiting(ax: Axes, fold: Fold, cycle: int, rows: int) -> None:
    """Draw at the left, skewed, the steps that enter each row next."""
    for row in range(min(rows, fold.height)):
        for ahead in range(1, _WAITING + 1):
            step = fold.step(cycle + ahead, row, 0)
            if step is not None:
                _draw_small(ax, -ahead, row, _step_cell(fold, step))


def _draw_leaving(ax: Axes, fold: Fold, cycle: int, rows: int, columns: int) -> None:
    """Draw below, skewed, the sums that left each column last."""
    if rows < fold.rows:
        return
    for column in range(min(columns, fold.width)):
        for past in range(1, _LEAVING + 1):
            # Sums go down through the rows that the tile does not cover, too.
            step = cycle - past - fold.load - (fold.rows - 1) - column
            if 0 <= step < fold.stream:
                _draw_small(ax, column, rows + past - 1, _step_cell(fold, step))


def _draw_small(ax: Axes, x: float, y: float, cell: Cell) -> None:
    """Draw what is outside of the array, a little smaller than an element."""
    ax.add_patch(Rectangle((x + 0.1, y + 0.1), 0.8, 0.8, facecolor=cell.tint, edgecolor=GREY, linewidth=0.4))
    ax.text(x + 0.5, y + 0.5, cell.words, ha="center", va="center", fontsize=5.5, color=INK)


def _draw_activity(ax: Axes, fold: Fold, cycle: int) -> None:
    """Draw how many elements work in each cycle, and which cycle is shown."""
    cycles = range(0, fold.cycles, max(1, fold.cycles // 400))
    ax.stairs([fold.active(n) for n in cycles], [*cycles, fold.cycles], fill=True, color=BLUE, linewidth=0)
    if fold.load:
        ax.axvspan(0, fold.load, facecolor=PALE, hatch="....", edgecolor=GREY, linewidth=0, label="the tile loads")
    ax.axvline(cycle + 0.5, color=VERMILION, linewidth=1.2, label="this cycle")
    ax.set(xlim=(0, fold.cycles), ylim=(0, fold.rows * fold.columns * 1.02), xlabel="cycle")
    ax.set_ylabel("at work\n(elements)")
    # Above the axes, where no bar can reach it.
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
