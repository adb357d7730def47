"""``tpusim sweep``: options to a study, tables out, and pictures of them."""

from __future__ import annotations

import csv
import json

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT
from tests.study.cases import SLICES, kernel_module
from tpusim.cli.main import main
from tpusim.study import work

TRACES = ROOT / "traces"
LSTM = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
HERE = ("--jobs", "1")


def rows_of(path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_grid_becomes_a_table(capsys, tmp_path):
    """A row a point, with every axis; the page says what did not fit and what moved nothing."""
    axes = ("-o", "vmem.capacity_bytes=32Mi,x1", "-o", "mxu.count=1,2", "-o", "ici.dimensions=1,2")
    page = output_of(capsys, "sweep", LSTM, MLP, *axes, *HERE, "--csv", str(tmp_path / "out.csv"))
    rows = rows_of(tmp_path / "out.csv")
    assert len(rows) == 16
    assert {row["vmem.capacity_bytes"] for row in rows} == {str(2**25), str(2**27)}
    assert "16 points (simulated): 12 ok, 4 does not fit" in page
    assert "ici.dimensions: no time or energy changed under schedule=given" in page
    wanted = "program chip topology schedule status time_us energy_j bound program_hash chip_hash version".split()
    assert set(wanted) <= set(rows[0])


def test_a_table_has_the_energy_of_all_devices(capsys, tmp_path):
    """And says how many they are, where some point has several."""
    program = tmp_path / "four.v5e.hlo.txt"
    program.write_text(kernel_module(partitions=4).text, encoding="utf-8")
    page = output_of(capsys, "sweep", str(program), "--topology", ",".join(SLICES), *HERE)
    head, four, eight = (line.split() for line in page.splitlines()[:3])
    assert head[:4] == ["topology", "devices", "time", "energy"]
    assert (four[1], eight[1]) == ("4", "8")
    assert float(eight[4]) == pytest.approx(2 * float(four[4]), rel=0.01)
    assert "devices" not in output_of(capsys, "sweep", MLP, "-o", "mxu.count=1,2", *HERE)


def test_a_fault_of_our_own_at_a_point_is_told_and_has_its_code(capsys, monkeypatch, tmp_path):
    """The other points have their rows; of those that did not run nothing is said to have changed nothing."""
    plain = work.run_energy

    def failing(activities, chip, total_ps):
        if chip.mxu.count == 2:
            raise KeyError("missing")
        return plain(activities, chip, total_ps)

    monkeypatch.setattr(work, "run_energy", failing)
    axes, rest = ("-o", "mxu.count=2,4", "-o", "ici.dimensions=1,2"), (*HERE, "--quiet", "--no-reuse")
    assert main(["sweep", MLP, *axes, *rest, "--csv", str(tmp_path / "out.csv")]) == 70
    page, said = capsys.readouterr()
    assert "4 points (simulated): 2 fault, 2 ok" in page
    assert "error: a fault of tpusim itself in the stage 'study': KeyError: 'missing'; at study/work.py:" in page
    assert "2 points ended so, the first in a fault of tpusim itself" in said
    assert "Please report this" in said
    assert [row["status"] for row in rows_of(tmp_path / "out.csv")] == ["fault", "fault", "ok", "ok"]
    assert main(["sweep", MLP, "-o", "mxu.count=2", "-o", "ici.dimensions=1,2", *rest]) == 70
    assert "changed" not in capsys.readouterr().out


def test_a_file_s_study_keeps_its_outcomes_beside_it(capsys, tmp_path):
    """Options go before what the file says."""
    study = tmp_path / "small.toml"
    study.write_text(f'programs = "{LSTM}"\n[axes]\n"mxu.count" = [1, 2]\n', encoding="utf-8")
    assert "2 points" in output_of(capsys, "sweep", str(study), *HERE)
    assert (tmp_path / "small" / "outcomes.sqlite").exists()
    assert len(rows_of(tmp_path / "small" / "results.csv")) == 2
    other = ("-o", "mxu.count=lin(1,3,3)", "--chip", "v6e", "--json")
    page = json.loads(output_of(capsys, "sweep", str(study), *other, *HERE))
    assert [row["mxu.count"] for row in page["rows"]] == [1, 2, 3]
    assert page["statuses"] == {"ok": 3}


def test_a_study_that_tells_no_effects_has_their_head_line(capsys, tmp_path):
    """An empty table is one that readers of tables read."""
    output_of(capsys, "sweep", MLP, "--study", str(tmp_path), "--jobs", "1", "--quiet")
    assert (tmp_path / "effects.csv").read_text() == "figure,program,parameter,low,high\n"


def test_how_many_points_constraints_exclude_is_said(capsys, tmp_path):
    """Below the table, and in the JSON."""
    study = tmp_path / "small.toml"
    text = f'programs = "{LSTM}"\n[axes]\n"mxu.count" = [1, 2, 3]\n[constraints]\n"mxu.count" = "< 2"\n'
    study.write_text(text, encoding="utf-8")
    assert "1 points (simulated): 1 ok (2 more excluded by constraints)" in output_of(
        capsys, "sweep", str(study), *HERE
    )
    page = json.loads(output_of(capsys, "sweep", str(study), *HERE, "--json"))
    assert (page["excluded"], len(page["rows"])) == (2, 1)


@pytest.mark.slow
def test_pictures_are_drawn_of_a_study_s_folder(capsys, tmp_path):
    """The folder stands for its tables."""
    folder = str(tmp_path / "study")
    axes = ("-o", "hbm.bandwidth_bytes_per_second=x0.5,x1,x2", "-o", "mxu.count=1,2")
    output_of(capsys, "sweep", LSTM, MLP, *axes, *HERE, "--study", folder)
    pictures = {
        "pareto": ("--x", "all_devices_energy_j", "--y", "time_us", "--per", "program", "--name", "mxu.count"),
        "sweep": ("--x", "hbm.bandwidth_bytes_per_second", "--y", "time_us", "--by", "mxu.count", "--per", "program"),
        "sensitivity": ("--per", "program", "--figure", "all_devices_energy_j"),
    }
    for kind, options in pictures.items():
        output_of(capsys, "plot", kind, folder, *options, "-o", str(tmp_path / f"{kind}.svg"))
        assert (tmp_path / f"{kind}.svg").stat().st_size > 10_000
    output_of(capsys, "plot", "sensitivity", folder, "-o", str(tmp_path / "all.svg"))


def test_a_search_prints_the_front(capsys, tmp_path):
    """And its table has every machine that was tried."""
    pytest.importorskip("optuna")
    axes = ("-o", "mxu.count=1,2,4", "--optimise", "time_us,area_mm2", "--trials", "6")
    page = output_of(capsys, "sweep", LSTM, *axes, *HERE, "--csv", str(tmp_path / "out.csv"))
    assert "of 6 machines on the Pareto front" in page
    assert len(rows_of(tmp_path / "out.csv")) == 6


def test_a_search_prints_json(capsys):
    """A row for each machine that was tried, and whether it is on the front."""
    pytest.importorskip("optuna")
    axes = ("-o", "mxu.count=1,2", "--optimise", "time_us,area_mm2", "--trials", "2")
    rows = json.loads(output_of(capsys, "sweep", LSTM, *axes, *HERE, "--json"))["rows"]
    assert len(rows) == 2
    assert all(row["time_us"] > 0 and row["front"] in (True, False) for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "mxu.cont=1,2"), "did you mean 'mxu.count'"),
        (("-o", "mxu.count"), "expected KEY=VALUE,VALUE"),
        (("-o", "mxu.count=log(1,2)"), "is for --optimise"),
        (("--schedule", "givn"), "did you mean 'given'"),
        (("--executor", "dusk:local"), "did you mean 'dask'"),
        (("--chip", "v99"), "unknown chip"),
        (("-o", "mxu.count=1", "-o", "mxu.count=2"), "-o mxu.count: expected once, found it twice"),
    ],
)
def test_slips_are_refused(capsys, options, said):
    """With what is expected."""
    assert said in refusal_of(capsys, "sweep", LSTM, *options, *HERE)


def test_a_progress_line_is_for_terminals(capsys):
    """In a pipe there is none."""
    assert main(("sweep", LSTM, "-o", "mxu.count=1,2", *HERE)) == 0
    assert capsys.readouterr().err == ""


def test_parquet_without_its_packages_is_refused_at_once(capsys, tmp_path, monkeypatch):
    """Not behind a sweep of hours."""
    monkeypatch.setattr("tpusim.study.table.find_spec", lambda name: None)
    path = tmp_path / "out.parquet"
    said = refusal_of(capsys, "sweep", LSTM, *HERE, "--study", str(tmp_path / "kept"), "--parquet", str(path))
    assert "Parquet needs PyArrow or DuckDB" in said
    assert not (tmp_path / "kept").exists()


def test_a_search_between_two_ends_writes_its_table(capsys, tmp_path, monkeypatch):
    """Which files are read is asked of the programs: a range has no points."""
    monkeypatch.setattr("tpusim.study.search.search", lambda *given: [{"trial": 0, "front": True}])
    axis = ("-o", "clock_hz=log(1G, 2G)", "--optimise", "time_us", "--csv", str(tmp_path / "out.csv"))
    output_of(capsys, "sweep", LSTM, *axis, *HERE)
    assert rows_of(tmp_path / "out.csv") == [{"trial": "0", "front": "True"}]
