"""The store: what outcomes are kept under has all that they follow from."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import invalidate_caches

import pytest

import tpusim
from tests.house.source_tree import ROOT
from tests.study.cases import MLP, kernel_module
from tpusim.cost.models import registry
from tpusim.errors import ConfigError
from tpusim.study import store


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return a function that writes a file of a folder on the path, and returns the version with plug-ins."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_ALLOWED", {})

    def version(package: str, file: str, code: str) -> str:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(code, encoding="utf-8")
        invalidate_caches()
        store._version.cache_clear()
        registry.allow_plugin(package)
        return store.version()

    return version


@pytest.mark.parametrize(
    ("package", "file"),
    [
        ("one_file_unit", "one_file_unit.py"),
        ("unit_folder", "unit_folder/model.py"),
        ("name_space.unit", "name_space/unit.py"),
    ],
)
def test_a_changed_plugin_makes_another_version(plugin, package, file):
    """Whether it is a file or a folder of them."""
    assert plugin(package, file, "FACTOR = 1\n") != plugin(package, file, "FACTOR = 2\n")


def test_a_plugin_compiled_anew_makes_another_version(plugin):
    """Its code may stand in a library alone."""
    assert plugin("native_unit", "native_unit/core.so", "1") != plugin("native_unit", "native_unit/core.so", "2")


@pytest.fixture
def jaxlib(tmp_path, monkeypatch):
    """Return a function that puts a jaxlib of a version and with some code on the path, or none, and returns ours."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def found(version: str, code: str = "") -> str:
        """Return the version of tpusim beside such a jaxlib."""
        monkeypatch.delitem(sys.modules, "jaxlib", raising=False)
        if not version:
            monkeypatch.setitem(sys.modules, "jaxlib", None)
        facts = f"Name: jaxlib\nVersion: {version}\n"
        for folder, file, text in (("jaxlib", "__init__.py", code), ("jaxlib-0.dist-info", "METADATA", facts)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / file).write_text(text, encoding="utf-8")
        invalidate_caches()
        store._version.cache_clear()
        return store.version()

    yield found
    store._version.cache_clear()


def test_another_reader_of_programs_makes_another_version(jaxlib):
    """Without jaxlib a kernel takes what it states: an outcome from there is none of here."""
    found = [jaxlib("1.0"), jaxlib("2.0"), jaxlib(""), jaxlib("1.0", "raise ImportError")]
    assert len(set(found)) == len(found)
    assert jaxlib("1.0") == found[0]


@pytest.mark.parametrize("package", ["math", "no_such_unit", "math.no_such_unit"])
def test_a_plugin_without_code_of_its_own_changes_nothing(plugin, package):
    """What is built in, and what is not there, is refused where a chip names it."""
    assert plugin(package, "other.py", "FACTOR = 1\n") == plugin(package, "other.py", "FACTOR = 2\n")


def aside(run):
    """Return what a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def study(**more) -> tpusim.Study:
    """Return a study of one small program on two machines."""
    return tpusim.Study(programs=kernel_module(), axes={"mxu.count": ["x1", "x2"]}, jobs=1, **more)


@pytest.mark.parametrize("place", [None, "st"])
def test_a_study_is_run_and_read_in_any_thread(tmp_path, place):
    """Whichever made it."""
    folder = place and tmp_path / place
    rows = study().rows()
    made = study(store=folder)
    assert aside(made.rows) == rows
    assert aside(study(store=folder).run).rows() == rows
    aside(lambda: study(store=folder)).run().close()


def test_threads_run_one_study_at_once(tmp_path):
    """Each gets all rows, and all are kept."""
    made = study(store=tmp_path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: made.rows(), range(8)))
    assert all(rows == study().rows() for rows in found)


def test_a_store_that_nobody_closed_goes_without_a_word(tmp_path):
    """In whatever thread it was made: Python would tell of an error in a finaliser at its end."""
    script = (
        "import sys; from threading import Thread; from pathlib import Path; from tpusim.study.store import Store\n"
        "made = []; one = Thread(target=lambda: made.append(Store(Path(sys.argv[1])))); one.start(); one.join()"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_study_says_so():
    """And still has what it has run."""
    made = study()
    rows = made.run().rows()
    made.close()
    made.close()
    assert made.rows() == rows
    other = study()
    other.close()
    with pytest.raises(ConfigError, match="study: expected one that is open, found one that was closed"):
        other.run()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_store_is_a_folder(tmp_path, name):
    """A file in its place is refused as anything else is."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"{name}: expected a folder for a study's outcomes: .*(exists|Not a dir)"):
        study(store=tmp_path / name)


def _times() -> list[float]:
    return [row["time_us"] for row in tpusim.Study(programs=MLP, jobs=2).rows()]


def test_a_worker_of_a_pool_runs_studies_itself():
    """It may have no processes."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_times) == _times()
