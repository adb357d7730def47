"""What events take in energy: by the common table, scaled to the chip's node, unless a chip names another model."""

from __future__ import annotations

from collections.abc import Mapping

from tpusim.cost.energy import event_joules, idle_watts
from tpusim.cost.models.checked import amount_fault, amounts_fault
from tpusim.cost.models.protocols import Energy
from tpusim.cost.models.registry import Registry
from tpusim.hardware.chip import Chip

ENERGIES: Registry[Energy] = Registry("power.model", joules=amounts_fault, idle_watts=amount_fault)
"""By the name in a chip's file."""


def energy_model(chip: Chip) -> Energy:
    """Return the model of what events take on a chip."""
    return ENERGIES.of(chip.power)


@ENERGIES.enter("events")
class Events:
    """``configs/energy/events.toml`` at the chip's node and voltage, and what the chip has of its own."""

    def joules(self, chip: Chip) -> Mapping[str, float]:
        """Return the joules of one event by key of activity."""
        return event_joules(chip)

    def idle_watts(self, chip: Chip) -> float:
        """Return the device's share of what its chip draws while nothing runs."""
        return idle_watts(chip)
