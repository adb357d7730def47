"""Searches: the machines that are found are those that a grid would find, and a search goes on where it was."""

from __future__ import annotations

import pytest

import tpusim
from tests.study.cases import BANDWIDTH, LSTM, MLP
from tpusim.study.search import search

optuna = pytest.importorskip("optuna")

CHOICES = {"mxu.count": ["x1", "x2", "x4"], "vmem.capacity_bytes": ["32Mi", "x1"]}
OBJECTIVES = ("time_us", "area_mm2")


def study_of(store=None, **more) -> tpusim.Study:
    """Return a study of a program on machines that differ in arrays, VMEM and what else is given."""
    return tpusim.Study(programs=LSTM, axes=CHOICES | more, jobs=1, store=store)


def test_all_of_a_few_machines_are_found():
    """After enough trials the front is that of the grid."""
    tried = search(study_of(), OBJECTIVES, 40)
    front = {(row["time_us"], row["area_mm2"]) for row in tried if row["front"]}
    grid = study_of().pareto("time_us", "area_mm2")
    records = grid if isinstance(grid, list) else grid.to_dict("records")
    assert {(round(time, 6), round(area, 6)) for time, area in front} == {
        (round(row["time_us"], 6), round(row["area_mm2"], 6)) for row in records
    }


def test_a_range_is_searched_between_its_ends():
    """And a constraint keeps machines out."""
    axes = {BANDWIDTH: {"log": ["400G", "4T"]}}
    study = tpusim.Study(programs=LSTM, axes=axes, constraints={BANDWIDTH: "< 2T"}, jobs=1)
    tried = search(study, ["time_us"], 12)
    assert all(4e11 <= row[BANDWIDTH] <= 4e12 for row in tried)
    assert {row["time_us"] is None for row in tried} == {True, False}
    assert all((row["time_us"] is None) == (row[BANDWIDTH] >= 2e12) for row in tried)


def test_a_search_goes_on_where_it_was(tmp_path):
    """The trials of before count; those for other figures are others."""
    first = search(study_of(tmp_path), OBJECTIVES, 5)
    assert [row["trial"] for row in search(study_of(tmp_path), OBJECTIVES, 9)] == list(range(9))
    again = search(study_of(tmp_path), OBJECTIVES, 5)
    assert [row["time_us"] for row in again[:5]] == [row["time_us"] for row in first]
    assert len(search(study_of(tmp_path), ("time_us",), 2)) == 2


def test_several_programs_have_a_geometric_mean():
    """Of what each takes; what one of them does not fit on has no figures."""
    axes = {"mxu.count": ["x1"], "vmem.capacity_bytes": ["x1", "32Mi"]}
    study = tpusim.Study(programs=[LSTM, MLP], axes=axes, jobs=1)
    tried = search(study, ["time_us"], 6)
    both = [row["time_us"] for row in study.rows() if row["vmem.capacity_bytes"] > 2**25]
    fitting = [row["time_us"] for row in tried if row["time_us"] is not None]
    assert 0 < len(fitting) < 6
    assert fitting == [pytest.approx((both[0] * both[1]) ** 0.5)] * len(fitting)


def test_an_unknown_figure_is_refused():
    """With the nearest one."""
    with pytest.raises(tpusim.ConfigError, match="did you mean 'energy_j'"):
        search(study_of(), ["energy"], 1)


def test_a_range_without_points_is_for_searches_alone():
    """A grid needs a number."""
    with pytest.raises(tpusim.ConfigError, match="is for --optimise"):
        study_of(**{BANDWIDTH: {"log": ["1T", "2T"]}}).rows()
