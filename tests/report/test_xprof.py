"""The profile for XProf: read back by JAX's own reader and by one of ours, and, where it is installed, by XProf."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from jax.profiler import ProfileData
from jaxlib import _hlo

import tpusim
from tests.report.protos import fields, one, packed
from tpusim import export
from tpusim.analysis.communication import classes
from tpusim.analysis.memory import memory_profile
from tpusim.cli.main import main
from tpusim.frontends.xla import module_proto
from tpusim.report.json.page import plain
from tpusim.report.json.run import run_page
from tpusim.report.viewers.xprof.hlo import hlo_proto
from tpusim.report.viewers.xprof.profile import write_xprof, xspace
from tpusim.text.reader import read_source
from tpusim.timeline.records import CORE
from tpusim.units import PS_PER_US

TRACES = Path(__file__).parents[2] / "traces"
DECODE = TRACES / "llama1b_decode_b16s2048.v6e.hlo.txt.gz"
PROGRAMS = [
    "mlp_b1024.v5e", "llama1b_decode_b16s2048.v6e", "gpt2_train_fsdp.v5p_4x4x4", "resnet50_train_b64.v5e",
    "pipeline.v5e_4x4",
]  # fmt: skip
READER = Path(__file__).with_name("read_with_xprof.py")


def planes(result) -> dict:
    """Return the planes of a run's profile by name, as JAX reads them."""
    return {plane.name: plane for plane in ProfileData.from_serialized_xspace(xspace(result)).planes}


@pytest.fixture(scope="module")
def decode():
    """Give the run of a decoder step."""
    return tpusim.simulate(DECODE)


def test_ops_of_the_core_add_up_to_the_report(decode):
    """By name, those that take time; JAX's reader gives whole nanoseconds, so that each execution may lack one."""
    lines = {line.name: line for line in planes(decode)["/device:TPU:0"].lines}
    times = Counter()
    for event in lines["XLA Ops"].events:
        times[event.name.split(" = ")[0].removeprefix("%")] += event.duration_ns
    assert set(times) == {group.name for group in decode.groups() if group.time_ps}
    for name, group in {group.name: group for group in decode.groups() if group.time_ps}.items():
        assert times[name] == pytest.approx(group.time_ps / 1000, abs=group.count)


@pytest.mark.parametrize("name", ["dlrm_b2048.v5p", "pipeline.v5e_4x4"])
def test_ops_of_the_core_follow_each_other(name):
    """One line without nesting, in whole picoseconds; what runs beside it stands on a line of its own."""
    for message in fields(xspace(tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")))[1]:
        for line in map(fields, fields(message)[3]):
            if line[2] == [b"XLA Ops"]:
                events = [fields(event) for event in line[4]]
                spans = [(sum(event[2]), sum(event[2]) + sum(event[3])) for event in events]
                assert all(start < end for start, end in spans)
                assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_lines_are_those_of_a_tpu_and_one_per_unit(decode):
    """What libtpu writes first, then what only a simulator knows."""
    names = [line.name for line in planes(decode)["/device:TPU:0"].lines]
    assert names[:4] == ["Steps", "XLA Modules", "XLA Ops", "Async XLA Ops"]
    assert "MXU (simulated)" in names


def test_the_profile_says_that_it_is_simulated(decode):
    """In the name of the device's type, so that nobody takes it for a capture."""
    stats = dict(planes(decode)["/device:TPU:0"].stats)
    assert "simulated" in stats["device_type_string"]
    assert stats["peak_hbm_bw_gigabytes_per_second"] == decode.chip.hbm.bandwidth_bytes_per_second / 1e9


def test_every_device_has_a_plane():
    """Also those that did the same as another one, in the order of their numbers."""
    found = planes(tpusim.simulate(TRACES / "pipeline.v5e_4x4.hlo.txt.gz"))
    assert [name for name in found if "device" in name] == [f"/device:TPU:{number}" for number in range(16)]


def test_waits_are_no_computing():
    """Of the core of a pipeline: what is not there yet is async-done, by XProf's words, and ops have types."""
    kinds = kinds_of(tpusim.simulate(TRACES / "pipeline.v5e_4x4.hlo.txt.gz"))
    assert {kind["hlo_category"] for kind in kinds if kind["bound_by"].startswith("waiting")} == {"async-done"}
    assert all(kind["tf_op"].endswith(":") for kind in kinds)


def kinds_of(result) -> list[dict]:
    """Return the figures in words that all events of an op share, of the ops of the first device."""
    plane = fields(fields(xspace(result))[1][0])
    names = {one(entry, 2, 1): one(entry, 2, 2).decode() for entry in plane[5]}
    found = []
    for entry in plane[4]:
        stats = [fields(stat) for stat in fields(one(entry, 2))[5]]
        found.append({names[stat[1][0]]: stat[5][0].decode() for stat in stats if stat[5]})
    return [kind for kind in found if "bound_by" in kind]


@pytest.mark.parametrize("name", ["llama1b_decode_b16s2048.v6e", "pipeline.v5e_4x4"])
def test_the_program_is_whole(name):
    """XLA reads it from the profile again, with the scratch of kernels as a computation more."""
    result = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")
    proto = hlo_proto(result.module, result.program.buffers, module_proto(result.module.text, name))
    read = _hlo.HloModule.from_serialized_hlo_module_proto(one(proto, 1))
    whole = _hlo.hlo_module_from_text(result.module.text)
    left = {computation.name for computation in read.computations()} - {c.name for c in whole.computations()}
    assert left <= {"scratch_of_kernels"}
    assert len(read.to_string()) >= len(whole.to_string())


def test_instructions_are_those_that_xla_writes(decode):
    """Name, opcode, shape and operands of every instruction, against the proto that XLA makes of the same text."""
    ours = described(one(hlo_proto(decode.module, ()), 1))
    text = read_source(DECODE).text
    assert ours == described(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


def described(module: bytes) -> dict:
    """Return a HloModuleProto's instructions by name: opcode, shape, and the names of the operands."""
    found = {}
    for computation in map(fields, fields(module)[3]):
        instructions = [fields(message) for message in computation[2]]
        # A number of 0 is left out.
        names = {sum(i[35]): i[1][0] for i in instructions}
        for i in instructions:
            operands = [names[number] for number in packed(b"".join(i[36]))]
            found[i[1][0]] = (i[2][0], shape(i[3][0]), operands)
    return found


def shape(message: bytes) -> tuple:
    """Return a ShapeProto as type, sizes, tiles, memory space and the shapes of a tuple."""
    found = fields(message)
    layout = fields(found[5][0]) if found[5] else {1: [], 6: [], 8: []}
    tiles = [packed(b"".join(fields(tile)[1])) for tile in layout[6]]
    space = sum(number for number in layout[8] if isinstance(number, int))
    sizes = packed(b"".join(found[3]))
    return (found[2][0], sizes, packed(b"".join(layout[1])), tiles, space, [shape(part) for part in found[4]])


def test_the_heap_rises_to_the_peak(decode):
    """Parameters, outputs and constants, and the trace's highest point: the peak of the report."""
    assignment = one(hlo_proto(decode.module, decode.program.buffers), 3)
    sizes = {b[1][0]: b[2][0] for b in map(fields, fields(assignment)[1])}
    allocations = [fields(message) for message in fields(assignment)[3]]
    lasting = sum(a[2][0] for a in allocations if (a[5] or a[7] or a[12]) and not a[8][0])
    temporary = sum(a[2][0] for a in allocations if not (a[5] or a[7] or a[12]) and not a[8][0])
    # The report adds the result's table of addresses, which is no buffer of an instruction.
    assert lasting + temporary == pytest.approx(decode.summary.memory.peak_hbm_bytes, abs=1024)
    assert set(sizes) == {number for a in allocations for number in (one(m, 1) for m in a[9])}


def test_a_second_profile_has_its_own_folder(decode, tmp_path):
    """XProf keeps what it computed beside a profile."""
    first, second = (write_xprof(decode, tmp_path) for _ in range(2))
    assert first.parent.parent == second.parent.parent == tmp_path / "plugins" / "profile"
    assert first.parent != second.parent


def test_a_file_in_the_way_is_named(tmp_path, capsys):
    """Where a directory has to be."""
    (tmp_path / "file").write_text("")
    assert main(["run", str(TRACES / "mlp_b1024.v5e.hlo.txt.gz"), "--quiet", "--xprof", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("xprof"), reason="xprof is not installed (extra xprof)")
@pytest.mark.parametrize("name", PROGRAMS)
def test_xprof_reads_the_same_figures(name, tmp_path):
    """Times of ops, busy MXU and HBM, peak memory: in a process of its own, which a bad file would end."""
    result = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")
    path = export.xprof(result, tmp_path)
    done = subprocess.run([sys.executable, str(READER), str(path)], capture_output=True, check=True, timeout=300)
    found, ours = json.loads(done.stdout), plain(run_page(result.summary))
    # Of all devices together; of the one that ended last the core is never idle.
    cores = [record for each in devices_of(result) for record in each.records if record.row == CORE]
    assert found["time_us"] == pytest.approx(sum(record.total_ps for record in cores) / PS_PER_US, rel=1e-6)
    assert found["devices"] == result.pod.device_count
    assert found["mxu_percent"] == pytest.approx(100 * ours["unit_utilization"]["matrix"], abs=1)
    assert found["hbm_percent"] == pytest.approx(100 * ours["hbm_utilization"], abs=1)
    # Of the memory in use; the report's figure has the holes of the heap and the result's table of addresses on top.
    assert found["peak_hbm_bytes"] == pytest.approx(memory_profile(result.program, "hbm").peak_bytes, rel=0.001)
    assert found["sizes"] == {tool: size for tool, size in found["sizes"].items() if size}
    assert found["is_training"] is ("train" in name)
    assert found["unknown_types"] == []


def devices_of(result) -> list:
    """Return the time line of every device of a run, the same one for those that are alike."""
    return [timeline for timeline, devices in classes(result.pod) for _ in devices]
