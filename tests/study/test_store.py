"""The store: what outcomes are kept under has all that they follow from."""

from __future__ import annotations

import sys
from importlib import invalidate_caches

import pytest

from tpusim.cost.models import registry
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
