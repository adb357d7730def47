"""How all pictures are made: style, size, units, labels that keep clear of each other, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes as Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure as Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tpusim.analysis.busy import Values
from tpusim.errors import ConfigError, printable
from tpusim.files import whole_file
from tpusim.report.plots.colours import GREY, INK
from tpusim.report.tables import unit_of

FORMATS: Final = ("png", "svg", "pdf")
"""Endings of files that a picture is written to."""

_STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "hatch.color": "#808080",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Without a salt every file of the same picture would have other names inside.
    "svg.hashsalt": "tpusim",
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style of this module, whatever the caller's settings are.

    Of letters that the font lacks, which are drawn as boxes, nothing is said.
    """

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_STYLE), catch_warnings():
            filterwarnings("ignore", "Glyph")
            return draw(*args, **kwargs)

    return inside


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the picture and the width at which a notebook shows it, in its pixels of a 96th of an inch."""
        buffer = BytesIO()
        with mpl.rc_context(_STYLE):
            self.savefig(buffer, format="png")
        return buffer.getvalue(), {"width": round(96 * self.get_figwidth())}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches; its parts make room for each other."""
    return Picture(figsize=(width, height), dpi=150, layout="constrained")


def figure_of(ax: Axes) -> Figure:
    """Return the figure that an axes stands in."""
    return ax.get_figure(root=True)  # type: ignore[return-value]


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes to draw in: the given one, or the only one of a new figure."""
    return new_figure(width, height).add_subplot() if ax is None else ax


_EPOCH = "SOURCE_DATE_EPOCH"
"""The variable that says which time programs are to write into files (reproducible-builds.org)."""


@styled
def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that the name ends in. Raises ConfigError for a format that pictures do not have."""
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise ConfigError(f"{path}: expected a name that ends in one of {known}, found {Path(path).suffix!r}")
    # Equal pictures are equal files: the time of writing stays out.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    # Matplotlib reads it even where nothing is dated by it.
    epoch = os.environ.get(_EPOCH, "0")
    try:
        datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"{_EPOCH}: expected a number of seconds since 1970, found {epoch!r:.80}") from error
    with whole_file(path) as beside:
        figure.savefig(beside, format=ending, metadata=dated[ending])


def literal(text: str) -> str:
    """Return a text from outside such that Matplotlib draws it as it is: dollar signs begin no formula.

    What cannot be printed, which SVG cannot hold either, is replaced.
    """
    return printable(text, kept="\n").replace("$", "\\$")


def shortened(name: str, characters: int) -> str:
    """Return a name, ``literal``, in at most so many characters.

    Its middle is left out: programs count their ops at the end.
    """
    if len(name) <= characters:
        return literal(name)
    tail = characters // 2
    return literal(f"{name[: characters - tail - 1]}\N{HORIZONTAL ELLIPSIS}{name[-tail:]}")


def legend_entry(name: str, characters: int) -> str:
    """Return a name, ``shortened``, for a legend, which leaves out what begins with an underscore."""
    # A space without width comes first.
    return f"\u200b{shortened(name, characters)}" if name.startswith("_") else shortened(name, characters)


def time_unit(longest_ps: int) -> tuple[float, str]:
    """Return the picoseconds of a unit in which the longest time reads well, and the unit's name."""
    return unit_of(longest_ps, ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"), (1.0, "ps")))


def text_box(text: Text) -> Bbox:
    """Return the room, in pixels, that a text takes."""
    # The first call moves an annotation to its point; its answer has the arrow in it, the second one's has not.
    text.get_window_extent()
    return Text.get_window_extent(text)


# Tried in this order: above first, where readers look, then round the point and farther out.
_RING: Final = ((1, 0.6), (0, 1), (-1, 0.6), (1, -0.6), (-1, -0.6), (0, -1))
_AROUND: Final = tuple((reach * x, reach * y) for reach in (1.0, 1.8, 3.0, 5.0) for x, y in _RING)
# Of a marker, and between the points along a line.
_MARK_PIXELS: Final = 6.0
# Typographic points.
_GAP: Final = 7.0
_ABOVE: Final = tuple((x, y) for y in (0.7, 2.0, 3.3) for x in (0, 0.5, -0.5))


def place_labels(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    *,
    only_above: bool = False,
    avoid: Sequence[Bbox] = (),
) -> list[Text]:
    """Write a text beside each point (or ``only_above``) where no text is yet, and return those that fit.

    Of the places with room the first is taken that hides the fewest markers and lines. ``avoid`` are further places, in
    pixels, to keep clear of.

    The first ones have first choice; a text for which no room is left is not written. Call it when all else is drawn
    and ``draw_without_rendering`` of the figure has put it in its place.
    """
    taken = [text_box(text) for text in ax.texts if text.get_text()] + list(avoid)
    placed = []
    marks = _marks(ax)
    for point, words in zip(points, texts, strict=True):
        label = _place_label(ax, point, words, _ABOVE if only_above else _AROUND, taken, marks)
        if label is not None:
            taken.append(text_box(label))
            placed.append(label)
    return placed


def _marks(ax: Axes) -> Values:
    """Return the middles of all markers and points along all lines, in pixels, a row each."""
    found = [np.empty((0, 2))]
    for collection in ax.collections:
        if isinstance(collection, PathCollection):
            found.append(ax.transData.transform(collection.get_offsets()))
    for line in ax.lines:
        # A line across the whole axes has a share of them as one of its coordinates.
        ends = line.get_transform().transform(line.get_xydata())
        for begin, end in pairwise(ends):
            steps = max(2, min(400, int(np.hypot(*(end - begin)) / _MARK_PIXELS)))
            found.append(np.linspace(begin, end, steps))
    return np.concatenate(found)


def _place_label(
    ax: Axes,
    point: tuple[float, float],
    words: str,
    places: Iterable[tuple[float, float]],
    taken: list[Bbox],
    marks: Values,
) -> Text | None:
    """Write a text at the place beside a point that has room and hides the least, or nowhere."""
    whole = ax.get_window_extent()
    best: tuple[int, Text] | None = None
    for across, up in places:
        label = _annotated(ax, point, words, across, up)
        box = text_box(label)
        inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1
        hidden = _hidden(marks, box.padded(_MARK_PIXELS / 2))
        if not inside or any(box.overlaps(other) for other in taken) or (best and hidden >= best[0]):
            label.remove()
            continue
        if best:
            best[1].remove()
        best = hidden, label
        if not hidden:
            break
    return best[1] if best else None


def _hidden(marks: Values, box: Bbox) -> int:
    """Return how many marks a box hides."""
    inside = (marks > box.min) & (marks < box.max)
    return int(inside.all(axis=1).sum())


def _annotated(ax: Axes, point: tuple[float, float], words: str, across: float, up: float) -> Text:
    return ax.annotate(
        words,
        point,
        (across * _GAP, up * _GAP),
        textcoords="offset points",
        fontsize=6.5,
        ha="center" if not across else ("left" if across > 0 else "right"),
        va="bottom" if up > 0 else "top",
        # A white rim: lines of the picture may pass behind a text.
        path_effects=[withStroke(linewidth=1.8, foreground="white")],
        zorder=5,
        arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": GREY, "shrinkA": 0, "shrinkB": 2},
    )
