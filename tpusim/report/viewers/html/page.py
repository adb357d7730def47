"""The page: template, style and script of this folder and the data of a run, in one file that loads nothing else.

What is shown stands in it by columns, every text once, times as differences, so that 20,000 ops stay a small file.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tpusim.analysis.bands import compiler_us
from tpusim.analysis.communication import classes
from tpusim.analysis.compare import Change, Comparison, RunFigures, compare, run_figures
from tpusim.analysis.energy.power import mean_watts
from tpusim.analysis.energy.run import Energy
from tpusim.analysis.memory import memory_profile
from tpusim.analysis.path.critical import CriticalPath, OnPath, Slack
from tpusim.analysis.utilisation import Group
from tpusim.cost.peaks import peak_flops_per_second
from tpusim.files import write_whole
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM, UNITS, VMEM, MemorySpace
from tpusim.report.json.page import plain
from tpusim.report.json.run import pod_page, run_page
from tpusim.report.provenance import provenance_text
from tpusim.report.result import ResultLike
from tpusim.report.viewers.events import Event, unrolled
from tpusim.report.viewers.html.details import op_details
from tpusim.timeline.records import CORE, Record, Timeline

MOST_RECORDS = 200_000
"""The time line shows so many; devices beyond are left out, and the page says so."""
MOST_EVENTS = 40_000
"""Of one device, with all trips of its loops; where these would be more, a loop is one long trip."""
_CHANGES = 1_000

_SPACES: tuple[MemorySpace, ...] = (HBM, VMEM, CMEM)
_PER_MILLE = 1000
_LINKS = 200
_DEVICES = 12
_FIGURES = {"count": "count", "time": "time_ps", "beside": "beside_ps", "flops": "flops", "hbm_bytes": "hbm_bytes"}
_FOLDER = Path(__file__).parent
SCRIPTS = ("format", "store", "chart", "table", "timeline", "memory", "roofline", "summary", "main")
"""In the order in which they need each other; they share one scope."""

# A comment in HTML, in CSS and in JavaScript, so that the template itself is a valid page.
_PLACE = re.compile(r"(?:<!--|/\*)(title|style|script|data)(?:-->|\*/)")


def write_page(result: ResultLike, path: str | Path, version: str = "", before: RunFigures | None = None) -> None:
    """Write the report of a run. The same run always gives the same bytes."""
    write_whole(path, page(result, version, before))


def page(result: ResultLike, version: str = "", before: RunFigures | None = None) -> str:
    """Return the report of a run, which this version of the simulator made, as the text of an HTML file.

    What another run was ``before`` is shown beside it.
    """
    data = json.dumps(report_data(result, version, before), separators=(",", ":"), ensure_ascii=False).encode()
    parts = {
        "title": html.escape(f"{result.program.name} on {result.chip.name} (simulated)"),
        "style": (_FOLDER / "style.css").read_text(encoding="utf-8"),
        "script": "\n".join((_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
        # Base64 can hold nothing that a browser would take for markup.
        "data": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    text = (_FOLDER / "page.html").read_text(encoding="utf-8")
    # In one go: what a program's name says is never taken for a place of the template.
    return _PLACE.sub(lambda found: parts[found[1]], text)


class _Texts:
    """Every text once, in the order of their numbers; columns hold the numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def column(self, texts: Iterable[str]) -> list[int]:
        return [self.numbers.setdefault(text, len(self.numbers)) for text in texts]


def report_data(result: ResultLike, version: str = "", before: RunFigures | None = None) -> dict[str, Any]:
    """Return everything that the page shows as plain data: times in picoseconds, sizes in bytes."""
    texts, chip = _Texts(), result.chip
    vector_per_cycle = chip.vpu.register_elements * chip.vpu.alu_slots
    used = {buffer.space for buffer in result.program.buffers}
    devices, left_out = _shown(result)
    ops = _Ops(result.summary.ops)
    all_devices_j = result.all_devices_j if result.pod.device_count > 1 else None
    # Ops have columns of their own.
    summary = plain(run_page(result.summary, cost=result.cost(), all_devices_j=all_devices_j))
    del summary["ops"]
    time_line = []
    for timeline, numbers in devices:
        alike = f" (and {len(numbers) - 1} alike)" if len(numbers) > 1 else ""
        name = f"device {numbers[0]}{alike}" if result.pod.device_count > 1 else ""
        time_line.append(_device(timeline, name, ops, chip))
    return {
        "version": version,
        "simulated": True,
        "summary": summary,
        "compiled": provenance_text(result.summary.provenance, result.summary.chip),
        "total_ps": result.pod.last.total_ps,
        "capacity": {HBM: result.summary.hbm_capacity_bytes, VMEM: result.summary.vmem_capacity_bytes},
        "chip": chip.description,
        "left_out": left_out,
        "units": {unit.key: unit.label for unit in UNITS.values()},
        "devices": time_line,
        "ops": _op_columns(ops, result.summary.energy, result.summary.compiler_clock_hz, texts),
        "path": _path(result.critical_path, ops.groups),
        "details": op_details(result, ops.groups),
        "compared": None if before is None else _compared(compare(before, run_figures(result.summary))),
        "memory": [_memory(result, space, texts) for space in _SPACES if space in used],
        "roofs": {
            **_matrix_roof(result.summary.peak_types, chip),
            "vector_flops_per_second": vector_per_cycle * chip.clock_hz * chip.cores_per_device,
            "hbm_bytes_per_second": chip.hbm.bandwidth_bytes_per_second,
        },
        "pod": _pod(result),
        "texts": list(texts.numbers),
    }


def _matrix_roof(types: Sequence[str], chip: Chip) -> dict[str, Any]:
    """Return the roof of the matrix units: of the types of the products the one with the highest peak."""
    fastest = max(types, key=lambda name: peak_flops_per_second(chip, name), default="bf16")
    return {"matrix_type": fastest, "matrix_flops_per_second": peak_flops_per_second(chip, fastest)}


def _shown(result: ResultLike) -> tuple[list[tuple[Timeline, tuple[int, ...]]], int]:
    """Return the devices whose time lines are shown, the last to end first, and how many kinds are left out."""
    alike = sorted(classes(result.pod), key=lambda one: one[0] is not result.pod.last)
    shown: list[tuple[Timeline, tuple[int, ...]]] = []
    records = 0
    for timeline, devices in alike:
        records += len(timeline.records)
        if shown and records > MOST_RECORDS:
            break
        shown.append((timeline, devices))
    return shown, len(alike) - len(shown)


class _Ops:
    """The ops by name and line; those that only other devices run stand behind the rows of the table."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.others: list[Record] = []
        self._numbers = {(group.name, group.line): number for number, group in enumerate(groups)}

    def number(self, record: Record) -> int:
        key = (record.name, record.line)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.others.append(record)
        return self._numbers[key]


def _device(timeline: Timeline, name: str, ops: _Ops, chip: Chip) -> dict[str, Any]:
    """Return what a device did row by row, with every trip of its loops, and which trips are alike."""
    by_row: dict[str, list[Event]] = {CORE: []}
    for event in unrolled(timeline, MOST_EVENTS):
        by_row.setdefault(event.record.row, []).append(event)
    rows = [_row(label, events, ops) for label, events in by_row.items()]
    rows[0]["watts"] = _watts(timeline, by_row[CORE], chip)
    return {
        "name": name,
        "total_ps": timeline.total_ps,
        "rows": rows,
        "repeats": [[repeat.name, repeat.start_ps, repeat.end_ps, repeat.trips] for repeat in timeline.repeats],
    }


def _row(label: str, events: list[Event], ops: _Ops) -> dict[str, Any]:
    """Return the events of one row as columns; of the core with the share of each unit, per mille of the event."""
    row: dict[str, Any] = {
        "label": label,
        "op": [ops.number(event.record) for event in events],
        "start": _differences([event.start_ps for event in events]),
        "length": [event.duration_ps for event in events],
        "count": [event.executions for event in events],
    }
    if label == CORE:
        records = [event.record for event in events]
        row["units"] = {unit: _shares(records, unit) for unit in UNITS if any(unit in r.units for r in records)}
    return row


def _watts(timeline: Timeline, events: Sequence[Event], chip: Chip) -> list[float]:
    """Return the mean power of a device in each event of its core, with what ran beside it."""
    records = list({id(event.record): event.record for event in events}.values())
    starts, ends = (np.array([getattr(record, end) for record in records], float) for end in ("start_ps", "end_ps"))
    watts = mean_watts(timeline, chip, starts, ends).tolist()
    # Trips that are alike draw alike.
    of_record = {id(record): round(each, 1) for record, each in zip(records, watts, strict=True)}
    return [of_record[id(event.record)] for event in events]


def _shares(records: Sequence[Record], unit: str) -> list[int]:
    """Return how busy a unit was in each record, per mille."""
    return [
        min(_PER_MILLE, round(record.units.get(unit, 0) * _PER_MILLE / max(1, record.duration_ps)))
        for record in records
    ]


def _differences(numbers: Sequence[int]) -> list[int]:
    """Return the first number, and from then on what each is above the one before."""
    return [*numbers[:1], *(after - before for before, after in pairwise(numbers))]


def _op_columns(ops: _Ops, energy: Energy, clock_hz: float, texts: _Texts) -> dict[str, Any]:
    """Return the ops: those of the table, then the others, whose figures are 0."""
    rows: list[Group | Record] = [*ops.groups, *ops.others]
    estimates = [compiler_us(group.compiler_cycles, clock_hz) for group in ops.groups]
    named = ("name", "opcode", "category", "bound_by", "op_name", "source")
    return {
        **{name: texts.column(getattr(row, name) for row in rows) for name in named},
        "line": [row.line for row in rows],
        "tabled": len(ops.groups),
        **{key: [round(getattr(group, name)) for group in ops.groups] for key, name in _FIGURES.items()},
        "energy": [op.total_fj for op in energy.ops],
        "compiler": [None if us is None else round(us, 3) for us in estimates],
    }


def _path(path: CriticalPath, groups: Sequence[Group]) -> dict[str, Any]:
    """Return what the end of the run waits for, what could start later, and what ran behind what.

    Ops are numbers in the table, or names where they are those of other devices.
    """
    numbers = {(group.name, group.line): number for number, group in enumerate(groups)}

    def known(op: OnPath | Slack) -> int | str:
        return numbers.get((op.name, op.line), op.name)

    return {
        "device": path.device,
        "devices": path.devices[-_DEVICES:],
        "ops": [[known(op), op.time_ps, op.count, op.row] for op in path.ops[:_CHANGES]],
        "slack": [[known(op), op.slack_ps] for op in path.slacks if op.slack_ps],
        "hidden": [[pair.name, pair.behind, pair.time_ps] for pair in path.hidden[:_LINKS]],
    }


def _compared(comparison: Comparison) -> dict[str, Any]:
    """Return what is different from another run: its figures, and what takes longer or shorter, most change first."""

    def times(changes: Iterable[Change]) -> list[list[Any]]:
        return [
            [one.name, one.category, one.before and one.before.time_us, one.after and one.after.time_us]
            for one in islice((one for one in changes if one.change_us), _CHANGES)
        ]

    before = comparison.before
    figures = {name: getattr(before, name) for name in ("program", "chip", "time_us", "flops", "hbm_bytes", "energy_j")}
    memory = {"peak_hbm_bytes": before.memory.peak_hbm_bytes}
    return {**figures, **memory, "ops": times(comparison.ops), "categories": times(comparison.categories)}


def _memory(result: ResultLike, space: MemorySpace, texts: _Texts) -> dict[str, Any]:
    profile = memory_profile(result.program, space)
    buffers = sorted(profile.buffers, key=lambda buffer: -buffer.n_bytes)
    named = ("name", "kind", "shape", "op_name", "source", "within")
    return {
        "space": space,
        "schedule": texts.column(profile.schedule),
        "alive": _differences(profile.alive_bytes),
        "held_bytes": profile.held_bytes,
        "peak_position": profile.peak_position,
        "peak_bytes": profile.peak_bytes,
        "buffers": {
            **{name: texts.column(getattr(buffer, name) for buffer in buffers) for name in named},
            "bytes": [buffer.n_bytes for buffer in buffers],
            "unpadded": [buffer.unpadded_bytes for buffer in buffers],
            "first": [buffer.first for buffer in buffers],
            "length": [buffer.last - buffer.first for buffer in buffers],
        },
    }


def _pod(result: ResultLike) -> dict[str, Any] | None:
    """Return what devices and links did together, None for one device."""
    if result.pod.device_count == 1:
        return None
    busiest = sorted(result.pod.links, key=lambda link: -link.busy_ps)[:_LINKS]
    links = [[link.chip, link.way, link.n_bytes, link.busy_ps] for link in busiest]
    return {**plain(pod_page(result.communication)), "busiest_links": links}
