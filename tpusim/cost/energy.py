"""What activity takes: counts of events times joules of each, in whole femtojoules, so that sums are exact.

What a chip draws while nothing runs comes on top, for as long as a program takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import energy_activities
from tpusim.hardware.figures import EnergyTable, Event, at_node, load_energy_table
from tpusim.hardware.units import HBM, HBM_ROWS, VMEM, event_key, mac_key
from tpusim.units import FJ_PER_JOULE

MEAN_ROWS = f"{HBM_ROWS}.mean"
"""The share of opening rows in a byte of HBM, where nothing counts rows."""


_UNKNOWN = Event(value=0.0, scales=False, confidence="estimated", source="")
"""Of a unit that the table does not know: it takes what its chip says, else nothing."""


def event_joules(chip: Chip, table: EnergyTable | None = None) -> dict[str, float]:
    """Return the joules of one event on a chip, an operation or a byte, by key of a record's activity.

    By default the table is the shipped one; what the chip has of its own goes before it.
    """
    table = table or load_energy_table()
    factor = at_node(table.nodes, chip.power.node_nm) * chip.power.supply_ratio**2
    like = {mac_key(kind): mac_key(other) for kind, other in table.like.items()}
    events = {key: table.events.get(event_key(like.get(key, key)), _UNKNOWN) for key in energy_activities()}
    joules = {key: _joules(event, chip, factor) for key, event in events.items()}
    # Each lane has a bank of its own.
    joules[VMEM] *= (chip.vmem.capacity_bytes / chip.vpu.lanes / table.bank.bytes.value) ** table.bank.exponent.value
    joules |= {key: chip.energy[event_key(key)] for key in joules if event_key(key) in chip.energy}
    # Who states a byte's energy states all of it.
    return joules | {MEAN_ROWS: 0.0 if HBM in chip.energy else joules[HBM_ROWS] / table.rows.bytes.value}


def energy_of(activity: Mapping[str, float], joules: Mapping[str, float]) -> dict[str, int]:
    """Return the femtojoules of some activity, by its keys; what has no energy (flags of the core) is left out."""
    found = {key: round(count * joules[key] * FJ_PER_JOULE) for key, count in activity.items() if key in joules}
    if HBM in activity and HBM_ROWS not in activity:
        found[HBM] += round(activity[HBM] * joules[MEAN_ROWS] * FJ_PER_JOULE)
    return found


def idle_watts(chip: Chip) -> float:
    """Return a device's share of what its chip draws while nothing runs."""
    return chip.power.idle_watts / chip.devices_per_chip


def _joules(event: Event, chip: Chip, factor: float) -> float:
    """Return the joules of an event on a chip, whose node and voltage make those of logic ``factor`` times as many."""
    lanes = chip.vpu.register_elements if event.per == "lane" else 1
    return event.value * lanes * (factor if event.scales else 1.0)
