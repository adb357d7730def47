"""What events take can be another model's answer."""

from __future__ import annotations

import pytest

from tests.closed_form.test_every_key import text_of
from tpusim.cost.models.energies import ENERGIES
from tpusim.hardware.load import load_chip, override_chip
from tpusim.pipeline.stages import simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ROWS = "f32[1024,1024]{1,0:T(8,128)}"


@ENERGIES.enter("a picojoule a byte")
class OfBytes:
    """A picojoule a byte of HBM and a hundred watts, and nothing else."""

    def joules(self, chip):
        """Return the energy of a byte."""
        return {"hbm": 1e-12}

    def idle_watts(self, chip):
        """Return a hundred watts."""
        return 100.0


def test_energy_is_what_the_model_says_of_events():
    """8 MiB in and out, and a hundred watts for as long as it takes."""
    chip = override_chip(load_chip("v5e"), {"power.model": "a picojoule a byte"})
    module = parse_module(SourceText("m.hlo", text_of(f"%x = {ROWS} parameter(0)", f"ROOT %y = {ROWS} negate(%x)")))
    result = simulate(module, chip)
    seconds = result.timeline.total_ps / 1e12
    assert result.energy.by_unit["hbm"] == pytest.approx(2 * 2**22 * 1e-12)
    assert result.energy.total_j == pytest.approx(2 * 2**22 * 1e-12 + 100 * seconds)


def test_rows_that_open_are_counted_where_banks_are():
    """At least one for each kibibyte that moves, and energy of their own instead of a mean."""
    module = parse_module(SourceText("m.hlo", text_of(f"%x = {ROWS} parameter(0)", f"ROOT %y = {ROWS} negate(%x)")))
    counts = simulate(module, override_chip(load_chip("v5e"), {"hbm.model": "banked"})).counts
    assert 2 * 2**22 / 1024 <= counts["hbm.rows"] <= 2 * 2**22 / 512
    assert "hbm.rows" not in simulate(module, "v5e").counts
