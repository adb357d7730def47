"""What was recorded where computations are shared: once, with the places where it happened again; and all in a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from tpusim.nesting import walk_nested
from tpusim.timeline.records import Record, Repeat

if TYPE_CHECKING:
    from tpusim.cost.links import Load

_MOST_RECORDS = 2**17
"""Of a time line that writes out what is shared: calls of calls would have as many as there are ways through them."""

_MOST_TIMES = 2
"""It may have more, up to so many times what is recorded once."""


class Recording(msgspec.Struct, eq=False):
    """What one core recorded from ``begin_ps`` on, in order: all of it, or what a computation did that is shared."""

    begin_ps: int
    items: list[Item] = msgspec.field(default_factory=list)

    def mark(self) -> int:
        """Return the place in what is recorded, to give to ``repeat`` or ``fold`` later."""
        return len(self.items)

    def fold(self, mark: int, begin_ps: int) -> Recording:
        """Make one item of what was recorded since ``mark``, when the clock stood at ``begin_ps``; return that.

        Marks that were made meanwhile no longer count.
        """
        recording = Recording(begin_ps, self.items[mark:])
        self.items[mark:] = [Replay(recording, begin_ps, is_first=True)]
        return recording

    def replay(self, recording: Recording, begin_ps: int) -> None:
        """Record once more what ``fold`` returned, from ``begin_ps`` on."""
        self.items.append(Replay(recording, begin_ps, is_first=False))

    def beside(self, begin_ps: int) -> Recording:
        """Return a recording for what this core starts beside it: a loop that repeats this repeats what that does."""
        recording = Recording(begin_ps)
        self.items.append(Replay(recording, begin_ps, is_first=True))
        return recording

    def repeat(self, name: str, span: tuple[int, int], period: tuple[int, int], trips: int) -> None:
        """Count all between two marks ``trips`` times more; ``period`` is where on the clock those trips lie."""
        for item in self.items[slice(*span)]:
            if not isinstance(item, Repeat):
                # A factor, since loops inside this one may have raised the count before.
                item.count *= 1 + trips
        self.items.append(Repeat(name, *period, trips))


class Replay(msgspec.Struct, eq=False):
    """A recording where it lies on the clock, the ``is_first`` time or once more; loops raise the count."""

    recording: Recording
    begin_ps: int
    is_first: bool
    count: int = 1


class Sent(msgspec.Struct, eq=False):
    """What went over the links: so many bytes times each of some loads. It is recorded once, by one of its devices.

    ``whose`` they are and their ``places`` among others of that tell them from all that was sent; ``load_at`` finds the
    one at a place. It is not kept here: of a large slice each is hundreds of kilobytes.
    """

    whose: Hashable
    load_at: Callable[[int], Load]
    n_bytes: float
    places: Sequence[int] = (0,)
    count: int = 1


Item: TypeAlias = Record | Repeat | Replay | Sent
"""What stands in a recording."""

K = TypeVar("K", bound=Hashable)

Row: TypeAlias = list[Record | Repeat]
"""Items in a row, those of recordings in their places."""


def amounts_of(whole: Recording, amounts: Callable[[Record], Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of some amounts of all that was recorded, by what they are of, with all that it counts."""
    return _sums(whole, lambda item: amounts(item) if isinstance(item, Record) else {})


def sent_in(whole: Recording) -> Iterator[tuple[Load, float]]:
    """Yield the loads that went over the links in all that was recorded, each with its bytes."""
    load_at: dict[Hashable, Callable[[int], Load]] = {}

    def bytes_of(item: Record | Sent) -> dict[tuple[Hashable, int], float]:
        if isinstance(item, Record):
            return {}
        load_at.setdefault(item.whose, item.load_at)
        return {(item.whose, place): item.n_bytes for place in item.places}

    for (whose, place), n_bytes in _sums(whole, bytes_of).items():
        yield load_at[whose](place), n_bytes


def _sums(whole: Recording, amounts: Callable[[Record | Sent], Mapping[K, float]]) -> dict[K, float]:
    found: dict[int, dict[K, float]] = {}
    for recording in _inner_first(whole):
        total = found[id(recording)] = defaultdict[K, float](float)
        for item in recording.items:
            if not isinstance(item, Repeat):
                inner = found[id(item.recording)] if isinstance(item, Replay) else amounts(item)
                for name, amount in inner.items():
                    total[name] += amount * item.count
    return found[id(whole)]


def in_a_row(whole: Recording) -> Row:
    """Return what was recorded, in a row; once, since records that loops repeat are counted in place.

    A recording that happened again is written out at each place, as long as the row stays of a size to look at. Else it
    stands at its first place only and is counted there, without the repetitions of its loops.
    """
    recordings = _inner_first(whole)
    sizes: dict[int, int] = {}
    for recording in recordings:
        shown = (item for item in recording.items if not isinstance(item, Sent))
        counts = (sizes[id(item.recording)] if isinstance(item, Replay) else 1 for item in shown)
        sizes[id(recording)] = sum(counts)
    if sizes[id(whole)] <= max(_MOST_RECORDS, _MOST_TIMES * sum(len(recording.items) for recording in recordings)):
        return _written_out(whole)
    _count_first(recordings)
    return list(_first_places(whole))


def _inner_first(whole: Recording) -> list[Recording]:
    """Return a recording and all in it, each once and after those within itself."""
    found: dict[int, Recording] = {}

    def find(recording: Recording) -> Generator[Recording, None, None]:
        if id(recording) in found:
            return
        for item in recording.items:
            if isinstance(item, Replay):
                yield item.recording
        found[id(recording)] = recording

    walk_nested(find, whole)
    return list(found.values())


def _written_out(whole: Recording) -> Row:
    """Return all items of a recording, those of what happened again as copies, with all loops around them counted."""
    row: Row = []
    counts: list[tuple[Record, int]] = []
    waiting = [(iter(whole.items), 0, 1, True)]
    while waiting:
        items, later_ps, times, is_first = waiting[-1]
        item = next(items, None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Replay):
            inner_ps = later_ps + item.begin_ps - item.recording.begin_ps
            waiting.append((iter(item.recording.items), inner_ps, times * item.count, is_first and item.is_first))
        elif isinstance(item, Sent):
            continue
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


def _count_first(inner_first: list[Recording]) -> None:
    """Count each record for all places where its recording happened, of which the last of the list did once."""
    times = defaultdict(int, {id(inner_first[-1]): 1})
    for recording in reversed(inner_first):
        for item in recording.items:
            if isinstance(item, Replay):
                times[id(item.recording)] += times[id(recording)] * item.count
            elif isinstance(item, Record):
                item.count *= times[id(recording)]


def _first_places(whole: Recording) -> Iterator[Record | Repeat]:
    """Yield each record at its first place, and the repetitions that lie in no recording within the whole."""
    waiting = [iter(whole.items)]
    while waiting:
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Replay):
            if item.is_first:
                waiting.append(iter(item.recording.items))
        elif isinstance(item, Record) or (isinstance(item, Repeat) and len(waiting) == 1):
            yield item
