"""What every report says of times that are estimated or assumed, and how many trips a loop is taken to have."""

from __future__ import annotations

import csv
import json

import pytest

from tests.cli.commands import output_of
from tests.house.source_tree import ROOT

HLO = """HloModule search, is_scheduled=true

%cond (c: (f32[1024,1024])) -> pred[] {
  %c = (f32[1024,1024]{1,0:T(8,128)}) parameter(0)
  %a = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(%c), index=0
  ROOT %go = pred[]{:T(512)} custom-call(%a), custom_call_target="Converged"
}

%body (b: (f32[1024,1024])) -> (f32[1024,1024]) {
  %b = (f32[1024,1024]{1,0:T(8,128)}) parameter(0)
  %x = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(%b), index=0
  %y = f32[1024,1024]{1,0:T(8,128)} custom-call(%x), custom_call_target="MyKernel"
  ROOT %t = (f32[1024,1024]{1,0:T(8,128)}) tuple(%y)
}

ENTRY %main (p: f32[1024,1024]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %i = (f32[1024,1024]{1,0:T(8,128)}) tuple(%p)
  %l = (f32[1024,1024]{1,0:T(8,128)}) while(%i), condition=%cond, body=%body
  ROOT %r = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(%l), index=0
}
"""
"""A loop of unknown length around two calls that nobody knows."""

LINE = "2 estimated, 1 warning: `tpusim run` lists them"

REPORTS = {
    "path": ((), lambda page: (page["time_us"], page)),
    "advise": (("--quiet",), lambda page: (page["time_us"], page)),
    "explain": (("--op", "l"), lambda page: (page["time_us"], page)),
    "scale": (("--quiet",), lambda page: (page["rows"][0]["time_us"], page["rows"][0])),
    "sweep": (("--jobs", "1"), lambda page: (page["rows"][0]["time_us"], page["rows"][0])),
    "diff": (("--chip", "v5e", "--chip", "v6e"), lambda page: (page["before"]["time_us"], page["before"]["caveats"])),
}
"""By command its options, and where its JSON has the time and the counts."""


@pytest.fixture
def unknown(tmp_path) -> str:
    """Return the file of the program."""
    path = tmp_path / "unknown.v5e.hlo.txt"
    path.write_text(HLO, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("command", REPORTS)
def test_a_report_counts_estimates_and_warnings(capsys, unknown, command):
    """`tpusim run` has the list."""
    options, figures = REPORTS[command]
    assert LINE in output_of(capsys, command, unknown, *options)
    _, counts = figures(json.loads(output_of(capsys, command, unknown, *options, "--json")))
    assert (counts["estimates"], counts["warnings"]) == (2, 1)
    listed = json.loads(output_of(capsys, "run", unknown, "--json"))
    assert (len(listed["unsupported"]), len(listed["warnings"])) == (2, 1)


@pytest.mark.parametrize("command", REPORTS)
def test_trips_can_be_stated_as_for_a_run(capsys, unknown, command):
    """Seven of them take what `tpusim run` says."""
    options, figures = REPORTS[command]
    trips = ("--default-trip-count", "7", "--json")
    time_us, _ = figures(json.loads(output_of(capsys, command, unknown, *options, *trips)))
    assert time_us == pytest.approx(json.loads(output_of(capsys, "run", unknown, *trips))["time_us"])


def test_a_loop_says_that_its_trips_are_assumed(capsys, unknown):
    """Beside their number."""
    assert "trips     1 a visit (taken for what the program does not tell" in output_of(
        capsys, "explain", unknown, "--op", "l"
    )


def test_several_ops_have_the_line_once(capsys, unknown):
    """It is about the run."""
    assert output_of(capsys, "explain", unknown).count(LINE) == 1


def test_columns_of_a_sweep_count_both(capsys, unknown, tmp_path):
    """What is no run has none of them."""
    path = tmp_path / "out.csv"
    axis = ("-o", "hbm.capacity_bytes=x1,1Mi", "--jobs", "1")
    assert LINE in output_of(capsys, "sweep", unknown, *axis, "--csv", str(path))
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [(row["status"], row["estimates"], row["warnings"]) for row in rows] == [
        ("ok", "2", "1"),
        ("does not fit", "", ""),
    ]


def test_a_study_s_file_states_trips_unless_an_option_does(capsys, unknown, tmp_path):
    """As everything else that it says."""
    study = tmp_path / "study.toml"
    study.write_text(f'programs = "{unknown}"\ndefault_trip_count = 7\n', encoding="utf-8")

    def time_us(*options: str) -> float:
        (row,) = json.loads(output_of(capsys, "sweep", str(study), "--jobs", "1", "--json", *options))["rows"]
        return row["time_us"]

    assert time_us() > 3 * time_us("--default-trip-count", "1")


def test_a_saved_result_counts_what_its_run_had(capsys, unknown, tmp_path):
    """In the comparison with another."""
    saved = str(tmp_path / "saved.json")
    output_of(capsys, "run", unknown, "--save", saved)
    assert f"A: {LINE}" in output_of(capsys, "diff", saved, unknown)


def test_nothing_is_said_of_a_run_without_either(capsys):
    """Most have neither."""
    assert "`tpusim run` lists" not in output_of(capsys, "path", str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"))
