"""The picture of a relayout: what a ``copy`` between two layouts of one array does to the order of its elements."""

from __future__ import annotations

from tpusim.errors import ProgramError
from tpusim.report.plots.cells import tint_of
from tpusim.report.plots.layout import draw_array, shown_rows
from tpusim.report.plots.plane import Plane, plane_of
from tpusim.report.plots.strip import draw_strip, strip_lines
from tpusim.report.plots.style import Figure, new_figure, styled
from tpusim.report.tables import size_text
from tpusim.shapes.address import linear_index, multi_index, physical_bytes
from tpusim.shapes.shape import Shape, shape_text

_WIDTH = 7.4
_ROW_INCHES = 0.235


@styled
def relayout(before: Shape, after: Shape) -> Figure:
    """Draw one array under two layouts: the array and its memory, before and after.

    In memory afterwards every element keeps the colour of the tile that it comes from. Raises ProgramError unless both
    are the same array.
    """
    source, target = plane_of(before), plane_of(after)
    if (source.shape.dtype, source.shape.dimensions) != (target.shape.dtype, target.shape.dimensions):
        raise ProgramError(
            f"expected two layouts of one array, found {shape_text(before, layout=False)} and "
            f"{shape_text(after, layout=False)}"
        )

    def source_tint(target: Plane, position: int) -> str:
        index = multi_index(target.shape, position)
        assert index is not None, "only elements are coloured"
        return tint_of(*source.tile_at(linear_index(source.shape, index) // source.tile_elements))

    rows = [n for plane in (source, target) for n in (max(3, shown_rows(plane)), 1.2 * strip_lines(plane) + 0.4)]
    heights = [_ROW_INCHES * count + 0.55 for count in rows]
    figure = new_figure(_WIDTH, sum(heights) + 0.45)
    axes = figure.subplots(4, 1, height_ratios=heights)
    draw_array(axes[0], source)
    draw_strip(axes[1], source)
    draw_array(axes[2], target)
    draw_strip(axes[3], target, source_tint)
    axes[1].set_title("memory before")
    axes[3].set_title("memory after: colours are those of the tiles before")
    sizes = f"{size_text(physical_bytes(source.shape))} before, {size_text(physical_bytes(target.shape))} after"
    figure.suptitle(f"{before}  \N{RIGHTWARDS ARROW}  {after}\n{sizes}", x=0.01, ha="left", fontsize=8.5)
    return figure
