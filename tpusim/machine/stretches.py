"""What is recorded where computations are shared: each stretch once, and where it happened again; and all in a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import structs

from tpusim.timeline.records import Record, Repeat

_MOST_RECORDS = 2**16
"""Of a time line that writes out what is shared: calls of calls would have as many as there are ways through them."""

_MOST_TIMES = 4
"""It may have more, up to so many times what is recorded once."""


class Stretch(msgspec.Struct, eq=False):
    """What was recorded from ``begin_ps`` on, in order: ``size`` items, if what is in it is written out."""

    items: Sequence[Item]
    begin_ps: int
    size: int


class Replay(msgspec.Struct, eq=False):
    """A stretch where it lies on the clock, the ``is_first`` time or once more; loops raise the count."""

    stretch: Stretch
    begin_ps: int
    is_first: bool
    count: int = 1


Item: TypeAlias = Record | Repeat | Replay
"""What stands in a stretch."""

Row: TypeAlias = list[Record | Repeat]
"""Items in a row, those of stretches in their places."""


def stretch_of(items: Sequence[Item], begin_ps: int = 0) -> Stretch:
    """Return a stretch of items."""
    return Stretch(items, begin_ps, sum(item.stretch.size if isinstance(item, Replay) else 1 for item in items))


def in_a_row(whole: Stretch, inner: Sequence[Stretch]) -> Row:
    """Return what was recorded, in a row; ``inner`` are the stretches in it, each after those within itself.

    A stretch that happened again is written out at each place, as long as the row stays of a size to look at. Else it
    stands at its first place only and is counted there, without the repetitions of its loops.
    """
    if whole.size <= max(_MOST_RECORDS, _MOST_TIMES * sum(len(stretch.items) for stretch in (whole, *inner))):
        return _written_out(whole)
    return _counted(whole, inner)


def _written_out(whole: Stretch) -> Row:
    """Return all items of a stretch, those of what happened again as copies, with all loops around them counted."""
    row: Row = []
    counts: list[tuple[Record, int]] = []
    waiting = [(iter(whole.items), 0, 1, True)]
    while waiting:
        items, later_ps, times, is_first = waiting[-1]
        item = next(items, None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Replay):
            inner_ps = later_ps + item.begin_ps - item.stretch.begin_ps
            waiting.append((iter(item.stretch.items), inner_ps, times * item.count, is_first and item.is_first))
        elif is_first:
            row.append(item)
            # Not yet changed: the same may be copied below.
            if times > 1 and isinstance(item, Record):
                counts.append((item, item.count * times))
        else:
            moved = structs.replace(item, start_ps=item.start_ps + later_ps, end_ps=item.end_ps + later_ps)
            row.append(moved)
            if isinstance(moved, Record):
                moved.count *= times
    for record, count in counts:
        record.count = count
    return row


def _counted(whole: Stretch, inner: Sequence[Stretch]) -> Row:
    """Return the items of each stretch once, counted for all places where it happened."""
    times = defaultdict(int, {id(whole): 1})
    for stretch in (whole, *reversed(inner)):
        for item in stretch.items:
            if isinstance(item, Replay):
                times[id(item.stretch)] += times[id(stretch)] * item.count
            elif isinstance(item, Record):
                item.count *= times[id(stretch)]
    return list(_first_places(whole))


def _first_places(whole: Stretch) -> Iterator[Record | Repeat]:
    """Yield each record at its first place, and the repetitions that lie in no stretch within the whole."""
    waiting = [iter(whole.items)]
    while waiting:
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Replay):
            if item.is_first:
                waiting.append(iter(item.stretch.items))
        elif isinstance(item, Record) or len(waiting) == 1:
            yield item
