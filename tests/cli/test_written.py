"""Files that commands write: they take the place of nothing that the command reads or keeps, by whatever way."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import refusal_of
from tests.study.cases import MLP
from tpusim.hardware.load import chip_files


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


def test_a_chip_from_a_pipe_is_read_once(tmp_path):
    """Looking for its base would leave nothing to read."""
    os.mkfifo(tmp_path / "chip")
    assert chip_files(str(tmp_path / "chip")) == []
