"""Files that commands write: they take the place of nothing that the command reads or keeps, by whatever way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import refusal_of
from tests.study.cases import MLP
from tpusim.cli.main import main
from tpusim.hardware.load import chip_files

MODULE = "HloModule m\n\nENTRY e {\n  p = f32[8,128] parameter(0)\n  ROOT n = f32[8,128] negate(p)\n}\n"


def in_folder(folder: Path) -> None:
    """Write a program, chips that build on each other, two studies with a store and a plug-in into a folder."""
    (folder / "m.v5e.hlo.txt.gz").write_bytes(Path(MLP).read_bytes())
    (folder / "first.toml").write_text('base = "v5e"\n')
    (folder / "chip.toml").write_text('base = "first.toml"\n')
    (folder / "based.toml").write_text('programs = "m.v5e.hlo.txt.gz"\nbase = "chip.toml"\n')
    (folder / "axis.toml").write_text('programs = "m.v5e.hlo.txt.gz"\n[axes]\nchip = ["v5e", "chip.toml"]\n')
    (folder / "one_file_unit.py").write_text("")
    (folder / "folder_unit").mkdir()
    (folder / "folder_unit" / "model.py").write_text("")
    tpusim.Study(programs=str(folder / "m.v5e.hlo.txt.gz"), jobs=1, store=folder / "st").run().close()


@pytest.mark.parametrize(
    ("arguments", "file", "why"),
    [
        ("run m.v5e.hlo.txt.gz --chip chip.toml --html", "first.toml", "read"),
        ("scale m.v5e.hlo.txt.gz --chip v5e,chip.toml -o", "first.toml", "read"),
        ("sweep based.toml --csv", "chip.toml", "read"),
        ("sweep based.toml --csv", "first.toml", "read"),
        ("sweep axis.toml --csv", "chip.toml", "read"),
        ("sweep m.v5e.hlo.txt.gz --csv", "m.v5e.json", "says what chip the program is for"),
        ("sweep axis.toml --csv", "m.v5e.json", "says what chip the program is for"),
        ("run m.v5e.hlo.txt.gz --with *.hlo.txt.gz --save", "m.v5e.json", "says what chip the program is for"),
        ("run m.v5e.hlo.txt.gz --plugin folder_unit --html", "folder_unit/model.py", "read"),
        ("run m.v5e.hlo.txt.gz --plugin one_file_unit --html", "one_file_unit.py", "read"),
        ("sweep m.v5e.hlo.txt.gz --study st --csv", "st/outcomes.sqlite", "the study keeps"),
        ("sweep m.v5e.hlo.txt.gz --study st --csv", "st/effects.csv", "the study keeps"),
    ],
)
def test_what_is_read_by_way_of_another_file_is_not_written_over(capsys, tmp_path, monkeypatch, arguments, file, why):
    """Bases of chips, chips of studies, facts beside programs, code of plug-ins, and what a study has kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tpusim.cost.models.registry._ALLOWED", {})
    in_folder(tmp_path)
    path = tmp_path / file
    before = path.read_bytes() if path.exists() else None
    said = refusal_of(capsys, *arguments.split(), f"./{file}", "--quiet")
    assert re.search(f"expected another file than '.*{file}', which {'is ' * (why == 'read')}{why}", said)
    assert (path.read_bytes() if path.exists() else None) == before


def test_standard_input_is_not_written_over(tmp_path):
    """Under the name that systems give it."""
    path = tmp_path / "m.hlo.txt"
    path.write_text(MODULE)
    command = [sys.executable, "-m", "tpusim", "run", "-", "--chip", "v5e", "--quiet", "--save", "/dev/stdin"]
    with path.open("rb") as given:
        done = subprocess.run(command, stdin=given, capture_output=True, text=True)
    assert (done.returncode, "which is read" in done.stderr) == (1, True), done.stderr
    assert path.read_text() == MODULE


@pytest.mark.parametrize("arguments", ["run m --html -", "run m --save -", "sweep m --csv -", "scale m -o -"])
def test_only_what_can_go_to_standard_output_is_asked_to(capsys, arguments):
    """A file of the name - is nobody's wish."""
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert "expected a file, found - (./- for one of that name)" in capsys.readouterr().err


def test_the_file_of_a_study_is_named_by_its_errors(capsys, tmp_path):
    """Whatever in it is wrong."""
    path = tmp_path / "s.toml"
    for line in ("zz = 1", "programs = 5", 'programs = "m"\n[axes]\n"mxu.count" = []'):
        path.write_text(line)
        assert refusal_of(capsys, "sweep", str(path)).startswith(f"tpusim: {path}: ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["ops"]], ids=" ".join)
def test_help_that_cannot_be_written_is_a_failure(arguments, unbuffered):
    """As any other output, whether it is written at once or at the end."""
    command, environment = [sys.executable, "-m", "tpusim", *arguments], os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert (done.returncode, done.stderr) == (1, "tpusim: output: No space left on device\n")


def test_a_chip_from_a_pipe_is_read_once(tmp_path):
    """Looking for its base would leave nothing to read."""
    os.mkfifo(tmp_path / "chip")
    assert chip_files(str(tmp_path / "chip")) == []
