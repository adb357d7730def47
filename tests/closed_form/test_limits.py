"""The whole simulator in its limits, where arithmetic says what must come out."""

from __future__ import annotations

from math import prod

import pytest

from tests.lowering.hlo import lower_text
from tpusim.hardware.load import chip_names, load_chip
from tpusim.machine.run import simulate_program

CHIPS = chip_names()


def time_ps(entry: str, chip_name: str, others: str = "") -> int:
    """Return the simulated time of a module's entry computation on a chip."""
    chip = load_chip(chip_name)
    return simulate_program(lower_text(entry, others, chip_name), chip).total_ps


def product_text(rows: int, depth: int, columns: int) -> str:
    """Return a matrix product of bf16 operands in HBM."""
    lhs, rhs, out = f"[{rows},{depth}]", f"[{depth},{columns}]", f"[{rows},{columns}]"
    layout = "{1,0:T(8,128)(2,1)}"
    return f"""
        %x = bf16{lhs}{layout} parameter(0)
        %w = bf16{rhs}{layout} parameter(1)
        ROOT %y = bf16{out}{layout} convolution(%x, %w), dim_labels=bf_io->bf"""


@pytest.mark.parametrize("chip_name", CHIPS)
def test_a_huge_product_takes_what_its_arrays_do(chip_name):
    """Compute-bound: 16384^3 at the sustained share of peak, switches, sums that wait, and drains: within 1 %.

    The text asks for one core, the tiles are our own.
    """
    size, chip = 16384, load_chip(chip_name)
    mxu, program = chip.mxu, lower_text(product_text(size, size, size), "", chip_name)
    trips = {loop.over: loop.trips for loop in program.steps[0].loops}
    peak_cycles = 2 * size**3 / (chip.peak_flops_per_second / chip.cores_per_device) * chip.clock_hz
    # What stays in the arrays is the side that fewer loops bring in anew.
    again = min(trips.get("rows", 1), trips.get("columns", 1))
    switches = size / mxu.rows * size / mxu.columns * again / mxu.count
    parked = size**2 / chip.vpu.register_elements * (trips.get("depth", 1) - 1)
    cycles = peak_cycles / mxu.efficiency + switches * mxu.tile_switch_cycles + parked * mxu.parked_register_cycles
    cycles += prod(trips.values()) * mxu.result_latency_cycles
    total_ps = simulate_program(program, chip).total_ps
    assert total_ps >= peak_cycles / chip.clock_hz * 1e12
    assert total_ps == pytest.approx(cycles / chip.clock_hz * 1e12, rel=0.01)


@pytest.mark.parametrize("chip_name", CHIPS)
def test_a_huge_addition_takes_bytes_over_bandwidth(chip_name):
    """Memory-bound: two arrays of 1 GiB are read and one written at HBM's shares for each, and its bus turns round for
    each byte that is written: within 2 %.
    """
    shape = "f32[131072,2048]{1,0:T(8,128)}"
    text = f"%x = {shape} parameter(0)\n%y = {shape} parameter(1)\nROOT %z = {shape} add(%x, %y)"
    hbm = load_chip(chip_name).hbm
    gib_seconds = 2**30 / hbm.bandwidth_bytes_per_second
    expected_ps = (2 / hbm.efficiency + 1 / hbm.write_efficiency + hbm.turn_cost / hbm.efficiency) * gib_seconds * 1e12
    assert time_ps(text, chip_name) == pytest.approx(expected_ps, rel=0.02)


@pytest.mark.parametrize("chip_name", CHIPS)
def test_a_small_kernel_takes_the_fixed_costs(chip_name):
    """One register: launch, a kernel's fixed cost, the latency of two transfers, and less than 50 ns of the rest."""
    chip = load_chip(chip_name)
    shape = "f32[8,128]{1,0:T(8,128)}"
    fixed_ps = (chip.fixed.launch_seconds + chip.fixed.kernel_seconds + 2 * chip.dma.fixed_latency_seconds) * 1e12
    text = f"%x = {shape} parameter(0)\nROOT %z = {shape} negate(%x)"
    assert fixed_ps <= time_ps(text, chip_name) <= fixed_ps + 50_000


@pytest.mark.parametrize("mib", [1, 16, 256])
def test_an_asynchronous_copy_takes_latency_and_bytes(mib):
    """A copy from HBM to VMEM alone: latency plus bytes over bandwidth."""
    chip = load_chip("v5e")
    shape, there = f"f32[{mib * 256},1024]{{1,0:T(8,128)}}", f"f32[{mib * 256},1024]{{1,0:T(8,128)S(1)}}"
    text = f"""
        %x = {shape} parameter(0)
        %s = ({there}, {shape}, u32[]{{:S(2)}}) copy-start(%x)
        ROOT %d = {there} copy-done(%s)"""
    rate = chip.hbm.bandwidth_bytes_per_second * chip.hbm.efficiency
    expected_ps = (chip.dma.fixed_latency_seconds + mib * 2**20 / rate) * 1e12
    assert time_ps(text, "v5e") == pytest.approx(expected_ps, abs=10)


def test_decoding_product_is_bound_by_its_weights():
    """16 rows against 8192 x 8192 weights: the weights' bytes over bandwidth, within 5 %."""
    hbm = load_chip("v5e").hbm
    expected_ps = 2 * 8192 * 8192 / (hbm.bandwidth_bytes_per_second * hbm.efficiency) * 1e12
    assert time_ps(product_text(16, 8192, 8192), "v5e") == pytest.approx(expected_ps, rel=0.05)


@pytest.mark.parametrize("chip_name", ["v3", "v5e", "v7x"])
def test_bigger_is_never_faster(chip_name):
    """Time does not fall as a product grows in any dimension."""
    for grow in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        sizes = [tuple(512 * g**step for g in grow) for step in range(5)]
        times = [time_ps(product_text(*size), chip_name) for size in sizes]
        assert times == sorted(times)


def test_int8_runs_at_twice_the_rate_of_bf16():
    """On v5e a large s8 product takes half the time of a bf16 one."""
    wide = product_text(8192, 8192, 8192)
    narrow = wide.replace("bf16", "s8").replace("(2,1)", "(4,1)").replace("ROOT %y = s8", "ROOT %y = s32")
    narrow = narrow.replace("s32[8192,8192]{1,0:T(8,128)(4,1)}", "s32[8192,8192]{1,0:T(8,128)}")
    assert time_ps(narrow, "v5e") == pytest.approx(time_ps(wide, "v5e") / 2, rel=0.05)


def test_ring_all_gather_takes_its_bytes_over_all_links():
    """256 MiB gathered among 64 chips of a 4x4x4 torus: 63/64 of the bytes over both directions of three axes."""
    ici = load_chip("v5p").ici
    text = """
        %x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
        ROOT %z = f32[65536,1024]{1,0:T(8,128)} all-gather(%x), replica_groups=[1,64]<=[64], dimensions={0}"""
    expected_ps = 256 * 2**20 * 63 / 64 / (6 * ici.link_bytes_per_second * ici.efficiency) * 1e12
    assert time_ps(text, "v5p") == pytest.approx(expected_ps, rel=0.03)
