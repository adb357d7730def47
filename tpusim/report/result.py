"""What a page or a viewer's file is made from: a run as the pipeline returns it, which reports do not know by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tpusim.analysis.communication import PodUse
from tpusim.analysis.energy.price import Cost
from tpusim.analysis.summary import Summary
from tpusim.analysis.utilisation import Group
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.program.module import Program
from tpusim.timeline.records import PodRun

if TYPE_CHECKING:
    from tpusim.analysis.path.critical import CriticalPath


class ResultLike(Protocol):
    """A run, its numbers, the chip, the program, and the module that it was lowered from, if there is text of it."""

    @property
    def pod(self) -> PodRun:
        """What all devices and links did."""

    @property
    def summary(self) -> Summary:
        """All numbers of the run."""

    @property
    def all_devices_j(self) -> float:
        """Joules of all devices together."""

    @property
    def communication(self) -> PodUse:
        """What devices and links did together."""

    @property
    def critical_path(self) -> CriticalPath:
        """What the end of the run waits for."""

    @property
    def chip(self) -> Chip:
        """What the devices are."""

    @property
    def program(self) -> Program:
        """The lowered program."""

    @property
    def module(self) -> Module | None:
        """The program as text said it."""

    def groups(self, by: str = "op") -> tuple[Group, ...]:
        """Return the records added up by ``op``, ``category`` or ``source``."""

    def cost(self) -> Cost | None:
        """Return what a run costs at the listed price of a chip-hour, None for a chip without one."""
