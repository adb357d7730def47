"""The README shows what the commands print."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.cli.main import main
from tpusim.pipeline.stages import simulate
from tpusim.report.tables import us_text
from tpusim.validation.power import validate_power
from tpusim.validation.steps import validate_steps

COMMAND = "traces/llama1b_decode_b16s2048.v6e.hlo.txt.gz"


def between(what: str) -> str:
    """Return what stands between two markers of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split(f"<!-- {what}: begin -->")[1].split(f"<!-- {what}: end -->")[0]


def sample() -> str:
    """Return the block of output between the markers of the README."""
    return between("sample of `tpusim run`").split("```text\n")[1].split("```")[0]


def table_of_steps() -> str:
    """Return the table of whole steps as the README has it, and the mean error under it."""
    found = validate_steps([ROOT / "traces/steps/index.csv"])
    lines = [
        "| step | chips | says | measured | simulated | ratio | never measured |",
        "|---|---|---|--:|--:|--:|--:|",
        *(
            f"| {row.family} (`{row.name}`) | {row.topology or row.chip} | {row.grade} | {us_text(row.measured_us)} "
            f"| {us_text(row.predicted_us)} | {row.ratio:.2f} | {row.unmeasured_share * 100:.0f} % |"
            for row in found.rows
        ),
        "",
        f"Mean absolute error of the {found.counted} good and fair rows: {found.mean_error * 100:.0f} %.",
    ]
    return "\n".join(("", "", *lines, "", ""))


def table_of_power() -> str:
    """Return the table of power as the README has it."""
    lines = [
        "| chip | idle | published: least, mean, most | simulated: least, mean, most of programs | ratio of means |",
        "|---|--:|--:|--:|--:|",
    ]
    for one in validate_power([ROOT / "traces/power/index.csv"]):
        published, ours = (
            ", ".join("-" if watts is None else f"{watts:.0f}" for watts in three)
            for three in ((one.least_w, one.mean_w, one.most_w), (one.our_least_w, one.our_mean_w, one.our_most_w))
        )
        idle = f"{one.idle_w:.0f} W, {one.idle_confidence}"
        lines.append(f"| {one.chip} | {idle} | {published} W | {ours} W of {len(one.programs)} | {one.ratio:.2f} |")
    return "\n".join(("", "", *lines, "", ""))


@pytest.mark.slow
def test_power_is_that_of_the_command():
    """Replace the table by ``table_of_power()`` when this fails and the figures are right."""
    assert between("power") == table_of_power()


@pytest.mark.slow
def test_whole_steps_are_those_of_the_command():
    """Replace the table by ``table_of_steps()`` when this fails and the times are right."""
    assert between("whole steps") == table_of_steps()


def test_sample_is_what_the_command_prints(capsys, monkeypatch):
    """Replace the sample by the command's output when this fails and the output is right."""
    monkeypatch.chdir(ROOT)
    assert main(["run", COMMAND]) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert sample() == f"$ tpusim run {COMMAND}\n{printed}\n"


def test_a_stablehlo_file_becomes_a_report_in_one_command(capsys, monkeypatch):
    """With jaxlib on the CPU, and with every kernel's time."""
    pytest.importorskip("jaxlib")
    monkeypatch.chdir(ROOT)
    command = between("StableHLO to a report").split("```sh\n")[1].split("\n")[0]
    assert main(command.split()[1:]) == 0
    assert "IrToHlo.209 on v5e (simulated)\n\n  time" in capsys.readouterr().out


def test_a_jax_function_becomes_a_report_as_it_stands(capsys):
    """With JAX on the CPU; what it prints is a report."""
    pytest.importorskip("jax")
    exec(between("JAX to a report").split("```python\n")[1].split("```")[0], {})
    assert "on v5e (simulated)\n\n  time" in capsys.readouterr().out


def test_the_lowered_program_runs_as_it_stands(tmp_path):
    """The example of a lowered program is complete: two steps that overlap and a wait."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "prog.json"
    path.write_text(text.split("```json\n")[1].split("```")[0], encoding="utf-8")
    result = simulate(path)
    assert {record.name for record in result.timeline.records} == {"fetch", "product", "fetched"}
    assert 0 < result.time_us < 100
