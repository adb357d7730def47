"""How large a chip's die is, part by part, from counts of what is on it.

An upper estimate, as the figures rest on two published bounds.

Memories beside the die (HBM) and the package are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tpusim.hardware.chip import Chip
from tpusim.hardware.figures import AreaTable, at_node, load_area_table
from tpusim.hardware.units import CMEM, HBM, ICI, MATRIX, OTHER, VECTOR, VMEM


def area_mm2(chip: Chip, table: AreaTable | None = None) -> float:
    """Return the square millimetres of a chip's die, or of its dies together."""
    return sum(area_by_unit(chip, table).values())


def area_by_unit(chip: Chip, table: AreaTable | None = None) -> dict[str, float]:
    """Return the square millimetres of a chip's units and memories by key, and of what is none of them (``other``)."""
    table = table or load_area_table()
    factors = {kind: at_node(nodes, chip.power.node_nm) for kind, nodes in table.nodes.items()}
    part = {key: part.value * factors.get(part.scales, 1.0) for key, part in table.parts.items()}
    return {**_by_unit(chip, part), **chip.area}


def _by_unit(chip: Chip, part: Mapping[str, float]) -> dict[str, float]:
    """Return the square millimetres of units and memories, from those of parts."""
    devices = chip.devices_per_chip
    cores, mxu = devices * chip.cores_per_device, chip.mxu
    cells = mxu.rows * mxu.columns * mxu.lhs_rows_per_cycle * part["multiplier"]
    return {
        MATRIX: cores * mxu.count * (cells + (mxu.rows + mxu.columns) * part["edge"]),
        VECTOR: cores * chip.vpu.register_elements * chip.vpu.alu_slots * part["lane_alu"],
        VMEM: cores * chip.vmem.capacity_bytes * part["sram_byte"],
        CMEM: devices * chip.cmem.capacity_bytes * part["sram_byte"],
        HBM: devices * chip.hbm.bandwidth_bytes_per_second * part["hbm_byte_per_second"],
        ICI: chip.ici.links * part["link"],
        OTHER: part["base"],
    }
