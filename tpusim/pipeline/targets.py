"""What programs are compiled for: a chip, on which the model of time chooses the tiles of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.hardware.chip import Chip
from tpusim.lowering.kernels.choice import chosen_tiles

if TYPE_CHECKING:
    from tpusim.compiler.target import Target


def target_of(chip: Chip) -> Target:
    """Return a chip as the compiler sees it."""
    # The compiler loads where something is compiled.
    from tpusim.compiler.target import Target

    return Target(chip, lambda module, kernels: chosen_tiles(module, chip, kernels))
