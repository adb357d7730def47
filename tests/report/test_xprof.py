"""The profile for XProf: read back by JAX's own reader and by one of ours, and, where it is installed, by XProf."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from jax.profiler import ProfileData
from jaxlib import _hlo

import tpusim
from tests.report.protos import fields, one, packed
from tpusim.analysis.memory import memory_profile
from tpusim.cli.main import main
from tpusim.report.json.page import plain
from tpusim.report.json.run import run_page
from tpusim.report.viewers.xprof.hlo import hlo_proto
from tpusim.report.viewers.xprof.profile import write_xprof, xspace
from tpusim.text.reader import read_source

TRACES = Path(__file__).parents[2] / "traces"
DECODE = TRACES / "llama1b_decode_b16s2048.v6e.hlo.txt.gz"
PROGRAMS = ["mlp_b1024.v5e", "llama1b_decode_b16s2048.v6e", "gpt2_train_fsdp.v5p_4x4x4", "resnet50_train_b64.v5e"]
READER = Path(__file__).with_name("read_with_xprof.py")


def planes(result) -> dict:
    """Return the planes of a run's profile by name, as JAX reads them."""
    return {plane.name: plane for plane in ProfileData.from_serialized_xspace(xspace(result)).planes}


@pytest.fixture(scope="module")
def decode():
    """Give the run of a decoder step."""
    return tpusim.simulate(DECODE)


def test_ops_of_the_core_add_up_to_the_report(decode):
    """By name; JAX's reader gives whole nanoseconds, rounded down, so that each execution may lack one."""
    lines = {line.name: line for line in planes(decode)["/device:TPU:0"].lines}
    times = Counter()
    for event in lines["XLA Ops"].events:
        times[event.name.split(" = ")[0].removeprefix("%")] += event.duration_ns
    assert set(times) == {group.name for group in decode.groups()}
    for group in decode.groups():
        assert times[group.name] == pytest.approx(group.time_ps / 1000, abs=group.count)


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


def test_devices_that_differ_have_planes_and_one_is_tabled():
    """XProf adds up all that are TPUs, and its tables are to be those of the device that ended last."""
    found = planes(tpusim.simulate(TRACES / "host" / "two_stage_pipeline.v5e.hlo.txt.gz"))
    assert sorted(name for name in found if "device" in name) == ["/device:CUSTOM:0", "/device:TPU:1"]


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
@pytest.mark.skipif(not find_spec("xprof"), reason="xprof is not installed (dependency group xprof)")
@pytest.mark.parametrize("name", PROGRAMS)
def test_xprof_reads_the_same_figures(name, tmp_path):
    """Times of ops, busy MXU and HBM, peak memory: in a process of its own, which a bad file would end."""
    result = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")
    path = write_xprof(result, tmp_path)
    done = subprocess.run([sys.executable, str(READER), str(path)], capture_output=True, check=True, timeout=300)
    found, ours = json.loads(done.stdout), plain(run_page(result.summary))
    assert found["time_us"] == pytest.approx(ours["time_us"], rel=1e-6)
    assert found["mxu_percent"] == pytest.approx(100 * ours["unit_utilization"]["matrix"], abs=1)
    assert found["hbm_percent"] == pytest.approx(100 * ours["hbm_utilization"], abs=1)
    # Of the memory in use; the report's figure has the holes of the heap and the result's table of addresses on top.
    assert found["peak_hbm_bytes"] == pytest.approx(memory_profile(result.program, "hbm").peak_bytes, rel=0.001)
    assert found["sizes"] == {tool: size for tool, size in found["sizes"].items() if size}
