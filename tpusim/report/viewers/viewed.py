"""What a viewer's file is made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tpusim.analysis.summary import Summary
    from tpusim.hardware.chip import Chip
    from tpusim.ir.module import Module
    from tpusim.program.module import Program
    from tpusim.timeline.records import PodRun


class Viewed(NamedTuple):
    """A run, its numbers, the chip, the program, the module that it was lowered from, if there is text of it, and the
    version of the simulator.
    """

    run: PodRun
    summary: Summary
    chip: Chip
    program: Program
    module: Module | None = None
    version: str = ""
