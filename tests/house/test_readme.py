"""The README shows what the commands print."""

from __future__ import annotations

from tests.house.source_tree import ROOT
from tpusim.cli.main import main
from tpusim.pipeline.stages import simulate

COMMAND = "traces/llama1b_decode_b16s2048.v6e.hlo.txt.gz"


def sample() -> str:
    """Return the block of output between the markers of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    between = text.split("sample of `tpusim run`: begin -->")[1].split("<!-- sample of `tpusim run`: end")[0]
    return between.split("```text\n")[1].split("```")[0]


def test_sample_is_what_the_command_prints(capsys, monkeypatch):
    """Replace the sample by the command's output when this fails and the output is right."""
    monkeypatch.chdir(ROOT)
    assert main(["run", COMMAND]) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert sample() == f"$ tpusim run {COMMAND}\n{printed}\n"


def test_the_lowered_program_runs_as_it_stands(tmp_path):
    """The example of a lowered program is complete: two steps that overlap and a wait."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "prog.json"
    path.write_text(text.split("```json\n")[1].split("```")[0], encoding="utf-8")
    result = simulate(path)
    assert {record.name for record in result.timeline.records} == {"fetch", "product", "fetched"}
    assert 0 < result.time_us < 100
