"""The buffers of a program, each with its place: arguments and outputs by themselves, temporaries in a heap.

As XLA's BufferAssigner does it (xla/service/buffer_assignment.cc): what the program returns gets memory of its own;
a temporary goes into the memory of an output that is at least as large and not in use yet, or not any more, unless a
newer compiler made the program, or tpusim, which follows it; what remains is placed in one heap per memory space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from tpusim.allocation.heap import SPARE_BYTES, aligned, alignment_bytes
from tpusim.allocation.liveness import Liveness
from tpusim.allocation.placement import (
    KINDS,
    Place,
    counted_temp_bytes,
    fill_heap,
    lay_side_by_side,
    module_order,
    place_of,
    reuse_output_memory,
)
from tpusim.hardware.units import HBM
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Module
from tpusim.program.buffers import Buffer, PlannedBuffers
from tpusim.semantics.provenance import keeps_outputs_apart
from tpusim.shapes.address import logical_bytes
from tpusim.shapes.shape import TupleShape

TABLES = "tuple tables"
"""The buffer of all tables of addresses that the program's tuples need."""


class BufferPlan(msgspec.Struct, frozen=True):
    """A program's buffers, the instruction at each position, and HBM temporaries as XLA's statistics count them.

    ``addresses`` has for each instruction those of the arrays that it makes, if they are asked for.
    """

    schedule: tuple[str, ...]
    buffers: PlannedBuffers
    temp_bytes: int
    addresses: dict[str, tuple[int | None, ...]] = {}


def plan_buffers(
    module: Module,
    granule_bytes: int,
    frames: SourceFrames,
    *,
    room_bytes: Callable[[], int],
    vmem_bytes: Mapping[str, int] | None = None,
    with_addresses: bool = False,
) -> BufferPlan:
    """Return the buffers of a scheduled module, those of called computations included.

    ``granule_bytes`` is what tables of tuples are rounded up to; ``frames`` say where in the source they come from.
    ``room_bytes`` says what arguments and outputs leave of the HBM: asked only where places could be chosen to fit.
    ``vmem_bytes`` are what kernels take of VMEM while they run, by name: what the text states of one comes first.
    """
    liveness = Liveness(module, granule_bytes, vmem_bytes)
    places, tables = _places(liveness)
    keeps_apart = keeps_outputs_apart(module)
    if not keeps_apart:
        reuse_output_memory(places, module_order(module))
    # A table that is larger than the alignment, of thousands of elements or under a large granule, takes more of them.
    table_bytes = sum(aligned(n_bytes, alignment_bytes(HBM)) for n_bytes in tables)
    beside = table_bytes + sum(p.n_bytes for p in places if p.kind == "constant" and p.space == HBM)
    heap_bytes = fill_heap(places, HBM, lambda: room_bytes() - beside - SPARE_BYTES)
    of_tables: list[Buffer] = []
    if tables:
        # At the end of the heap: their memory is never shared.
        made = Buffer(
            name=TABLES, n_bytes=table_bytes, space=HBM, kind="temporary", first=0, last=len(liveness.schedule)
        )
        of_tables.append(replace(made, opcode="tuple", offset_bytes=heap_bytes))
        heap_bytes += table_bytes
    temp_bytes = counted_temp_bytes(heap_bytes, sum(tables), places, liveness, counts_unused=not keeps_apart)
    addresses = _addresses(liveness, places, heap_bytes) if with_addresses else {}
    sizes = (*(_sized(place, *life) for place in places for life in place.lives), *of_tables)

    def make() -> tuple[Buffer, ...]:
        lay_side_by_side(places)
        for space in {place.space for place in places} - {HBM}:
            fill_heap(places, space)
        return (*(_named(place, *life, frames) for place in places for life in place.lives), *of_tables)

    return BufferPlan(tuple(liveness.schedule), PlannedBuffers(sizes, make), temp_bytes, addresses)


def _places(liveness: Liveness) -> tuple[list[Place], list[int]]:
    """Return the places of all that needs memory, and apart from them the bytes of the tuples' tables between."""
    places: list[Place] = []
    tables: list[int] = []
    for values in liveness.buffers():
        first = values[0]
        is_result, n_bytes = first.is_result, first.n_bytes
        # Most lie by themselves.
        if len(values) > 1:
            is_result, n_bytes = any(value.is_result for value in values), max(value.n_bytes for value in values)
        # A parameter of a called computation is its caller's value, so that one here is the program's.
        kind = KINDS.get(first.instruction.opcode, "output" if is_result else "temporary")
        if n_bytes and not isinstance(first.shape, TupleShape):
            places.append(place_of(values, kind, n_bytes))
        elif n_bytes and kind == "temporary":
            tables.append(n_bytes)
    places += [place_of((value,), "scratch", value.n_bytes) for value in liveness.scratch]
    return places, tables


def _addresses(liveness: Liveness, places: list[Place], heap_bytes: int) -> dict[str, tuple[int | None, ...]]:
    """Return where in HBM each instruction's arrays begin, None for what is elsewhere; a tuple's table is no array.

    The heap comes first; arguments, outputs and constants, which have memory of their own, lie behind it one by one.
    """
    free = aligned(heap_bytes, alignment_bytes(HBM))
    found: dict[int, int] = {}
    homes: dict[int, int] = {}
    # What lies within an output comes after it.
    for place in sorted(places, key=lambda place: bool(place.home)):
        if place.space != HBM or place.kind == "scratch":
            continue
        address = homes[id(place.home)] if place.home else place.offset_bytes
        if address is None:
            address, free = free, aligned(free + place.n_bytes, alignment_bytes(HBM))
        homes[id(place)] = address
        found |= {id(value): address for value in place.values}
    arrays: dict[str, tuple[int | None, ...]] = {}
    for frame in liveness.frames:
        for name, parts in frame.values.items():
            values = [liveness.values[part[0]] for part in parts if part]
            kept = [value for value in values if not isinstance(value.shape, TupleShape)]
            arrays.setdefault(name, tuple(found.get(id(value)) for value in kept))
    return arrays


def _sized(place: Place, first: int, last: int) -> Buffer:
    """Return a stretch of a place's life as a buffer without a name."""
    return Buffer(
        name="",
        n_bytes=place.n_bytes,
        space=place.space,
        kind=place.kind,
        first=first,
        last=last,
        offset_bytes=place.offset_bytes,
        within=place.within,
    )


def _named(place: Place, first: int, last: int, frames: SourceFrames) -> Buffer:
    """Return a stretch of a place's life as a buffer named after the value that begins it."""
    value = next((v for v in place.values if v.first >= first), place.values[0])
    metadata = value.origin.metadata
    is_scratch = place.kind == "scratch"
    return replace(
        _sized(place, first, last),
        name=value.instruction.name,
        opcode=value.instruction.opcode,
        shape="" if is_scratch else str(value.shape),
        unpadded_bytes=0 if is_scratch else logical_bytes(value.shape),
        op_name=metadata.op_name,
        source=frames.location(metadata),
    )
