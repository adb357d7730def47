"""Fitting: parameters that made the times are found again, and written where a reader looks for them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tpusim.errors import ConfigError
from tpusim.hardware.load import fits_path, load_chip, override_chip
from tpusim.validation.calibration import Parameter, Plan, calibrate, read_plans, write_fit
from tpusim.validation.kernels import predict, read_cases

INDEX = Path(__file__).parents[2] / "traces" / "measured" / "index.csv"
PLAN = Plan({"fixed.kernel_seconds": Parameter(start=0.2e-6, low=0.05e-6, high=2e-6)})


@pytest.fixture(scope="module")
def made():
    """Rows whose measured times are those of a v4 with a fixed cost of 0.7 us."""
    pytest.importorskip("scipy")
    chip = override_chip(load_chip("v4-megacore"), {"fixed.kernel_seconds": 0.7e-6})
    cases = [case for case in read_cases(INDEX) if case.family == "v4 elementwise"][::15]
    return [with_time(case, predict(case, chip).predicted_us) for case in cases]


def with_time(case, measured_us):
    """Return a row with another time."""
    return replace(case, measured_us=measured_us)


def test_a_known_parameter_is_found_again(made):
    """From another start, within a part in a thousand, and with no error left on rows that were held out."""
    fit = calibrate("v4-megacore", PLAN, made, folds=3)
    assert fit.values["fixed.kernel_seconds"] == pytest.approx(0.7e-6, rel=1e-3)
    assert fit.cross_validated["v4 elementwise"].mape < 1e-3


def test_a_fit_is_written_with_its_error(made, tmp_path):
    """The chip file has the value, the word fitted, the source and the cross-validated error; the rest is untouched."""
    path = tmp_path / "mine.toml"
    path.write_text('base = "v4-megacore"\n\n[fixed]\n# Kept.\nscalar_op_cycles = 11\n')
    write_fit(calibrate("v4-megacore", PLAN, made, folds=2), path)
    table = tomllib.loads(path.read_text())["fixed"]
    assert table["scalar_op_cycles"] == 11
    assert table["kernel_seconds"]["confidence"] == "fitted"
    assert "v4 elementwise" in table["kernel_seconds"]["note"]
    assert load_chip(path).fixed.kernel_seconds == pytest.approx(0.7e-6, rel=1e-3)


def test_too_few_shapes_are_refused():
    """Two folds need two shapes."""
    with pytest.raises(ConfigError, match="expected rows of at least 5 shapes, found 0"):
        calibrate("v4-megacore", PLAN, [])


def test_every_shipped_plan_is_about_a_chip_and_its_keys():
    """Each parameter is a quantity of the chip, within its plausible range there."""
    for name, plan in read_plans(fits_path()).items():
        for key, parameter in plan.parameters.items():
            assert parameter.low <= parameter.start <= parameter.high
            assert override_chip(load_chip(name), {key: parameter.start})


def test_a_plan_with_a_slip_is_refused(tmp_path):
    """An unknown word is no parameter."""
    path = tmp_path / "fits.toml"
    path.write_text('[v5e.parameters]\n"hbm.efficiency" = { begin = 1 }\n')
    with pytest.raises(ConfigError, match="not a file of parameters"):
        read_plans(path)
