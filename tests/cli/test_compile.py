"""``tpusim compile`` and ``--schedule``: what they print, write and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of
from tpusim.cli import options
from tpusim.cli.main import main
from tpusim.compiler.passes import PASSES
from tpusim.pipeline import schedules

TRACES = Path(__file__).parents[2] / "traces"
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
TEXT = "HloModule m\n\nENTRY e {\n  x = f32[512,256] parameter(0)\n  y = f32[512,256] negate(x)\n"
TEXT += "  ROOT z = f32[512,256] exponential(y)\n}\n"


PRECISE = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}"

TWO_PRODUCTS = f"""HloModule m

ENTRY e {{
  x = f32[512,512] parameter(0)
  inner = f32[512,512] dot(x, x), {PRECISE}
  outer = f32[512,512] dot(inner, x), {PRECISE}
  ROOT y = f32[512,512] negate(outer)
}}
"""
"""Products of several passes, of which each is a kernel by itself."""


@pytest.fixture
def program(tmp_path):
    """A file that nobody has compiled."""
    path = tmp_path / "m.hlo.txt"
    path.write_text(TEXT)
    return str(path)


def test_the_report_lists_every_pass_in_order(capsys, program):
    """With the counts before and after, and the time of what came out."""
    text = output_of(capsys, "compile", program, "--chip", "v5e")
    table = text.partition("(as given)")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in table] == [name for name, _ in PASSES]
    assert "kernels   2 before, 1 after" in text
    assert "fusions   1, of which 0 have a product" in text
    assert "(simulated)" in text


def test_the_report_counts_decisions_by_reason(capsys, tmp_path):
    """What was joined and placed, and by which rule other things were not, with the largest by name."""
    path = tmp_path / "m.hlo.txt"
    path.write_text(TWO_PRODUCTS)
    lines = output_of(capsys, "compile", str(path), "--chip", "v5e").splitlines()
    (fused,) = [line for line in lines if line.startswith("fuse") and "made in the kernel that uses it" in line]
    # The second, for what follows it.
    assert fused.split()[:4] == ["fuse", "1", "1.0", "MiB"]
    (apart,) = [line for line in lines if "not: the kernel has a product already" in line]
    assert "inner for fusion" in apart
    assert any(line.startswith("place") and "is saved the way through HBM" in line for line in lines)


def test_explain_says_where_a_fusion_stopped_and_which_tiles_were_tried(capsys, tmp_path):
    """Of text that it compiles itself, and of what it compiled and wrote, the same: on both sides of the border."""
    path, out = tmp_path / "m.hlo.txt", str(tmp_path / "out.hlo.txt")
    path.write_text(TWO_PRODUCTS)
    compiled = tpusim.compile(path, "v5e")
    compiled.save(out)
    for program, chip in ((str(path), ("--chip", "v5e")), (out, ())):
        text = output_of(capsys, "explain", program, *chip, "--op", "fusion")
        assert "compiled  by tpusim for v5e" in text
        assert "reads     inner, not made in one kernel with it: the kernel has a product already" in text
        assert "(here)" in text.partition("best of the tiles tried")[2].splitlines()[1]
        text = output_of(capsys, "explain", program, *chip, "--op", "inner")
        assert "read by   fusion, not made in one kernel with it: the kernel has a product already" in text


def test_the_tiles_tried_are_in_json_and_those_of_other_compilers_too(capsys):
    """Five at most, the fastest first."""
    data = json.loads(output_of(capsys, "explain", MLP, "--op", "fusion.7", "--json"))
    times = [one["alone_us"] for one in data["tried"]]
    assert len(times) == 5
    assert times == sorted(times)
    assert data["apart"] == {}


def test_the_report_as_json(capsys, program):
    """The same figures under stable keys; of a pass before there is a schedule no run."""
    data = json.loads(output_of(capsys, "compile", program, "--chip", "v5e", "--json"))
    assert [one["name"] for one in data["passes"]] == [name for name, _ in PASSES]
    assert (data["before"]["kernels"], data["after"]["kernels"]) == (2, 1)
    assert data["run"]["hbm_bytes"] == 2 * 4 * 512 * 256
    stopped = json.loads(output_of(capsys, "compile", program, "--chip", "v5e", "--stop-after", "inline", "--json"))
    assert stopped["run"] is None


def test_what_is_written_runs(capsys, program, tmp_path):
    """Compressed by its name; nothing is printed unless a report is asked for."""
    path = str(tmp_path / "out.hlo.txt.gz")
    assert output_of(capsys, "compile", program, "--chip", "v5e", "-o", path) == ""
    assert output_of(capsys, "check", path) == ""
    assert json.loads(output_of(capsys, "run", path, "--json"))["provenance"]["compiler"] == "tpusim"
    assert "kernels" in output_of(capsys, "compile", program, "--chip", "v5e", "-o", path, "--report")


def test_the_text_goes_to_standard_output(capsys, program):
    """It and nothing else; a report beside it is refused."""
    text = output_of(capsys, "compile", program, "--chip", "v5e", "-o", "-")
    assert text.startswith("HloModule m, ")
    assert "kind=kLoop" in text
    words = refusal_of(capsys, "compile", program, "--chip", "v5e", "-o", "-", "--report")
    assert "expected the report or the text" in words


def test_the_help_names_every_pass_in_order(capsys):
    """It is written out there, so that the help need not load the compiler."""
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert ", ".join(name for name, _ in PASSES) in words


def test_text_is_not_written_under_a_name_of_another_format(capsys, program, tmp_path):
    """By it ``run`` would take the file for a lowered program, and fail there."""
    words = refusal_of(capsys, "compile", program, "--chip", "v5e", "-o", str(tmp_path / "out.json"))
    assert "expected a name for HLO text" in words
    assert not (tmp_path / "out.json").exists()


def test_an_unknown_pass_and_no_chip_are_refused(capsys, program):
    """With the passes that there are, and with the option that is missing."""
    words = refusal_of(capsys, "compile", program, "--chip", "v5e", "--stop-after", "fusion")
    assert "expected a pass, one of manual, inline" in words
    assert "use --chip" in refusal_of(capsys, "compile", program)


@pytest.mark.parametrize("command", ["run", "memory"])
def test_commands_compile_by_themselves(capsys, program, command):
    """And say so in one line, and in JSON."""
    assert "by tpusim for v5e" in output_of(capsys, command, program, "--chip", "v5e")
    data = json.loads(output_of(capsys, command, program, "--chip", "v5e", "--json"))
    assert (data["provenance"]["compiler"], data["provenance"]["chip"]) == ("tpusim", "v5e")
    assert "nobody has compiled" in refusal_of(capsys, command, program, "--chip", "v5e", "--schedule", "given")


def test_diff_compares_two_schedules_of_one_program(capsys):
    """A as given, and again with tiles chosen anew."""
    data = json.loads(output_of(capsys, "diff", MLP, "--schedule", "given", "--schedule", "retiled", "--json"))
    assert data["before"]["time_us"] == pytest.approx(tpusim.simulate(MLP).time_us)
    assert data["after"]["time_us"] == pytest.approx(tpusim.simulate(MLP, schedule="retiled").time_us)
    text = output_of(capsys, "diff", MLP, "--schedule", "given", "--schedule", "compiled").splitlines()
    assert [line.partition("(simulated)")[2] for line in text[:2]] == ["", ", compiled by tpusim for v5e"]
    assert "expected at most two" in refusal_of(capsys, "diff", MLP, *["--schedule", "given"] * 3)


def test_the_schedules_of_the_help_are_those_of_the_pipeline():
    """Written out there, so that the help need not load the rooms."""
    assert options.SCHEDULES == schedules.SCHEDULES
