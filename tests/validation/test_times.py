"""Predictions beside measured times, as the library gives them."""

from __future__ import annotations

import pytest

import tpusim
from tests.cli.commands import output_of
from tests.house.source_tree import ROOT
from tpusim.errors import ConfigError

COLLECTIVES = ROOT / "traces/collectives/index.csv"


def test_collectives_are_also_predicted_without_their_row_and_source():
    """Two more mean errors, of as many rows."""
    found = tpusim.validate(COLLECTIVES, collectives=True)
    assert found.mean_error.keys() == {"all", "row_held_out", "source_held_out"}
    assert sum(one.count for one in found.families["tpusim"].values()) == len(found.rows)


def test_rows_of_one_chip_are_left():
    """By any of its names; the other rows are not in the means either."""
    found = tpusim.validate([COLLECTIVES], "v5p", collectives=True)
    assert {row.chip for row in found.rows} == {"v5p"}


def test_progress_counts_programs(tmp_path):
    """How many of how many are done."""
    lines = (ROOT / "traces/measured/index.csv").read_text().splitlines()[:4]
    for name in {line.partition(",")[0] for line in lines[1:]}:
        (tmp_path / name).write_bytes((ROOT / "traces/measured" / name).read_bytes())
    (tmp_path / "index.csv").write_text("\n".join(lines) + "\n")
    told = []
    tpusim.validate(tmp_path / "index.csv", progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_rows_say_how_their_kernels_were_estimated(tmp_path):
    """Of a call that nobody knows: by its bytes. Else its error would look as if a rule had it."""
    shape = "f32[1024,1024]{1,0:T(8,128)}"
    lines = f"  x = {shape} parameter(0)", f'  ROOT y = {shape} custom-call(x), custom_call_target="MyKernel"'
    text = "\n".join(("HloModule m, is_scheduled=true", "ENTRY e {", *lines, "}", ""))
    (tmp_path / "m.v5e.hlo.txt").write_text(text)
    (tmp_path / "index.csv").write_text("program,measured_us\nm.v5e.hlo.txt,50\n")
    (row,) = tpusim.validate(tmp_path / "index.csv").rows
    assert row.estimates == ("custom call to 'MyKernel': by its bytes",)


@pytest.fixture
def floored(tmp_path):
    """Give an index of a program with one row, and three that are all launch floor, one of them on another chip."""
    name = "mlp_b1024.v5e.hlo.txt.gz"
    (tmp_path / name).write_bytes((ROOT / "traces" / name).read_bytes())
    path = tmp_path / "index.csv"
    rows = f"{name},v5e,300,100", f"{name},v5e,109,100", f"{name},,90,100", f"{name},v6e,109,100"
    path.write_text("\n".join(("program,chip,measured_us,launch_floor_us", *rows, "")))
    return path


def test_rows_that_are_all_launch_floor_are_counted_and_said(floored, capsys):
    """Else the means would seem to be of all rows."""
    assert tpusim.validate(floored).rows_at_floor == 3
    assert tpusim.validate(floored, "v5e").rows_at_floor == 2
    text = output_of(capsys, "validate", str(floored))
    assert "left out, hardly longer than an empty launch by the host's clock: 3 rows" in text


def test_an_index_of_nothing_but_launch_floors_says_so(floored):
    """It does have rows."""
    with pytest.raises(ConfigError, match="expected measured rows of v6e, found none but 2 that are all launch floor"):
        tpusim.validate(floored, "v6e")


def test_a_chip_without_rows_is_refused():
    """The error names the indexes and the chip."""
    with pytest.raises(ConfigError, match=r"index\.csv: expected measured rows of v5e, found none"):
        tpusim.validate(COLLECTIVES, "v5e", collectives=True)
