"""The DMA engines: what the transfers of a kernel's blocks cost the memories, and when in its pipeline they move.

The first blocks have to be in before the first tile can compute, and the last ones go out behind the last tile; all
others move while tiles compute. A block that does not change from one tile to the next is not fetched again.
"""

from __future__ import annotations

from functools import cache

import msgspec

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM, HOST, HOST_IN, HOST_OUT, UNITS, Unit, chip_value, peak_bytes_per_second
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
    loads = [(s, loaded_bytes(s, chip)) for s in kernel.streams if link_of(s, chip) == space]
    # A block that is fetched only once is needed by the first tile: no computation can hide it.
    first = sum(n_bytes * min(1.0, kernel.cores / s.fetches) for s, n_bytes in loads if not s.is_output)
    last = sum(n_bytes * min(1.0, kernel.cores / s.fetches) for s, n_bytes in loads if s.is_output)
    written = sum(n_bytes for s, n_bytes in loads if s.is_output)
    read = sum(n_bytes for s, n_bytes in loads if not s.is_output)
    steady = max(0.0, read + written - first - last)
    if space == HBM:
        # The bus turns round between what comes and what goes, which the first and the last blocks have to themselves.
        steady += chip.hbm.turn_cost * max(0.0, min(read - first, written - last))
    return Traffic(space, first, steady, last)


def later_blocks(kernel: Kernel, space: str, chip: Chip) -> list[tuple[float, float]]:
    """Return how often each stream of one memory moves a block beside the first, and its bytes on all cores together.

    The next block of an operand is asked for one tile before it is needed, however long this one has stayed; a result
    has until the next one is complete, and goes out little by little (JAX documentation, Pallas: Software Pipelining).
    """
    tiles, found = -(-kernel.tiles // kernel.cores), []
    for stream in kernel.streams:
        count = stream.fetches / kernel.cores - 1
        if count > 0 and link_of(stream, chip) == space:
            n_bytes = loaded_bytes(stream, chip) / stream.fetches * kernel.cores
            turns = max(1.0, tiles - 1.0)
            found.append((turns, n_bytes * count / turns) if stream.is_output else (count, n_bytes))
    return sorted(found)


def loaded_bytes(stream: Stream, chip: Chip) -> float:
    """Return a stream's bytes as the memory feels them: each run costs something more."""
    n_bytes, memory = stream.total_bytes, link_of(stream, chip)
    if stream.is_output:
        n_bytes *= write_cost(memory, chip)
    return n_bytes * run_cost(stream.chunk_bytes, chip)


def write_cost(memory: str, chip: Chip) -> float:
    """Return what a byte that is written to a memory costs, a byte that is read 1: its rate is that of reads."""
    if memory == HBM:
        return chip.hbm.efficiency / chip.hbm.write_efficiency
    return chip.cmem.read_bytes_per_second / chip.cmem.write_bytes_per_second if memory == CMEM else 1.0


def run_cost(chunk_bytes: int, chip: Chip) -> float:
    """Return what a byte costs the memory if runs are ``chunk_bytes`` long (0: long enough), a byte of long ones 1."""
    if not chunk_bytes:
        return 1.0
    # Runs below the native element of the DMA engine use only a part of each (512 B: ISCA 2021, TPUv4i).
    return (max(chunk_bytes, chip.dma.min_chunk_bytes) + chip.dma.chunk_cost_bytes) / chunk_bytes


def copy_activity(copy: Copy, chip: Chip) -> dict[str, float]:
    """Return the bytes that a copy reads and writes; within one memory it does both."""
    source = _link(copy.source_space, chip, is_output=False)
    target = _link(copy.target_space, chip, is_output=True)
    return {source: copy.n_bytes * 2} if source == target else {source: copy.n_bytes, target: copy.n_bytes}


def copy_loads(copy: Copy, chip: Chip) -> dict[str, float]:
    """Return a copy's bytes by memory as the memory feels them."""
    loads = copy_activity(copy, chip)
    target = _link(copy.target_space, chip, is_output=True)
    loads[target] += copy.n_bytes * (write_cost(target, chip) - 1)
    return {memory: n_bytes * run_cost(copy.chunk_bytes, chip) for memory, n_bytes in loads.items()}
