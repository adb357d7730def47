"""Axes as lists of settings: lists, ranges, bundles, keys that go together, samples."""

from __future__ import annotations

import itertools

import pytest

from tests.study.cases import MLP
from tpusim.errors import ConfigError
from tpusim.hardware.fields import Factor
from tpusim.study.axes import Range, read_axis
from tpusim.study.spec import make_spec

BANDWIDTH = "hbm.bandwidth_bytes_per_second"


def test_a_list_has_its_values():
    """Each by itself, read as values are."""
    assert read_axis("mxu.count", ["1", 2, "x3"]).settings == (
        {"mxu.count": 1},
        {"mxu.count": 2},
        {"mxu.count": Factor(3)},
    )


@pytest.mark.parametrize(
    "written",
    [["1.6GHz", "1.6GB/s"], {"log": ["1GB/s", "2GHz", 2]}, {"zip": {"clock_hz": ["1GHz", "x2Hz"]}}],
    ids=["list", "range", "together"],
)
def test_a_value_has_the_unit_of_its_key_or_none(written):
    """As where a figure is replaced by itself."""
    with pytest.raises(ConfigError, match="axis clock_hz: clock_hz: expected hertz"):
        read_axis("clock_hz", written)


@pytest.mark.parametrize(
    ("form", "values"),
    [({"log": [1, 16, 3]}, [1, 4, 16]), ({"lin": [1, 16, 4]}, [1, 6, 11, 16]), ({"lin": [1, 2, 9]}, [1, 2])],
)
def test_a_range_has_its_ends_and_equal_steps(form, values):
    """Whole numbers, each once, where the key holds only such."""
    assert [setting["mxu.count"] for setting in read_axis("mxu.count", form).settings] == values


def test_a_range_of_rates_keeps_its_ends():
    """Bit for bit."""
    values = [setting[BANDWIDTH] for setting in read_axis(BANDWIDTH, {"log": ["400G", "3T", 5]}).settings]
    assert values[0] == 400e9
    assert values[-1] == 3e12
    assert all(after / before == pytest.approx(7.5**0.25) for before, after in itertools.pairwise(values))


def test_a_bundle_sets_several_keys_at_once():
    """Under the first words that they share."""
    axis = read_axis("mxu", [{"rows": 128, "count": 8}, {"rows": 256, "count": 2}])
    assert axis.settings == ({"mxu.rows": 128, "mxu.count": 8}, {"mxu.rows": 256, "mxu.count": 2})
    assert axis.keys == ("mxu.rows", "mxu.count")


def test_zipped_lists_go_together():
    """Their values by place; lists of several lengths are refused."""
    lists = {"mxu.count": [1, 2], "clock_hz": {"lin": ["1G", "2G", 2]}}
    assert read_axis("both", {"zip": lists}).settings == (
        {"mxu.count": 1, "clock_hz": 10**9},
        {"mxu.count": 2, "clock_hz": 2 * 10**9},
    )
    with pytest.raises(ConfigError, match="lists of one length"):
        read_axis("both", {"zip": {"mxu.count": [1, 2], "clock_hz": ["1G"]}})


def test_a_sample_fills_each_half_of_each_range_alike():
    """As a Sobol sequence does: of 16 points 8 lie in either half. The same seed draws the same."""
    pytest.importorskip("scipy")
    keys = {BANDWIDTH: {"log": [1e12, 16e12]}, "vmem.capacity_bytes": {"lin": [1, 9]}, "mxu.count": [1, 2]}
    axis = read_axis("draws", {"sample": "sobol", "n": 16, "seed": 3, "keys": keys})
    assert axis == read_axis("draws", {"sample": "sobol", "n": 16, "seed": 3, "keys": keys})
    assert sum(setting[BANDWIDTH] < 4e12 for setting in axis.settings) == 8
    assert sum(setting["mxu.count"] == 1 for setting in axis.settings) == 8


def test_a_range_for_searches_has_no_settings():
    """It says from where to where."""
    assert read_axis(BANDWIDTH, {"log": ["1T", "4T"]}).range == Range(10**12, 4 * 10**12, is_log=True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([], "at least one value"),
        ({"logg": [1, 2, 3]}, "did you mean 'log'"),
        ({"log": [0, 2, 3]}, "above 0"),
        ({"lin": [1, 2, 0]}, "number of points"),
        ({"lin": ["a", 2, 3]}, r"\[low, high, n\]"),
        ({"log": [1, 10**400, 3]}, r"\[low, high, n\]"),
        ({"lin": [0, float("nan"), 3]}, r"\[low, high, n\]"),
        ({"lin": [-1e308, 1e308, 3]}, "values that a float holds"),
        ({"log": [1e-320, 1e308, 3]}, "values that a float holds"),
        ({"zip": 3}, "zip = "),
        ({"sample": "sobol", "n": 4, "key": {}}, "did you mean 'keys'"),
        ({"sample": "random", "n": 4, "keys": {"a": [1]}}, "sobol"),
    ],
)
def test_what_is_no_axis_is_refused(written, said):
    """With what is expected."""
    with pytest.raises(ConfigError, match=said):
        read_axis("mxu.count", written)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"axes": [1]}, r"study: axes: expected a table, found \[1\]"),
        ({"base": "v5e", "axes": {"chip": ["v5p"]}}, "study: expected 'base' or the axis 'chip', found both"),
        ({"topology": "2x2", "axes": {"topology": ["2x4"]}}, "expected 'topology' or the axis 'topology', found both"),
        ({"axes": {"a": {"zip": {"mxu.count": [1, 2]}}, "mxu.count": [4]}}, "one axis, .* for 'mxu.count', found 2"),
        ({"axes": {"mxu": [{"count": 1}], "mxu.count": [4]}}, "one axis, .* for 'mxu.count', found 2"),
        ({"axes": {"clock_hz": ["1G"]}, "derive": {"clock_hz": "2e9"}}, "one axis, .* for 'clock_hz', found 2"),
        ({"programs": [MLP.replace("1024", "{time_us}")]}, r"another name than \{time_us\}, which is a column"),
        (
            {"programs": [MLP.replace("1024", "{clock_hz}")]},
            r"another name than \{clock_hz\}, which is a key of",
        ),
        ({"programs": [MLP.replace("1024", "{schedule}")]}, r"another name than \{schedule\}, which is a column"),
        ({"warm": "false"}, "study: warm: expected true or false, found 'false'"),
        ({"allow_overflow": 1}, "study: allow_overflow: expected true or false, found 1"),
    ],
)
def test_what_a_study_s_table_may_not_hold_is_refused(table, words):
    """One of two values would be lost, or be another one."""
    with pytest.raises(ConfigError, match=words):
        make_spec({"programs": [MLP]} | table)
