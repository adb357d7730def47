"""``lower``, ``explain``, ``validate``, ``calibrate`` and ``run --warm``: what they print, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import output_of, refusal_of
from tpusim.pipeline.stages import lower
from tpusim.program.stored import save_program

TRACES = Path(__file__).parents[2] / "traces"
POD = str(TRACES / "llama8b_decode_tp.v5e_2x4.hlo.txt.gz")
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
MEASURED = TRACES / "measured"


@pytest.fixture
def index(tmp_path):
    """Give the path of an index of six element-wise rows and their programs."""
    lines = (MEASURED / "index.csv").read_text().splitlines()
    rows = [lines[0], *(line for line in lines if line.startswith("tanh"))][:7]
    for row in rows[1:]:
        shutil.copy(MEASURED / row.partition(",")[0], tmp_path)
    path = tmp_path / "index.csv"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_a_lowered_program_runs_as_its_source(capsys, tmp_path):
    """The same time to the picosecond, whether the text or its steps run."""
    path = str(tmp_path / "prog.json")
    output_of(capsys, "lower", MLP, "-o", path)
    times = [json.loads(output_of(capsys, "run", file, "--json"))["time_us"] for file in (MLP, path)]
    assert times[0] == times[1]


def test_lower_prints_without_a_file(capsys):
    """The same object, on standard output."""
    assert json.loads(output_of(capsys, "lower", MLP))["format"] == "tpusim-program-2"


def test_a_slip_in_a_lowered_program_is_refused(capsys, tmp_path):
    """By the place inside the object, not by a traceback."""
    path = tmp_path / "prog.json"
    head = '{"name": "p", "chip": "v5e", "format": "tpusim-program-2", "steps": '
    path.write_text(head + '[{"type": "Kernel", "name": "k", "opcode": "add", "tile": 2}]}')
    assert "unknown field `tile` - at `$.steps[0]`" in refusal_of(capsys, "run", str(path))


@pytest.mark.parametrize(
    "command", [("fmt",), ("exec",), ("compile",), ("layouts", "--op", "x"), ("run", "--stop-after", "text")]
)
def test_what_needs_hlo_text_says_that_a_program_is_lowered(capsys, tmp_path, command):
    """By one rule for all: most said that a brace is no name of an instruction."""
    path = tmp_path / "mlp.json"
    output_of(capsys, "lower", MLP, "-o", str(path))
    refusal = refusal_of(capsys, *command, str(path))
    assert refusal == f"tpusim: {path}: expected HLO text, found a lowered program, which is compiled already\n"


@pytest.mark.parametrize("command", ["run", "check", "fmt", "lower", "memory"])
def test_a_lowered_program_of_another_name_is_known_by_its_format(capsys, tmp_path, command):
    """The message says which name it needs."""
    path = tmp_path / "mlp.txt"
    save_program(lower(MLP), path)
    refusal = refusal_of(capsys, command, str(path))
    assert "mlp.txt: expected HLO text, found a lowered program" in refusal
    assert "under a name that ends in .json it can be run" in refusal


def test_explain_names_the_bound_and_the_next_one(capsys):
    """The largest product of a perceptron: its loops, the matrix unit first, HBM behind it."""
    text = output_of(capsys, "explain", MLP, "--op", "fusion.7")
    assert "8 x columns > 8 x depth" in text
    assert text.index("matrix unit") < text.index("HBM ")
    assert "is next" in text


def test_explain_says_that_nothing_takes_time(capsys, tmp_path):
    """A program that hands on what it is given has no op to explain, where nothing copies it."""
    path = tmp_path / "same.hlo.txt"
    path.write_text("HloModule same, is_scheduled=true\nENTRY main { ROOT x = f32[8,128] parameter(0) }\n")
    assert output_of(capsys, "explain", str(path), "--chip", "v5e") == "nothing in the program takes time\n"


def test_explain_as_json_has_every_operand(capsys):
    """What moves has its bytes with and without padding."""
    found = json.loads(output_of(capsys, "explain", MLP, "--op", "fusion.7", "--json"))
    assert found["alone_us"] > 0
    assert all(operand["physical_bytes"] >= operand["unpadded_bytes"] > 0 for operand in found["operands"])


def test_explain_knows_the_kernels(capsys):
    """A name with a slip gets the nearest one."""
    assert "did you mean 'fusion.7'" in refusal_of(capsys, "explain", MLP, "--op", "fusion.71")


@pytest.mark.parametrize(
    ("op", "what"), [("copy-done", "waits for copy-start"), ("while.2", "128 a visit, 128 in all")]
)
def test_explain_takes_what_is_no_kernel(capsys, op, what):
    """Waits and loops have pages of their own."""
    program = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
    assert what in output_of(capsys, "explain", program, "--op", op)


def test_explain_without_an_op_takes_those_that_matter(capsys):
    """The two products of a perceptron first."""
    text = output_of(capsys, "explain", MLP)
    assert text.index("convolution_add_fusion (fusion") < text.index("fusion.7 (fusion")
    assert len(json.loads(output_of(capsys, "explain", MLP, "--json"))["ops"]) == 3


def test_tiles_are_drawn_of_kernels_only(capsys, tmp_path):
    """A loop has none."""
    program, picture = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz"), str(tmp_path / "tiles.svg")
    assert "which is a loop" in refusal_of(capsys, "plot", "tiles", program, "--op", "while.2", "-o", picture)


def test_a_lowered_program_on_another_chip_is_warned_of(capsys, tmp_path):
    """Its tiles were cut for the first chip: the time is an experiment, and the report says so."""
    path = str(tmp_path / "prog.json")
    output_of(capsys, "lower", MLP, "-o", path)
    assert "lowered for v5e, run on v6e" in output_of(capsys, "run", path, "--chip", "v6e")
    assert "lowered for" not in output_of(capsys, "run", path, "--chip", "v5e")
    assert "run on v5e with vpu.lanes=256: its tiles" in output_of(capsys, "run", path, "-o", "vpu.lanes=256")
    assert "lowered for" not in output_of(capsys, "run", path, "-o", "hbm.bandwidth_bytes_per_second=x2")


def test_a_program_is_lowered_for_a_chip_with_other_figures(capsys, tmp_path):
    """It runs on these then, and nothing is to be warned of."""
    path = str(tmp_path / "prog.json")
    output_of(capsys, "lower", MLP, "--override", "mxu.model=output-stationary", "-o", path)
    text = output_of(capsys, "run", path)
    assert "mxu.model=output-stationary" in text
    assert "lowered for" not in text


@pytest.mark.parametrize("arguments", [["--chip", "v3"], ["-o", "cores_per_device=1"]])
def test_what_was_lowered_for_two_cores_runs_on_one(capsys, tmp_path, arguments):
    """Half of a kernel's tiles would else be nobody's, and its time below its roofline."""
    path = str(tmp_path / "prog.json")
    output_of(capsys, "lower", str(TRACES / "measured" / "matmul_2560x3072_3072x3072_f16.v4.hlo.txt.gz"), "-o", path)
    stored = json.loads(Path(path).read_text())
    assert any(step.get("cores") == 2 for step in stored["steps"])
    summary = json.loads(output_of(capsys, "run", path, *arguments, "--json"))
    assert summary["time_us"] >= summary["roofline_us"]


def test_validate_prints_families_and_baselines(capsys, index):
    """One family of six rows, the compiler's estimates and a roofline beside it, and the rows furthest off."""
    text = output_of(capsys, "validate", index)
    assert "v4 elementwise" in text
    assert "compiler error" in text
    assert "furthest off" in text


def test_validate_as_json_has_every_row(capsys, index):
    """Six rows with what was measured and predicted."""
    found = json.loads(output_of(capsys, "validate", index, "--json"))
    assert len(found["rows"]) == 6
    assert found["families"]["tpusim"]["v4 elementwise"]["count"] == 6


def test_validate_refuses_an_index_without_rows_of_the_chip(capsys, index):
    """The error says of which chip."""
    assert "expected measured rows of v6e" in refusal_of(capsys, "validate", index, "--chip", "v6e")


PLAN = 'parameters = [{{ key = "fixed.kernel_seconds", chips = ["v4"], {} }}]\n'


def test_calibrate_prints_values_and_both_errors(capsys, index, tmp_path):
    """A plan of one parameter, fitted on six rows in three folds."""
    plan = tmp_path / "fits.toml"
    plan.write_text(PLAN.format("start = 4e-7, low = 1e-7, high = 9e-7"))
    text = output_of(capsys, "calibrate", index, "--fits", str(plan), "--folds", "3")
    assert "fixed.kernel_seconds" in text
    assert "cross-validated" in text


def test_calibrate_refuses_before_it_fits(capsys, index, tmp_path):
    """A folder to write that is not there, a parameter without rows, one fold: said at once, not after minutes."""
    assert "found none at" in refusal_of(capsys, "calibrate", index, "--write", str(tmp_path / "none"))
    assert "expected rows of" in refusal_of(capsys, "calibrate", index, "--folds", "2")
    assert "folds: expected at least 2" in refusal_of(capsys, "calibrate", index, "--folds", "1")


@pytest.mark.parametrize("numbers", ["start = 0, low = 0, high = 1", "start = 1, low = 2, high = 1"])
def test_calibrate_refuses_a_range_that_holds_no_number(capsys, index, tmp_path, numbers):
    """The search goes by ratios: its ranges begin above 0."""
    plan = tmp_path / "fits.toml"
    plan.write_text(PLAN.format(numbers))
    words = refusal_of(capsys, "calibrate", index, "--fits", str(plan))
    assert "expected 0 < low <= start <= high" in words


def test_a_warm_run_is_shorter(capsys):
    """The operand that the compiler prefetches across programs has come in."""
    program = str(MEASURED / "matmul_32x4096_4096x11008_bf16.v5e.hlo.txt.gz")
    cold, warm = (
        json.loads(output_of(capsys, "run", program, "--json", *more))["time_us"] for more in ((), ("--warm",))
    )
    assert warm < cold / 3


def test_a_lowered_program_has_its_ending(capsys, tmp_path):
    """By it `run` knows what it reads."""
    assert "ends in .json" in refusal_of(capsys, "lower", MLP, "-o", str(tmp_path / "prog.hlo"))


def test_run_tells_energy_power_and_price(capsys):
    """As text, and as JSON: power times time is energy, ops and units add up to it, and a price is what is asked."""
    text = output_of(capsys, "run", MLP, "--price", "3.6", "--tokens", "1000")
    assert re.search(r"^energy    \d+ mJ, \d+ W on average: .*idle \d+%", text, re.MULTILINE)
    assert "a million tokens, at $3.60 a chip-hour\n" in text
    found = json.loads(output_of(capsys, "run", MLP, "--json"))
    assert found["average_power_w"] * found["time_us"] / 1e6 == pytest.approx(found["energy_j"], rel=1e-9)
    assert sum(op["energy_j"] for op in found["ops"]) == pytest.approx(found["energy_j"], rel=1e-12)
    assert sum(found["energy"]["by_unit"].values()) == pytest.approx(found["energy_j"], rel=1e-12)
    assert sum(one["energy_j"] for one in found["categories"]) == pytest.approx(found["energy_j"], rel=1e-12)
    by_source = json.loads(output_of(capsys, "run", MLP, "--json", "--by", "source"))["groups"]
    assert sum(one["energy_j"] for one in by_source) == pytest.approx(found["energy_j"], rel=1e-12)
    assert found["counts"]["matrix.bf16"] > 0
    assert found["cost"]["price_date"]


def test_run_tells_the_energy_of_a_slice(capsys):
    """Beside that of one of its eight chips, which do the same; the cost is of all of them as well."""
    text = output_of(capsys, "run", POD)
    assert re.search(r"^energy    \d+ mJ a chip, [\d.]+ J in all, [\d.]+ W a chip on average: ", text, re.MULTILINE)
    found = json.loads(output_of(capsys, "run", POD, "--json"))
    assert found["all_devices_energy_j"] == pytest.approx(8 * found["energy_j"], rel=1e-9)
    assert "all_devices_energy_j" not in json.loads(output_of(capsys, "run", MLP, "--json"))


def test_run_writes_and_takes_accelergys_tables(capsys, tmp_path):
    """What it wrote gives the same energy; half of every energy gives less; times and what is said of them stay."""
    path = str(tmp_path / "run.yaml")
    plain = json.loads(output_of(capsys, "run", MLP, "--json", "--counts", path))
    again = json.loads(output_of(capsys, "run", MLP, "--json", "--energy-table", path))
    assert again["energy_j"] == pytest.approx(plain["energy_j"], rel=1e-9)
    cheap = "energy.matrix_bf16=1e-13"
    less = json.loads(output_of(capsys, "run", MLP, "--json", "--energy-table", path, "-o", cheap))
    assert less["energy_j"] < 0.8 * plain["energy_j"]
    assert (less["time_us"], less["accuracy"]) == (plain["time_us"], plain["accuracy"])
