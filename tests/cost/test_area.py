"""How large dies are: beside what is public of them, and what more of a part makes of them."""

from __future__ import annotations

import pytest

from tpusim.cost.area import area_by_unit, area_mm2
from tpusim.hardware.load import load_chip

# mm2, upper bounds: Jouppi et al., ISCA 2021, Table 1 (v2 below 625) and ISCA 2023, Table 4 (v3, v4).
BOUNDS = {"v2": 625, "v3": 700, "v4": 600}


@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_a_die_is_about_as_large_as_the_published_bound(name, bound):
    """v4 is what two of the figures come from; v2 and v3 lie another node away."""
    assert 0.75 * bound < area_mm2(load_chip(name)) < 1.12 * bound


def test_v4i_is_as_large_as_the_published_bound():
    """One core with all of the CMEM, 8 GB at 614 GB/s and two links: 400 mm2, of which 28 % and 11 % are published."""
    like = {"cores_per_device": 1, "hbm.bandwidth_bytes_per_second": 614e9, "ici.links": 2}
    chip = load_chip("v4-megacore", like)
    parts, total = area_by_unit(chip), area_mm2(chip)
    assert total == pytest.approx(400, rel=0.01)
    assert parts["cmem"] / total == pytest.approx(0.28, abs=0.005)
    mxu = chip.mxu
    cells = area_mm2(chip) - area_mm2(load_chip("v4-megacore", {**like, "mxu.lhs_rows_per_cycle": 1e-6}))
    assert cells / total == pytest.approx(0.11, abs=0.005)
    assert mxu.count * mxu.rows * mxu.columns == 4 * 128 * 128


@pytest.mark.parametrize(
    "key",
    """mxu.count mxu.rows mxu.columns vpu.alu_slots vmem.capacity_bytes cmem.capacity_bytes ici.links cores_per_device
    hbm.bandwidth_bytes_per_second power.node_nm""".split(),
)
def test_more_of_a_part_needs_more_room(key):
    """Twice as much of anything that is on the die."""
    section, _, name = key.rpartition(".")
    chip = load_chip("v4-megacore")
    value = getattr(getattr(chip, section) if section else chip, name)
    assert area_mm2(load_chip("v4-megacore", {key: 2 * value})) > area_mm2(chip)


def test_both_views_of_v4_are_one_die():
    """A core by itself is half of the same chip."""
    assert area_mm2(load_chip("v4")) == pytest.approx(area_mm2(load_chip("v4-megacore")))
