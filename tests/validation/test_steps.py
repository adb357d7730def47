"""Indexes of whole steps: what they say of a run, and what they may not be."""

from __future__ import annotations

import csv
import shutil

import pytest

from tests.house.source_tree import ROOT
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate
from tpusim.validation.steps import validate_steps

SHIPPED = ROOT / "traces/steps/index.csv"
MLP = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"
COLUMNS = "name,program,chip,measured_us,low,high,use,timing"


@pytest.fixture
def index(tmp_path):
    """Give a function that writes an index of some rows beside a program, and returns its path."""
    shutil.copy(MLP, tmp_path / "mlp.v5e.hlo.txt.gz")
    path = tmp_path / "index.csv"

    def write(*rows: str, columns: str = COLUMNS):
        path.write_text("\n".join((columns, *rows)) + "\n")
        return path

    return write


def test_a_step_is_the_run_of_its_program(index):
    """To the picosecond, as one of many runs; without a range the measured time is the range."""
    (row,) = validate_steps([index("mlp,mlp.v5e.hlo.txt.gz,v5e,1500,,,good,device_trace")]).rows
    assert row.predicted_us == simulate(MLP, warm=True).time_us
    assert (row.measured_us, row.low_us, row.high_us, row.grade) == (1500.0, 1500.0, 1500.0, "good")


def test_a_host_s_clock_takes_the_dispatch_too(index):
    """The same program by its trace and by the clock of the host: what a dispatch takes lies between."""
    rows = (f"mlp,mlp.v5e.hlo.txt.gz,v5e,1500,,,weak,{timing}" for timing in ("device_trace", "host_wall"))
    device, host = validate_steps([index(*rows)]).rows
    assert host.predicted_us - device.predicted_us == pytest.approx(load_chip("v5e").host.dispatch_seconds * 1e6)


def test_the_parts_of_a_step_are_the_whole(index):
    """Categories add up to our time, families to all of it but the smallest."""
    (row,) = validate_steps([index("mlp,mlp.v5e.hlo.txt.gz,v5e,1500,1400,1600,fair,")]).rows
    assert sum(one.predicted_us for one in row.categories) == pytest.approx(row.predicted_us)
    assert sum(band.share for band in row.bands) == pytest.approx(1, abs=0.02)
    assert (row.low_us, row.high_us) == (1400.0, 1600.0)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,none.hlo,v5e,1,,,good,", "program: expected the name of a file beside the index, found 'none.hlo'"),
        (
            "a,mlp.v5e.hlo.txt.gz,v5e,1,,,great,",
            "use: expected a text that begins with good, fair, weak, found 'great'",
        ),
        ("a,mlp.v5e.hlo.txt.gz,v5e,0,,,good,", "measured_us: expected a number from 1e-9 to 1e15, found '0'"),
        ("a,mlp.v5e.hlo.txt.gz,v5e,1,2,,good,", "low: expected at most the measured 1, found 2.0"),
        ("a,mlp.v5e.hlo.txt.gz,v5e,2,,1,good,", "high: expected at least the measured 2, found 1.0"),
        ("a,mlp.v5e.hlo.txt.gz,v5e,1,,,good,sundial", "timing: expected one of device_trace, log_step, host_wall"),
        ("a,mlp.v5e.hlo.txt.gz,,1,,,good,", "chip: expected a chip, found ''"),
        ("a,mlp.v5e.hlo.txt.gz,v5x,1,,,good,", r".*'v5x'.*did you mean"),
    ],
)
def test_a_row_with_a_slip_is_refused(index, row, words):
    """By file, line and column, before any row is run."""
    with pytest.raises(ConfigError, match=rf"index\.csv:3: {words}"):
        validate_steps([index("mlp,mlp.v5e.hlo.txt.gz,v5e,1500,,,good,", row)], progress=lambda *_: pytest.fail("ran"))


def test_a_program_that_cannot_run_is_named_with_its_line(index):
    """A slice that the program does not fill."""
    columns = "name,program,chip,measured_us,use,topology"
    with pytest.raises(ConfigError, match=r"index\.csv:2: topology: "):
        validate_steps([index("mlp,mlp.v5e.hlo.txt.gz,v5e,1500,good,v6e:2x2", columns=columns)])


def test_an_index_of_something_else_is_refused(index):
    """One of kernels, and none at all."""
    with pytest.raises(
        ConfigError, match="expected columns name, program, chip, measured_us, use, found none named name"
    ):
        validate_steps([index("a,v5e,1", columns="program,chip,measured_us")])
    with pytest.raises(ConfigError, match="cannot read this index"):
        validate_steps(["no/such/index.csv"])


def test_rows_of_one_chip_are_left(index):
    """The others are not run; a chip without rows is refused."""
    path = index("a,mlp.v5e.hlo.txt.gz,v6e,1500,,,good,", "b,mlp.v5e.hlo.txt.gz,v5e,1500,,,good,")
    told = []
    (row,) = validate_steps([path], "v5e", lambda done, total: told.append((done, total))).rows
    assert (row.name, told) == ("b", [(1, 1)])
    with pytest.raises(ConfigError, match="expected measured steps of v2, found none"):
        validate_steps([path], "v2")


def test_shipped_rows_say_where_they_are_from_and_what_differs():
    """A published time is worth as much as what is known of its program."""
    rows = list(csv.DictReader(SHIPPED.read_text(encoding="utf-8").splitlines()))
    assert all(row["source"] and row["differs"] and row["timing"] for row in rows)
    assert {row["program"] for row in rows} == {path.name for path in SHIPPED.parent.glob("*.hlo.txt.gz")}
