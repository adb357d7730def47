"""What Accelergy is given: it comes to the same energy, and is read back as the same figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import tpusim
from tpusim.analysis.energy.run import action_counts
from tpusim.cost.area import area_mm2
from tpusim.cost.energy import event_joules
from tpusim.hardware.accelergy import read_tables
from tpusim.hardware.load import load_chip
from tpusim.report.accelergy import write_accelergy

TRACES = Path(__file__).parents[2] / "traces"
CHIP = load_chip("v5e")


def written(counts, tmp_path):
    """Return what is written for Accelergy, as a program that reads YAML finds it."""
    path = tmp_path / "run.yaml"
    write_accelergy(counts, CHIP, path)
    return msgspec.yaml.decode(path.read_bytes())


def picojoules(document) -> float:
    """Return what Accelergy makes of a document: counts times energies, component by component."""
    tables = {table["name"]: table["actions"] for table in document["ERT"]["tables"]}
    energies = {(name, action["name"]): action["energy"] for name, actions in tables.items() for action in actions}
    (top,) = document["action_counts"]["subtree"]
    rows = [(f"{top['name']}.{part['name']}", row) for part in top["local"] for row in part["action_counts"]]
    return sum(energies[name, row["name"]] * row["counts"] for name, row in rows)


def test_accelergy_comes_to_the_same_energy(tmp_path):
    """Checked by hand with Accelergy 0.4 too, which gives 168360817778.5975 pJ for this run."""
    result = tpusim.simulate(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
    assert picojoules(written(result.counts, tmp_path)) == pytest.approx(result.energy.total_j * 1e12, rel=1e-9)


def test_rows_that_were_counted_are_not_in_the_bytes(tmp_path):
    """A byte has its share of a row only where none is counted."""
    counts = {"hbm": 1000.0, "hbm.rows": 2.0}
    joules = event_joules(CHIP)
    wanted = 1000 * joules["hbm"] + 2 * joules["hbm.rows"]
    assert picojoules(written(counts, tmp_path)) == pytest.approx(wanted * 1e12)


def test_what_is_written_is_read_back_as_the_same_figures(tmp_path):
    """All energies of the chip and the areas of its parts, to what YAML keeps of a number."""
    written({"hbm": 1.0, "hbm.rows": 1.0}, tmp_path)
    chip = load_chip("v5e", read_tables(tmp_path / "run.yaml"))
    before, after = event_joules(CHIP), event_joules(chip)
    assert all(
        after[key] == pytest.approx(joules, rel=1e-9, abs=0) for key, joules in before.items() if key != "hbm.rows.mean"
    )
    assert area_mm2(chip) == pytest.approx(area_mm2(CHIP))


@pytest.mark.parametrize("count", [1e16, 1e-7, 5.0, 12345678901234567890.0])
def test_numbers_are_numbers_in_yaml(tmp_path, count):
    """YAML 1.1 takes ``1e+16`` for a text."""
    document = written({"vector": count}, tmp_path)
    assert document["action_counts"]["subtree"][0]["local"][0]["action_counts"][0]["counts"] == count


def test_counts_are_those_that_are_not_zero(tmp_path):
    """And the cycles of the clock: 1.5e9 in a second."""
    use = tpusim.simulate(TRACES / "mlp_b1024.v5e.hlo.txt.gz").summary.utilisation
    counts = action_counts(use, CHIP)
    assert all(counts.values())
    assert counts["cycles"] == pytest.approx(use.total_ps * 1.5e9 / 1e12)
