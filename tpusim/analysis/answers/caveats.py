"""What a run is to be read with: how many of its times are estimates, and how many warnings it has."""

from __future__ import annotations

import msgspec

from tpusim.analysis.memory import memory_use, overflows
from tpusim.hardware.chip import Chip
from tpusim.program.module import Program


class Caveats(msgspec.Struct, frozen=True, kw_only=True):
    """How many kernels of a run were estimated without a rule, and how many warnings ``tpusim run`` has for it."""

    estimates: int = 0
    warnings: int = 0


NO_CAVEATS = Caveats()


def caveats_of(program: Program, chip: Chip) -> Caveats:
    """Return the counts of what ``analysis.summary`` lists of a program on a chip."""
    too_much = overflows(memory_use(program), chip)
    return Caveats(estimates=len(program.unsupported), warnings=len(program.warnings) + len(too_much))
