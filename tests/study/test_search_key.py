"""What a search's trials are kept under: a search goes on only where figures follow from the same."""

from __future__ import annotations

import pytest

from tests.study.cases import BANDWIDTH, MLP
from tpusim.study import search
from tpusim.study.search import key_of
from tpusim.study.spec import make_spec


def key(**more) -> str:
    """Return the key of a search over arrays with what else is given."""
    return key_of(make_spec({"programs": MLP, "axes": {"mxu.count": [1, 2]}} | more), ["time_us"])


STATED = {"derive": {BANDWIDTH: "mxu.count * 1e11"}, "constraints": ["mxu.count < 3"]}


@pytest.mark.parametrize(
    "other",
    [
        {"derive": {BANDWIDTH: "mxu.count * 2e11"}},
        {"constraints": ["mxu.count < 2"]},
        {"warm": True},
        {"allow_overflow": True},
        {"default_trip_count": 7},
        {"base": "v6e"},
        {"topology": "v5e:2x2"},
    ],
)
def test_another_study_begins_anew(other):
    """Its machines have other figures."""
    assert key(**STATED | other) != key(**STATED)


def test_the_same_study_goes_on():
    """Whatever the order of its lines."""
    lines = {BANDWIDTH: "mxu.count * 1e11", "clock_hz": "1e9"}
    assert key(derive=lines) == key(derive=dict(reversed(lines.items())))


def test_a_base_with_other_figures_begins_anew(tmp_path):
    """Its file may have changed since."""
    chip, found = tmp_path / "my.toml", []
    for bandwidth in ("1e12", "2e12"):
        chip.write_text(f'base = "v5e"\n[hbm]\nbandwidth_bytes_per_second = {bandwidth}\n', encoding="utf-8")
        found.append(key(base=str(chip)))
    assert found[0] != found[1]


def test_another_version_begins_anew(monkeypatch):
    """It may come to other times."""
    before = key()
    monkeypatch.setattr(search, "version", lambda: "another")
    assert key() != before
