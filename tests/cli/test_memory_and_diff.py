"""``memory``, ``diff``, ``run --save`` and ``validate --memory``: what they print, and what they refuse."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of

TRACES = Path(__file__).parents[2] / "traces"
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
CONVNET = str(TRACES / "memory" / "convnet.v5e.hlo.txt.gz")
BLOCK = """{"name": "p", "chip": "v5e", "format": "tpusim-program-2", "steps": [
 {"type": "Kernel", "name": "k", "opcode": "fusion", "tiles": 2,
  "streams": [{"operand": "x", "space": "hbm", "block_bytes": %d, "fetches": 2}]}]}"""


def test_memory_names_buffers_and_padding(capsys):
    """Peaks, the buffers alive there, and which of them padding doubles."""
    text = output_of(capsys, "memory", CONVNET)
    assert "HBM at its peak while" in text
    assert "Padding wastes most in" in text
    assert "The compiler would refuse" not in text


def test_memory_that_does_not_fit_is_no_failure(capsys):
    """The compiler's message is the answer, and the exit code stays 0."""
    text = output_of(capsys, "memory", CONVNET, "-o", "hbm.capacity_bytes=100000000")
    assert "Ran out of memory in memory space hbm. Used " in text
    assert "Largest program allocations in hbm:" in text


def test_memory_as_json(capsys):
    """Temporaries as the compiler counts them: 102,857,216 bytes (memory_analysis)."""
    data = json.loads(output_of(capsys, "memory", CONVNET, "--json"))
    assert data["memory"]["temp_bytes"] == 102_857_216
    assert set(data["spaces"]) == {"hbm", "vmem"}


@pytest.mark.parametrize("name", ["cond_big.v5p", "fft2.v5e", "block_grad.v3"])
def test_rows_of_memory_add_up(name):
    """What lies in another buffer apart: to the peak, but for the table of a tuple that is the result."""
    report = tpusim.memory(TRACES / "memory" / f"{name}.hlo.txt.gz")
    profile, use = report.hbm.profile, report.use
    alive = [buffer for buffer in profile.alive_at(profile.peak_position) if not buffer.within]
    assert 0 <= profile.peak_bytes - sum(buffer.n_bytes for buffer in alive) <= 1024
    assert use.constant_bytes == sum(buffer.n_bytes for buffer in alive if buffer.kind == "constant")
    assert report.hbm.needed_bytes == profile.peak_bytes + profile.fragmentation_bytes


def test_what_lies_in_another_buffer_is_in_parentheses(capsys):
    """So that the others add up."""
    text = output_of(capsys, "memory", str(TRACES / "memory" / "fft2.v5e.hlo.txt.gz"))
    sizes = re.findall(r"^\S+ +(\(?)[\d.]+ \w+\)? .*?x  (in|argument|output|temporary|constant) ", text, re.MULTILINE)
    assert ("(", "in") in sizes
    assert all((opened == "(") == (kind == "in") for opened, kind in sizes)


def test_diff_of_two_chips_needs_one_program(capsys):
    """A on the first chip, and again on the second."""
    data = json.loads(output_of(capsys, "diff", MLP, "--chip", "v5e", "--chip", "v6e", "--json"))
    assert (data["before"]["chip"], data["after"]["chip"]) == ("v5e", "v6e")
    assert data["change_us"] < 0
    assert data["ops"][0]["change_us"] == min(op["change_us"] for op in data["ops"])


def test_a_saved_result_equals_its_program(capsys, tmp_path):
    """Saved, read again and compared with a new run: no op changes."""
    path = str(tmp_path / "r.json")
    output_of(capsys, "run", MLP, "--save", path)
    assert "No op takes longer or shorter." in output_of(capsys, "diff", path, MLP)
    assert json.loads(Path(path).read_text())["format"] == "tpusim-result-1"


def test_diff_prints_totals_ops_and_categories(capsys):
    """Two programs: a table each."""
    text = output_of(capsys, "diff", MLP, CONVNET)
    assert text.index("B / A") < text.index("change") < text.index("category")


def test_diff_tells_the_energy_of_both(capsys, tmp_path):
    """Of a saved result as of a program: half of a chip's idle power less; it is that of one device."""
    path = str(tmp_path / "r.json")
    output_of(capsys, "run", MLP, "--save", path, "-o", "power.idle_watts=110")
    found = json.loads(output_of(capsys, "diff", path, MLP, "--json"))
    saved_j = 55 * found["after"]["time_us"] / 1e6
    assert found["before"]["energy_j"] - found["after"]["energy_j"] == pytest.approx(saved_j)
    page = output_of(capsys, "diff", path, MLP)
    assert re.search(r"^energy of a device +\d+ mJ +\d+ mJ +0\.\d+$", page, re.MULTILINE)


def test_diff_of_a_changed_chip_says_what_was_changed(capsys, tmp_path):
    """Of a program that runs on it, and of a result that was saved there; else both headings would be the same."""
    replaced = "-o", "hbm.bandwidth_bytes_per_second=x2"
    path = str(tmp_path / "r.json")
    output_of(capsys, "run", MLP, "--save", path, *replaced)
    for arguments in ((MLP, *replaced), (MLP, path)):
        first, second = output_of(capsys, "diff", *arguments).splitlines()[:2]
        assert first == "A  jit__lambda on v5e (simulated)"
        assert second == "B  jit__lambda on v5e with hbm.bandwidth_bytes_per_second=1.638e+12 (simulated)"
    assert "of which no figure can be replaced" in refusal_of(capsys, "diff", path, *replaced)


def test_diff_of_one_thing_is_refused(capsys):
    """One program and no second chip is nothing to compare."""
    assert "one program and two --chip" in refusal_of(capsys, "diff", MLP)
    assert "at most two" in refusal_of(capsys, "diff", MLP, *(["--chip", "v5e"] * 3))


def test_a_saved_result_cannot_move_to_another_chip(capsys, tmp_path):
    """Its times are those of the chip it ran on."""
    path = str(tmp_path / "r.json")
    output_of(capsys, "run", MLP, "--save", path)
    assert "a saved result of v5e" in refusal_of(capsys, "diff", path, MLP, "--chip", "v6e")


def test_blocks_larger_than_vmem_are_refused(capsys, tmp_path):
    """v5e has 128 MiB: two blocks of 64 MiB fit, two of 65 do not."""
    for n_bytes, fits in ((64 << 20, True), (65 << 20, False)):
        path = tmp_path / f"{n_bytes}.json"
        path.write_text(BLOCK % n_bytes)
        if fits:
            output_of(capsys, "run", str(path))
        else:
            assert "blocks that fit into 134217728 bytes of VMEM" in refusal_of(capsys, "run", str(path))


def test_products_of_larger_arrays_are_refused(capsys, tmp_path):
    """What was cut up for arrays of 128 by 128 would take as long on a quarter of them: less than the roofline."""
    path = str(tmp_path / "lowered.json")
    output_of(capsys, "lower", MLP, "-o", path)
    output_of(capsys, "run", path, "-o", "mxu.rows=256")
    assert "lower the program for this chip" in refusal_of(capsys, "run", path, "-o", "mxu.rows=64")


def test_validate_memory_says_median_and_worst(capsys):
    """A line per program, and both errors below it."""
    text = output_of(capsys, "validate", "--memory", str(TRACES / "sort_kv_1m.v5e.hlo.txt.gz"))
    assert "4,258,816" in text
    assert "median error 0.00%, worst 0.00%" in text


def test_validate_memory_as_json(capsys):
    """Errors over all programs, and every row."""
    path = str(TRACES / "sort_kv_1m.v5e.hlo.txt.gz")
    data = json.loads(output_of(capsys, "validate", "--memory", path, "--json"))
    assert (data["temp_bytes"]["count"], data["rows"][0]["compiler_temp_bytes"]) == (1, 4_258_816)


@pytest.fixture
def piped(monkeypatch):
    """Give a program on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.decompress(Path(MLP).read_bytes()))))


@pytest.mark.usefixtures("piped")
def test_one_program_of_standard_input_is_compared_on_two_chips(capsys):
    """It is read once for both."""
    lines = output_of(capsys, "diff", "-", "--chip", "v5e", "--chip", "v6e").splitlines()
    assert lines[0].startswith("A  jit__lambda on v5e")
    assert lines[1].startswith("B  jit__lambda on v6e")


@pytest.mark.usefixtures("piped")
def test_standard_input_is_one_program(capsys):
    """The second one would be empty."""
    message = refusal_of(capsys, "diff", "-", "-", "--chip", "v5e")
    assert message == "tpusim: <stdin>: cannot be read: standard input has been read already: expected - once\n"
