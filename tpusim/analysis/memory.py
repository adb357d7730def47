"""How much memory a program needs: its arguments, outputs and temporaries, and what is alive when over its schedule."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import msgspec

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM, UNITS, VMEM, MemorySpace
from tpusim.program.buffers import Buffer, alive_bytes, heap_bytes, peak_bytes, sizes_of, stretches
from tpusim.program.module import Program
from tpusim.program.provenance import Provenance
from tpusim.program.steps import Kernel

_MIB = 2**20
_IN_HEAP = ("temporary", "scratch")


class MemoryUse(msgspec.Struct, frozen=True, gc=False):
    """Physical bytes, tile padding included.

    ``temp_bytes`` are HBM temporaries as the ``memory_analysis`` of the program's compiler counts them: their heap, and
    of libtpu 0.0.41 to 0.0.45 once more what of it is unused where it is fullest. ``heap_bytes`` is the heap itself,
    with its holes: the temporaries that reports print. The peak is that of arguments, outputs but for the
    ``alias_bytes`` of them that are written over arguments, constants and the heap.
    """

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    heap_bytes: int
    peak_hbm_bytes: int
    peak_vmem_bytes: int

    @property
    def constant_bytes(self) -> int:
        """Constants in HBM."""
        return self.peak_hbm_bytes - self.heap_bytes - (self.argument_bytes + self.output_bytes - self.alias_bytes)


class MemoryProfile(msgspec.Struct, frozen=True):
    """One memory space over the program's schedule.

    ``alive_bytes[i]`` are the bytes in use while instruction ``schedule[i]`` runs, ``held_bytes`` of them (arguments,
    outputs and constants in HBM) from the first instruction to the last. ``peak_position`` is the first position with
    the most bytes, ``peak_bytes``, at which something runs, where there is such a one. ``heap_bytes`` is the end of the
    highest temporary: what it is above the most temporaries alive at once is fragmentation.
    """

    space: MemorySpace
    schedule: tuple[str, ...]
    alive_bytes: tuple[int, ...]
    held_bytes: int
    heap_bytes: int
    peak_position: int
    peak_bytes: int
    buffers: tuple[Buffer, ...]

    def alive_at(self, position: int) -> tuple[Buffer, ...]:
        """Return the buffers alive at a position, the largest first; those within an output's memory included."""
        is_hbm = self.space == HBM
        alive = [b for b in self.buffers if (is_hbm and b.kind not in _IN_HEAP) or b.first <= position <= b.last]
        return tuple(sorted(alive, key=lambda b: (-b.n_bytes, b.first, b.name)))

    @property
    def peak_instruction(self) -> str:
        """The instruction at the peak, empty where the program names none."""
        return self.schedule[self.peak_position] if self.schedule else ""

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes of the heap that are unused even at its fullest."""
        return self.heap_bytes - peak_bytes(stretches(b for b in self.buffers if b.kind in _IN_HEAP))


def memory_profile(program: Program, space: MemorySpace) -> MemoryProfile:
    """Return what is alive when in one memory space (``hbm``, ``vmem``, ``cmem``, ...)."""
    buffers = tuple(b for b in program.buffers if b.space == space)
    # The host hands arguments over and takes outputs back in HBM: they are there from start to end.
    held = _held_bytes(program) if space == HBM else 0
    counted = [b for b in buffers if space != HBM or b.kind in _IN_HEAP]
    alive = _over_positions(counted, held, len(program.schedule))
    peak = max(alive, default=held)
    fullest = [place for place, n_bytes in enumerate(alive) if n_bytes == peak]
    # Parameters have places in the schedule, too, and take no time.
    running = {step.name for step in program.every_step}
    return MemoryProfile(
        space=space,
        schedule=program.schedule,
        alive_bytes=alive,
        held_bytes=held,
        heap_bytes=heap_bytes(buffers),
        # A program that was written by hand may have buffers and no schedule.
        peak_position=next(
            (place for place in fullest if program.schedule and program.schedule[place] in running), (fullest or [0])[0]
        ),
        peak_bytes=peak,
        buffers=buffers,
    )


def memory_use(program: Program) -> MemoryUse:
    """Return the memory figures of a program; arguments and outputs hold their memory throughout."""
    buffers = sizes_of(program.buffers)
    temporaries = [b for b in buffers if b.kind in _IN_HEAP and b.space == HBM]
    # A program written by hand may leave places out: then nothing is known of holes.
    heap = max(heap_bytes(temporaries), peak_bytes(stretches(temporaries)))
    blocks_bytes = 0
    # The buffers of a program that was lowered from HLO have what each kernel uses as scratch.
    if not program.schedule:
        blocks_bytes = max((step.vmem_bytes for step in program.every_step if isinstance(step, Kernel)), default=0)
    return MemoryUse(
        argument_bytes=program.argument_bytes,
        output_bytes=program.output_bytes,
        alias_bytes=program.alias_bytes,
        temp_bytes=program.temp_bytes if program.schedule else heap,
        heap_bytes=heap,
        peak_hbm_bytes=_held_bytes(program) + heap,
        peak_vmem_bytes=peak_bytes(stretches(b for b in buffers if b.space == VMEM)) + blocks_bytes,
    )


class Overflow(NamedTuple):
    """A memory of which a program needs more than it may have, in bytes."""

    space: MemorySpace
    needed_bytes: int
    available_bytes: int

    def __str__(self) -> str:
        """Return it as pages say it."""
        needed, has = (n_bytes / _MIB for n_bytes in self[1:])
        name = UNITS[self.space].label
        return f"does not fit: the program needs {needed:.1f} MiB of {name}, a program may have {has:.1f} MiB"


def overflows(use: MemoryUse, chip: Chip) -> tuple[Overflow, ...]:
    """Return the memories of ``chip`` of which a program needs more than it may have."""
    needs = (
        Overflow(HBM, use.peak_hbm_bytes, chip.hbm.available_bytes),
        Overflow(VMEM, use.peak_vmem_bytes, chip.vmem.capacity_bytes),
    )
    return tuple(one for one in needs if one.needed_bytes > one.available_bytes)


def _held_bytes(program: Program) -> int:
    """Return the HBM bytes that a program holds from start to end: arguments, outputs, constants."""
    constants = sum(b.n_bytes for b in sizes_of(program.buffers) if b.kind == "constant" and b.space == HBM)
    return program.argument_bytes + program.output_bytes - program.alias_bytes + constants


def _over_positions(buffers: list[Buffer], held: int, count: int) -> tuple[int, ...]:
    """Return the bytes alive at each of ``count`` positions, or at as many as the buffers reach over."""
    changes = alive_bytes(stretches(buffers))
    starts, amounts = list(changes), list(changes.values())
    total = count or max((b.last + 1 for b in buffers), default=0)
    found = (bisect_right(starts, position) for position in range(total))
    return tuple(held + (amounts[number - 1] if number else 0) for number in found)


class SpaceUse(msgspec.Struct, frozen=True):
    """A memory space of a chip, as far as programs may have it, and what a program needs of it; ``free_bytes`` is
    negative if that does not fit.
    """

    profile: MemoryProfile
    capacity_bytes: int
    needed_bytes: int
    reserved_bytes: int = 0
    """What the system keeps for itself, beside the capacity."""

    @property
    def free_bytes(self) -> int:
        """Capacity that is left where most is in use."""
        return self.capacity_bytes - self.needed_bytes


class MemoryReport(msgspec.Struct, frozen=True):
    """What a program needs of a chip's memories, buffer by buffer."""

    program: str
    chip: str
    use: MemoryUse
    spaces: tuple[SpaceUse, ...]
    provenance: Provenance | None = None
    """What made the program."""

    @property
    def hbm(self) -> SpaceUse:
        """What it needs of HBM."""
        return self.spaces[0]

    @property
    def padded(self) -> tuple[Buffer, ...]:
        """The buffers that are larger than their elements, the most wasteful first."""
        found = {(b.name, b.shape): b for space in self.spaces for b in space.profile.buffers if b.padding_bytes > 0}
        return tuple(sorted(found.values(), key=lambda b: (-b.padding_bytes, b.first, b.name)))


def memory_capacities(chip: Chip) -> dict[MemorySpace, int]:
    """Return how many bytes a program may have of each memory; the runtime keeps some of the HBM to itself."""
    # Two cores to a program share no VMEM: the compiler plans for that of one (no program for v5p takes more).
    return {HBM: chip.hbm.available_bytes, VMEM: chip.vmem.capacity_bytes, CMEM: chip.cmem.capacity_bytes}


def memory_report(program: Program, chip: Chip) -> MemoryReport:
    """Return what a program needs of HBM, VMEM and, where the chip has one, CMEM."""
    capacities, use = memory_capacities(chip), memory_use(program)
    profiles = (memory_profile(program, name) for name, size in capacities.items() if size or name == HBM)
    # Of HBM the heap counts, holes included; a memory that the compiler has planned as a whole may be denser than ours.
    needed = {HBM: use.peak_hbm_bytes, VMEM: use.peak_vmem_bytes}
    reserved = {HBM: chip.hbm.reserved_bytes}
    spaces = (
        SpaceUse(p, capacities[p.space], needed.get(p.space, p.peak_bytes), reserved.get(p.space, 0)) for p in profiles
    )
    return MemoryReport(program.name, chip.name, use, tuple(spaces), program.provenance)
