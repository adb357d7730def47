"""The buffers of a program, each with its place: arguments and outputs by themselves, temporaries in a heap.

As XLA's BufferAssigner does it (xla/service/buffer_assignment.cc): what the program returns gets memory of its own;
a temporary goes into the memory of an output that is at least as large and not in use yet, or not any more; what
remains is placed in one heap per memory space.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tpusim.ir.frames import SourceFrames
from tpusim.lowering.heap import Block, Interval, meet, place
from tpusim.lowering.liveness import Liveness, Value
from tpusim.program.buffers import Buffer, BufferKind, peak_bytes
from tpusim.shapes.address import logical_bytes
from tpusim.shapes.shape import TupleShape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpusim.ir.module import Module
    from tpusim.program.work import MemorySpace

# Offsets in the compiler's buffer assignments of every chip are multiples of it.
HBM_ALIGNMENT_BYTES = 16384
# One register of (8,128) words: the smallest piece that tiled layouts leave.
_ALIGNMENT_BYTES = 4096
TABLES = "tuple tables"
"""The buffer of all tables of addresses that the program's tuples need."""


class BufferPlan(msgspec.Struct, frozen=True):
    """The buffers of a program, the instruction at each position that they count in, and its HBM temporaries in bytes,
    as XLA's memory statistics count them.
    """

    schedule: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    temp_bytes: int


@dataclass
class _Shared:
    """A place in the making: the values that lie there, or the scratch of one kernel."""

    values: Sequence[Value]
    kind: BufferKind
    n_bytes: int
    space: MemorySpace
    intervals: tuple[Interval, ...]
    offset_bytes: int | None = None
    within: str = ""
    # Of what is lent: when its owner, and whoever moved in, needs it.
    taken: list[Interval] = field(default_factory=list)


def plan_buffers(module: Module, granule_bytes: int) -> BufferPlan:
    """Return the buffers of a scheduled module, those of called computations included.

    ``granule_bytes`` is what tables of tuples are rounded up to.
    """
    liveness = Liveness(module, granule_bytes)
    shared = [_shared(values) for values in liveness.buffers() if any(value.n_bytes for value in values)]
    tables = [place for place in shared if isinstance(place.values[0].shape, TupleShape) and place.kind == "temporary"]
    places = [place for place in shared if not isinstance(place.values[0].shape, TupleShape)]
    _move_into_lent(places)
    scratch = [_shared((value,), "scratch") for value in liveness.scratch]
    heap_bytes = _place_all([p for p in (*places, *scratch) if p.kind in ("temporary", "scratch") and not p.within])
    frames = SourceFrames(module)
    buffers = [buffer for place in (*places, *scratch) for buffer in _finished(place, frames)]
    if tables:
        size = len(tables) * HBM_ALIGNMENT_BYTES
        end = len(liveness.schedule)
        tables_buffer = Buffer(
            name=TABLES, n_bytes=size, space="hbm", kind="temporary", first=0, last=end, opcode="tuple", offset_bytes=heap_bytes
        )
        buffers.append(tables_buffer)
        heap_bytes += size
    temp_bytes = _temp_bytes(heap_bytes, places, liveness) - sum(table.n_bytes for table in tables)
    return BufferPlan(tuple(liveness.schedule), tuple(buffers), temp_bytes)


def _temp_bytes(heap_bytes: int, places: Iterable[_Shared], liveness: Liveness) -> int:
    """Return the HBM temporaries as XLA's memory statistics count them: the heap, and once more what is unused of it.

    In use is, where it is most, one value per place: of those that a loop carries the one that its body makes. Tables of
    tuples are in use throughout. (Found by comparing the compiler's heaps and live ranges with its statistics.)
    """
    until = {id(value): last for value, last in zip(liveness.values, liveness.counted_until(), strict=True)}
    counted = [_counted(p) for p in places if p.kind == "temporary" and p.space == "hbm" and not p.within]
    used = peak_bytes(
        Buffer(name="", n_bytes=v.n_bytes, space="hbm", kind="temporary", first=v.first, last=until[id(v)])
        for v in counted
    )
    return 2 * heap_bytes - used


def _counted(place: _Shared) -> Value:
    """Return the value of a place that XLA's statistics count: computations that are called go before their callers."""
    return min(place.values, key=lambda value: (value.is_phi, -value.depth))


def _shared(values: Sequence[Value], kind: BufferKind | None = None) -> _Shared:
    """Return the place that values share, as large as the largest of them."""
    intervals = _united((value.first, value.last) for value in values)
    size = max(value.n_bytes for value in values)
    return _Shared(values, kind or _kind(values), size, values[0].space, intervals)


def _kind(values: Sequence[Value]) -> BufferKind:
    """Return what a place is for."""
    # A parameter of a called computation is its caller's value, so that one here is the program's.
    kind = _KINDS.get(values[0].instruction.opcode)
    if kind:
        return kind
    return "output" if any(value.is_result for value in values) else "temporary"


_KINDS: dict[str, BufferKind] = {"parameter": "argument", "constant": "constant"}


def _united(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals in order, those that touch or overlap as one."""
    united: list[Interval] = []
    for first, last in sorted(intervals):
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(united[-1][1], last))
        else:
            united.append((first, last))
    return tuple(united)


def _move_into_lent(places: Sequence[_Shared]) -> None:
    """Let temporaries move into the memory of outputs while that is not in use."""
    lent = [place for place in places if _is_lent(place)]
    for place in lent:
        place.taken = list(place.intervals)
    # The largest first, as there they have the least choice; an output of equal size goes before.
    lent.sort(key=lambda place: -place.n_bytes)
    temporaries = [place for place in places if place.kind == "temporary"]
    for place in sorted(temporaries, key=lambda place: -place.n_bytes):
        home = next((candidate for candidate in lent if _may_move_in(place, candidate)), None)
        if home is not None:
            place.within = home.values[-1].instruction.name
            home.taken += place.intervals


def _is_lent(place: _Shared) -> bool:
    """Tell whether a place is the program's to write: an output's, or an argument's that an output is written over."""
    return any(value.is_result and value.instruction.opcode not in _KINDS for value in place.values)


def _may_move_in(place: _Shared, home: _Shared) -> bool:
    """Tell whether a temporary fits into the memory of another place, in size and time."""
    fits = place.space == home.space and place.n_bytes <= home.n_bytes
    return fits and not meet(place.intervals, home.taken)


def _place_all(places: Sequence[_Shared]) -> int:
    """Give every place its offset in the heap of its memory space, and return the size of that of HBM."""
    heap_bytes = 0
    for space in sorted({shared.space for shared in places}):
        members = [shared for shared in places if shared.space == space]
        alignment = HBM_ALIGNMENT_BYTES if space == "hbm" else _ALIGNMENT_BYTES
        # A place is kept between the values that it holds: who comes next finds it where the one before left it.
        blocks = [Block(shared.n_bytes, shared.intervals[0][0], shared.intervals[-1][1]) for shared in members]
        offsets, size = place(blocks, alignment)
        for shared, offset in zip(members, offsets, strict=True):
            shared.offset_bytes = offset
        heap_bytes = size if space == "hbm" else heap_bytes
    return heap_bytes


def _finished(shared: _Shared, frames: SourceFrames) -> Iterator[Buffer]:
    """Yield a buffer for every stretch of a place's life, named after the value that begins it."""
    for first, last in shared.intervals:
        value = next((v for v in shared.values if v.first >= first), shared.values[0])
        metadata = value.instruction.metadata
        is_scratch = shared.kind == "scratch"
        yield Buffer(
            name=value.instruction.name,
            n_bytes=shared.n_bytes,
            space=shared.space,
            kind=shared.kind,
            first=first,
            last=last,
            opcode=value.instruction.opcode,
            shape="" if is_scratch else str(value.shape),
            unpadded_bytes=0 if is_scratch else logical_bytes(value.shape),
            op_name=metadata.op_name,
            source=frames.location(metadata),
            offset_bytes=shared.offset_bytes,
            within=shared.within,
        )
