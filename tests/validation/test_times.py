"""Predictions beside measured times, as the library gives them."""

from __future__ import annotations

import pytest

import tpusim
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


def test_a_chip_without_rows_is_refused():
    """The error names the indexes and the chip."""
    with pytest.raises(ConfigError, match=r"index\.csv: expected measured rows of v5e, found none"):
        tpusim.validate(COLLECTIVES, "v5e", collectives=True)
