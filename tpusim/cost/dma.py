"""The DMA engines: what the transfers of a kernel's blocks cost the memories, and when in its pipeline they move.

The first blocks have to be in before the first tile can compute, and the last ones go out behind the last tile; all
others move while tiles compute. A block that does not change from one tile to the next is not fetched again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from tpusim.cost.models.memories import hbm_of, loaded_bytes, needs_places
from tpusim.cost.models.protocols import Served
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import (
    CMEM,
    HBM,
    HBM_ROWS,
    HOST,
    HOST_IN,
    HOST_OUT,
    UNITS,
    Unit,
    chip_value,
    peak_bytes_per_second,
)
from tpusim.program.steps import Copy, Kernel
from tpusim.program.work import Stream


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """What one memory sees of a kernel, in bytes as they load it (short runs count as the shortest efficient one)."""

    space: str
    first_bytes: float
    steady_bytes: float
    last_bytes: float


def memory_rates(chip: Chip) -> dict[str, float]:
    """Return the bytes per second that long transfers reach on each memory and link that cores share."""
    rates = {}
    for unit in shared_memories():
        peak = peak_bytes_per_second(chip, unit)
        if memory_of(unit.key, chip) == unit.key:
            rates[unit.key] = peak * chip_value(chip, unit.share) if unit.share else peak
    return rates


def memory_of(space: str, chip: Chip) -> str:
    """Return the memory in which a chip keeps what a program puts into ``space``."""
    # A program may name a CMEM that the chip does not have, or that is switched off: its bytes are then in HBM.
    return HBM if space == CMEM and not chip.cmem.capacity_bytes else space


@cache
def shared_memories() -> tuple[Unit, ...]:
    """Return the memories and links that the kernels of all cores draw on."""
    # VMEM is not one of them: each core has its own, and its loads and stores are slots of the vector unit.
    return tuple(unit for unit in UNITS.values() if unit.is_shared)


def traffic_of(kernel: Kernel, chip: Chip) -> tuple[Traffic, ...]:
    """Return a kernel's traffic with each memory that cores share."""
    used = {link_of(stream, chip) for stream in kernel.streams if stream.block_bytes > 0}
    return tuple(_traffic(kernel, unit.key, chip) for unit in shared_memories() if unit.key in used)


def link_of(stream: Stream, chip: Chip) -> str:
    """Return the memory or, where each way is a link of its own, the link that a stream uses."""
    return _link(stream.space, chip, is_output=stream.is_output)


def _link(space: str, chip: Chip, *, is_output: bool) -> str:
    if space != HOST:
        return memory_of(space, chip)
    return HOST_OUT if is_output else HOST_IN


def _traffic(kernel: Kernel, space: str, chip: Chip) -> Traffic:
    """Split a kernel's traffic with one memory into what comes before, during and after its tiles' computation."""
    loads, turn_cost = stream_loads(kernel, space, chip)
    # A block that is fetched only once is needed by the first tile: no computation can hide it.
    first = sum(n_bytes * min(1.0, kernel.cores / s.fetches) for s, n_bytes in loads if not s.is_output)
    last = sum(n_bytes * min(1.0, kernel.cores / s.fetches) for s, n_bytes in loads if s.is_output)
    written = sum(n_bytes for s, n_bytes in loads if s.is_output)
    read = sum(n_bytes for s, n_bytes in loads if not s.is_output)
    steady = max(0.0, read + written - first - last)
    if turn_cost:
        # The bus turns round between what comes and what goes, which the first and the last blocks have to themselves.
        steady += turn_cost * max(0.0, min(read - first, written - last))
    return Traffic(space, first, steady, last)


def later_blocks(kernel: Kernel, space: str, chip: Chip) -> list[tuple[float, float]]:
    """Return how often each stream of one memory moves a block beside the first, and its bytes on all cores together.

    The next block of an operand is asked for one tile before it is needed, however long this one has stayed; a result
    has until the next one is complete, and goes out little by little (JAX documentation, Pallas: Software Pipelining).
    """
    tiles, found = -(-kernel.tiles // kernel.cores), []
    for stream, load_bytes in stream_loads(kernel, space, chip)[0]:
        count = stream.fetches / kernel.cores - 1
        if count > 0:
            n_bytes = load_bytes / stream.fetches * kernel.cores
            turns = max(1.0, tiles - 1.0)
            found.append((turns, n_bytes * count / turns) if stream.is_output else (count, n_bytes))
    return sorted(found)


def stream_loads(kernel: Kernel, space: str, chip: Chip) -> tuple[list[tuple[Stream, float]], float]:
    """Return a kernel's streams of one memory with their bytes as that feels them, and what a byte's turn costs it."""
    streams = [stream for stream in kernel.streams if link_of(stream, chip) == space]
    served = _served(streams, space, chip)
    return list(zip(streams, served.load_bytes, strict=True)), served.turn_cost


def _served(streams: list[Stream], memory: str, chip: Chip) -> Served:
    """Return what streams take of a memory or link: HBM's model says it of HBM."""
    if memory == HBM:
        return hbm_of(chip).serve(streams, chip)
    return Served([loaded_bytes(stream, memory, chip) for stream in streams])


def rows_opened(streams: Iterable[Stream], chip: Chip) -> dict[str, float]:
    """Return the rows of HBM that streams open, by the key of activity, nothing where no model counts them."""
    if not needs_places(chip):
        return {}
    rows = _served([stream for stream in streams if link_of(stream, chip) == HBM], HBM, chip).activations
    return {HBM_ROWS: rows} if rows else {}


def copy_activity(copy: Copy, chip: Chip) -> dict[str, float]:
    """Return the bytes that a copy reads and writes; within one memory it does both."""
    source = _link(copy.source_space, chip, is_output=False)
    target = _link(copy.target_space, chip, is_output=True)
    moved = {source: copy.n_bytes * 2} if source == target else {source: copy.n_bytes, target: copy.n_bytes}
    return moved | rows_opened(_copy_ends(copy), chip)


def _copy_ends(copy: Copy) -> tuple[Stream, Stream]:
    """Return what a copy reads and what it writes."""
    n_bytes, run = copy.n_bytes, copy.chunk_bytes
    return (
        Stream(copy.name, copy.source_space, n_bytes, chunk_bytes=run, address=copy.source_address),
        Stream(copy.name, copy.target_space, n_bytes, 1, True, run, address=copy.target_address),
    )


def copy_loads(copy: Copy, chip: Chip) -> dict[str, float]:
    """Return a copy's bytes by memory as the memory feels them; within one it is read and written side by side."""
    by_memory: dict[str, list[Stream]] = {}
    for stream in _copy_ends(copy):
        by_memory.setdefault(link_of(stream, chip), []).append(stream)
    return {memory: sum(_served(streams, memory, chip).load_bytes) for memory, streams in by_memory.items()}
