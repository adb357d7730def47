"""Two runs from one call."""

from __future__ import annotations

import json

import pytest

import tpusim
from tests.house.source_tree import ROOT
from tpusim.cli.main import main
from tpusim.errors import ProgramError

MLP = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"


def test_the_second_chip_is_the_second_run_s():
    """Without one both run on the first."""
    found = tpusim.diff(MLP, MLP, "v5e", "v6e")
    assert (found.before.chip, found.after.chip) == ("v5e", "v6e")
    assert tpusim.diff(MLP, MLP, "v6e").before.chip == "v6e"


def test_a_program_beside_itself_changes_nothing():
    """By no op and no category."""
    found = tpusim.diff(MLP, MLP)
    assert found.ratio == 1
    assert all(change.change_us == 0 for change in (*found.ops, *found.categories))


def test_a_saved_result_is_a_run(capsys, tmp_path):
    """What ``run --save`` wrote is compared without another run."""
    path = tmp_path / "monday.json"
    assert main(["run", str(MLP), "--save", str(path), "--quiet"]) == 0
    assert tpusim.diff(path, MLP).ratio == pytest.approx(1)


@pytest.mark.parametrize("size_bytes", [-1, 10**400])
def test_a_saved_result_has_sizes_that_can_be(tmp_path, size_bytes):
    """Beyond floats there is no number to compare."""
    path = tmp_path / "monday.json"
    assert main(["run", str(MLP), "--save", str(path), "--quiet"]) == 0
    found = json.loads(path.read_text())
    found["memory"]["peak_hbm_bytes"] = size_bytes
    path.write_text(json.dumps(found))
    with pytest.raises(ProgramError, match=r"monday.json: memory.peak_hbm_bytes: expected a number from 0, found"):
        tpusim.diff(path, MLP)
