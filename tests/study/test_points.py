"""Points: programs by pattern, machines by axes, derived keys and constraints."""

from __future__ import annotations

import re
from itertools import permutations

import pytest

import tpusim
from tests.study.cases import BANDWIDTH, LSTM, MLP, TRACES, kernel_module, tanh_of
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.source import SourceText
from tpusim.study.points import points_of
from tpusim.study.spec import make_spec, read_spec
from tpusim.text.parser import parse_module


def columns(**table) -> list[dict]:
    """Return what the points of a study say that they are."""
    return [dict(point.columns) for point in points_of(make_spec(table))[0]]


def test_the_last_axis_is_the_fastest():
    """Program by program, in the order in which they are given."""
    found = columns(programs=[LSTM, MLP], axes={"mxu.count": [1, 2], "clock_hz": ["1G", "2G"]})
    assert [(one["mxu.count"], one["clock_hz"]) for one in found[:4]] == [(1, 1e9), (1, 2e9), (2, 1e9), (2, 2e9)]
    assert found[:4] == found[4:]


def test_a_point_runs_on_the_machine_that_it_says():
    """Factors are of the program's own chip where no base is given."""
    point = points_of(make_spec({"programs": MLP, "axes": {BANDWIDTH: ["x2"], "mxu.rate_by_type.s8": ["x0.5"]}}))[0][0]
    shipped = load_chip("v5e")
    assert point.chip.hbm.bandwidth_bytes_per_second == 2 * shipped.hbm.bandwidth_bytes_per_second
    assert point.chip.mxu.rate_by_type["s8"] == shipped.mxu.rate_by_type["s8"] / 2
    assert point.columns["chip"] == "v5e"
    assert point.columns["schedule"] == "given"


def test_chips_schedules_and_slices_are_axes():
    """A module without a schedule is compiled unless told otherwise."""
    found = columns(programs=kernel_module(), base=["v5e", "v6e"], schedule=["given", "compiled"])
    assert [(one["chip"], one["schedule"]) for one in found] == [
        (chip, schedule) for chip in ("v5e", "v6e") for schedule in ("given", "compiled")
    ]
    assert {one["schedule"] for one in columns(programs=tanh_of(8), base="v5e")} == {"compiled"}
    pods = columns(programs=MLP, topology=["v5e:2x2", "v5e:2x4"])
    assert [one["topology"] for one in pods] == ["v5e:2x2", "v5e:2x4"]
    assert [one["topology"] for one in columns(programs=MLP, topology=[1])] == ["1"]


def test_what_follows_is_worked_out_for_each_machine():
    """From axes, and from figures of the base; one derived key from another."""
    derive = {"mxu.columns": "mxu.rows", "mxu.weight_load_rows_per_cycle": "1024 / mxu.columns"}
    found = columns(programs=MLP, axes={"mxu.rows": [128, 256]}, derive=derive)
    assert [one["mxu.weight_load_rows_per_cycle"] for one in found] == [8, 4]


def test_what_figures_need_beside_them_may_be_worked_out():
    """A memory whose rates follow from its size is there once all are known; one without them never is."""
    axes, rates = {"cmem.capacity_bytes": ["64Mi"]}, ("cmem.read_bytes_per_second", "cmem.write_bytes_per_second")
    derive = dict.fromkeys(rates, "cmem.capacity_bytes * 1e4")
    found = columns(programs=MLP, axes=axes, derive=derive)
    assert [found[0][rate] for rate in rates] == [2**26 * 1e4] * 2
    with pytest.raises(ConfigError, match="v5e: cmem: expected bandwidths above 0"):
        columns(programs=MLP, axes=axes, derive={rates[0]: derive[rates[0]]})


@pytest.mark.parametrize(
    "derive",
    [
        {"mxu.columns": "mxu.rows", "mxu.weight_load_rows_per_cycle": "1024 / mxu.columns"},
        {"mxu.columns": "64", "vpu.lanes": "round(area_mm2)", "mxu.count": "4"},
        {BANDWIDTH: "peak_flops_per_second / 1000", "mxu.count": "2 * mxu.count", "clock_hz": "mxu.rows * 1e7"},
    ],
)
def test_the_order_of_lines_decides_nothing(derive):
    """Each is worked out behind those that it reads; of itself it reads what the base has."""
    tables = [
        {"programs": MLP, "axes": {"mxu.rows": [64]}, "derive": dict(one)} for one in permutations(derive.items())
    ]
    chips = [points_of(make_spec(table))[0][0].chip for table in tables]
    assert all(chip == chips[0] for chip in chips)


@pytest.mark.parametrize(
    ("derive", "found"),
    [
        ({"mxu.rows": "mxu.columns", "mxu.columns": "mxu.rows"}, "mxu.rows > mxu.columns > mxu.rows"),
        ({"mxu.rows": "area_mm2", "mxu.count": "mxu.rows"}, "mxu.rows > mxu.count > mxu.rows (area_mm2 follows from"),
    ],
)
def test_lines_that_read_each_other_are_refused(derive, found):
    """Whichever came first would be the one that counts."""
    with pytest.raises(
        ConfigError, match=re.escape(f"derive: expected lines that do not read each other, found {found}")
    ):
        columns(programs=MLP, derive=derive)


def test_constraints_may_be_a_list():
    """Of whole comparisons, which need no names."""
    axes = {"mxu.count": [1, 2, 4]}
    found = columns(programs=MLP, axes=axes, constraints=["mxu.count >= 2", "mxu.rows * mxu.count <= 512"])
    named = {"least": "mxu.count >= 2", "most": "mxu.rows * mxu.count <= 512"}
    assert 0 < len(found) < 3
    assert found == columns(programs=MLP, axes=axes, constraints=named)
    with pytest.raises(ConfigError, match=r"constraint mxu\.count: expected a comparison"):
        columns(programs=MLP, constraints=["mxu.count"])


def test_constraints_leave_points_out():
    """On columns, on figures of the chip, and on several at once."""
    axes = {"mxu.rows": [128, 256], "mxu.count": [2, 4]}
    found = columns(programs=MLP, axes=axes, constraints={"cells": "mxu.rows * mxu.count <= 512", "mxu.count": ">= 2"})
    assert [(one["mxu.rows"], one["mxu.count"]) for one in found] == [(128, 2), (128, 4), (256, 2)]
    with pytest.raises(ConfigError, match="none that the axes and constraints allow"):
        columns(programs=MLP, constraints={"clock_hz": "< 1"})


def test_variants_are_told_by_their_names(tmp_path):
    """A part of a pattern is a variable, and an axis picks among the variants."""
    for batch in (8, 16, 32):
        (tmp_path / f"net_b{batch}.v5e.hlo.txt").write_text(str(kernel_module()), encoding="utf-8")
    pattern = str(tmp_path / "net_b{batch}.v5e.hlo.txt")
    assert [one["batch"] for one in columns(programs=pattern)] == [16, 32, 8]
    assert sorted(one["batch"] for one in columns(programs=pattern, axes={"batch": [8, 32, 64]})) == [8, 32]


def test_a_function_is_called_for_each_value_of_its_axes():
    """Its parameters are the axes that it has."""
    spec = make_spec({"programs": {"tanh": tanh_of}, "base": "v5e", "axes": {"batch": [8, 64], "mxu.count": [1, 2]}})
    found, _ = points_of(spec)
    assert [(point.columns["batch"], point.columns["mxu.count"]) for point in found] == [
        (8, 1),
        (8, 2),
        (64, 1),
        (64, 2),
    ]
    assert len({point.program.digest for point in found}) == 2


def test_variants_of_one_name_stay_apart():
    """A function may leave the name of its modules as it was."""

    def make(batch: int):
        return parse_module(SourceText("same.v5e.hlo.txt", kernel_module().text.replace("1024,", f"{1024 * batch},")))

    study = tpusim.Study(programs=make, axes={"batch": [1, 4]}, jobs=1)
    small, large = study.rows()
    assert small["time_us"] < large["time_us"]


def test_every_point_has_every_column():
    """Also for variables that only other programs have, which stay empty; an axis of them is refused."""
    patterns = [LSTM, str(TRACES / "mlp_b{batch}.v5e.hlo.txt.gz")]
    found = columns(programs=patterns, axes={"mxu.count": [1, 2]})
    assert [one["batch"] for one in found] == [None, None, 1024, 1024]
    assert len({tuple(one) for one in found}) == 1
    with pytest.raises(ConfigError, match=r"lstm_b64t128\.v5e.* has no variable 'batch'"):
        columns(programs=patterns, axes={"batch": [1024]})


@pytest.mark.parametrize("folder", ["plain", "run[1]", "*", "{n}"])
@pytest.mark.parametrize("programs", ["net*.hlo.txt", "net.v5e.hlo.txt"])
def test_a_file_starts_from_its_own_folder(tmp_path, folder, programs):
    """And says the same as a table; what the folder is called is no pattern."""
    home = tmp_path / folder
    home.mkdir()
    kernel_module().save(home / "net.v5e.hlo.txt")
    study = home / "study.toml"
    study.write_text(f'programs = "{programs}"\n[axes]\n"mxu.count" = [1, 2]\n', encoding="utf-8")
    assert [point.fault for point in points_of(read_spec(study))[0]] == ["", ""]


@pytest.mark.parametrize("written", ['base = "own.toml"', '[axes]\nchip = ["own.toml"]'])
def test_chips_of_a_file_start_from_its_folder(tmp_path, written):
    """As the base of a chip does."""
    kernel_module().save(tmp_path / "net.v5e.hlo.txt")
    (tmp_path / "own.toml").write_text('base = "v5e"\nname = "own"\n', encoding="utf-8")
    study = tmp_path / "study.toml"
    study.write_text(f'programs = "net*.hlo.txt"\n{written}\n', encoding="utf-8")
    assert [point.columns["chip"] for point in points_of(read_spec(study))[0]] == ["own"]


def test_a_program_that_cannot_be_read_is_a_fault_of_its_points(tmp_path):
    """Others run."""
    (tmp_path / "wrong.v5e.hlo.txt").write_text("HloModule m\nENTRY", encoding="utf-8")
    found, _ = points_of(make_spec({"programs": [str(tmp_path / "*.txt"), MLP], "axes": {"mxu.count": [1, 2]}}))
    assert ["ENTRY" in point.fault for point in found] == [True, True, False, False]


def test_figures_of_no_type_tell_points_without_a_chip_apart(tmp_path):
    """Lists as well, which no key of a chip takes before the chip is known."""
    (tmp_path / "wrong.v5e.hlo.txt").write_text("HloModule m\nENTRY", encoding="utf-8")
    axes = {"ici.links_down": [["0:+0"], []]}
    found, _ = points_of(make_spec({"programs": [str(tmp_path / "*.txt")], "axes": axes}))
    assert len({tuple(point.columns.values()) for point in found}) == 2


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"program": MLP}, "did you mean 'programs'"),
        ({"programs": "nothing*.hlo"}, "none in"),
        ({"programs": "~no_such_user/*.hlo"}, "by the pattern '~no_such_user/.*none in"),
        ({"programs": MLP, "axes": {"mxu.cout": [1]}}, "did you mean 'mxu.count'"),
        ({"programs": MLP, "axes": {"shedule": ["given"]}}, "did you mean 'schedule'"),
        ({"programs": MLP, "schedule": "givn"}, "did you mean 'given'"),
        ({"programs": MLP, "derive": {"mxu.cout": "1"}}, "did you mean 'mxu.count'"),
        ({"programs": MLP, "derive": {"mxu.count": "mxu.rowz"}}, "found 'mxu.rowz'"),
        ({"programs": MLP, "constraints": {"mxu.count": "3"}}, "expected a comparison"),
        ({"programs": MLP, "axes": [1]}, "axes: expected a table"),
        ({"programs": MLP, "base": "v99"}, "unknown chip"),
    ],
)
def test_what_is_no_study_is_refused(table, said):
    """Before anything runs, with the nearest known word."""
    with pytest.raises(ConfigError, match=said):
        points_of(make_spec(table, TRACES))
