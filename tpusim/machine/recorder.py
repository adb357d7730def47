"""Keeps what happens while the machine runs, in the order in which things end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tpusim.program.module import Program
from tpusim.program.steps import AnyStep
from tpusim.timeline.records import Record, Repeat

R = TypeVar("R", Record, Repeat)

_MOST_ALIKE = 4
"""Calls of calls would else be recorded as often as there are ways through them."""


class Recorded(msgspec.Struct, frozen=True):
    """A stretch of what was recorded.

    Where its records are more than four times as many as differ, equal ones are one that counts for all, at the place
    of the first, and no repetitions are kept.
    """

    records: Sequence[Record]
    repeats: Sequence[Repeat]


class Recorder:
    """Collects records; a loop that repeats is written once and counted."""

    def __init__(self, program: Program, progress: Callable[[Record], None] | None = None) -> None:
        self._numbers = program.step_numbers
        self.records: list[Record] = []
        self.repeats: list[Repeat] = []
        self._progress = progress
        self._changes: dict[int, dict[int, dict[str, Any]]] = {}
        self._shared: dict[bytes, tuple[Record, ...]] = {}

    def add(self, step: AnyStep, row: str, start_ps: int, end_ps: int, call: str, details: Mapping[str, Any]) -> Record:
        """Record that ``step`` kept ``row`` from ``start_ps`` to ``end_ps``; ``details`` are fields of ``Record``."""
        record = Record(
            name=step.name,
            opcode=step.opcode,
            category=step.category,
            row=row,
            start_ps=start_ps,
            end_ps=end_ps,
            # A launch is no step of the program.
            step=self._numbers.get(id(step), -1),
            line=step.line,
            op_name=step.op_name,
            source=step.source,
            call=call,
        )
        # One by one: as arguments, of which every kind of step has others, they take three times as long.
        for field, value in details.items():
            setattr(record, field, value)
        self.records.append(record)
        if self._progress is not None:
            self._progress(record)
        return record

    def vary(self, number: int, record: Record, changes: dict[str, Any]) -> None:
        """Note what is different in a record for another device that the recorded one stands for."""
        self._changes.setdefault(number, {})[id(record)] = changes

    def records_of(self, number: int) -> tuple[Record, ...]:
        """Return the records of a device; those that agree in all share one tuple."""
        changes = self._changes.get(number, {})
        # As JSON, whose whole numbers have no end: times may be beyond 64 bits.
        key = msgspec.json.encode(sorted(changes.items()))
        if key not in self._shared:
            varied = (
                msgspec.structs.replace(record, **changes[id(record)]) if id(record) in changes else record
                for record in self.records
            )
            self._shared[key] = tuple(varied if changes else self.records)
        return self._shared[key]

    def mark(self) -> int:
        """Return the place in the list of records to give to ``repeat`` later."""
        return len(self.records)

    def since(self, mark: int, begin_ps: int) -> Recorded:
        """Return what was recorded since ``mark`` as of a clock that began at ``begin_ps``."""
        found: dict[tuple[object, ...], Record] = {}
        for record in self.records[mark:]:
            # What is no time of a record follows from its step.
            own = record.step, record.name, record.row, record.call, record.is_wait
            key = *own, record.duration_ps, *record.parts.items()
            if key in found:
                found[key].count += record.count
            else:
                found[key] = _moved(record, -begin_ps)
        if len(self.records) - mark > _MOST_ALIKE * len(found):
            return Recorded(tuple(found.values()), ())
        repeats = (repeat for repeat in self.repeats if repeat.start_ps >= begin_ps)
        return Recorded(
            tuple(_moved(record, -begin_ps) for record in self.records[mark:]),
            tuple(_moved(repeat, -begin_ps) for repeat in repeats),
        )

    def replay(self, recorded: Recorded, begin_ps: int) -> None:
        """Record once more what ``since`` returned, from ``begin_ps`` on."""
        self.records += [_moved(record, begin_ps) for record in recorded.records]
        self.repeats += [_moved(repeat, begin_ps) for repeat in recorded.repeats]

    def repeat(self, name: str, mark: int, period: tuple[int, int], trips: int) -> None:
        """Count all records since ``mark`` ``trips`` times more; ``period`` is where on the clock those trips lie."""
        for record in self.records[mark:]:
            # A factor, since loops inside this one may have raised the count before.
            record.count *= 1 + trips
        self.repeats.append(Repeat(name, *period, trips))


def _moved(one: R, by_ps: int) -> R:
    """Return a record, or a repetition, at another time."""
    return msgspec.structs.replace(one, start_ps=one.start_ps + by_ps, end_ps=one.end_ps + by_ps)
