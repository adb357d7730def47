"""Keeps what happens while the machine runs, in the order in which things end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from tpusim.machine.stretches import Item, Replay, Row, Stretch, in_a_row, stretch_of
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep
from tpusim.timeline.records import Record, Repeat


class Recorder:
    """Collects records; a loop that repeats is written once and counted."""

    def __init__(self, program: Program, progress: Callable[[Record], None] | None = None) -> None:
        self._numbers = program.step_numbers
        self._items: list[Item] = []
        self._stretches: list[Stretch] = []
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
        self._items.append(record)
        if self._progress is not None:
            self._progress(record)
        return record

    def vary(self, number: int, record: Record, changes: dict[str, Any]) -> None:
        """Note what is different in a record for another device that the recorded one stands for."""
        self._changes.setdefault(number, {})[id(record)] = changes

    def mark(self) -> int:
        """Return the place in what is recorded, to give to ``repeat`` or ``since`` later."""
        return len(self._items)

    def since(self, mark: int, begin_ps: int) -> Stretch:
        """Return what was recorded since ``mark``, when the clock stood at ``begin_ps``, to give to ``replay`` later.

        From now on it is one item: marks that were made meanwhile no longer count.
        """
        stretch = stretch_of(self._items[mark:], begin_ps)
        self._stretches.append(stretch)
        self._items[mark:] = [Replay(stretch, begin_ps, is_first=True)]
        return stretch

    def replay(self, stretch: Stretch, begin_ps: int) -> None:
        """Record once more what ``since`` returned, from ``begin_ps`` on."""
        self._items.append(Replay(stretch, begin_ps, is_first=False))

    def repeat(self, name: str, mark: int, period: tuple[int, int], trips: int) -> None:
        """Count all records since ``mark`` ``trips`` times more; ``period`` is where on the clock those trips lie."""
        for item in self._items[mark:]:
            if not isinstance(item, Repeat):
                # A factor, since loops inside this one may have raised the count before.
                item.count *= 1 + trips
        self._items.append(Repeat(name, *period, trips))

    @cached_property
    def _row(self) -> Row:
        """What was recorded until the end of the run."""
        return in_a_row(stretch_of(self._items), self._stretches)

    def records_of(self, number: int) -> tuple[Record, ...]:
        """Return the records of a device; those that agree in all share one tuple."""
        changes = self._changes.get(number, {})
        # As JSON, whose whole numbers have no end: times may be beyond 64 bits.
        key = msgspec.json.encode(sorted(changes.items()))
        if key not in self._shared:
            records = [item for item in self._row if isinstance(item, Record)]
            varied = (
                msgspec.structs.replace(record, **changes[id(record)]) if id(record) in changes else record
                for record in records
            )
            self._shared[key] = tuple(varied if changes else records)
        return self._shared[key]

    def repeats(self) -> tuple[Repeat, ...]:
        """Return where loops repeat."""
        return tuple(item for item in self._row if isinstance(item, Repeat))
