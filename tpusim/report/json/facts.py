"""What ``tpusim chips``, ``ops`` and ``layout`` print as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import field

from tpusim.hardware.chip import Mxu
from tpusim.report.json.page import SCHEMA_VERSION, Page, fill
from tpusim.shapes.layout_facts import LayoutFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpusim.hardware.chip import Chip
    from tpusim.hardware.fields import Fact
    from tpusim.ir.ops import Operation

_C = TypeVar("_C", bound="ChipRow")


class ChipRow(Page, frozen=True, kw_only=True):
    """A chip in the list."""

    name: str
    aliases: tuple[str, ...]
    description: str
    year: int
    cores_per_device: int
    devices_per_chip: int
    clock_hz: float
    mxu: Mxu
    peak_flops_per_second: float = field(name="peak_bf16_flops_per_second")
    hbm_bandwidth_bytes_per_second: float
    hbm_capacity_bytes: int
    vmem_capacity_bytes_per_core: int


class FactRow(Page, frozen=True, kw_only=True):
    """One quantity of a chip; ``key`` is dotted, as ``-o`` takes it."""

    key: str
    value: Any
    unit: str
    confidence: str
    source: str
    note: str


class ChipPage(ChipRow, frozen=True, kw_only=True):
    """What ``tpusim chips NAME`` prints."""

    facts: tuple[FactRow, ...]
    schema_version: int = SCHEMA_VERSION


def chip_rows(chips: Iterable[Chip]) -> list[ChipRow]:
    """Return the list of chips."""
    return [_chip(ChipRow, chip) for chip in chips]


def chip_page(chip: Chip, facts: Iterable[Fact]) -> ChipPage:
    """Return a chip with all its quantities."""
    return _chip(ChipPage, chip, facts=tuple(fill(FactRow, fact) for fact in facts))


def _chip(kind: type[_C], chip: Chip, **more: Any) -> _C:
    """Return what is said of a chip."""
    return fill(
        kind,
        chip,
        hbm_bandwidth_bytes_per_second=chip.hbm.bandwidth_bytes_per_second,
        hbm_capacity_bytes=chip.hbm.capacity_bytes,
        vmem_capacity_bytes_per_core=chip.vmem.capacity_bytes,
        **more,
    )


class OpcodeRow(Page, frozen=True, kw_only=True):
    """An operation of HLO: the fewest and the most operands (null: no limit), attributes, and what knows it."""

    opcode: str
    category: str
    operands: tuple[int, int | None]
    required_attributes: tuple[str, ...]
    optional_attributes: tuple[str, ...]
    built: bool
    parsed: bool
    inferred: bool
    verified: bool
    computed: bool
    timed: bool


def opcode_rows(operations: Iterable[Operation], rooms: Mapping[str, frozenset[str]]) -> list[OpcodeRow]:
    """Return the table of operations; ``rooms`` maps a room's name to the opcodes that it has rules for."""
    return [
        OpcodeRow(
            opcode=row.name,
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
