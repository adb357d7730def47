"""Studies: outcomes that are right, kept, found again, and said in tables."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing

import pytest

import tpusim
from tests.study.cases import BANDWIDTH, LSTM, MLP, SLICES, SMALL_GRID, kernel_module, tanh_of
from tpusim.errors import ConfigError
from tpusim.study import study as study_room
from tpusim.study.spec import COLUMNS
from tpusim.study.table import write_csv, write_parquet


def small(**more) -> tpusim.Study:
    """Return a study of two programs on four machines, two of which one program does not fit."""
    return tpusim.Study(programs=[LSTM, MLP], axes=SMALL_GRID, jobs=1, **more)


def runs_of(monkeypatch) -> list[int]:
    """Return a list that grows by how many points each execution is given."""
    given: list[int] = []
    plain = study_room.Execution.run

    def run(self, points):
        points = list(points)
        given.append(len(points))
        plain(self, points)

    monkeypatch.setattr(study_room.Execution, "run", run)
    return given


def test_columns_are_those_that_no_variable_may_be_called():
    """A variable would take the place of one in the table, or the other way round."""
    study = small()
    counts = [key for key in study.rows()[0] if key.startswith("count.")]
    assert list(study.rows()[0]) == ["program", *study.spec.keys, *(c for c in COLUMNS if c != "program"), *counts]


def test_a_time_is_that_of_a_run():
    """What does not fit has a status and no time."""
    for row in small().rows():
        overrides = {key: row[key] for key in SMALL_GRID}
        if row["status"] == "ok":
            result = tpusim.simulate(f"{tpusim_traces()}/{row['program']}", overrides=overrides)
            assert (row["time_us"], row["bound"]) == (result.time_us, result.summary.utilisation.bound_by)
            assert (row["energy_j"], row["cost_usd"]) == (result.energy.total_j, result.cost_usd)
            assert {key: row[f"count.{key}"] for key in result.counts} == result.counts
        else:
            assert (row["status"], row["time_us"]) == ("does not fit", None)
            assert "MiB of VMEM" in row["message"]


def test_energy_is_told_of_one_device_and_of_all():
    """As the price is that of all: eight devices that each do the same by themselves take twice what four do."""
    program = kernel_module(partitions=4)
    four, eight = tpusim.Study(programs=program, topology=SLICES, jobs=1).rows()
    assert (four["devices"], eight["devices"]) == (4, 8)
    assert four["energy_j"] == eight["energy_j"]
    assert eight["all_devices_energy_j"] == pytest.approx(8 * eight["energy_j"])
    assert four["all_devices_energy_j"] == tpusim.simulate(program, topology=SLICES[0]).all_devices_j


def test_what_takes_the_energy_of_more_devices_has_moved():
    """One of them takes what it took among fewer."""
    assert tpusim.Study(programs=kernel_module(partitions=4), topology=SLICES, jobs=1).unmoved() == []


def tpusim_traces() -> str:
    """Return the folder of the programs."""
    return MLP.rpartition("/")[0]


def test_overflow_runs_where_it_is_allowed():
    """As for one run."""
    assert {row["status"] for row in small().rows()} == {"ok", "does not fit"}
    assert {row["status"] for row in small(allow_overflow=True).rows()} == {"ok"}


def test_processes_and_reuse_change_nothing():
    """In this process or beside it, worked out anew or not: the same table."""
    here, anew = small().rows(), small(reuse=False).rows()
    beside = tpusim.Study(programs=[LSTM, MLP], axes=SMALL_GRID, jobs=2).rows()
    assert here == anew == beside


def test_what_is_stored_is_not_run_again(tmp_path, monkeypatch):
    """The same study finds all, one with another axis what it shares; in another order and under other names."""
    given = runs_of(monkeypatch)
    rows = small(store=tmp_path).rows()
    assert small(store=tmp_path).rows() == rows
    wider = tpusim.Study(programs={"net": MLP}, axes={BANDWIDTH: ["x4", "x1"]}, jobs=1, store=tmp_path)
    assert wider.rows()[1]["time_us"] == next(r["time_us"] for r in rows if r["program"] in MLP and r["status"] == "ok")
    assert given == [8, 0, 1]


def write_store(folder):
    """Run a study that keeps its outcomes in a folder, and let go of them."""
    study = small(store=folder)
    study.run()
    study.close()


@pytest.mark.parametrize(
    "damage", ["UPDATE outcomes SET outcome = 'x'", "UPDATE outcomes SET outcome = 5", "DROP TABLE outcomes"]
)
def test_a_store_that_is_damaged_is_told_by_its_name(tmp_path, damage):
    """It may be another tool's, or a disk has failed."""
    write_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "outcomes.sqlite")) as rows, rows:
        rows.execute(damage)
        if damage.startswith("DROP"):
            rows.execute("CREATE TABLE outcomes (other TEXT)")
    with pytest.raises(ConfigError, match=r"outcomes\.sqlite: not the outcomes of a study, or damaged"):
        small(store=tmp_path).run()


def test_an_outcome_with_another_figure_is_told(tmp_path):
    """A digit that is another one after a fault is none that was written."""
    write_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "outcomes.sqlite")) as rows, rows:
        key, outcome = rows.execute("SELECT key, outcome FROM outcomes").fetchone()
        at = outcome.index(b'"time_us":') + len(b'"time_us":')
        other = b"8" if outcome[at : at + 1] != b"8" else b"7"
        rows.execute("UPDATE outcomes SET outcome = ? WHERE key = ?", (outcome[:at] + other + outcome[at + 1 :], key))
    with pytest.raises(ConfigError, match=r"outcomes\.sqlite: not the outcomes of a study, or damaged"):
        small(store=tmp_path).run()


def test_a_store_that_says_in_no_text_what_it_holds_is_told(tmp_path):
    """SQLite hands on the bytes of its own table."""
    write_store(tmp_path)
    path = tmp_path / "outcomes.sqlite"
    path.write_bytes(path.read_bytes().replace(b"outcome BLOB", b"outc\xffme BLOB"))
    with pytest.raises(ConfigError, match=r"outcomes.*: "):
        small(store=tmp_path).run()


def test_a_changed_program_is_run_again(tmp_path, monkeypatch):
    """What counts is what a file holds, not its name."""
    given = runs_of(monkeypatch)
    for name in ("m", "n"):
        tpusim.Study(programs=kernel_module(name), jobs=1, store=tmp_path).run()
    tpusim.Study(programs=kernel_module(), jobs=1, store=tmp_path, warm=True).run()
    assert given == [1, 1, 1]


def test_another_version_of_the_code_finds_nothing(tmp_path, monkeypatch):
    """Since it may come to other times."""
    given = runs_of(monkeypatch)
    tpusim.Study(programs=kernel_module(), jobs=1, store=tmp_path).run()
    monkeypatch.setattr("tpusim.study.store.version", lambda: "another")
    tpusim.Study(programs=kernel_module(), jobs=1, store=tmp_path).run()
    assert given == [1, 1]


def test_an_error_is_an_outcome_and_is_tried_again(tmp_path, monkeypatch):
    """A slice that the program is not for stops no other point."""
    given = runs_of(monkeypatch)
    for _ in range(2):
        study = tpusim.Study(programs=MLP, topology=["v5e:2x2", "v5e:99x99"], jobs=1, store=tmp_path)
        statuses = [row["status"] for row in study.rows()]
    assert statuses == ["ok", "error"]
    assert given == [2, 1]


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    """A file in its place, or one of some other kind under its name."""
    (tmp_path / "outcomes.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises((tpusim.ConfigError, sqlite3.Error), match="not a database"):
        small(store=tmp_path)


def test_progress_counts_what_was_stored_too(tmp_path):
    """It ends where all are done."""
    seen: list[tuple[int, int]] = []
    small(store=tmp_path).run()
    study = tpusim.Study(
        programs=[LSTM, MLP],
        axes=SMALL_GRID | {"mxu.count": ["x1", "x2"]},
        jobs=1,
        store=tmp_path,
        progress=lambda *counts: seen.append(counts),
    )
    study.run()
    assert seen[0] == (8, 16)
    assert seen[-1] == (16, 16)


def test_a_function_s_batch_is_an_axis():
    """Twice the rows take longer, on any machine."""
    study = tpusim.Study(programs={"tanh": tanh_of}, base="v5e", axes={"batch": [2048, 4096]}, jobs=1)
    short, long = study.rows()
    assert short["time_us"] < long["time_us"]


def test_axes_that_move_nothing_are_named():
    """By schedule; a status counts as a move."""
    axes = {"ici.dimensions": [1, 2], BANDWIDTH: ["x1", "x2"], "vmem.capacity_bytes": ["32Mi", "x1"]}
    study = tpusim.Study(programs=[LSTM, MLP], axes=axes, jobs=1)
    assert study.unmoved() == ["ici.dimensions: no time or energy changed under schedule=given"]


def test_keys_that_go_together_are_one_axis():
    """Whatever it is called."""
    axes = {"pairs": {"zip": {"ici.dimensions": [1, 2], "ici.links": [2, 4]}}, BANDWIDTH: ["x1", "x2"]}
    study = tpusim.Study(programs=[LSTM, MLP], axes=axes, jobs=1)
    assert study.unmoved() == ["ici.dimensions, ici.links: no time or energy changed under schedule=given"]


def test_a_program_s_variable_is_an_axis_of_effects():
    """Its variants are told apart by nothing else."""
    study = tpusim.Study(programs={"tanh": tanh_of}, base="v5e", axes={"batch": [2048, 4096]}, jobs=1)
    assert study.effects()[0].axis == "batch"
    assert study.effects()[0].low < 0 < study.effects()[0].high


def test_a_lowered_program_is_run_on_other_machines(tmp_path):
    """Outcomes are shared by what is read of a chip, which is no more than what its steps follow from."""
    path = str(tmp_path / "low.json")
    tpusim.save_program(tpusim.lower(MLP, overrides={"vmem.scoped_bytes": "x2"}), path)
    axes = {"clock_hz": ["x1", "x2"], "vmem.scoped_bytes": ["x1", "x0.5"], "ici.links": [2, 4]}
    for row in tpusim.Study(programs=path, axes=axes, jobs=1).rows():
        result = tpusim.simulate(path, overrides={key: row[key] for key in axes})
        assert (row["status"], row["time_us"]) == ("ok", result.time_us)
        assert row["warnings"] == len(result.summary.warnings)


@pytest.mark.parametrize("values", [["x1", {}], [{"capacity_bytes": "x1"}, {"scoped_bytes": "x1"}]])
def test_values_of_an_axis_may_leave_a_key_as_it_is(values):
    """The base comes first in the order of the axis."""
    name = "vmem.capacity_bytes" if "x1" in values else "vmem"
    study = tpusim.Study(programs=MLP, axes={name: values, BANDWIDTH: ["x1", "x2"]}, jobs=1)
    assert {effect.axis for effect in study.effects()} >= {BANDWIDTH}


def test_effects_are_against_points_that_differ_in_nothing_else():
    """Twice the bandwidth: slower below the mean and faster above it, by the same factor."""
    study = tpusim.Study(programs=MLP, axes={BANDWIDTH: ["x1", "x2"], "mxu.count": ["x1", "x2"]}, jobs=1)
    effect = study.effects()[0]
    assert effect.axis == BANDWIDTH
    assert effect.low > 0 > effect.high
    assert (1 + effect.low) * (1 + effect.high) == pytest.approx(1)


def test_the_front_has_what_no_other_point_beats():
    """For each program by itself."""
    study = tpusim.Study(programs=[LSTM, MLP], axes={"mxu.count": ["x1", "x2"], BANDWIDTH: ["x1", "x0.5"]}, jobs=1)
    front = study.pareto("mxu.count", "time_us", per="program")
    records = front if isinstance(front, list) else front.to_dict("records")
    for row in study.rows():
        beaten = any(
            other["program"] == row["program"]
            and (other["mxu.count"], other["time_us"]) != (row["mxu.count"], row["time_us"])
            and other["mxu.count"] <= row["mxu.count"]
            and other["time_us"] <= row["time_us"]
            for other in study.rows()
        )
        assert beaten != any((r["program"], r["chip_hash"]) == (row["program"], row["chip_hash"]) for r in records)


def test_tables_hold_the_rows(tmp_path):
    """As CSV; as Parquet where a package for it is there."""
    rows = small().rows()
    write_csv(rows, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        assert [row["time_us"] for row in csv.DictReader(file)] == [str(r["time_us"] or "") for r in rows]
    pyarrow = pytest.importorskip("pyarrow.parquet")
    write_parquet(rows, tmp_path / "t.parquet")
    assert pyarrow.read_table(tmp_path / "t.parquet").to_pylist() == rows
