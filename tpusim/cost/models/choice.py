"""All units that a chip's file chooses a model for, so that a name or a setting that is wrong is refused at once."""

from __future__ import annotations

from typing import Any

from tpusim.cost.models.arrays import ARRAYS
from tpusim.cost.models.buffers import BUFFERS
from tpusim.cost.models.memories import MEMORIES
from tpusim.cost.models.operations import OPERATIONS
from tpusim.cost.models.registry import Registry
from tpusim.hardware.chip import Chip

REGISTRIES: tuple[Registry[Any], ...] = (ARRAYS, MEMORIES, BUFFERS, OPERATIONS)
"""Every one, by the section of the chip that the key of each begins with."""


def check_models(chip: Chip) -> None:
    """Make every model that a chip names; raise ConfigError as ``Registry.of`` does."""
    for registry in REGISTRIES:
        registry.of(getattr(chip, registry.section))
