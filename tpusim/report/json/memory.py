"""What ``tpusim memory`` and ``tpusim validate --memory`` print as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import GenericAlias
from typing import Any

from tpusim.analysis.accuracy import MemoryAccuracy, MemoryOutcome, memory_accuracy
from tpusim.analysis.memory import MemoryProfile, MemoryReport
from tpusim.program.buffers import Buffer
from tpusim.report.json.page import document, fill, page, rows
from tpusim.report.out_of_memory import oom_text

_Buffer = page("Buffer", Buffer, expansion=float, padding_bytes=int)
_Space = page(
    "Space",
    MemoryProfile,
    "held_bytes heap_bytes peak_bytes peak_position",
    capacity_bytes=int,
    needed_bytes=int,
    free_bytes=int,
    fragmentation_bytes=int,
    peak_instruction=str,
    alive_at_peak=rows(_Buffer),
)
MemoryPage = document(
    "Memory",
    MemoryReport,
    "program chip use provenance",
    {"use": "memory"},
    spaces=GenericAlias(dict, (str, _Space)),
    padding=rows(_Buffer),
    compiler_message=str,
)
_Outcome = page("MemoryOutcome", MemoryOutcome, None, {"is_counted": "counted"}, error=float | None, is_counted=bool)
MemoryAccuracyPage = document("MemoryAccuracy", MemoryOutcome, "", rows=rows(_Outcome), temp_bytes=MemoryAccuracy)


def memory_page(report: MemoryReport) -> Any:
    """Return a memory report."""
    spaces = {}
    for space in report.spaces:
        alive = space.profile.alive_at(space.profile.peak_position)
        spaces[space.profile.space] = fill(_Space, space, space.profile, alive_at_peak=_rows(alive))
    return fill(MemoryPage, report, spaces=spaces, padding=_rows(report.padded), compiler_message=oom_text(report))


def _rows(buffers: Iterable[Buffer]) -> tuple[Any, ...]:
    return tuple(fill(_Buffer, buffer, expansion=round(buffer.expansion, 4)) for buffer in buffers)


def memory_accuracy_page(outcomes: Sequence[MemoryOutcome]) -> Any:
    """Return the errors of HBM temporaries."""
    return fill(MemoryAccuracyPage, temp_bytes=memory_accuracy(outcomes), rows=tuple(outcomes))
