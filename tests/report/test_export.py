"""The files for viewers from Python, as a user's notebook writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import tpusim

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="module")
def result():
    """Give a run of two products."""
    return tpusim.simulate(TRACES / "mlp_b1024.v5e.hlo.txt.gz")


def test_every_viewer_gets_its_file(result, tmp_path):
    """Each where it was asked for, and each marked as simulated."""
    tpusim.export.html(result, tmp_path / "report.html")
    tpusim.export.perfetto(result, tmp_path / "trace.json.gz")
    profile = tpusim.export.xprof(result, tmp_path / "profile")
    overlay = tpusim.export.model_explorer(result, tmp_path / "graph.json")
    assert "(simulated)</title>" in (tmp_path / "report.html").read_text()
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["otherData"]["simulated"] is True
    assert b"simulated" in profile.read_bytes()
    assert "simulated" in json.loads((tmp_path / "graph.json").read_text())["label"]
    assert overlay.name == "graph.node_data.json"
