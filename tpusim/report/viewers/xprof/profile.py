"""A run as a profile that XProf opens, as TPUs write them: overview, op stats, roofline, trace viewer, memory viewer.

The file is an XSpace (openxla/xla, tsl/profiler/protobuf/xplane.proto), one plane per device that was run. Names of
planes, lines and figures are those of xplane_schema.cc there; units that profiles have no line for get their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path
from zlib import crc32

from tpusim.analysis.communication import classes
from tpusim.errors import ConfigError
from tpusim.files import write_whole
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM, LOAD, MATRIX, STORE, UNITS
from tpusim.report.result import ResultLike
from tpusim.report.viewers.events import Event, most_events, unrolled
from tpusim.report.viewers.lines import instruction_lines
from tpusim.report.viewers.xprof import wire
from tpusim.report.viewers.xprof.hlo import hlo_proto
from tpusim.report.viewers.xprof.plane import Plane, Stat
from tpusim.timeline.records import CORE, WAITING_FOR, Record, Timeline

MOST_DEVICES = 64
"""Devices that differ, up to so many, have a plane each."""

_MOST_EVENTS = 400_000
"""Events of all planes of a file, but for one of each kind: some 80 MB."""

_HBM, _CMEM, _VMEM = 1, 2, 3
_READ, _WRITE = 1, 2
_GIGA, _TERA = 1e9, 1e12


class Profile:
    """What a profile is made of: a run, the number that stands for its program, and the lines of its text."""

    def __init__(self, result: ResultLike, version: str) -> None:
        self.run, self.summary, self.chip = result.pod, result.summary, result.chip
        self.program, self.module, self.version = result.program, result.module, version
        # Of the name, so that the same program has the same number in every profile of it.
        self.program_id = crc32(self.program.name.encode()) + 1
        self.lines = instruction_lines(self.module)

    @property
    def module_name(self) -> str:
        """The program as profiles name it, its number behind it."""
        return f"{self.program.name}({self.program_id})"


def write_xprof(result: ResultLike, directory: str | Path, version: str = "", proto: bytes = b"") -> Path:
    """Write a profile under ``directory``, for ``xprof --logdir``, in a folder of its own; return the file."""
    base = Path(directory) / "plugins" / "profile"
    try:
        base.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"--xprof: expected a directory, found the file {error.filename!r}") from error
    path = _new_folder(base) / "simulated.xplane.pb"
    write_whole(path, xspace(result, version, proto))
    return path


def _new_folder(base: Path) -> Path:
    """Make a folder that nobody else has: XProf would show for a profile what it has kept of another one there."""
    for number in count(1):
        # Not asked before: another run may make it in between.
        with suppress(FileExistsError):
            (base / f"simulated_{number}").mkdir()
            return base / f"simulated_{number}"
    raise AssertionError


def xspace(result: ResultLike, version: str = "", proto: bytes = b"") -> bytes:
    """Return the serialised XSpace, which names the version of the simulator; ``proto`` is XLA's HloModuleProto."""
    profile = Profile(result, version)
    planes = _device_planes(profile)
    planes.append(Plane().encode(MOST_DEVICES + 1, "/host:CPU", _host_stats(profile)))
    if profile.module is not None:
        # The program with its buffers.
        plane = Plane()
        content = hlo_proto(profile.module, profile.program.buffers, proto)
        plane.add_metadata(profile.module_name, "", {"Hlo Proto": content}, number=profile.program_id)
        planes.append(plane.encode(MOST_DEVICES + 2, "/host:metadata", {}))
    return wire.message({1: planes, 4: "simulated"})


def _host_stats(profile: Profile) -> dict[str, Stat]:
    """Return what XProf looks for on the host's plane: how busy the device was."""
    matrix = profile.summary.utilisation.busy.get(MATRIX, 0.0)
    return {
        "matrix_unit_utilization_percent": 100 * matrix,
        "hbm_utilization_percent": 100 * profile.summary.hbm_utilisation,
    }


def _device_planes(profile: Profile) -> list[bytes]:
    """Return the planes of all devices, or of ``MOST_DEVICES``: one of each kind first, the last to end before all."""
    kinds = sorted(classes(profile.run), key=lambda alike: alike[0] is not profile.run.last)
    turns = sorted(
        (place, kind, device) for kind, (_, devices) in enumerate(kinds) for place, device in enumerate(devices)
    )
    turns = turns[:MOST_DEVICES]
    # Devices of one kind share what was gathered; of kinds that are not shown nothing is.
    gathered = dict.fromkeys(kind for _, kind, _ in turns)
    events = {kind: unrolled(kinds[kind][0], most_events(len(gathered))) for kind in gathered}
    planes = {kind: _plane(profile, kinds[kind][0], events[kind]) for kind in gathered}
    # Each of them is written in full: of many that are alike so many as a viewer can load.
    before = accumulate(len(events[kind]) for _, kind, _ in turns)
    room = sum(count <= _MOST_EVENTS for count in before)
    shown = sorted((device, kind) for _, kind, device in turns[: max(room, len(gathered))])
    return [
        planes[kind].encode(number, f"/device:TPU:{device}", _device_stats(profile, device))
        for number, (device, kind) in enumerate(shown, start=1)
    ]


def _plane(profile: Profile, timeline: Timeline, events: Sequence[Event]) -> Plane:
    """Return what the planes of devices with this time line have in common."""
    plane, total_ps = Plane(), timeline.total_ps
    step = plane.add_metadata("0", "simulated run", {})
    plane.add_line("Steps", [plane.event(step, 0, total_ps, {"group_id": 0, "step_num": 0})], total_ps)
    program = plane.add_metadata(profile.module_name, "", {"program_id": profile.program_id})
    whole = {"group_id": 0, "run_id": 1, "program_id": profile.program_id}
    plane.add_line("XLA Modules", [plane.event(program, 0, total_ps, whole)], total_ps)
    _add_ops(plane, profile, events, total_ps)
    return plane


def _device_stats(profile: Profile, device: int) -> dict[str, Stat]:
    """Return the device's capabilities: rates in decimal units, as XProf takes them."""
    chip = profile.chip
    # All slots of all cores together.
    vmem_bytes_per_second = chip.vpu.register_bytes * chip.clock_hz * chip.cores_per_device
    number = device // chip.devices_per_chip
    core = wire.message({1: "simulated", 2: device, 4: number, 5: number, 6: device})
    return {
        "device_type_string": f"{chip.description} (simulated)",
        "simulated_by": f"tpusim {profile.version}".strip(),
        "peak_teraflops_per_second": chip.peak_flops_per_second / _TERA,
        "peak_hbm_bw_gigabytes_per_second": chip.hbm.bandwidth_bytes_per_second / _GIGA,
        "peak_cmem_rd_bw_gigabytes_per_second": chip.cmem.read_bytes_per_second / _GIGA,
        "peak_cmem_wr_bw_gigabytes_per_second": chip.cmem.write_bytes_per_second / _GIGA,
        "peak_vmem_rd_bw_gigabytes_per_second": chip.vpu.load_slots * vmem_bytes_per_second / _GIGA,
        "peak_vmem_wr_bw_gigabytes_per_second": chip.vpu.store_slots * vmem_bytes_per_second / _GIGA,
        "has_megacore": int(chip.cores_per_device > 1),
        # Where no CMEM stands between HBM and VMEM; without this XProf draws no roof for VMEM.
        "has_merged_vmem": int(not chip.cmem.capacity_bytes),
        "global_chip_id": number,
        "core_details": core,
    }


def _add_ops(plane: Plane, profile: Profile, events: Sequence[Event], total_ps: int) -> None:
    """Add the line of the core's ops, of what ran beside it, and one for every unit."""
    kinds = _Kinds(plane, profile)
    core = [event for event in events if event.record.row == CORE]
    beside = [event for event in events if event.record.row != CORE]
    # What takes no time would nest in what does: a wait for what is there already, or what begins beside the core.
    ops = [plane.event(kinds.of(e), e.start_ps, e.end_ps, _stalls(e)) for e in core if e.duration_ps]
    plane.add_line("XLA Ops", ops, total_ps)
    plane.add_line("Async XLA Ops", [plane.event(kinds.of(e), e.start_ps, e.end_ps, {}) for e in beside], total_ps)
    for unit in UNITS:
        own = (event for event in core if event.record.units.get(unit))
        busy = [plane.event(kinds.of(e), e.start_ps, e.start_ps + e.busy_ps(unit), {}) for e in own]
        if busy:
            plane.add_line(f"{UNITS[unit].label} (simulated)", busy, total_ps)


def _stalls(event: Event) -> dict[str, Stat]:
    """Return for how long the core waited for data that was on its way."""
    record = event.record
    waited_ps = sum(part_ps for name, part_ps in record.bounds_ps.items() if name.startswith(WAITING_FOR))
    stall_ps = (record.parts.get(UNITS[HBM].bound, 0) or waited_ps) * event.executions
    return {"dma_stall_duration_ps": min(stall_ps, event.duration_ps)} if stall_ps else {}


class _Kinds:
    """The numbers of the events' kinds: one per op, and one more where a loop was drawn as one long trip."""

    def __init__(self, plane: Plane, profile: Profile) -> None:
        self._plane, self._profile = plane, profile
        self._numbers: dict[tuple[str, int, int], int] = {}

    def of(self, event: Event) -> int:
        """Return the number of an event's kind, which is new if no event before had it."""
        record = event.record
        key = (record.name, record.line, event.executions)
        if key not in self._numbers:
            shown = record.name if event.executions == 1 else f"{record.name} ({event.executions:,} executions)"
            lines, line = self._profile.lines, record.line
            name = lines[line - 1] if 0 < line <= len(lines) else shown
            self._numbers[key] = self._plane.add_metadata(name, shown, self._stats(event, len(self._numbers) + 1))
        return self._numbers[key]

    def _stats(self, event: Event, symbol: int) -> dict[str, Stat]:
        """Return what is known of an op; work is that of one event."""
        record, times = event.record, event.executions
        stats: dict[str, Stat] = {
            "program_id": self._profile.program_id,
            # One number per op, as XProf adds up those that share theirs.
            "symbol_id": symbol,
            "hlo_category": _category(record),
            "flops": round(record.flops * times),
            "model_flops": round(record.flops * times),
            "bytes_accessed": round(record.hbm_bytes * times),
            "memory_access_breakdown": _accesses(record, self._profile.chip, times),
            # A path and a colon; of its last part XProf makes the type, in which it takes no hyphen.
            "tf_op": f"{record.op_name or record.opcode.replace('-', '_')}:",
            "source": record.source,
            "bound_by": record.bound_by,
        }
        return {name: value for name, value in stats.items() if value != ""}


def _category(record: Record) -> str:
    """Return the kind of an op: XLA has its opcode for what is no kernel."""
    # By this word XProf takes a wait for communication; by copy-done and collective-permute-done for computing.
    if record.category == "wait":
        return "async-done"
    return record.category if record.is_kernel or record.opcode == "fusion" else record.opcode


def _accesses(record: Record, chip: Chip, times: int) -> bytes:
    """Return the bytes that an op moves, by memory, as a ``MemoryAccessBreakdown``."""
    done, register_bytes = record.activity, chip.vpu.register_bytes
    # Reads and writes of HBM and CMEM are not told apart.
    moved = (
        (_READ, _HBM, done.get(HBM, 0.0)),
        (_READ, _CMEM, done.get(CMEM, 0.0)),
        (_READ, _VMEM, done.get(LOAD, 0.0) * register_bytes),
        (_WRITE, _VMEM, done.get(STORE, 0.0) * register_bytes),
    )
    found = [wire.message({1: way, 2: space, 3: round(count * times)}) for way, space, count in moved if count]
    return wire.message({1: found})
