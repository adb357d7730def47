"""Fitting: parameters that made the times are found again, and written where a reader looks for them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tpusim.errors import ConfigError
from tpusim.hardware.load import chip_facts, fits_path, load_chip, override_chip
from tpusim.validation.calibration import Parameter, Plan, calibrate, read_plan, write_fit
from tpusim.validation.kernels import generation_of, predict, read_cases

TRACES = Path(__file__).parents[2] / "traces"
KERNEL = Parameter(key="fixed.kernel_seconds", chips=("v4",), start=0.2e-6, low=0.05e-6, high=2e-6)
PLAN = Plan((KERNEL,))


def made(chip_name, family, overrides, every):
    """Return rows whose measured times are those of a chip with some figures replaced."""
    pytest.importorskip("scipy")
    chip = override_chip(load_chip(chip_name), overrides)
    cases = [case for case in read_cases(TRACES / "measured" / "index.csv") if case.family == family][::every]
    return [with_time(case, predict(case, chip).predicted_us) for case in cases]


@pytest.fixture(scope="module")
def slow_kernels():
    """Rows of a v4 whose kernels take 0.7 us to start."""
    return made("v4-megacore", "v4 elementwise", {"fixed.kernel_seconds": 0.7e-6}, 15)


def with_time(case, measured_us):
    """Return a row with another time."""
    return replace(case, measured_us=measured_us)


def test_a_known_parameter_is_found_again(slow_kernels):
    """From another start, within a part in a thousand, and with no error left on rows that were held out."""
    fit = calibrate(PLAN, slow_kernels, folds=3)
    (found,) = fit.parameters
    assert found.value == pytest.approx(0.7e-6, rel=1e-3)
    assert found.least <= found.value * 1.001
    assert found.most >= found.value * 0.999
    assert (found.rows, found.at_edge) == (len(slow_kernels), False)
    assert fit.cross_validated["v4 elementwise"].mape < 1e-3


def test_what_chips_share_is_fitted_on_the_rows_of_all():
    """One latency of two chips, made at 0.5 us, beside a figure of one of them."""
    shared = {"fixed.kernel_seconds": 0.5e-6}
    rows = made("v5e", "v5e matmul", shared | {"hbm.efficiency": 0.8}, 8) + made("v6e", "v6e matmul", shared, 8)
    of_v5e = Parameter(key="hbm.efficiency", chips=("v5e",), start=0.9, low=0.5, high=1.0)
    plan = Plan((Parameter(**{**KERNEL_FIELDS, "chips": ("v5e", "v6e")}), of_v5e))
    one, other = calibrate(plan, rows, folds=2).parameters
    assert (one.value, other.value) == (pytest.approx(0.5e-6, rel=1e-2), pytest.approx(0.8, rel=1e-2))
    assert one.rows == len(rows) > other.rows


EFFICIENCY = {"chips": ("v5e",), "start": 0.9, "low": 0.5, "high": 1.0}


@pytest.mark.parametrize(
    ("others", "words"),
    [
        # Rows show its products with the other two.
        ({"hbm.bandwidth_bytes_per_second": {"start": 8e11, "low": 5e11, "high": 9e11}}, "rows that tell them apart"),
        ({"vector_ops.ops.tan.vector": {}}, "vector_ops.ops.tan.vector: expected rows whose time depends on it"),
    ],
)
def test_what_no_row_tells_is_not_fitted(others, words):
    """A value beside any of which there is another that fits as well is none."""
    figures = {"hbm.efficiency": {}, "hbm.write_efficiency": {}, **others}
    plan = Plan(tuple(Parameter(key=key, **EFFICIENCY | values) for key, values in figures.items()))
    with pytest.raises(ConfigError, match=words):
        calibrate(plan, made("v5e", "v5e matmul", {}, 4), folds=2)


KERNEL_FIELDS = {field: getattr(KERNEL, field) for field in KERNEL.__struct_fields__}


def test_a_row_that_is_all_noise_is_left_out():
    """Of the rows of a host's clock only those that its jitter blurs by less than a sixth count."""
    rows = made("v5e", "v5e matmul", {}, 4)
    parameter = Parameter(key="hbm.efficiency", chips=("v5e",), start=0.9, low=0.5, high=1.0)
    noisy = Plan((parameter,), host_clock_noise_us=15.0)
    (found,) = calibrate(noisy, rows, folds=2).parameters
    assert found.rows == sum(row.measured_us >= 100 for row in rows) < len(rows)


def test_a_program_that_is_no_evidence_is_left_out(slow_kernels):
    """Whatever its row says: here that of the first program is wrong by ten times."""
    first, *others = slow_kernels
    wrong = with_time(first, 10 * first.measured_us)
    plan = Plan((KERNEL,), left_out={first.path.name.partition(".")[0]: "a slip"})
    (found,) = calibrate(plan, [wrong, *others], folds=2).parameters
    assert (found.value, found.rows) == (pytest.approx(0.7e-6, rel=1e-3), len(others))


def test_a_fit_is_written_with_what_it_rests_on(slow_kernels, tmp_path):
    """The chip file has the value, the word fitted, the source and the interval; the rest is untouched."""
    path = tmp_path / "v4.toml"
    path.write_text('base = "v4-megacore"\n\n[fixed]\n# Kept.\nscalar_op_cycles = 11\n')
    write_fit(calibrate(PLAN, slow_kernels, folds=2), tmp_path)
    table = tomllib.loads(path.read_text())["fixed"]
    assert table["scalar_op_cycles"] == 11
    assert table["kernel_seconds"]["confidence"] == "fitted"
    assert f"{len(slow_kernels)} rows" in table["kernel_seconds"]["note"]
    assert load_chip(path).fixed.kernel_seconds == pytest.approx(0.7e-6, rel=1e-3)


def test_a_fit_at_the_edge_of_its_range_is_not_written(slow_kernels, tmp_path):
    """The rows want more than the range allows: nothing is written."""
    (tmp_path / "v4.toml").write_text("# Untouched.\n")
    edge = Plan((Parameter(**{**KERNEL_FIELDS, "high": 0.4e-6}),))
    fit = calibrate(edge, slow_kernels, folds=2)
    assert fit.parameters[0].at_edge
    with pytest.raises(ConfigError, match=r"fixed.kernel_seconds: at the edge of the range"):
        write_fit(fit, tmp_path)
    assert (tmp_path / "v4.toml").read_text() == "# Untouched.\n"


@pytest.mark.parametrize("damaged", ["[fixed", "fixed = 5\n", "[fixed]\n[fixed]\n"])
def test_a_chip_file_that_is_none_is_refused_before_any_is_written(slow_kernels, tmp_path, damaged):
    """By its name; the file that stands before it is left as it was."""
    (tmp_path / "v4.toml").write_text("# Untouched.\n")
    (tmp_path / "v5e.toml").write_text(damaged)
    fit = calibrate(PLAN, slow_kernels, folds=2)
    both = structs.replace(fit, parameters=(*fit.parameters, structs.replace(fit.parameters[0], chips=("v5e",))))
    with pytest.raises(ConfigError, match=r"v5e\.toml: expected a chip file in TOML"):
        write_fit(both, tmp_path)
    assert (tmp_path / "v4.toml").read_text() == "# Untouched.\n"


def test_a_chip_file_that_is_not_there_is_named(slow_kernels, tmp_path):
    """Before anything is written."""
    with pytest.raises(ConfigError, match=r"found no .*v4\.toml"):
        write_fit(calibrate(PLAN, slow_kernels, folds=2), tmp_path)


def test_a_chip_file_that_lies_too_deep_is_refused(slow_kernels, tmp_path):
    """TOML Kit, which changes it, would end the process."""
    fit = calibrate(PLAN, slow_kernels, folds=2)
    for parameter in fit.parameters:
        (tmp_path / f"{parameter.chips[0]}.toml").write_text(f"x = {'[' * 5000}{']' * 5000}")
    with pytest.raises(ConfigError, match="values that are too deep in each other"):
        write_fit(fit, tmp_path)


def test_too_few_shapes_are_refused():
    """Five folds need five shapes."""
    with pytest.raises(ConfigError, match="expected rows of at least 5 shapes, found 0"):
        calibrate(PLAN, [])


def test_the_shipped_plan_is_about_chips_and_their_keys():
    """Each parameter is a quantity of its chips, which state it in the first and refer to that in the others."""
    for parameter in read_plan(fits_path()).parameters:
        first, *others = parameter.chips
        assert override_chip(load_chip(first), {parameter.key: parameter.start})
        facts = {chip: {fact.key: fact for fact in chip_facts(chip)}[parameter.key] for chip in parameter.chips}
        assert parameter.low < facts[first].value < parameter.high
        assert facts[first].confidence == "fitted"
        assert {facts[chip].value for chip in others} <= {facts[first].value}


ONE = '{ key = "hbm.efficiency", chips = ["v5e"], start = 0.8, low = 0.5, high = 1.0 }'


@pytest.mark.parametrize(
    "text",
    [
        f"parameters = [{ONE.replace('start', 'begin')}]",
        f"parameters = [{ONE}, {ONE}]",
        f"parameters = [{ONE.replace('v5e', '../v5e')}]",
        f"host_clock_noise_us = nan\nparameters = [{ONE}]",
        f"host_clock_noise_us = -5.0\nparameters = [{ONE}]",
    ],
)
def test_a_plan_with_a_slip_is_refused(tmp_path, text):
    """An unknown word, a figure twice, a chip beyond the folder, a noise that is no time."""
    path = tmp_path / "fits.toml"
    path.write_text(f"parameters = [{ONE}]\n")
    assert read_plan(path).parameters
    path.write_text(text)
    with pytest.raises(ConfigError, match="not a file of parameters"):
        read_plan(path)


def test_rows_faster_than_the_default_clock_are_of_the_boosted_state():
    """All six large products of v7x were; the chip's name without its mode is that of the generation."""
    cases = [case for case in read_cases(TRACES / "measured" / "index.csv") if generation_of(case.chip) == "v7x"]
    assert {case.chip for case in cases} == {"v7x-boosted"}
    assert generation_of("v4-megacore") == "v4"
