"""Kernels written by hand beside their published times."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.analysis.accuracy import accuracy
from tpusim.hardware.load import load_chip
from tpusim.validation.kernels import predict_all, read_cases

pytest.importorskip("jaxlib")
INDEX = ROOT / "traces/pallas/index.csv"


@pytest.fixture(scope="module")
def outcomes():
    """Give the outcome of every row."""
    return predict_all(read_cases(INDEX), load_chip, lambda done: None)


@pytest.mark.parametrize("family", ["", "flash", "matmul", "vmem"])
def test_published_times_are_met(outcomes, family):
    """Within a fifth on average, and in the order of the block sizes and lengths."""
    rows = [one for one in outcomes if one.program.startswith(family)]
    found = accuracy([one.predicted_us for one in rows], [one.measured_us for one in rows])
    assert found.mape <= 0.2
    assert found.tau >= 0.8


def test_every_program_has_a_row(outcomes):
    """And every row a program."""
    assert {one.program for one in outcomes} == {path.name for path in INDEX.parent.glob("*.hlo.txt.gz")}
