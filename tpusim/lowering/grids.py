"""How kernels written by hand go through their grids, as pictures show it; a run needs no order of the steps."""

from __future__ import annotations

from tpusim.hardware.chip import Chip
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Module
from tpusim.ir.mosaic import read_body
from tpusim.lowering.fusions import hand_written
from tpusim.lowering.kernels.likeness import Likeness
from tpusim.lowering.scope import Notes, Scope
from tpusim.program.grid import Grid
from tpusim.semantics.contexts import EntryContext


def grid_of(module: Module, chip: Chip, computation: str, name: str, trips: int) -> Grid | None:
    """Return how an instruction's kernel goes through its grid; None if it was not written by hand.

    ``trips`` are those of a loop that only data ends. Raises ``Unreadable`` for a body that cannot be read.
    """
    # NumPy goes through the grid.
    from tpusim.lowering.pallas.kernel import grid_steps

    scope = Scope(EntryContext(module), chip, Notes(), trips, SourceFrames(module), Likeness(module)).inside(
        computation
    )
    instruction = scope.computation[name]
    written = hand_written(scope, instruction)
    if written is None:
        return None
    return grid_steps(scope, instruction, read_body(written.call.backend_config.kernel_body), written.operands)
