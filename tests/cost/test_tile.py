"""What a kernel's tiles cost, unit by unit, by arithmetic on the chip's own figures."""

from __future__ import annotations

import pytest

from tpusim.cost.tile import between_tiles_cycles, kernel_time, tile_costs, unit_cycles
from tpusim.hardware.load import load_chip
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, Work
from tpusim.units import PS_PER_SECOND

CHIP = load_chip("v5e")
PRODUCT = Work(matmuls=(Matmul(weight_rows=1280.0, streamed_rows=1e5),))


def kernel(work=None, **rest):
    """Return a kernel."""
    return Kernel(name="k", opcode="fusion", work=work or Work(), **rest)


@pytest.mark.parametrize(("tiles", "work", "drains"), [(1, PRODUCT, None), (4, PRODUCT, 1), (4, Work(), 0)])
def test_between_tiles_a_product_drains(tiles, work, drains):
    """The loop's own cycles, and those in which the arrays run empty; a single tile has nothing between."""
    expected = 0.0 if drains is None else CHIP.fixed.tile_cycles + drains * CHIP.mxu.tile_drain_cycles
    assert between_tiles_cycles(kernel(work, tiles=tiles), CHIP) == expected


@pytest.mark.parametrize(("unit", "slots"), [("vector", "alu_slots"), ("load", "load_slots"), ("store", "store_slots")])
def test_operations_are_shared_by_the_slots(unit, slots):
    """Peak: as many operations a cycle as slots; what code reaches of it is the chip's share."""
    busy = kernel(Work(ops={unit: 1200.0}))
    assert unit_cycles(busy, CHIP)[unit] == 1200 / getattr(CHIP.vpu, slots)


def test_code_fills_a_part_of_the_vector_slots():
    """The compute time is that of the slots over their filled share."""
    time = kernel_time(kernel(Work(ops={"vector": 1e6})), CHIP)
    cycles = 1e6 / CHIP.vpu.alu_slots / CHIP.vpu.slot_efficiency
    assert time.compute_ps == pytest.approx(cycles / CHIP.clock_hz * PS_PER_SECOND, abs=1)
    assert time.slowest_unit == "vector"


def test_a_product_waits_for_its_last_result_once():
    """Behind every tile but the last the next one streams in."""
    one, two = (kernel_time(kernel(PRODUCT, tiles=tiles), CHIP).compute_ps for tiles in (1, 2))
    tile_ps = unit_cycles(kernel(PRODUCT), CHIP)["matrix"] / CHIP.clock_hz * PS_PER_SECOND
    drain_ps = CHIP.mxu.result_latency_cycles / CHIP.clock_hz * PS_PER_SECOND
    between_ps = (CHIP.fixed.tile_cycles + CHIP.mxu.tile_drain_cycles) / CHIP.clock_hz * PS_PER_SECOND
    assert one == pytest.approx(tile_ps + drain_ps, abs=2)
    assert two == pytest.approx(2 * (tile_ps + between_ps) + drain_ps, abs=3)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_a_tile_costs_a_memory_is_its_bytes_at_the_rate(cores):
    """In cycles of the core: eight blocks of a megabyte, a tile of each core at once."""
    chip = load_chip("v4")
    costs = tile_costs(kernel(tiles=8, cores=cores, streams=(Stream("x", "hbm", 1e6, 8),)), chip)
    rate = chip.hbm.bandwidth_bytes_per_second * chip.hbm.efficiency
    expected = cores * (1e6 + chip.dma.transfer_cost_bytes) / rate * chip.clock_hz
    assert costs["hbm"] == pytest.approx(expected)


@pytest.mark.parametrize("instructions", [0, 1, 7])
def test_the_scalar_core_takes_its_cycles_for_each_instruction(instructions):
    """At least one, and nothing to begin with."""
    time = kernel_time(kernel(Work(ops={"scalar": float(instructions)}), scalar=True), CHIP)
    cycles = CHIP.fixed.scalar_op_cycles * max(1, instructions)
    assert time.compute_ps == pytest.approx(cycles / CHIP.clock_hz * PS_PER_SECOND, abs=1)
    assert (time.fixed_ps, time.traffic, time.unit_ps) == (0, (), {"scalar": time.compute_ps})
