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


@pytest.mark.parametrize("package", ["math", "no_such_unit", "math.no_such_unit"])
def test_a_plugin_without_code_of_its_own_changes_nothing(plugin, package):
    """What is built in, and what is not there, is refused where a chip names it."""
    assert plugin(package, "other.py", "FACTOR = 1\n") == plugin(package, "other.py", "FACTOR = 2\n")
