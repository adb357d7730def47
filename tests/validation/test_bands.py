"""The errors that reports state are those of the shipped measurements."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tpusim.analysis.bands import error_bands
from tpusim.hardware.accuracy import MATRIX, VECTOR, errors_of, kind_of_family, measured_errors
from tpusim.hardware.load import load_chip
from tpusim.timeline.records import Record, Timeline
from tpusim.validation.kernels import predict_all, read_cases

TRACES = Path(__file__).parents[2] / "traces"


def test_stated_errors_are_those_of_the_measured_rows():
    """By chip and kind of kernel, to the last digit that is written."""
    cases = [case for name in ("measured", "tilings") for case in read_cases(TRACES / name / "index.csv")]
    found = defaultdict(list)
    for outcome in predict_all(cases, load_chip, lambda done: None):
        key = (outcome.family.partition(" ")[0], kind_of_family(outcome.family))
        found[key].append(abs(outcome.predicted_us / outcome.measured_us - 1))
    stated = {(chip, kind): band for chip, kinds in measured_errors().items() for kind, band in kinds.items()}
    assert stated.keys() == found.keys()
    for key, band in stated.items():
        assert band.rows == len(found[key])
        assert band.error == pytest.approx(sum(found[key]) / len(found[key]), abs=6e-4)


def kernel(start_ps, end_ps, **units):
    """Return the record of a kernel."""
    stretch = {"row": "core", "start_ps": start_ps, "end_ps": end_ps}
    return Record(name="k", opcode="fusion", category="", is_kernel=True, units=units, **stretch)


def test_bands_have_their_share_of_the_time():
    """Three quarters of the time in a kernel with a product, the rest in one without."""
    records = (kernel(0, 75, matrix=70, vector=10), kernel(75, 100, vector=20))
    bands = error_bands(Timeline(program="p", chip="v4", total_ps=100, records=records), "v4-megacore")
    assert [(band.kind, band.share) for band in bands] == [(MATRIX, 0.75), (VECTOR, 0.25)]
    assert bands[0].rows == errors_of("v4")[MATRIX].rows


def test_a_kind_without_measurements_says_so():
    """Nobody published vector kernels of v7x."""
    timeline = Timeline(program="p", chip="v7x", total_ps=10, records=(kernel(0, 10, vector=10),))
    (band,) = error_bands(timeline, "v7x")
    assert (band.rows, band.error) == (0, 0.0)
