"""Kernels that a profiler timed on the device, of kinds and chips that the other measured rows do not have."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.analysis.accuracy import accuracy
from tpusim.hardware.load import load_chip
from tpusim.validation.kernels import predict_all, read_cases

INDEX = ROOT / "traces/profiled/index.csv"


@pytest.fixture(scope="module")
def outcomes():
    """Give the outcome of every row."""
    return predict_all(read_cases(INDEX), load_chip, lambda done: None)


def errors_of(outcomes, predictor: str):
    """Return the errors of a predictor over all rows."""
    return accuracy([getattr(one, predictor) for one in outcomes], [one.measured_us for one in outcomes])


def test_every_program_has_a_row(outcomes):
    """And every row a program, on four chips."""
    assert {one.program for one in outcomes} == {path.name for path in INDEX.parent.glob("*.hlo.txt.gz")}
    assert {one.chip for one in outcomes} == {"v2", "v5e", "v6e", "v7x"}


def test_all_rows_together_are_predicted(outcomes):
    """From 2 us to 30 ms: at most 15 % off on average, no bias above a tenth, and in their order."""
    found = errors_of(outcomes, "predicted_us")
    assert found.mape <= 0.15
    assert abs(found.bias) <= 0.10
    assert found.tau >= 0.9


@pytest.mark.parametrize("baseline", ["compiler_us", "roofline_us"])
def test_both_baselines_are_further_off(outcomes, baseline):
    """The compiler's own estimates, and the peak rates of a data sheet."""
    assert errors_of(outcomes, "predicted_us").mape < errors_of(outcomes, baseline).mape
