"""The roofline: the least time in which a chip could have done the same work.

Its roofs are the matrix unit at the peak of the operands' type (on the work that the program asks for, before padding),
HBM at the advertised bandwidth, and every other unit and link that the program keeps busy, at its own peak rate. No
order of the same work on the same chip is faster than the highest of them.

Under the roofs lie the ops of a run, by how fast they compute and how much per byte: of HBM traffic or, for ops that do
not touch HBM, of what registers exchange with VMEM, as in a hierarchical roofline.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tpusim.analysis.utilisation import group_records
from tpusim.cost.peaks import flops_by_type, peak_flops_per_second
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, LOAD, MATRIX, STORE, UNITS, VMEM
from tpusim.timeline.records import SPARSECORE, Record, Timeline
from tpusim.units import PS_PER_SECOND, bytes_to_ps


class Roofline(msgspec.Struct, frozen=True):
    """Picoseconds that the work takes at each roof alone, by the roof's name."""

    roofs_ps: dict[str, int]

    @property
    def bound_by(self) -> str:
        """The highest roof."""
        return max(self.roofs_ps, key=lambda name: self.roofs_ps[name])

    @property
    def bound_ps(self) -> int:
        """The time at the highest roof: no run on this chip is faster."""
        return max(self.roofs_ps.values())


def roofline(timeline: Timeline, chip: Chip) -> Roofline:
    """Return the roofs of a run's work."""
    busy = Counter[str]()
    flops: Counter[str] = Counter()
    for record in timeline.records:
        # The sparse cores have units of their own beside the core's; only its memories and links are shared with them.
        units = record.units if record.row != SPARSECORE else [key for key in record.units if UNITS[key].rate]
        times = _times_in(timeline, record)
        for unit in units:
            # Units count their busy time at their peak rate, so that the sum is a roof already.
            busy[unit] += int(record.units[unit] * times)
        if record.is_kernel and MATRIX in record.units:
            flops.update({n: int(c) for n, c in flops_by_type(record, record.product_flops * times).items()})
    # What the arrays do is padded; what they were asked to do is not. The rest of a kernel is for other units.
    rates = {name: peak_flops_per_second(chip, name) for name in flops}
    busy[MATRIX] = sum(int(count / rates[name] * PS_PER_SECOND) for name, count in flops.items())
    # Advertised bandwidth: a roof must not move with what transfers are found to reach.
    hbm_bytes = sum(record.hbm_bytes * _times_in(timeline, record) for record in timeline.records)
    busy[HBM] = bytes_to_ps(hbm_bytes, chip.hbm.bandwidth_bytes_per_second)
    return Roofline(dict(busy))


def _times_in(timeline: Timeline, record: Record) -> float:
    """Return how often a record happened until the end of the program, which transfers that none waits for outlast."""
    late_ps = record.end_ps - timeline.total_ps
    if late_ps <= 0:
        return record.count
    return record.count * max(0, record.duration_ps - late_ps) / record.duration_ps if record.duration_ps else 0


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


def roofs(chip: Chip, *operand_types: str) -> tuple[Roof, ...]:
    """Return the roofs of a device: HBM, the loads from VMEM, the matrix units for a type, the vector ALUs for f32.

    Behind them are those of the matrix units for further types. For none they are those for bf16.
    """
    clock = chip.clock_hz * chip.cores_per_device
    first, *rest = (
        Roof(f"{UNITS[MATRIX].label} {name}", peak_flops_per_second(chip, name), False)
        for name in operand_types or ("bf16",)
    )
    return (
        Roof(UNITS[HBM].label, chip.hbm.bandwidth_bytes_per_second, True),
        Roof(UNITS[VMEM].label, chip.vpu.load_slots * chip.vpu.register_bytes * clock, True),
        first,
        Roof("vector f32", chip.vpu.alu_slots * chip.vpu.register_elements * clock, False),
        *rest,
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
