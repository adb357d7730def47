"""A program under test, what it comes to as it stands, and in what two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
from msgspec import structs

from tpusim.analysis.memory import MemoryUse, memory_use
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import chip_names, load_chip
from tpusim.ir.module import Module
from tpusim.numerics.files import flat_values, numbered, random_inputs, read_arrays
from tpusim.numerics.registry import TOKEN
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import execute, load, simulate
from tpusim.program.buffers import Buffer
from tpusim.shapes.shape import leaves
from tpusim.timeline.records import Record

T = TypeVar("T", Record, Buffer)

_MOST_FLOPS = 2e8
_MOST_ELEMENTS = 1 << 20


class Skip(Exception):
    """A relation that says nothing about a program, with the reason."""


class Figures(NamedTuple):
    """What a run comes to, but for where things stand in a text."""

    totals_ps: list[int]
    records: list[list[Record]]
    memory: MemoryUse
    buffers: list[Buffer]


def figures(result: Result, names: dict[str, str] | None = None) -> Figures:
    """Return the figures of a run, in the names that those of its program stand for."""
    lines = result.pod.timelines
    return Figures(
        [line.total_ps for line in lines],
        [[_plain(record, names or {}) for record in line.records] for line in lines],
        memory_use(result.program),
        [_named(buffer, names or {}, "name", "within") for buffer in result.program.buffers],
    )


def _named(one: T, names: dict[str, str], *fields: str) -> T:
    found = {field: getattr(one, field) for field in fields}
    return structs.replace(one, **{field: names.get(name, name) for field, name in found.items()})


def _plain(record: Record, names: dict[str, str]) -> Record:
    """Return a record without its place in the text; sums of fractions depend on their order in the last digit."""
    activity = {unit: float(f"{amount:.9e}") for unit, amount in record.activity.items()}
    record = structs.replace(record, line=0, step=-1, activity=activity, flops=float(f"{record.flops:.9e}"))
    return _named(record, names, "name", "call")


def differences(before: Figures, after: Figures) -> Iterator[str]:
    """Yield the first thing in which two runs differ."""
    for field in Figures._fields:
        one, other = getattr(before, field), getattr(after, field)
        if one != other:
            yield f"{field}: {_first_difference(one, other)}"
            return


def _first_difference(one: Any, other: Any) -> str:
    """Return where two values differ, going down into lists of one length."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        place = next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"[{place}] {_first_difference(one[place], other[place])}"
    if isinstance(one, Record | Buffer | MemoryUse) and type(one) is type(other):
        field = next(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))
        name = getattr(one, "name", "")
        return f"{name}.{field}: {getattr(one, field)!r:.200} was, {getattr(other, field)!r:.200} is"
    shown = [len(each) if isinstance(each, list) else each for each in (one, other)]
    return f"{shown[0]} was, {shown[1]} is"


class Case:
    """A program, with what relations ask of it computed once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = load(path)
        self._figures: dict[str, Figures] = {}

    @property
    def random(self) -> Random:
        """Chance that is the same for each relation, whichever others are tried."""
        return Random(crc32(self.path.name.encode()))

    @cached_property
    def chip(self) -> Chip:
        """The chip that it is for; of a program for any, one that its name decides."""
        try:
            return choose_chip(self.module, provenance_of(self.module))
        except ConfigError:
            return load_chip(self.random.choice(chip_names()))

    def run(self, module: Module | None = None, schedule: str = "", chip: Chip | None = None) -> Result:
        """Return a run of the program, or of what it was made to."""
        return simulate(module or self.module, chip or self.chip, schedule=schedule, allow_overflow=True)

    @cached_property
    def result(self) -> Result:
        """The run of the program as it stands."""
        return self._as_it_stands("")

    def figures(self, schedule: str = "") -> Figures:
        """Return the figures of the program as it stands."""
        if schedule not in self._figures:
            self._figures[schedule] = figures(self._as_it_stands(schedule) if schedule else self.result)
        return self._figures[schedule]

    def _as_it_stands(self, schedule: str) -> Result:
        try:
            return self.run(schedule=schedule)
        except TpusimError as error:
            raise Skip(f"{type(error).__name__} as it stands: {error}") from error

    def need_schedule(self) -> None:
        """Skip a program that nobody has scheduled."""
        if not self.module.is_scheduled:
            raise Skip("has no schedule of its own")

    @cached_property
    def inputs(self) -> Sequence[Any]:
        """Arguments: those that lie beside the program, else random ones."""
        beside = self.path.with_name(self.path.name.partition(".")[0] + ".npz")
        if beside.exists():
            return numbered({name: array for name, array in read_arrays(beside).items() if name.startswith("in")})
        return random_inputs([parameter.shape for parameter in self.module.entry.parameters], 1)

    @cached_property
    def values(self) -> list[Any]:
        """What the program computes, if that is little work."""
        opcodes = {opcode for computation in self.module.computations for opcode in computation.opcodes}
        if self.module.device_count > 1 or opcodes & {"infeed", "rng", "recv"}:
            raise Skip("computes with other devices, the host or chance")
        elements = sum(leaf.element_count for p in self.module.entry.parameters for leaf in leaves(p.shape))
        work = sum(r.flops * r.count for records in self.figures().records for r in records)
        if elements > _MOST_ELEMENTS or work > _MOST_FLOPS:
            raise Skip("computes too much")
        try:
            return arrays_of(execute(self.module, self.inputs))
        except TpusimError as error:
            raise Skip(f"{type(error).__name__} as it stands: {error}") from error


def arrays_of(values: Any) -> list[Any]:
    """Return the arrays of a result in order."""
    return [np.asarray(value) for value in flat_values(values) if value is not TOKEN]
