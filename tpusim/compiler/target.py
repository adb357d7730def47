"""What a program is compiled for: a chip, and the policy that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Pod
from tpusim.ir.module import Module
from tpusim.program.compilation import Note

Tiles = Callable[[Module, Mapping[str, str]], dict[str, dict[str, Any]]]
"""From a module and the computations of some kernels, by name, to what ``backend_config`` says of their best tiles."""


@dataclass(frozen=True)
class Target:
    """A chip as the passes see it, and ``notes`` of what they did, for people to read.

    ``tiles`` finds the best tiles of kernels on the chip; without it none are stated. ``pod`` finds the slice that a
    module runs on, where that can be told; without it that may be any. One run of many finds an argument that was
    fetched ``across_programs``. What products round to 16 bits may be stored so if the target ``narrows``.
    """

    chip: Chip
    tiles: Tiles | None = None
    pod: Callable[[Module], Pod | None] | None = None
    across_programs: bool = True
    narrows: bool = True
    notes: list[Note] = field(default_factory=list)

    def note(self, pass_name: str, *, is_done: bool, reason: str, name: str, user: str = "", n_bytes: int = 0) -> None:
        """Note what a pass did with an array, or why it did not; see ``Note``."""
        found = Note(pass_name=pass_name, is_done=is_done, reason=reason, name=name, user=user, n_bytes=n_bytes)
        self.notes.append(found)

    @cached_property
    def scoped_bytes(self) -> int:
        """What the blocks of one kernel may take of VMEM."""
        return self.chip.vmem.kernel_bytes

    @cached_property
    def fast_space(self) -> int:
        """The number of the memory space that kernels keep whole arrays in: CMEM where there is one, else VMEM."""
        return 3 if self.chip.cmem.capacity_bytes else 1

    @cached_property
    def fast_bytes(self) -> int:
        """The bytes of that memory for whole arrays: of VMEM what the blocks of kernels leave."""
        return self.fast_bytes_of(1)

    def fast_bytes_of(self, share: float) -> int:
        """The same, of a memory that has only a share of this one's bytes."""
        if self.chip.cmem.capacity_bytes:
            return int(self.chip.cmem.capacity_bytes * share)
        return max(0, int(self.chip.vmem.capacity_bytes * share) - self.scoped_bytes)

    @cached_property
    def hbm_rate(self) -> float:
        """Bytes per second that long transfers from HBM reach."""
        return self.chip.hbm.bandwidth_bytes_per_second * self.chip.hbm.efficiency

    @cached_property
    def latency_bytes(self) -> float:
        """What HBM could move before the first byte of a transfer comes."""
        return self.chip.dma.fixed_latency_seconds * self.hbm_rate

    @cached_property
    def bytes_per_vector_op(self) -> float:
        """What HBM could move in the time that the vector unit takes for one operation on one element."""
        vpu = self.chip.vpu
        return self.hbm_rate / (self.chip.clock_hz * vpu.alu_slots * vpu.register_elements)

    @property
    def cores(self) -> int:
        """Cores that share the tiles of a kernel."""
        return self.chip.cores_per_device
