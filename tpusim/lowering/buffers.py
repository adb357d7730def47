"""The buffers of a program, each with its place: arguments and outputs by themselves, temporaries in a heap.

As XLA's BufferAssigner does it (xla/service/buffer_assignment.cc): what the program returns gets memory of its own;
a temporary goes into the memory of an output that is at least as large and not in use yet, or not any more; what
remains is placed by a heap simulation over the whole schedule, one heap per memory space.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tpusim.ir.frames import SourceFrames
from tpusim.lowering.heap import Block, Interval, fits_in_time, place
from tpusim.lowering.liveness import Liveness, Value
from tpusim.program.buffers import Buffer, BufferKind
from tpusim.shapes.address import logical_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpusim.ir.module import Module
    from tpusim.program.work import MemorySpace

# One tile of (8,128) 32-bit words: every offset that the compiler's dumps show is a multiple of less.
ALIGNMENT_BYTES = 512


class BufferPlan(msgspec.Struct, frozen=True):
    """The buffers of a program, and the instruction at each position that they count in."""

    schedule: tuple[str, ...]
    buffers: tuple[Buffer, ...]


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
    # Of an output: when it, and whoever moved in, needs it.
    taken: list[Interval] = field(default_factory=list)


def plan_buffers(module: Module) -> BufferPlan:
    """Return the buffers of a scheduled module, those of called computations included."""
    liveness = Liveness(module)
    places = [_shared(values) for values in liveness.buffers() if any(value.n_bytes for value in values)]
    _share_outputs(places)
    scratch = [_shared((value,), "scratch") for value in liveness.scratch]
    loose = [p for p in (*places, *scratch) if p.kind in ("temporary", "scratch") and not p.within]
    for space in sorted({shared.space for shared in loose}):
        _place([shared for shared in loose if shared.space == space])
    frames = SourceFrames(module)
    buffers = (buffer for shared in (*places, *scratch) for buffer in _finished(shared, frames))
    return BufferPlan(tuple(liveness.schedule), tuple(buffers))


def _shared(values: Sequence[Value], kind: BufferKind | None = None) -> _Shared:
    """Return the place that values share, as large as the largest of them."""
    first = values[0]
    intervals = _united((value.first, value.last) for value in values)
    size = max(value.n_bytes for value in values)
    return _Shared(values, kind or _kind(values), size, first.space, intervals)


def _kind(values: Sequence[Value]) -> BufferKind:
    """Return what a place is for."""
    kind = _KINDS.get(values[0].instruction.opcode)
    # A parameter of a called computation is its caller's value, so that one here is the program's.
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


def _share_outputs(places: Iterable[_Shared]) -> None:
    """Let temporaries move into the memory of outputs while that is not in use."""
    everything = list(places)
    outputs = [shared for shared in everything if _is_lent(shared)]
    for output in outputs:
        output.taken = list(output.intervals)
    temporaries = [shared for shared in everything if shared.kind == "temporary"]
    for shared in sorted(temporaries, key=lambda s: -s.n_bytes):
        home = next((o for o in outputs if _may_move_in(shared, o)), None)
        if home is not None:
            shared.within = home.values[-1].instruction.name
            home.taken += shared.intervals


def _is_lent(shared: _Shared) -> bool:
    """Tell whether a place is the program's to write: an output's, or an argument's that an output is written over."""
    return (
        shared.kind != "constant"
        and any(value.is_result for value in shared.values)
        and len(shared.values) > (shared.kind == "argument")
    )


def _may_move_in(shared: _Shared, output: _Shared) -> bool:
    """Tell whether a temporary fits into an output's memory, in size and time."""
    fits = shared.space == output.space and shared.n_bytes <= output.n_bytes
    return fits and fits_in_time(output.taken, shared.intervals)


def _place(places: Sequence[_Shared]) -> None:
    """Give every place its offset in the heap of their memory space."""
    offsets, _ = place([Block(shared.n_bytes, shared.intervals) for shared in places], ALIGNMENT_BYTES)
    for shared, offset in zip(places, offsets, strict=True):
        shared.offset_bytes = offset


def _finished(shared: _Shared, frames: SourceFrames) -> Iterable[Buffer]:
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
