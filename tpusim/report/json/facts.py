"""What ``tpusim chips``, ``ops`` and ``layout`` print as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tpusim.analysis.energy.price import listed_price
from tpusim.cost.area import area_mm2
from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import Fact
from tpusim.ir.ops import Operation
from tpusim.report.json.page import SCHEMA_VERSION, fill, page, rows
from tpusim.shapes.layout_facts import LayoutFacts

_CHIP = "name aliases description year cores_per_device devices_per_chip clock_hz mxu"
_RATES = {
    "peak_flops_per_second": float,
    "hbm_bandwidth_bytes_per_second": float,
    "hbm_capacity_bytes": int,
    "vmem_capacity_bytes_per_core": int,
}
_KEYS = {"peak_flops_per_second": "peak_bf16_flops_per_second"}
ChipRow = page("ChipRow", Chip, _CHIP, _KEYS, **_RATES)
ChipPage = page(
    "Chip",
    Chip,
    _CHIP,
    _KEYS,
    **_RATES,
    area_mm2=float,
    usd_per_chip_hour=float | None,
    facts=rows(Fact),
    schema_version=Literal[SCHEMA_VERSION],
)
_KNOWN = dict.fromkeys(("built", "parsed", "inferred", "verified", "computed", "timed"), bool)
OpcodeRow = page(
    "Opcode",
    Operation,
    "name",
    {"name": "opcode"},
    category=str,
    operands=tuple[int, int | None],
    required_attributes=tuple[str, ...],
    optional_attributes=tuple[str, ...],
    **_KNOWN,
)


def chip_rows(chips: Iterable[Chip]) -> list[Any]:
    """Return the list of chips."""
    return [_chip(ChipRow, chip) for chip in chips]


def chip_page(chip: Chip, facts: Iterable[Fact]) -> Any:
    """Return a chip with all its quantities."""
    usd = listed_price(chip)
    return _chip(ChipPage, chip, area_mm2=area_mm2(chip), usd_per_chip_hour=usd, facts=tuple(facts))


def _chip(kind: Any, chip: Chip, **more: Any) -> Any:
    return fill(
        kind,
        chip,
        hbm_bandwidth_bytes_per_second=chip.hbm.bandwidth_bytes_per_second,
        hbm_capacity_bytes=chip.hbm.capacity_bytes,
        vmem_capacity_bytes_per_core=chip.vmem.capacity_bytes,
        **more,
    )


def opcode_rows(operations: Iterable[Operation], rooms: Mapping[str, frozenset[str]]) -> list[Any]:
    """Return the table of operations; ``rooms`` maps a room's name to the opcodes that it has rules for."""
    return [
        OpcodeRow(
            name=row.name,
            category=row.category.value,
            operands=(row.fewest_operands, row.most_operands),
            # Sorted, because sets come in another order in every process.
            required_attributes=tuple(sorted(row.required)),
            optional_attributes=tuple(sorted(row.optional)),
            **{room: row.name in opcodes for room, opcodes in rooms.items()},
        )
        for row in operations
    ]


class LayoutPage(LayoutFacts, frozen=True, kw_only=True):
    """What ``tpusim layout`` prints."""

    schema_version: int = SCHEMA_VERSION


def layout_page(facts: LayoutFacts) -> LayoutPage:
    """Return the facts of a layout."""
    return msgspec.convert(msgspec.structs.asdict(facts), LayoutPage)
