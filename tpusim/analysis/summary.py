"""All numbers of one run together: what every report formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tpusim.analysis.bands import Band, CompiledError, compiled_error, compiler_clock_hz, error_bands
from tpusim.analysis.energy.run import Energy, action_counts, run_energy
from tpusim.analysis.memory import MemoryUse, memory_capacities, memory_use, overflows
from tpusim.analysis.roofline import Roofline, roofline
from tpusim.analysis.utilisation import Group, Utilisation, group_records, utilisation
from tpusim.cost.peaks import seconds_at_peak
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import changed_figures, is_as_shipped
from tpusim.hardware.units import HBM, VMEM
from tpusim.program.module import Estimate, Program
from tpusim.program.provenance import Provenance
from tpusim.program.steps import AnyStep, Copy, Kernel, Wait
from tpusim.timeline.records import Timeline
from tpusim.units import PS_PER_SECOND, ps_to_us


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a run. Shares are between 0 and 1, times in picoseconds, sizes in physical bytes.

    They are of the device ``device`` and the program that it ran, ``device_program``: of ``devices_run`` with time
    lines of their own the first of those that ended last. ``provenance`` is what made the program; its estimates of
    cycles are those of ``compiler_clock_hz``, which is 0 where it was not compiled for this chip. ``compiled_error`` is
    how far programs are off that tpusim compiled for the chip, if it is one; ``schedule`` says whose schedule it was.
    ``is_as_shipped`` says that no figure of the chip was replaced; then ``operating_point`` is the chip's. Unless it
    ``fits`` into the memories a program cannot run there: its figures are those of a chip with more of them.
    The capacities are what a program may have of a memory. ``flops_utilisation`` is of all operations (HFU),
    ``model_flops_utilisation`` of those that compute nothing again (MFU), both of the peaks of their operands' types.
    ``peak_types`` are these, the most operations first, where bf16 stands for all that run at its rate.
    ``changed`` are the figures of a shipped chip that were replaced, by key.
    ``prefetch_wait_ps`` is how long it waits for what, of many runs, the one before brings in (cross-program prefetch).
    ``by_hand`` counts the kernels that were written elsewhere, by what their times are made of; ``unstated`` those of
    them that do not say how many operations they are for: all that they compute is in both utilisations, masked or not.
    """

    program: str
    chip: str
    operating_point: str
    total_ps: int
    compiler_clock_hz: float
    utilisation: Utilisation
    roofline: Roofline
    flops_utilisation: float
    model_flops_utilisation: float
    peak_types: tuple[str, ...]
    hbm_utilisation: float
    energy: Energy
    counts: dict[str, float]
    memory: MemoryUse
    fits: bool
    hbm_capacity_bytes: int
    vmem_capacity_bytes: int
    ops: tuple[Group, ...]
    categories: tuple[Group, ...]
    compiler_cycles: int
    provenance: Provenance | None
    is_as_shipped: bool
    bands: tuple[Band, ...]
    compiled_error: CompiledError | None
    by_hand: dict[str, int]
    unsupported: tuple[Estimate, ...]
    warnings: tuple[str, ...]
    device: int = 0
    device_program: str = ""
    devices_run: int = 1
    schedule: str = "given"
    changed: dict[str, Any] = {}
    unstated: int = 0
    prefetch_wait_ps: int = 0

    @property
    def time_us(self) -> float:
        """The time in microseconds, as JSON has it."""
        return ps_to_us(self.total_ps)


def summarise(
    program: Program, chip: Chip, timeline: Timeline, devices_run: int = 1, schedule: str = "given"
) -> Summary:
    """Return the numbers of the run of ``program`` on ``chip`` that ``timeline`` records, one of ``devices_run``."""
    use, bound, busy = memory_use(program), roofline(timeline, chip), utilisation(timeline)
    ops, too_much = group_records(timeline, "op"), overflows(use, chip)
    shipped, made_by = is_as_shipped(chip), program.provenance
    ours = made_by is not None and made_by.compiler == "tpusim" and made_by.chip == chip.name
    # What was measured are programs compiled for the chip, on the chip as it is.
    claims = shipped and made_by is not None and made_by.is_for(chip.name)
    # A program of nothing but views takes no time, and its shares are 0.
    total_ps, capacities = max(1, timeline.total_ps), memory_capacities(chip)
    total_s = total_ps / PS_PER_SECOND
    return Summary(
        program=program.name,
        chip=chip.name,
        # That of the file: with other figures it is another one.
        operating_point=chip.operating_point if shipped else "",
        total_ps=timeline.total_ps,
        compiler_clock_hz=compiler_clock_hz(program.provenance, chip),
        utilisation=busy,
        roofline=bound,
        flops_utilisation=seconds_at_peak(busy.flops_by_type, chip) / total_s,
        model_flops_utilisation=seconds_at_peak(busy.model_flops_by_type, chip) / total_s,
        peak_types=_peak_types(busy.flops_by_type, chip),
        hbm_utilisation=bound.roofs_ps[HBM] / total_ps,
        energy=run_energy(ops, chip, timeline.total_ps),
        counts=action_counts(busy, chip),
        memory=use,
        fits=not too_much,
        hbm_capacity_bytes=capacities[HBM],
        vmem_capacity_bytes=capacities[VMEM],
        ops=ops,
        categories=group_records(timeline, "category"),
        compiler_cycles=sum(group.compiler_cycles for group in ops),
        provenance=program.provenance,
        is_as_shipped=shipped,
        bands=error_bands(program, timeline, chip.name if claims else ""),
        compiled_error=compiled_error() if shipped and ours else None,
        by_hand=dict(Counter(basis for step in program.every_step if (basis := getattr(step, "basis", "")))),
        unsupported=program.unsupported,
        warnings=(*program.warnings, *map(str, too_much)),
        device=timeline.device,
        device_program=timeline.program,
        devices_run=devices_run,
        schedule=schedule,
        changed=changed_figures(chip),
        unstated=sum(_is_unstated(step) for step in program.every_step),
        prefetch_wait_ps=_prefetch_wait_ps(program, ops),
    )


def _prefetch_wait_ps(program: Program, ops: Iterable[Group]) -> int:
    """Return how long the core waits for what the run before could have brought in."""
    fetched = {step.name for step in program.every_step if isinstance(step, Copy) and step.is_prefetch}
    if not fetched:
        return 0
    waits = {step.name for step in program.every_step if isinstance(step, Wait) and not fetched.isdisjoint(step.needs)}
    return sum(group.time_ps for group in ops if group.name in waits)


def _peak_types(flops: Mapping[str, float], chip: Chip) -> tuple[str, ...]:
    """Return the types whose peaks operations are measured against, those of most first."""
    types = (name for name, count in Counter(flops).most_common() if count)
    return tuple(dict.fromkeys(name if chip.mxu.rate_by_type.get(name, 1.0) != 1.0 else "bf16" for name in types))


def _is_unstated(step: AnyStep) -> bool:
    return isinstance(step, Kernel) and step.basis == "body" and step.product_flops > 0 and not step.floor.flops
