"""How kernels written by hand go through their grids, for what looks into them; a run needs no order of the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tpusim.hardware.chip import Chip
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Instruction, Module
from tpusim.ir.mosaic import KernelBody, read_body
from tpusim.lowering.fusions import hand_written
from tpusim.lowering.kernels.known import Known
from tpusim.lowering.scope import Notes, Scope
from tpusim.program.grid import Grid
from tpusim.semantics.contexts import EntryContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.lowering.pallas.merged import Merging
    from tpusim.lowering.pallas.operands import Fed


class _Written(NamedTuple):
    """A kernel written by hand, and what it is lowered with."""

    scope: Scope
    instruction: Instruction
    body: KernelBody
    operands: Sequence[Fed]


def grid_of(module: Module, chip: Chip, computation: str, name: str, trips: int) -> Grid | None:
    """Return how an instruction's kernel goes through its grid; None if it was not written by hand.

    ``trips`` are those of a loop that only data ends. Raises ``Unreadable`` for a body that cannot be read.
    """
    # NumPy goes through the grid.
    from tpusim.lowering.pallas.kernel import grid_steps

    written = _written(module, chip, computation, name, trips)
    return None if written is None else grid_steps(*written)


def merging_of(module: Module, chip: Chip, computation: str, name: str, trips: int) -> Merging | None:
    """Return how steps of an instruction's kernel can be merged to larger ones; None where they cannot."""
    from tpusim.lowering.pallas.kernel import merging

    written = _written(module, chip, computation, name, trips)
    return None if written is None else merging(*written)


def _written(module: Module, chip: Chip, computation: str, name: str, trips: int) -> _Written | None:
    scope = Scope(EntryContext(module), chip, Notes(), trips, SourceFrames(module), Known(module.likeness)).inside(
        computation
    )
    instruction = scope.computation[name]
    written = hand_written(scope, instruction)
    if written is None:
        return None
    return _Written(scope, instruction, read_body(written.call.backend_config.kernel_body), written.operands)
