"""A run with its numbers: what the stages return, which shows itself when printed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from tpusim.analysis.answers.caveats import Caveats, caveats_of
from tpusim.analysis.communication import PodUse, pod_use
from tpusim.analysis.energy.price import Cost, run_cost
from tpusim.analysis.energy.run import Energy, pod_joules
from tpusim.analysis.summary import Summary, summarise
from tpusim.analysis.utilisation import Group, check_grouping, group_records
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.program.module import Program
from tpusim.report.shown import Shown
from tpusim.report.tables import Printer
from tpusim.timeline.records import PodRun, Timeline
from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from tpusim.analysis.path.critical import CriticalPath


class Result(Shown, msgspec.Struct, frozen=True, dict=True, weakref=True):
    """A run: the lowered program, the chip, what happened, and the numbers that follow from it.

    ``pod`` is what all devices and links did; ``timeline`` that of the device which ended last. ``module`` is what the
    text said, None for a program that came lowered. ``schedule`` is whose schedule ran: ``given``, ``retiled`` or
    ``compiled``.
    """

    program: Program
    chip: Chip
    pod: PodRun
    module: Module | None = None
    schedule: str = "given"

    @property
    def timeline(self) -> Timeline:
        """What the device that ended last did."""
        return self.pod.last

    @property
    def time_us(self) -> float:
        """Simulated run time in microseconds."""
        return ps_to_us(self.timeline.total_ps)

    @cached_property
    def summary(self) -> Summary:
        """All numbers of the run: utilisation, roofline, memory, ops, warnings."""
        return summarise(self.program, self.chip, self.timeline, len(self.pod.timelines), self.schedule)

    @cached_property
    def caveats(self) -> Caveats:
        """How many times are estimates, and how many warnings there are: the summary lists both."""
        return caveats_of(self.program, self.chip)

    @property
    def energy(self) -> Energy:
        """What the device of the summary took, by op and by unit, with its share of the chip's idle power."""
        return self.summary.energy

    @cached_property
    def all_devices_j(self) -> float:
        """Joules of all devices of the run together, each until the last one has ended."""
        return pod_joules(self.pod, self.chip)

    @property
    def counts(self) -> dict[str, float]:
        """What that device did: multiply-accumulates by type, operations and bytes by unit, cycles of its clock."""
        return self.summary.counts

    @property
    def cost_usd(self) -> float | None:
        """US dollars of one run on all its chips at the listed price of a chip-hour, None for a chip without one."""
        cost = self.cost()
        return cost.usd if cost else None

    def cost(self, price: float | None = None, tokens: float = 0.0) -> Cost | None:
        """Return what one run costs at a price for an hour of a chip (default: the listed one, None without one)."""
        return run_cost(self.chip, self.timeline.total_ps, self.pod.device_count, price, tokens)

    @cached_property
    def communication(self) -> PodUse:
        """What devices and links did together: exposed and hidden communication, bandwidths, shares of links."""
        return pod_use(self.pod, self.program.devices_needed)

    @cached_property
    def critical_path(self) -> CriticalPath:
        """What the end of the run waits for, through kernels, copies, collectives and devices; and what could wait."""
        # Few runs are asked for it.
        from tpusim.analysis.path.critical import critical_path

        return critical_path(self.program, self.pod, self.caveats)

    def __repr__(self) -> str:
        """Name the program, the chip and the time: all fields would be thousands of lines."""
        return f"<Result of {self.program.name} on {self.chip.name}: {self.time_us:.2f} us>"

    def _render(self, console: Printer) -> None:
        from tpusim.report.terminal.run import render_result

        render_result(self, "op", console, self.cost())

    def groups(self, by: str = "op") -> tuple[Group, ...]:
        """Return the run's records added up by ``op``, ``category`` or ``source``."""
        check_grouping(by)
        known = {"op": self.summary.ops, "category": self.summary.categories}
        return known[by] if by in known else group_records(self.timeline, by)
