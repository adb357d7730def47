"""What ``tpusim memory`` and ``tpusim validate --memory`` print as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field

from tpusim.analysis.memory import MemoryUse
from tpusim.analysis.memory_accuracy import MemoryAccuracy, memory_accuracy
from tpusim.report.json.page import Document, Page, fill
from tpusim.report.out_of_memory import oom_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpusim.analysis.memory import MemoryReport, SpaceUse
    from tpusim.analysis.memory_accuracy import MemoryOutcome
    from tpusim.program.buffers import Buffer


class BufferRow(Page, frozen=True, kw_only=True):
    """A buffer, as ``program.buffers.Buffer`` has it, and what padding adds to it."""

    name: str
    n_bytes: int
    space: str
    kind: str
    first: int
    last: int
    opcode: str
    shape: str
    unpadded_bytes: int
    op_name: str
    source: str
    offset_bytes: int | None
    within: str
    expansion: float
    padding_bytes: int


class SpacePage(Page, frozen=True, kw_only=True):
    """A memory: what it has, what the program needs of it, and the buffers alive where it needs most."""

    capacity_bytes: int
    needed_bytes: int
    free_bytes: int
    held_bytes: int
    heap_bytes: int
    fragmentation_bytes: int
    peak_bytes: int
    peak_position: int
    peak_instruction: str
    alive_at_peak: tuple[BufferRow, ...]


class MemoryPage(Document, frozen=True, kw_only=True):
    """What ``tpusim memory`` prints; positions are those of the flat schedule."""

    program: str
    chip: str
    use: MemoryUse = field(name="memory")
    spaces: dict[str, SpacePage]
    padding: tuple[BufferRow, ...]
    compiler_message: str


def memory_page(report: MemoryReport) -> MemoryPage:
    """Return a memory report."""
    spaces = {space.profile.space: _space_page(space) for space in report.spaces}
    return fill(MemoryPage, report, spaces=spaces, padding=_rows(report.padded), compiler_message=oom_text(report))


def _space_page(space: SpaceUse) -> SpacePage:
    """Return one memory."""
    alive = space.profile.alive_at(space.profile.peak_position)
    return fill(SpacePage, space, space.profile, alive_at_peak=_rows(alive))


def _rows(buffers: Iterable[Buffer]) -> tuple[BufferRow, ...]:
    """Return buffers."""
    return tuple(fill(BufferRow, buffer, expansion=round(buffer.expansion, 4)) for buffer in buffers)


class MemoryOutcomeRow(Page, frozen=True, kw_only=True):
    """One program's HBM temporaries, ours and the compiler's; rows that are not ``counted`` are too small to tell."""

    program: str
    chip: str
    temp_bytes: int
    compiler_temp_bytes: int
    heap_bytes: int
    error: float | None
    is_counted: bool = field(name="counted")


class MemoryAccuracyPage(Document, frozen=True, kw_only=True):
    """What ``tpusim validate --memory`` prints."""

    temp_bytes: MemoryAccuracy
    rows: tuple[MemoryOutcomeRow, ...]


def memory_accuracy_page(outcomes: Sequence[MemoryOutcome]) -> MemoryAccuracyPage:
    """Return the errors of HBM temporaries."""
    return fill(MemoryAccuracyPage, temp_bytes=memory_accuracy(outcomes), rows=tuple(outcomes))
