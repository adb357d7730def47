"""Pictures of layouts: an array with its tiles, one tile, its 32-bit words, and memory as a strip.

After the two figures of XLA's document "Tiled layout": every tile has a colour, tiles within tiles a red border, the
number in a cell is the linear index of the element, and what pads is white (here also hatched).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from tpusim.errors import ProgramError
from tpusim.report.plots.cells import (
    Cell,
    Shown,
    draw_borders,
    draw_cell,
    draw_gaps,
    draw_grid,
    draw_padding,
    finish_grid,
    places_of,
    shown_of,
    tint_of,
)
from tpusim.report.plots.colours import GREY, INK, PADDING_HATCH, VERMILION
from tpusim.report.plots.plane import LANES, Plane, plane_of
from tpusim.report.plots.strip import Tint, draw_strip, strip_lines
from tpusim.report.plots.style import figure_of, new_figure, styled
from tpusim.report.tables import size_text
from tpusim.shapes.address import linear_index, logical_bytes, multi_index, physical_bytes
from tpusim.shapes.layout import COMBINE
from tpusim.shapes.shape import Shape, shape_text

_WIDTH = 7.4
_ROW_INCHES = 0.235
# Two shades of the first tile's tint: the parts of a word are all of it.
_PARTS = (tint_of(0, 0), "#D3EBF9")


@styled
def layout(shape: Shape, ax: Axes | None = None) -> Figure:
    """Draw how an array lies in memory, and return the figure.

    Small arrays are drawn cell by cell, large ones by tile, with one tile apart. With ``ax`` only the array is drawn.
    Raises ProgramError for what is no array with elements.
    """
    plane = plane_of(shape)
    if ax is not None:
        _draw_array(ax, plane)
        return figure_of(ax)
    figure = _stacked(_panels(plane), f"{shape}\n{_caption(plane)}", 0.75)
    figure.legend(handles=_legend(plane), loc="outside lower left", ncols=4)
    return figure


@styled
def relayout(before: Shape, after: Shape) -> Figure:
    """Draw what a ``copy`` does to the order of an array's elements: the array and its memory, before and after.

    In memory afterwards every element keeps the colour of the tile that it comes from. Raises ProgramError unless both
    are the same array.
    """
    source, target = plane_of(before), plane_of(after)
    if (source.shape.dtype, source.shape.dimensions) != (target.shape.dtype, target.shape.dimensions):
        plain = [shape_text(shape, layout=False) for shape in (before, after)]
        raise ProgramError(f"expected two layouts of one array, found {' and '.join(plain)}")

    def source_tint(target: Plane, position: int) -> str:
        index = multi_index(target.shape, position)
        assert index is not None, "only elements are coloured"
        return tint_of(*source.tile_at(linear_index(source.shape, index) // source.tile_elements))

    sizes = f"{size_text(physical_bytes(source.shape))} before, {size_text(physical_bytes(target.shape))} after"
    panels = [_array_panel(source), _strip_panel(source), _array_panel(target), _strip_panel(target, source_tint)]
    figure = _stacked(panels, f"{before}  \N{RIGHTWARDS ARROW}  {after}\n{sizes}", 0.45)
    figure.axes[1].set_title("memory before")
    figure.axes[3].set_title("memory after: colours are those of the tiles before")
    return figure


class _Panel(NamedTuple):
    """One of the pictures below each other: what draws it, of which plane, and the rows of cells that it is high."""

    draw: Callable[[Axes, Plane], None]
    plane: Plane
    rows: float


def _stacked(panels: Sequence[_Panel], title: str, margin: float) -> Figure:
    """Return a figure of panels below each other, with so many inches beside them for what is written around them."""
    heights = [_ROW_INCHES * panel.rows + 0.55 for panel in panels]
    figure = new_figure(_WIDTH, sum(heights) + margin)
    for panel, ax in zip(panels, figure.subplots(len(heights), 1, height_ratios=heights), strict=True):
        panel.draw(ax, panel.plane)
    figure.suptitle(title, x=0.01, ha="left", fontsize=8.5)
    return figure


def _array_panel(plane: Plane) -> _Panel:
    # Below three rows there is no room for the name of the axis.
    return _Panel(_draw_array, plane, max(3, len(_array_shown(plane)[0])))


def _strip_panel(plane: Plane, tint: Tint | None = None) -> _Panel:
    return _Panel(partial(draw_strip, tint=tint), plane, 1.2 * strip_lines(plane) + 0.4)


def _panels(plane: Plane) -> list[_Panel]:
    panels = [_array_panel(plane)] if plane.is_small or plane.tiles > 1 else []
    if not plane.is_small:
        panels.append(_Panel(_draw_tile, plane, max(3, len(_tile_shown(plane)[0]))))
    if plane.packs:
        # Parts of a word need less room than cells.
        panels.append(_Panel(_draw_words, plane, max(3.0, len(_word_shown(plane)[0]) * plane.per_word * 0.75)))
    return [*panels, _strip_panel(plane)]


def _caption(plane: Plane) -> str:
    logical, physical = logical_bytes(plane.shape), physical_bytes(plane.shape)
    wasted = max(0.0, 1 - logical / physical) if physical else 0.0
    parts = [f"{_exact(logical)} of data in {_exact(physical)}, {wasted:.1%} padding"]
    if plane.planes > 1:
        parts.append(f"{plane.planes:,} planes like the one drawn")
    return "; ".join(parts)


def _exact(n_bytes: int) -> str:
    """Return bytes; rounded only where the digits would not be read."""
    return f"{n_bytes:,} B" if n_bytes < 10**6 else size_text(n_bytes)


def _legend(plane: Plane) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(facecolor=tint_of(0, 0), edgecolor=INK, linewidth=0.4, label="a tile")]
    if plane.count > plane.shape.element_count:
        handles.append(Patch(facecolor="white", edgecolor=GREY, hatch=PADDING_HATCH, label="padding"))
    if plane.sub_tile:
        rows, columns = plane.sub_tile
        word = " = one 32-bit word" if rows * columns * plane.bits == 32 else ""
        words = f"a tile within it, {rows} x {columns}{word}"
        handles.append(Patch(facecolor="none", edgecolor=VERMILION, linewidth=1.1, label=words))
    return handles


def _array_shown(plane: Plane) -> tuple[Shown, Shown]:
    """Return the rows and columns of the array's panel: of cells, or of tiles."""
    if plane.is_small:
        return range(plane.padded_rows), range(plane.padded_columns)
    rows, columns = plane.padded_rows // plane.tile_rows, plane.padded_columns // plane.tile_columns
    return shown_of(rows, 4, 1), shown_of(columns, 6, 1)


def _draw_array(ax: Axes, plane: Plane) -> None:
    if plane.is_small:
        _draw_cells(ax, plane, *_array_shown(plane))
        ax.set_title("array: the number in a cell is its position in memory")
    else:
        _draw_tiles(ax, plane, *_array_shown(plane))
        tile = f"{' x '.join(map(str, plane.tile))} elements = {size_text(plane.tile_elements * plane.bits / 8)}"
        ax.set_title(f"array, by tile: numbers count tiles in memory, {tile} each")


def _draw_cells(ax: Axes, plane: Plane, rows: Shown, columns: Shown) -> None:
    """Draw every element with its linear index, and the borders of tiles within tiles."""

    def element(row: int, column: int) -> Cell:
        position = plane.position(row, column)
        tint = tint_of(row // plane.tile_rows, column // plane.tile_columns)
        return Cell(f"{position}", tint, float(plane.is_padding(position)))

    draw_grid(ax, rows, columns, element)
    if plane.sub_tile:
        draw_borders(ax, rows, columns, plane.sub_tile)
    finish_grid(ax, rows, columns, least_columns=16)
    _name_axes(ax, plane)


def _draw_tiles(ax: Axes, plane: Plane, rows: Shown, columns: Shown) -> None:
    """Draw every tile with its number in memory, the padding in it hatched to scale."""
    draw_grid(ax, rows, columns, lambda row, column: Cell("", tint_of(row, column)))
    for corner, tile in places_of(rows, columns):
        _draw_tile_padding(ax, plane, corner, tile)
        _number_tile(ax, plane, corner, tile)
    finish_grid(ax, rows, columns, least_columns=5)
    # The borders of tiles carry the index of the first element behind them.
    for axis, shown, size in ((ax.xaxis, columns, plane.tile_columns), (ax.yaxis, rows, plane.tile_rows)):
        numbered = [(place, str(n * size)) for place, n in enumerate(shown) if n is not None]
        axis.set_ticks(*zip(*numbered, strict=True))
    _name_axes(ax, plane)


def _number_tile(ax: Axes, plane: Plane, corner: tuple[int, int], tile: tuple[int, int]) -> None:
    first = plane.position(tile[0] * plane.tile_rows, tile[1] * plane.tile_columns)
    number = f"{first // plane.tile_elements:,}"
    words = ax.text(corner[0] + 0.5, corner[1] + 0.5, number, ha="center", va="center", fontsize=7.5)
    if plane.padded_share(*tile):
        words.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def _draw_tile_padding(ax: Axes, plane: Plane, corner: tuple[int, int], tile: tuple[int, int]) -> None:
    """Hatch the right and lower parts of a tile that lie beyond the array."""
    x, y = corner
    down = min(1.0, plane.rows / plane.tile_rows - tile[0])
    across = min(1.0, plane.columns / plane.tile_columns - tile[1])
    if plane.fold:
        # A folded array ends in the middle of a line: too little to be seen at this size.
        across, down = 1.0, 1.0 - plane.padded_share(*tile)
    if across < 1:
        draw_padding(ax, (x + across, y), (1 - across, 1.0))
    if down < 1:
        draw_padding(ax, (x, y + down), (across, 1 - down))


def _tile_shown(plane: Plane) -> tuple[Shown, Shown]:
    """Return the rows and columns of one tile that are drawn; whole sub-tiles at both ends."""
    step = plane.sub_tile[0] if plane.sub_tile else 1
    return shown_of(plane.tile_rows, max(8, step), step), shown_of(plane.tile_columns, 11, 2)


def _draw_tile(ax: Axes, plane: Plane) -> None:
    _draw_cells(ax, plane, *_tile_shown(plane))
    ax.set_title("tile 0: the number in a cell is its position in memory")


def _words_per_line(plane: Plane) -> int:
    """Return how many words stand beside each other: the lanes of a register, or fewer."""
    return min(LANES, plane.tile_elements // plane.per_word)


def _word_shown(plane: Plane) -> tuple[Shown, Shown]:
    """Return the sublanes and lanes that are drawn."""
    lanes = _words_per_line(plane)
    sublanes = -(-plane.tile_elements // plane.per_word // lanes)
    return shown_of(sublanes, 1 if plane.per_word > 4 else 2, 1), shown_of(lanes, 8, 2)


def _draw_words(ax: Axes, plane: Plane) -> None:
    """Draw the 32-bit words of the first tile: which elements lie in the low bits, which in the high ones."""
    sublanes, lanes = _word_shown(plane)
    for corner, (sublane, lane) in places_of(sublanes, lanes):
        _draw_word(ax, plane, corner, sublane * _words_per_line(plane) + lane)
    draw_gaps(ax, sublanes, lanes)
    finish_grid(ax, sublanes, lanes, least_columns=11)
    ax.set_xlabel("lane (32-bit words)", loc="left")
    ax.set_ylabel("sublane")
    low, high = f"bits 0-{plane.bits - 1} on top", f"bits {32 - plane.bits}-31 below"
    ax.set_title(f"tile 0 as 32-bit words: {plane.name_words} of each element; {low}, {high}")


def _draw_word(ax: Axes, plane: Plane, corner: tuple[int, int], word: int) -> None:
    height = 0.92 / plane.per_word
    for part in range(plane.per_word):
        position = word * plane.per_word + part
        cell = Cell(plane.name_at(position), _PARTS[part % 2], float(plane.is_padding(position)))
        draw_cell(ax, (corner[0] + 0.03, corner[1] + 0.04 + part * height), (0.94, height), cell, 6.0)
    first = corner[0] + 0.03, corner[1] + 0.04
    ax.add_patch(Rectangle(first, 0.94, 0.92, fill=False, edgecolor=VERMILION, linewidth=1.1))


def _name_axes(ax: Axes, plane: Plane) -> None:
    """Say which dimensions rows and columns are."""
    layout_ = plane.shape.actual_layout
    order = tuple(reversed(layout_.minor_to_major))
    joined = any(COMBINE in tile for tile in layout_.tiles[:1])
    names = ["", "", *(f"dimension {number}" for number in order)]
    if plane.fold:
        names = ["line", f"place in a line of {plane.fold}"]
    elif joined:
        names = ["joined, major", "joined, minor"]
    ax.set_ylabel(f"{names[-2]}\n(elements)" if len(names[-2]) > len("line") else names[-2])
    ax.set_xlabel(f"{names[-1] or 'scalar'} (elements)", loc="left")
