"""What a run took in energy: by op, by unit, and over time. All sums are of whole femtojoules, and so exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tpusim.analysis.communication import classes
from tpusim.analysis.utilisation import Group, OpActivity, Utilisation, group_name, op_activities
from tpusim.cost.energy import energy_of
from tpusim.cost.models.energies import energy_model
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import UNITS, unit_of
from tpusim.timeline.records import PodRun, Record
from tpusim.units import FJ_PER_JOULE, PS_PER_SECOND, fj_to_watts, watts_to_fj

IDLE = "idle"
"""What a chip draws while nothing runs, among what units take."""

CYCLES = "cycles"
"""Cycles of the clock, among counts: for each the device has its share of what the chip draws while nothing runs."""


class OpEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """One op's energy in femtojoules: of what it does, by unit, of the idle power in its time on the core, and both."""

    name: str
    line: int
    units_fj: dict[str, int]
    idle_fj: int
    total_fj: int

    @property
    def total_j(self) -> float:
        """Both together, in joules."""
        return self.total_fj / FJ_PER_JOULE


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """What one device took in a run: the ops in their order, ``rest_fj`` of idle power between them, and all of it.

    A device has its share of what its chip draws while nothing runs: ``chip_power_w`` is that of a chip of which all
    ``devices_per_chip`` do the same.
    """

    total_ps: int
    ops: tuple[OpEnergy, ...]
    units_fj: dict[str, int]
    rest_fj: int
    total_fj: int
    devices_per_chip: int

    @property
    def total_j(self) -> float:
        """All of it, in joules."""
        return self.total_fj / FJ_PER_JOULE

    @property
    def by_unit(self) -> dict[str, float]:
        """Joules by unit, and ``idle``."""
        return {unit: fj / FJ_PER_JOULE for unit, fj in self.units_fj.items()}

    @property
    def by_op(self) -> dict[str, float]:
        """Joules by the name of an op; those of one name in different computations together."""
        found: dict[str, int] = {}
        for op in self.ops:
            found[op.name] = found.get(op.name, 0) + op.total_fj
        return {name: fj / FJ_PER_JOULE for name, fj in found.items()}

    @property
    def average_power_w(self) -> float:
        """Mean power of the device, in watts; 0 for a run that takes no time."""
        return fj_to_watts(self.total_fj, self.total_ps)

    @property
    def chip_power_w(self) -> float:
        """Mean power of a chip, in watts."""
        return self.average_power_w * self.devices_per_chip


def run_energy(ops: Sequence[Group | OpActivity], chip: Chip, total_ps: int) -> Energy:
    """Return what a device took for some ops, all those of a run of ``total_ps``."""
    model = energy_model(chip)
    joules, watts = model.joules(chip), model.idle_watts(chip)
    # Layers repeat: of the ops of a large program one in ten does what none before has done, and the records of what is
    # alike share one table of it. Waits do nothing.
    different = {id(op.activity): op.activity for op in ops if op.activity}
    taken = {key: _by_unit(activity, joules) for key, activity in different.items()}
    found = tuple(_op_energy(op, taken.get(id(op.activity), {}), watts) for op in ops)
    rest_fj = watts_to_fj(watts, total_ps - sum(op.time_ps for op in ops))
    units = dict.fromkeys(UNITS, 0) | {IDLE: rest_fj + sum(op.idle_fj for op in found)}
    for op in found:
        for unit, fj in op.units_fj.items():
            units[unit] += fj
    return Energy(
        total_ps=total_ps,
        ops=found,
        units_fj={unit: fj for unit, fj in units.items() if fj},
        rest_fj=rest_fj,
        total_fj=rest_fj + sum(op.total_fj for op in found),
        devices_per_chip=chip.devices_per_chip,
    )


def pod_joules(run: PodRun, chip: Chip) -> float:
    """Return what all devices of a run took, each until the last one has ended."""
    total_ps = run.last.total_ps
    alike = ((run_energy(op_activities(timeline), chip, total_ps), len(devices)) for timeline, devices in classes(run))
    return sum(energy.total_fj * count for energy, count in alike) / FJ_PER_JOULE


def group_joules(groups: Sequence[Group], by: str, ops: Sequence[Group], energy: Energy) -> list[float]:
    """Return the joules of groups of a run ``by`` op, category or source: those of all their ``ops`` together."""
    if by == "op":
        return [op.total_j for op in energy.ops]
    found: dict[str, int] = {}
    for op, taken in zip(ops, energy.ops, strict=True):
        name = group_name(op, by)
        found[name] = found.get(name, 0) + taken.total_fj
    return [found.get(group.name, 0) / FJ_PER_JOULE for group in groups]


def record_energy(chip: Chip) -> Callable[[Record], int]:
    """Return a function of a record: the femtojoules of what one execution of it did, without the idle power."""
    joules = energy_model(chip).joules(chip)
    return lambda record: sum(energy_of(record.activity, joules).values())


def action_counts(use: Utilisation, chip: Chip) -> dict[str, float]:
    """Return how often each event of a run happened, by key of activity, and the ``cycles`` that it took."""
    return {key: count for key, count in use.activity.items() if count} | {
        CYCLES: use.total_ps * chip.clock_hz / PS_PER_SECOND
    }


def _by_unit(activity: Mapping[str, float], joules: Mapping[str, float]) -> dict[str, int]:
    """Return the femtojoules of some activity, by unit."""
    units_fj: dict[str, int] = {}
    for key, fj in energy_of(activity, joules).items():
        unit = unit_of(key)
        units_fj[unit] = units_fj.get(unit, 0) + fj
    return units_fj


def _op_energy(op: Group | OpActivity, units_fj: dict[str, int], watts: float) -> OpEnergy:
    idle_fj = watts_to_fj(watts, op.time_ps)
    total_fj = idle_fj + sum(units_fj.values())
    return OpEnergy(name=op.name, line=op.line, units_fj=units_fj, idle_fj=idle_fj, total_fj=total_fj)
