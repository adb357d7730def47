"""What programs are compiled for: a chip, on which the model of time chooses the tiles of kernels, and its slice."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tpusim.cost.models.fabrics import build_pod
from tpusim.errors import TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Pod, Topology
from tpusim.ir.module import Module
from tpusim.lowering.kernels.choice import chosen_tiles
from tpusim.machine.placement import fitting_slice, usual_slice
from tpusim.semantics.marks import TOPOLOGY, mark_of

if TYPE_CHECKING:
    from tpusim.compiler.target import Target


def target_of(chip: Chip, topology: Topology | None = None) -> Target:
    """Return a chip as the compiler sees it, on a slice: by default the one that a run of the program has."""
    # The compiler loads where something is compiled.
    from tpusim.compiler.target import Target

    return Target(
        chip,
        lambda module, kernels: chosen_tiles(module, chip, kernels),
        lambda module: _pod_of(module, chip, topology),
    )


def _pod_of(module: Module, chip: Chip, topology: Topology | None) -> Pod | None:
    """Return the slice that a module runs on; None for one that the chip cannot form, which a run refuses."""
    devices = module.device_count
    with suppress(TpusimError):
        stated = fitting_slice(mark_of(module, TOPOLOGY), devices, chip)
        return build_pod(topology or stated or usual_slice(devices, chip), chip)
    return None
