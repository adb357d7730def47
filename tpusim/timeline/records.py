"""What happened: one record per stretch of work, in integer picoseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tpusim.hardware.units import HBM, ICI, UNITS

CORE = "core"
"""The row of the core: its records follow each other and never overlap."""

SPARSECORE = "sparsecore"
"""The row of calls that run beside the core."""

WAITING_FOR = "waiting for "
"""With it begins what bounds a wait."""

LATE = f"{WAITING_FOR}devices"
"""What the part of a record is called in which others had not come yet, so that no byte could move."""


ICI_LATENCY = f"{UNITS[ICI].bound} latency"
"""What bounds communication that mostly waits for the first byte to arrive."""

DEPENDENT = "dependent operations"
"""What bounds a hand-written kernel whose operations mostly wait for each other."""


class Record(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One execution of one step on one row of the time line.

    Times are in picoseconds from the start of the program. ``count`` is how often this stretch happened: the trips of a
    loop that repeat exactly are simulated once and counted. ``bound_by`` names what most of the step's time went to,
    ``parts`` a kernel's time by that, or that of communication to which others came late; ``units`` how long each
    functional unit and memory was kept busy, and ``activity`` what it did: multiply-accumulates by type, operations,
    bytes (``cost.tile`` says of what). ``product_flops`` are those of the ``flops`` that are for the matrix unit;
    of which types both are ``type_shares`` say where they are not all of the ``flops_type``.
    ``step`` is the number of the step in its program, outer before inner and branches not taken included, -1 where it
    is not known; what the record says of it itself can be read without the program. Of a collective
    ``payload_bytes`` is the larger side of one device and ``group_size`` the devices of its group; of a send ``peer``
    is the device that it goes to. A record that ``is_wait`` is what a step lost before it could begin; the step itself
    is another one. ``call`` is the asynchronous call whose step it is, empty for those of the program itself. The
    machine raises ``count`` of a record when it finds that a loop repeats; after the run records do not change.
    """

    name: str
    opcode: str
    category: str
    row: str
    start_ps: int
    end_ps: int
    step: int = -1
    count: int = 1
    bound_by: str = ""
    is_kernel: bool = False
    flops: float = 0.0
    product_flops: float = 0.0
    flops_type: str = "bf16"
    type_shares: dict[str, float] = {}
    units: dict[str, int] = {}
    activity: dict[str, float] = {}
    parts: dict[str, int] = {}
    compiler_cycles: int = 0
    payload_bytes: float = 0.0
    group_size: int = 0
    peer: int = -1
    is_wait: bool = False
    call: str = ""
    line: int = 0
    op_name: str = ""
    source: str = ""

    @property
    def hbm_bytes(self) -> float:
        """Bytes to and from HBM in one execution."""
        return self.activity.get(HBM, 0.0)

    @property
    def duration_ps(self) -> int:
        """Length of one execution, in picoseconds."""
        return self.end_ps - self.start_ps

    @property
    def total_ps(self) -> int:
        """Length of all executions, in picoseconds."""
        return (self.end_ps - self.start_ps) * self.count

    @property
    def late_ps(self) -> int:
        """How long others had not come yet in one execution, in picoseconds."""
        return self.parts.get(LATE, 0)

    @property
    def bounds_ps(self) -> dict[str, int]:
        """The time of one execution by what bound it: all of it by one thing, but for the wait for others."""
        return self.parts if LATE in self.parts else {self.bound_by: self.end_ps - self.start_ps}


def totals(records: Iterable[Record], amounts: Callable[[Record], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of some amounts of records, by what they are of, over all executions."""
    # No Counter, which takes four times as long to make: there is one for each of thousands of groups.
    total: dict[str, Any] = {}
    for record in records:
        for name, amount in amounts(record).items():
            total[name] = total.get(name, 0) + amount * record.count
    return total


def busy_ps(records: Iterable[Record]) -> dict[str, int]:
    """Return how long all executions of some records kept each unit busy, in picoseconds."""
    return totals(records, lambda record: record.units)


def activity_of(records: Sequence[Record]) -> dict[str, float]:
    """Return what all executions of some records did, by unit."""
    # Most ops of a large program run once.
    if len(records) == 1 and records[0].count == 1:
        return records[0].activity
    return totals(records, lambda record: record.activity)


def executions(records: Iterable[Record]) -> int:
    """Return how often the steps of some records ran: waits before a step count with the step itself."""
    return sum(record.count for record in records if not record.is_wait)


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """A stretch of the clock that stands for ``trips`` further equal trips of the loop ``name``."""

    name: str
    start_ps: int
    end_ps: int
    trips: int

    @property
    def trip_ps(self) -> int:
        """Length of one trip."""
        return (self.end_ps - self.start_ps) // self.trips

    @property
    def trip_start_ps(self) -> int:
        """Where the trip before begins, which the others equal."""
        return self.start_ps - self.trip_ps


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a run recorded of one device, in order of the records' ends on the simulated clock."""

    program: str
    chip: str
    total_ps: int
    records: tuple[Record, ...]
    repeats: tuple[Repeat, ...] = ()
    device: int = 0


def encode_timeline(timeline: Timeline) -> bytes:
    """Return a time line as JSON bytes; the same time line always gives the same bytes."""
    return msgspec.json.encode(timeline)


class LinkUse(msgspec.Struct, frozen=True, gc=False):
    """What one link carried: from which chip, along which axis (``+0``, ``-0``, ``+1``, ..., ``local``, ``out`` and
    ``in`` of the data-centre network), the bytes, and how long they take at the rate that the link reaches.
    """

    chip: int
    way: str
    n_bytes: float
    busy_ps: int


class PodRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a pod: chips along each axis of a slice, the devices that were run, and the links that carried anything.

    ``program_count`` programs ran side by side, each on devices of its own; a single one runs on all of them. One time
    line stands for all ``device_count`` devices if they all do the same; ``warnings`` say where it stands for some that
    do not. In ``device_order`` devices are numbered on the chips: as ``listed``, along a ``ring``, or as the
    program says of its ``mesh``; ``is_order_open`` if it says nothing and ``jax.devices()`` has other ones meet.
    """

    sizes: tuple[int, ...]
    slices: int
    device_count: int
    timelines: tuple[Timeline, ...]
    program_count: int = 1
    links: Collection[LinkUse] = ()
    device_order: str = "listed"
    is_order_open: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def last(self) -> Timeline:
        """The time line of the device that ended last, the first of several."""
        return last_of(self.timelines)


def last_of(timelines: Iterable[Timeline]) -> Timeline:
    """Return the time line of the device that ended last, the first of several."""
    return max(timelines, key=lambda timeline: timeline.total_ps)
