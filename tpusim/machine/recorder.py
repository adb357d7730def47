"""Keeps what happens while the machine runs, in the order in which things end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from tpusim.machine.recording import Recording, Row, in_a_row
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep
from tpusim.timeline.records import Record, Repeat


class Recorder:
    """Makes records, and collects those of a device: ``whole`` are the core's.

    A loop that repeats is written once and counted.
    """

    def __init__(self, program: Program, progress: Callable[[Record], None] | None = None) -> None:
        self._numbers = program.step_numbers
        self.whole = Recording(0)
        self._progress = progress
        self._changes: dict[int, dict[int, dict[str, Any]]] = {}
        self._shared: dict[bytes, tuple[Record, ...]] = {}

    def record(
        self, step: AnyStep, row: str, start_ps: int, end_ps: int, call: str, details: Mapping[str, Any]
    ) -> Record:
        """Return that ``step`` kept ``row`` from ``start_ps`` to ``end_ps``; ``details`` are fields of ``Record``."""
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
        if self._progress is not None:
            self._progress(record)
        return record

    def vary(self, number: int, record: Record, changes: dict[str, Any]) -> None:
        """Note what is different in a record for another device that the recorded one stands for."""
        self._changes.setdefault(number, {})[id(record)] = changes

    @cached_property
    def _row(self) -> Row:
        """What was recorded until the end of the run, in order of the ends on the clock."""
        # Cores that run beside each other record each for itself.
        return sorted(in_a_row(self.whole), key=lambda item: item.end_ps)

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        return tuple([item for item in self._row if isinstance(item, Record)])

    @cached_property
    def repeats(self) -> tuple[Repeat, ...]:
        """Where loops repeat."""
        return tuple([item for item in self._row if isinstance(item, Repeat)])

    def records_of(self, number: int) -> tuple[Record, ...]:
        """Return the records of a device; those that agree in all share one tuple."""
        changes = self._changes.get(number, {})
        # As JSON, whose whole numbers have no end: times may be beyond 64 bits.
        key = msgspec.json.encode(sorted(changes.items()))
        if key not in self._shared:
            varied = (
                msgspec.structs.replace(record, **changes[id(record)]) if id(record) in changes else record
                for record in self._records
            )
            self._shared[key] = tuple(varied) if changes else self._records
        return self._shared[key]
