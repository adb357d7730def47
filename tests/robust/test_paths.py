"""What a file may name: an index only files of its own folder, a configuration only a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT

TRACES = ROOT / "traces"
MEASURED = TRACES / "measured" / "add_16x32x16_16x32x16_f16.v4.hlo.txt.gz"
ROW = "program,op,chip,dtype,shapes,measured_us,what,launch_floor_us,samples\n{},add,v4,f16,[],1.5,kernel,,20\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "../{}", "x/../../{}"])
def test_an_index_names_no_files_outside_its_folder(capsys, tmp_path, name):
    """An error would quote them."""
    shutil.copy(MEASURED, tmp_path)
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "index.csv").write_text(ROW.format(name.format(MEASURED.name)))
    said = refusal_of(capsys, "validate", str(folder / "index.csv"))
    assert "index.csv:2: program: expected a file in the folder of the index (or --outside)" in said


def test_an_index_may_name_them_if_asked(capsys, tmp_path):
    """Whoever has written it says so."""
    shutil.copy(MEASURED, tmp_path)
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "index.csv"
    path.write_text(ROW.format(f"../{MEASURED.name}"))
    assert "add" in output_of(capsys, "validate", str(path), "--outside", "--json")


@pytest.mark.parametrize(("up", "is_read"), [("..", True), ("../..", False)])
def test_an_index_may_name_them_where_the_folder_above_says_so(capsys, tmp_path, up, is_read):
    """Files of that folder, and none above it."""
    for folder in (tmp_path, tmp_path / "all"):
        folder.mkdir(exist_ok=True)
        shutil.copy(MEASURED, folder)
    shutil.copy(TRACES / "tpusim-indexes.txt", tmp_path / "all")
    path = tmp_path / "all" / "inner" / "index.csv"
    path.parent.mkdir()
    path.write_text(ROW.format(f"{up}/{MEASURED.name}"))
    if is_read:
        assert "add" in output_of(capsys, "validate", str(path), "--json")
    else:
        assert "expected a file in the folder of the index" in refusal_of(capsys, "validate", str(path))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder of a package as pip installs it: configurations inside, no programs beside it."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(ROOT / "tpusim", folder / "tpusim", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", folder / "tpusim" / "configs")
    return folder


@pytest.mark.parametrize(("kind", "folder"), [("power", "power"), ("memory", "memory"), ("compiled", "unscheduled")])
def test_the_indexes_of_a_checkout_are_read_by_an_installed_package(installed, kind, folder):
    """As the README has it: they name programs of each other's folders."""
    what = ("-P", "-m", "tpusim", "validate", f"--{kind}", f"traces/{folder}/index.csv", "--chip", "v3")
    environment = os.environ | {"PYTHONPATH": str(installed)}
    run = subprocess.run((sys.executable, *what), cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("name", ["..", "/tmp/x", "a/../../b", "a/b"])
def test_reports_stay_in_their_folder(capsys, tmp_path, name):
    """SCALE-Sim's ``run_name`` is the name of a folder, and no way to another one."""
    sizes = "".join(f"{key}: 64\n" for key in ("IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB"))
    (tmp_path / "c.cfg").write_text(f"run_name: {name}\nArrayHeight: 8\nArrayWidth: 8\n{sizes}Dataflow: ws\n")
    arguments = ("--m", "8", "--n", "8", "--k", "8", "-c", str(tmp_path / "c.cfg"), "-p", str(tmp_path / "out"))
    assert "run_name: expected the name of a folder" in refusal_of(capsys, "systolic", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_program_may_have_a_name_that_no_facts_beside_it_could_have(capsys, tmp_path):
    """With its ending that would be longer than a file system takes."""
    path = tmp_path / ("x" * 252)
    path.write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[8] parameter(0)\n}\n")
    assert output_of(capsys, "run", str(path), "--chip", "v5e").startswith("m on v5e")
