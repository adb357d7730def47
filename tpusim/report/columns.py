"""How wide the columns of a table are where there is no room for all that they hold: figures and names are not lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

GAP = 2
"""Blanks between two columns."""

# The end of a path has a file's name and a line in so much, and a category its first word.
_LEAST_TEXT = 12
# Most names of ops are no longer, so that few go over several lines.
_LEAST_NAME = 16


class Gives(Enum):
    """What becomes of texts that are longer than their column is wide."""

    NOTHING = "they stay whole, and so does the column"
    LINES = "they go over several lines, and are whole as well"
    END = "they lose their end"
    BEGINNING = "they lose their beginning"

    @property
    def is_cut(self) -> bool:
        """Whether something of a text is lost; the whole column may be left out then."""
        return self in (Gives.END, Gives.BEGINNING)


class Column(NamedTuple):
    """A column of a table."""

    title: str
    is_figure: bool
    gives: Gives


class Needs(NamedTuple):
    """How many characters wide the title of a column is, and the longest of its cells."""

    title: int
    cells: int


def columns_of(titles: Sequence[str], wraps: Collection[str], cut: Collection[str]) -> list[Column]:
    """Return columns by their titles, marked as ``plain_table`` says."""
    found = []
    for number, marked in enumerate(titles):
        title = marked[1:] if marked.startswith((">", "<")) else marked
        gives = Gives.NOTHING
        if marked.startswith("<"):
            gives = Gives.BEGINNING
        elif title in cut:
            gives = Gives.END
        elif title in wraps or not (wraps or number or marked.startswith(">")):
            gives = Gives.LINES
        found.append(Column(title, marked.startswith(">"), gives))
    return found


def widths_in(columns: Sequence[Column], needs: Sequence[Needs], room: int) -> dict[int, int]:
    """Return how wide each column is, by its number, in so many characters.

    Texts that may be cut are narrowed first, then names and titles go over several lines, then texts that may be cut
    are left out, from the last one on. A table that has no room nevertheless is wider than that.
    """
    shown = list(range(len(columns)))
    while True:
        left = room - GAP * (len(shown) - 1)
        widths = _given_way([columns[number] for number in shown], [needs[number] for number in shown], left)
        # The first column says what a row is about.
        cut = [number for number in shown[1:] if columns[number].gives.is_cut]
        if sum(widths) <= left or not cut:
            return dict(zip(shown, widths, strict=True))
        shown.remove(cut[-1])


def _given_way(columns: Sequence[Column], needs: Sequence[Needs], room: int) -> list[int]:
    """Return how wide columns are of which none is left out, which may be more than there is room."""
    widths = [max(need) for need in needs]
    for least in (_least_of_cut, _least):
        if sum(widths) > room:
            narrowest = [least(column, need) for column, need in zip(columns, needs, strict=True)]
            widths = _narrowed(widths, narrowest, room)
    return widths


def _least_of_cut(column: Column, need: Needs) -> int:
    return min(max(need), _LEAST_TEXT) if column.gives.is_cut else max(need)


def _least(column: Column, need: Needs) -> int:
    if column.gives is Gives.LINES:
        return min(max(need), _LEAST_NAME)
    if column.gives is Gives.NOTHING:
        # Words of a title may stand below each other.
        return max(need.cells, min(need.title, _LEAST_TEXT))
    return min(max(need), _LEAST_TEXT)


def _narrowed(widths: Sequence[int], narrowest: Sequence[int], room: int) -> list[int]:
    """Return widths of which the largest are made smaller until they fit, if they may be."""

    def at_most(most: int) -> list[int]:
        return [max(min(width, most), least) for width, least in zip(widths, narrowest, strict=True)]

    most = bisect_right(range(max(widths, default=0) + 1), room, key=lambda most: sum(at_most(most))) - 1
    return at_most(max(0, most))
