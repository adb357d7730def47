"""``validate --compiler``, ``--steps`` and ``--power``: what they print, and what they refuse."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT
from tpusim.cli.main import main

MLP = str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz")
DLRM = str(ROOT / "traces/dlrm_b2048.v5p.hlo.txt.gz")
POWER = str(ROOT / "traces/power/index.csv")
STEPS = str(ROOT / "traces/steps/index.csv")


@pytest.fixture
def unscheduled(tmp_path):
    """Give the path of a program that was compiled for nothing."""
    path = tmp_path / "raw.v5e.hlo.txt"
    path.write_text("HloModule m\nENTRY e {\n  ROOT x = f32[8,128]{1,0} parameter(0)\n}\n")
    return str(path)


def test_kernels_stand_beside_the_compiler_s_estimates(capsys, unscheduled):
    """A row of the category, and what was left out."""
    text = output_of(capsys, "validate", "--compiler", MLP, unscheduled)
    assert text.splitlines()[1].split()[:4] == ["convolution", "fusion", "v5e", "2"]
    assert "No class of kernels has a median outside 0.5 to 2." in text
    assert "left out, not scheduled, so not compiled for a TPU: raw.v5e.hlo.txt" in text


def test_the_table_of_far_classes_has_their_worst_kernels(capsys):
    """With program, op, both times and what bounds them: those of the JSON."""
    found = json.loads(output_of(capsys, "validate", "--compiler", DLRM, "--json"))
    text = output_of(capsys, "validate", "--compiler", DLRM)
    assert found["far_off"]
    for one in (kernel for far in found["far_off"] for kernel in far["worst"]):
        assert f"{one['program']} {one['op']}" in text
        assert one["ratio"] == pytest.approx(one["predicted_us"] / one["compiler_us"])


def test_whole_steps_stand_beside_published_times(capsys):
    """The step, its ratio, the mean error, and its time by category."""
    (row,) = json.loads(output_of(capsys, "validate", "--steps", STEPS, "--chip", "v2", "--json"))["rows"]
    text = output_of(capsys, "validate", "--steps", STEPS, "--chip", "v2")
    cells = text.splitlines()[1].split()
    assert cells[:3] == [row["name"], row["topology"], row["grade"]]
    assert f"{row['ratio']:.2f}" in cells
    assert f"good and fair rows: {abs(row['ratio'] - 1):.1%}" in text
    assert all(one["category"] in text for one in row["categories"] if one["predicted_us"] > 0.01 * row["predicted_us"])


def test_progress_is_quiet_in_a_pipe(capsys):
    """Nothing on the error stream, which is no terminal here."""
    assert main(["validate", "--compiler", MLP, "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_one_comparison_is_made_at_a_time(capsys):
    """Each reads files of its own kind."""
    words = "expected one of --collectives, --memory, --compiler, --compiled, --power, --steps, found 2"
    assert words in refusal_of(capsys, "validate", "--steps", "--compiler", MLP)


def test_a_program_that_is_not_there_is_refused(capsys):
    """By its name, with exit code 1."""
    assert "no.hlo: expected a program, found no such file" in refusal_of(capsys, "validate", "--compiler", "no.hlo")


def test_power_stands_beside_the_published_one(capsys):
    """As a table of chips, and as JSON with every program."""
    text = output_of(capsys, "validate", "--power", POWER, "--chip", "v4")
    (chip,) = json.loads(output_of(capsys, "validate", "--power", POWER, "--chip", "v4", "--json"))["chips"]
    assert chip["least_w"] <= min(one["watts"] for one in chip["programs"])
    assert re.search(rf"^v4 +90 W +published +121 W +170 W +192 W .* {chip['ratio']:.2f}$", text, re.MULTILINE)
    assert "resnet50_fwd_b32 " in text
