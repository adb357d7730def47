"""Where the ops of a run lie under the roofs of their chip: how much they compute per byte, and how fast.

Two intensities are told apart, as in a hierarchical roofline: per byte of HBM traffic, and, for ops that touch HBM not
at all, per byte that registers exchange with VMEM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpusim.analysis.roofline import peak_flops_per_second
from tpusim.analysis.utilisation import group_records
from tpusim.hardware.units import HBM, LOAD, MATRIX, STORE, UNITS, VMEM
from tpusim.units import PS_PER_SECOND

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.timeline.records import Timeline


class Roof(msgspec.Struct, frozen=True):
    """A limit: bytes per second of a memory (``is_memory``), or floating-point operations per second of a unit."""

    name: str
    per_second: float
    is_memory: bool


class RoofPoint(msgspec.Struct, frozen=True):
    """One op: its time on the core, FLOP, and bytes; ``memory`` tells whose bytes they are (HBM, VMEM or none)."""

    name: str
    bound_by: str
    time_ps: int
    flops: float
    n_bytes: float
    memory: str

    @property
    def flops_per_second(self) -> float:
        """The rate that the op reached."""
        return self.flops / self.time_ps * PS_PER_SECOND

    @property
    def bytes_per_second(self) -> float:
        """The bandwidth that the op reached."""
        return self.n_bytes / self.time_ps * PS_PER_SECOND

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte; 0 for an op that moves none."""
        return self.flops / self.n_bytes if self.n_bytes else 0.0


def roofs(chip: Chip, operand_type: str = "bf16") -> tuple[Roof, ...]:
    """Return the roofs of a device: HBM, the loads from VMEM, the matrix units for a type, the vector ALUs for f32."""
    clock = chip.clock_hz * chip.cores_per_device
    return (
        Roof(UNITS[HBM].label, chip.hbm.bandwidth_bytes_per_second, True),
        Roof(UNITS[VMEM].label, chip.vpu.load_slots * chip.vpu.register_bytes * clock, True),
        Roof(f"{UNITS[MATRIX].label} {operand_type}", peak_flops_per_second(chip, operand_type), False),
        Roof("vector f32", chip.vpu.alu_slots * chip.vpu.register_elements * clock, False),
    )


def roof_points(timeline: Timeline, chip: Chip) -> tuple[RoofPoint, ...]:
    """Return the ops of a run that took the core's time, the longest first."""
    found = []
    for group in group_records(timeline, "op"):
        if group.time_ps <= 0 or group.opcode.endswith("-done"):
            continue
        by_registers = sum(group.activity.get(unit, 0.0) for unit in (LOAD, STORE)) * chip.vpu.register_bytes
        memory, n_bytes = (HBM, group.hbm_bytes) if group.hbm_bytes else (VMEM, by_registers)
        same = (group.name, group.bound_by, group.time_ps, group.flops)
        found.append(RoofPoint(*same, n_bytes=n_bytes, memory=memory if n_bytes else ""))
    return tuple(found)
