"""Keeps what happens while the machine runs, in the order in which things end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.timeline.records import Record, Repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.program.steps import AnyStep


class Recorder:
    """Collects records; a loop that repeats is written once and counted."""

    def __init__(self, progress: Callable[[Record], None] | None = None) -> None:
        self.records: list[Record] = []
        self.repeats: list[Repeat] = []
        self._progress = progress

    def add(self, step: AnyStep, row: str, start_ps: int, end_ps: int, **details: Any) -> None:
        """Record that ``step`` kept ``row`` from ``start_ps`` to ``end_ps``; ``details`` are fields of ``Record``."""
        record = Record(
            name=step.name,
            opcode=step.opcode,
            category=step.category,
            row=row,
            start_ps=start_ps,
            end_ps=end_ps,
            line=step.line,
            op_name=step.op_name,
            source=step.source,
            **details,
        )
        self.records.append(record)
        if self._progress is not None:
            self._progress(record)

    def mark(self) -> int:
        """Return the place in the list of records to give to ``repeat`` later."""
        return len(self.records)

    def repeat(self, name: str, mark: int, period: tuple[int, int], trips: int) -> None:
        """Count all records since ``mark`` ``trips`` times more; ``period`` is where on the clock those trips lie."""
        for record in self.records[mark:]:
            # A factor, since loops inside this one may have raised the count before.
            record.count *= 1 + trips
        self.repeats.append(Repeat(name, *period, trips))
