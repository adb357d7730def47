"""Predictions against measured times: the indexes that are shipped, and what an index may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpusim.analysis.accuracy import errors_by_predictor
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import load
from tpusim.validation.kernels import family_of, predict, predict_all, read_cases

TRACES = Path(__file__).parents[2] / "traces"
# Family, highest mean absolute error and bias, lowest Kendall's tau. Hosts' clocks drift by 13 us over the rows of v6e.
LIMITS = [
    ("v4 elementwise", 0.10, 0.05, 0.80),
    ("v4 matmul", 0.12, 0.05, 0.93),
    ("v4 layer_norm", 0.15, 0.05, 0.93),
    ("v5e matmul", 0.10, 0.05, 0.93),
    ("v6e matmul", 0.16, 0.07, 0.87),
    ("v7x matmul", 0.10, 0.05, 0.93),
]


@pytest.fixture(scope="module")
def measured():
    """The outcomes of every measured row, by predictor and family."""
    return errors_by_predictor(predict_all(read_cases(TRACES / "measured" / "index.csv"), load_chip, lambda done: None))


@pytest.fixture(scope="module")
def tilings():
    """The outcomes of every tiling of v3."""
    return predict_all(read_cases(TRACES / "tilings" / "index.csv"), load_chip, lambda done: None)


@pytest.mark.parametrize(("family", "error", "bias", "tau"), LIMITS, ids=[row[0] for row in LIMITS])
def test_measured_rows_are_predicted(measured, family, error, bias, tau):
    """Each family's error, bias and order are within what is promised of them."""
    found = measured["tpusim"][family]
    assert found.mape <= error
    assert abs(found.bias) <= bias
    assert found.tau >= tau


def test_predictions_beat_both_baselines(measured):
    """In every family, the compiler's own estimates and a plain roofline are further off."""
    for family, own in measured["tpusim"].items():
        assert own.mape < measured["compiler"][family].mape
        assert own.mape < measured["roofline"][family].mape


def test_the_roofline_of_integers_is_that_of_their_rate():
    """A product in int8 goes at twice the rate of bf16 on v5e."""
    rows = read_cases(TRACES / "measured" / "index.csv")
    case = next(case for case in rows if "10792x8464_8464x1296_int8" in str(case))
    chip = load_chip("v5e")
    operations = 2 * 10792 * 8464 * 1296
    expected_us = operations / (2 * chip.peak_flops_per_second) * 1e6
    assert predict(case, chip).roofline_us == pytest.approx(expected_us, rel=0.01)


def test_tilings_are_predicted_in_size(tilings):
    """Over all kernels and tile choices of v3 the mean absolute error is at most 25 %."""
    errors = [abs(o.predicted_us / o.measured_us - 1) for o in tilings]
    assert sum(errors) / len(errors) <= 0.25


def test_tilings_are_predicted_in_order(tilings):
    """The tile choices of the convolution come out in their order: Kendall's tau is at least 0.85."""
    rows = [outcome for outcome in tilings if outcome.family == "v3 conv2d_fusion"]
    assert errors_by_predictor(rows)["tpusim"]["v3 conv2d_fusion"].tau >= 0.85


def test_a_kernel_s_time_leaves_out_its_prefetch():
    """A device trace of one op has no copy in it, so that the prediction is shorter than the whole cold run."""
    case = next(c for c in read_cases(TRACES / "measured" / "index.csv") if c.what == "fusion")
    assert predict(case, load_chip(case.chip)).predicted_us < 1.2 * case.measured_us


def index(tmp_path, *lines):
    """Return the path of an index with these lines."""
    path = tmp_path / "index.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_index_without_its_columns_is_refused(tmp_path):
    """The error names what is missing."""
    with pytest.raises(ConfigError, match="expected columns program, measured_us"):
        read_cases(index(tmp_path, "name,us", "a.hlo,3"))


def test_a_number_that_is_none_is_refused_with_its_line(tmp_path):
    """File, line, column and what stands there."""
    with pytest.raises(ConfigError, match=r"index.csv:2: measured_us: expected a number.*, found 'fast'"):
        read_cases(index(tmp_path, "program,measured_us", "a.hlo,fast"))


@pytest.mark.parametrize("time", ["0", "-5", "nan", "inf"])
def test_a_time_that_is_none_is_refused_with_its_line(tmp_path, time):
    """A row without a time was left out, and nothing said so."""
    with pytest.raises(ConfigError, match=rf"index.csv:3: measured_us: expected a number from 1e-9.*, found '{time}'"):
        read_cases(index(tmp_path, "program,measured_us,launch_floor_us", "a.hlo,114,105", f"a.hlo,{time},"))


def test_a_launch_floor_below_zero_is_refused(tmp_path):
    """It would make the measured time longer."""
    with pytest.raises(ConfigError, match=r"index.csv:2: launch_floor_us: expected a number from 0, found '-5'"):
        read_cases(index(tmp_path, "program,measured_us,launch_floor_us", "a.hlo,114,-5"))


def test_a_bound_that_no_tile_has_is_refused_with_its_line(tmp_path):
    """Python reads no number of so many digits."""
    program = TRACES / "tilings" / "fusion.232.v3.hlo.txt.gz"
    lines = ("program,measured_us,output_bounds", f'{program.name},138,"[{"9" * 4400}]"')
    (tmp_path / program.name).write_bytes(program.read_bytes())
    with pytest.raises(ConfigError, match=r"index.csv:2: expected bounds such as \[3, 3, 24, 1\]"):
        read_cases(index(tmp_path, *lines))


def test_a_missing_index_is_refused():
    """Not a traceback."""
    with pytest.raises(ConfigError, match="cannot read this index"):
        read_cases("no/such/index.csv")


def test_rows_that_are_all_floor_are_left_out(tmp_path):
    """Nine microseconds above the floor of a host's clock say nothing."""
    lines = ("program,measured_us,launch_floor_us", "a.hlo,114,105")
    assert read_cases(index(tmp_path, *lines)) == []


def test_a_family_is_the_heaviest_kind_of_work():
    """A product with an epilogue is a product, a normalisation a reduction."""
    assert family_of(load(TRACES / "mlp_b1024.v5e.hlo.txt.gz")) == "matmul"
    assert family_of(load(TRACES / "measured" / "layer_norm_10x384x1024_f16.v4.hlo.txt.gz")) == "reduction"


def test_a_program_that_is_not_there_is_named_with_its_line(tmp_path):
    """Which row of the index asks for it."""
    with pytest.raises(ConfigError, match=r"index.csv:2: program: .*none.hlo: cannot be read"):
        read_cases(index(tmp_path, "program,measured_us", "none.hlo,5"))
