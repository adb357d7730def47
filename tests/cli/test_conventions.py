"""What users of a shell expect of any tool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest

from tpusim import __version__
from tpusim.cli.main import COMMANDS, main
from tpusim.cli.options import AsWritten

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"


@pytest.mark.parametrize(
    "words", [["run", str(TRACE), "--quiet"], ["chips", "v5e"], ["ops"], ["run", str(TRACE), "--json"]]
)
def test_a_reader_that_goes_is_no_failure(words):
    """As in ``tpusim run ... | head -1``: the exit code of tools that a closed pipe ends, and no complaint."""
    command = [sys.executable, "-m", "tpusim", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("stated", [None, "", "60", "0", "-5", "abc", "9" * 5000])
def test_helps_are_as_wide_as_pythons_own(monkeypatch, stated):
    """What COLUMNS says, else the terminal; what is no number of columns says nothing."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if stated is not None:
        monkeypatch.setenv("COLUMNS", stated)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((150, 40)))
    assert AsWritten("tpusim")._width == shutil.get_terminal_size().columns - 2


def test_a_help_in_a_pipe_has_eighty_columns(monkeypatch):
    """Where no terminal says otherwise."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", Mock(side_effect=OSError))
    assert AsWritten("tpusim")._width == 78


def test_the_version_names_the_commit(capsys):
    """In a checkout; an installation without one says the version alone."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    commit = r" \(commit [0-9a-f]{7,40}(-dirty)?\)" if (ROOT / ".git").exists() else ""
    assert re.fullmatch(rf"tpusim {re.escape(__version__)}{commit}\n", capsys.readouterr().out)


@pytest.mark.skipif(not find_spec("shtab"), reason="shtab is not installed (extra completion)")
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_command_is_completed(shell, capsys):
    """By its name, with its options."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(re.search(rf"\b{command.name}\b", script) for command in COMMANDS)
    assert "--model-explorer" in script


def test_without_shtab_the_message_says_what_to_install(monkeypatch, capsys):
    """And not that a module is missing."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'tpusim[completion]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--save", "--chip", "--html", "--topology", "--trace"])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_option_without_a_value_is_wrong_usage(option, value, capsys):
    """As what a shell makes of a variable that is not set."""
    with pytest.raises(SystemExit) as end:
        main(["run", str(TRACE), option, value])
    assert end.value.code == 2
    assert f"argument {option}: expected a value, found none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (".", ".: cannot be read: Is a directory"),
        ("/", "/: cannot be read: Is a directory"),
        ("", "expected the name of a file, found ''"),
    ],
)
@pytest.mark.parametrize("words", [["run", "--save", "s.json"], ["lower", "-o", "l.json"], ["compile", "-o", "c.hlo"]])
def test_a_folder_is_no_program(words, program, said, tmp_path, monkeypatch, capsys):
    """Also one without a name of its own, where a file is to be written."""
    monkeypatch.chdir(tmp_path)
    command, *options = words
    assert main([command, program, *options]) == 1
    assert capsys.readouterr().err == f"tpusim: {said}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", str(TRACE), "--html", "page.html", "--model-explorer", "graph.svg"],
        ["scale", str(TRACE), "-o", "picture.txt"],
        ["plot", "roofline", str(TRACE), "-o", "picture.txt"],
    ],
)
def test_a_wrong_ending_is_refused_before_anything_runs(words, tmp_path, monkeypatch, capsys):
    """And before another file is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tpusim.pipeline.stages.simulate", Mock(side_effect=AssertionError))
    monkeypatch.setattr("tpusim.study.scale.simulate", Mock(side_effect=AssertionError))
    assert main(words) == 1
    assert "expected a name that ends in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
