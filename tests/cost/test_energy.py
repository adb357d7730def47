"""What activity takes: against arithmetic on published figures, and more never takes less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.cost.energy import energy_of, event_joules, idle_watts
from tpusim.hardware.load import chip_names, load_chip

# Picojoules at 7 nm: Jouppi et al., ISCA 2021, Table 2.
MULTIPLY_BF16, ADD_F32 = 0.21, 0.38
SRAM_1_MB, SRAM_32_KB = 14 / 8, 8.5 / 8
V4 = event_joules(load_chip("v4"))


def picojoules(**overrides):
    """Return what events take on a v4 with some figures replaced; as joules all would be alike to ``approx``."""
    chip = load_chip("v4", {key.replace("__", "."): value for key, value in overrides.items()})
    return {key: joules * 1e12 for key, joules in event_joules(chip).items()}


def test_a_multiply_accumulate_takes_its_parts_and_little_more():
    """The product, the sum in f32, and what keeps the operands on their way."""
    assert 1 < picojoules()["matrix.bf16"] / (MULTIPLY_BF16 + ADD_F32) < 1.25


def test_a_byte_of_hbm_takes_what_was_published():
    """HBM2: 3.97 pJ a bit in the memory (O'Connor et al., MICRO 2017); up to 450 pJ for 64 bits with the way there."""
    v4 = picojoules()
    assert 8 * 3.97 < v4["hbm"] + v4["hbm.rows.mean"] < 450 / 8
    # 909 pJ a row (Table 3 there), and 1.21 pJ a bit on their programs.
    assert (v4["hbm.rows"], v4["hbm.rows.mean"]) == (pytest.approx(909), pytest.approx(8 * 1.21, rel=1e-3))


def test_larger_banks_of_vmem_take_more():
    """1 MiB a lane takes the 14 pJ of 1 MB for 64 bits, 32 KiB the 8.5 of 32 KB: each lane has a bank of its own."""
    lanes = load_chip("v4").vpu.lanes
    for bank_bytes, per_byte in ((2**20, SRAM_1_MB), (2**15, SRAM_32_KB)):
        assert picojoules(vmem__capacity_bytes=bank_bytes * lanes)["vmem"] == pytest.approx(per_byte, rel=1e-3)


def test_an_operation_on_a_register_takes_as_much_as_all_of_its_lanes():
    """Half as many sublanes, half the energy."""
    whole, half = picojoules(), picojoules(vpu__sublanes=4)
    for unit in ("vector", "eup", "xlu", "load", "store"):
        assert whole[unit] == pytest.approx(2 * half[unit]), unit
    # An f32 addition in each of 8 x 128 lanes is the least that one takes.
    assert whole["vector"] > 1024 * ADD_F32


def test_logic_scales_with_node_and_voltage_and_memory_does_not():
    """30 % less at 5 nm (TSMC); a quarter more for a tenth more of voltage, squared."""
    v4, small, high = picojoules(), picojoules(power__node_nm=5), picojoules(power__supply_ratio=1.25)
    for other, factor in ((small, 0.7), (high, 1.5625)):
        for logic in ("matrix.bf16", "vector", "vmem", "scalar"):
            assert other[logic] == pytest.approx(factor * v4[logic]), logic
        for far in ("hbm", "hbm.rows", "ici", "cmem"):
            assert other[far] == pytest.approx(v4[far]), far


def test_types_without_a_figure_of_their_own_take_another_ones():
    """f32 is rounded to bf16 on entry; both kinds of bytes are alike."""
    assert V4["matrix.f32"] == V4["matrix.bf16"]
    assert V4["matrix.u8"] == V4["matrix.s8"] < V4["matrix.f8e5m2"] < V4["matrix.bf16"] < V4["matrix.f16"]


def test_energy_is_counts_times_joules_in_whole_femtojoules():
    """A thousand multiply-accumulates, and a byte of HBM with its share of a row."""
    found = energy_of({"matrix.bf16": 1000.0, "hbm": 1.0, "sync": 5.0}, V4)
    assert found == {
        "matrix.bf16": round(1000 * V4["matrix.bf16"] * 1e15),
        "hbm": round(V4["hbm"] * 1e15) + round(V4["hbm.rows.mean"] * 1e15),
    }


def test_rows_that_were_counted_take_the_place_of_their_share():
    """1 KiB in one row: 909 pJ (O'Connor et al., Table 3) beside its bytes."""
    found = energy_of({"hbm": 1024.0, "hbm.rows": 1.0}, V4)
    assert found["hbm.rows"] == 909_000
    assert found["hbm"] == round(1024 * V4["hbm"] * 1e15)


def test_what_a_chip_says_of_an_event_goes_before_the_table():
    """All of a byte's energy, rows included; at its own node, so that nothing is scaled."""
    joules = event_joules(load_chip("v3", {"energy.hbm": 1e-12, "energy.matrix_f8e5m2": 2e-12}))
    assert energy_of({"hbm": 1000.0, "matrix.f8e5m2": 1.0}, joules) == {"hbm": 1_000_000, "matrix.f8e5m2": 2_000}


@given(
    st.dictionaries(st.sampled_from(sorted(V4.keys() - {"hbm.rows.mean"})), st.floats(0, 1e15)),
    st.sampled_from(sorted(V4.keys() - {"hbm.rows", "hbm.rows.mean"})),
    st.floats(0, 1e15),
)
def test_more_activity_never_takes_less(activity, key, more):
    """Bytes, operations and multiply-accumulates alike."""
    larger = activity | {key: activity.get(key, 0.0) + more}
    assert sum(energy_of(larger, V4).values()) >= sum(energy_of(activity, V4).values())


@pytest.mark.parametrize("name", chip_names())
def test_devices_of_a_chip_share_its_idle_power(name):
    """All of them together draw it once."""
    chip = load_chip(name)
    assert idle_watts(chip) * chip.devices_per_chip == pytest.approx(chip.power.idle_watts)
