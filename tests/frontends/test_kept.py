"""Texts of compilers that are kept between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpusim.frontends.kept import kept_text


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Give a function that makes a text and counts how often, and keep texts in a folder of the test."""
    monkeypatch.setenv("TPUSIM_CACHE", str(tmp_path))
    calls = []

    def make() -> str:
        calls.append(1)
        return f"text {len(calls)}"

    make.calls = calls
    return make


def test_a_text_is_made_once(made):
    """Under one key; under another one again."""
    assert kept_text(["a", "b"], made) == kept_text(["a", "b"], made) == "text 1"
    assert kept_text(["ab"], made) == "text 2"


def test_a_damaged_file_is_made_again(made, tmp_path):
    """As after a crash of the machine."""
    kept_text(["a"], made)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert kept_text(["a"], made) == "text 2"
    assert kept_text(["a"], made) == "text 2"


def test_an_empty_name_keeps_nothing(made, monkeypatch, tmp_path):
    """Nor does a folder that cannot be written stop anything."""
    monkeypatch.setenv("TPUSIM_CACHE", "")
    assert [kept_text(["a"], made) for _ in range(2)] == ["text 1", "text 2"]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TPUSIM_CACHE", str(tmp_path / "file"))
    assert kept_text(["a"], made) == "text 3"


def test_without_a_home_nothing_is_kept(monkeypatch):
    """Of a user whom the system does not know, as in containers."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("TPUSIM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert kept_text(["a"], lambda: "first") == "first"
    assert kept_text(["a"], lambda: "second") == "second"
