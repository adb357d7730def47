"""What a kernel's tiles cost, unit by unit, by arithmetic on the chip's own figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.cost.classes import unit_cycles
from tpusim.cost.tile import kernel_time, tile_costs
from tpusim.hardware.load import load_chip, override_chip
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, VectorLoop, Work
from tpusim.units import PS_PER_SECOND

CHIP = load_chip("v5e")
PRODUCT = Work(matmuls=(Matmul(weight_rows=1280.0, streamed_rows=1e5),))


def kernel(work=None, **rest):
    """Return a kernel."""
    return Kernel(name="k", opcode="fusion", work=work or Work(), **rest)


def cycles_ps(cycles, chip=CHIP):
    """Return cycles of a chip in picoseconds."""
    return cycles / chip.clock_hz * PS_PER_SECOND


@pytest.mark.parametrize(("tiles", "cores", "each"), [(1, 1, 1), (4, 1, 4), (4, 2, 2), (5, 2, 3), (1000, 1, 1000)])
def test_the_arrays_drain_behind_every_tile_of_a_product(tiles, cores, each):
    """As often as the core with the most tiles has some, and the loop turns round once less."""
    own, other = (kernel_time(kernel(work, tiles=tiles, cores=cores), CHIP) for work in (PRODUCT, Work()))
    turns = (each - 1) * CHIP.fixed.tile_cycles
    assert own.between_ps == pytest.approx(cycles_ps(turns + each * CHIP.mxu.result_latency_cycles), abs=1)
    assert other.between_ps == pytest.approx(cycles_ps(turns), abs=1)


@pytest.mark.parametrize(
    ("space", "cores", "issued"),
    [("hbm", 1, 9 + 4), ("host", 1, 9 + 4), ("cmem", 1, 9 + 4), ("hbm", 2, 4 + 1.5), ("vmem", 1, 0), ("smem", 1, 0)],
)
def test_each_later_fetch_is_issued(space, cores, issued):
    """Ten blocks in and five out: all but the first of each, by the core that needs them; VMEM needs no transfer."""
    chip = override_chip(CHIP, {"dma.issue_cycles": 40, "fixed.tile_cycles": 7})
    streams = (Stream("x", space, 1e5, 10), Stream("y", space, 1e5, 5, is_output=True))
    found = kernel_time(kernel(tiles=10, cores=cores, streams=streams), chip).between_ps
    assert found == pytest.approx(cycles_ps(40 * issued + 7 * (10 / cores - 1), chip), abs=1)


def test_what_is_fetched_once_is_not_issued_again():
    """One block for ten tiles: its transfer is the kernel's first; on two cores the second one's as well."""
    streams = (Stream("x", "hbm", 1e5, 1),)
    for cores, turns in ((1, 9), (2, 4)):
        found = kernel_time(kernel(tiles=10, cores=cores, streams=streams), CHIP).between_ps
        assert found == pytest.approx(cycles_ps(turns * CHIP.fixed.tile_cycles), abs=1)


LATE = {"dma.fixed_latency_seconds": 1e-5}


def rounds_ps(buffers, *streams, tiles=1024, work=None, cores=1):
    """Return the least time of a kernel's rounds where a transfer takes 10 us to begin."""
    chip = override_chip(CHIP, {**LATE, "dma.buffers": buffers})
    return kernel_time(kernel(work, tiles=tiles, cores=cores, streams=streams), chip).rounds_ps


@pytest.mark.parametrize("buffers", [1, 2, 3, 4, 8])
def test_buffers_share_the_rounds_of_all_blocks(buffers):
    """Asked for, moved and computed with, one after another but for so many at once."""
    rate = CHIP.hbm.bandwidth_bytes_per_second * CHIP.hbm.efficiency
    moved_ps = 1023 * 65_536 / rate * PS_PER_SECOND
    computed_ps = cycles_ps(1024 * 1200 / CHIP.vpu.store_slots)
    found = rounds_ps(buffers, Stream("x", "hbm", 65_536, 1024), work=Work(ops={"store": 1200.0}))
    assert found == pytest.approx((moved_ps + 1023 * 10e6 + computed_ps) / buffers, abs=2)


def test_streams_that_go_round_together_wait_together():
    """Latencies of operands overlap: the stream of the most blocks decides, on each core with its own ones."""
    few, many = Stream("x", "hbm", 0.0, 100), Stream("y", "hbm", 0.0, 1024)
    assert rounds_ps(2, few, many) == rounds_ps(2, many) == 1023 * 10e6 / 2
    assert rounds_ps(2, many, cores=2) == 511 * 10e6 / 2


@pytest.mark.parametrize("space", ["vmem", "smem"])
def test_what_lies_in_the_core_waits_for_nothing(space):
    """Its blocks are read where they are."""
    assert rounds_ps(2, Stream("x", space, 65_536, 1024)) == 0


@given(st.integers(1, 16), st.integers(1, 2000), st.floats(0, 1e6), st.floats(0, 1e5))
def test_more_buffers_never_take_longer(buffers, tiles, block_bytes, stores):
    """Whatever else bounds the kernel."""
    stream, work = Stream("x", "hbm", block_bytes, tiles), Work(ops={"store": stores})
    fewer, more = (rounds_ps(count, stream, tiles=tiles, work=work) for count in (buffers, buffers + 1))
    assert more <= fewer


@pytest.mark.parametrize(("unit", "slots"), [("vector", "alu_slots"), ("load", "load_slots"), ("store", "store_slots")])
def test_operations_are_shared_by_the_slots(unit, slots):
    """Peak: as many operations a cycle as slots; what code reaches of it is the chip's share."""
    busy = kernel(Work(ops={unit: 1200.0}))
    assert unit_cycles(busy.work, CHIP)[unit] == 1200 / getattr(CHIP.vpu, slots)


@pytest.mark.parametrize(("held", "cycles"), [(0, 1e6 / CHIP.vpu.alu_slots), (640, 640e5 / CHIP.vpu.registers)])
def test_the_turns_of_a_tile_share_slots_and_registers(held, cycles):
    """A hundred thousand turns of ten operations: by the slots, or where each holds registers for long by these."""
    loop = VectorLoop(turns=1e5, held_cycles=held)
    time = kernel_time(kernel(Work(ops={"vector": 1e6}), vector_loop=loop), CHIP)
    assert time.compute_ps == pytest.approx(cycles_ps(cycles), abs=1)
    assert time.slowest == "vector"


def test_the_last_turn_of_a_tile_is_not_overlapped():
    """Each of four tiles takes the depth of its loop beside its slots; behind a product its results come out."""
    loop = VectorLoop(turns=10, depth_cycles=250)
    plain, deep = (
        kernel_time(kernel(Work(ops={"vector": 400}), tiles=4, vector_loop=one), CHIP).compute_ps
        for one in (VectorLoop(), loop)
    )
    assert deep - plain == pytest.approx(cycles_ps(4 * 250), abs=2)
    products = (kernel_time(kernel(PRODUCT, vector_loop=one), CHIP).compute_ps for one in (VectorLoop(), loop))
    assert len(set(products)) == 1


@pytest.mark.parametrize(("tiles", "cores", "each"), [(1, 1, 1), (2, 1, 2), (5, 2, 3)])
def test_tiles_compute_one_after_another(tiles, cores, each):
    """Only their own work, on the core that has the most of them; what comes between stands apart."""
    found = kernel_time(kernel(PRODUCT, tiles=tiles, cores=cores), CHIP).compute_ps
    assert found == pytest.approx(cycles_ps(each * unit_cycles(kernel(PRODUCT).work, CHIP)["matrix"]), abs=1)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_a_tile_costs_a_memory_is_its_bytes_at_the_rate(cores):
    """In cycles of the core: eight blocks of a megabyte, a tile of each core at once."""
    chip = load_chip("v4")
    costs = tile_costs(kernel(tiles=8, cores=cores, streams=(Stream("x", "hbm", 1e6, 8),)), chip)
    rate = chip.hbm.bandwidth_bytes_per_second * chip.hbm.efficiency
    expected = cores * 1e6 / rate * chip.clock_hz
    assert costs["hbm"] == pytest.approx(expected)


@pytest.mark.parametrize("instructions", [0, 1, 7])
def test_the_scalar_core_takes_its_cycles_for_each_instruction(instructions):
    """At least one, and nothing to begin with."""
    time = kernel_time(kernel(Work(ops={"scalar": float(instructions)}), scalar=True), CHIP)
    cycles = CHIP.fixed.scalar_op_cycles * max(1, instructions)
    assert time.compute_ps == pytest.approx(cycles / CHIP.clock_hz * PS_PER_SECOND, abs=1)
    assert (time.fixed_ps, time.traffic, time.unit_ps) == (0, (), {"scalar": time.compute_ps})


def test_addresses_take_the_slots_of_the_scalar_core():
    """Beside a kernel instructions do not wait for each other; a step of their own does, see above."""
    kernel = Kernel(name="k", opcode="gather", tiles=4, work=Work(ops={"scalar": 600.0, "vector": 4.0}))
    assert unit_cycles(kernel.work, CHIP)["scalar"] == 600 / CHIP.fixed.scalar_slots
    assert kernel_time(kernel, CHIP).slowest == "scalar"


def test_stages_of_a_tile_follow_each_other():
    """In each the busiest unit decides, and the arrays drain behind each that has a product."""
    first, second = PRODUCT + Work(ops={"vector": 400.0}), PRODUCT + Work(ops={"vector": 1e6})
    staged, at_once = (kernel_time(kernel(first + second, stages=s), CHIP) for s in ((first, second), ()))
    product = unit_cycles(PRODUCT, CHIP)["matrix"]
    assert staged.compute_ps == pytest.approx(cycles_ps(product + 1e6 / CHIP.vpu.alu_slots), abs=1)
    assert at_once.compute_ps == pytest.approx(cycles_ps((1e6 + 400) / CHIP.vpu.alu_slots), abs=1)
    assert staged.between_ps == pytest.approx(2 * at_once.between_ps, abs=1)


BLOCK_PS = 65_536 / (CHIP.hbm.bandwidth_bytes_per_second * CHIP.hbm.efficiency) * PS_PER_SECOND


def bursts_ps(tiles, work_ps, *streams):
    """Return the least time of tiles that compute for some time each, as blocks come in bursts."""
    work = Work(ops={"store": work_ps / PS_PER_SECOND * CHIP.clock_hz * CHIP.vpu.store_slots})
    return kernel_time(kernel(work, tiles=tiles, streams=streams), CHIP).bursts_ps


@pytest.mark.parametrize("work_blocks", [0.2, 1.0, 1.5, 3.0])
def test_blocks_that_stay_come_in_bursts(work_blocks):
    """Six by eight tiles, played one by one: each needs a new block of y, and every eighth one of x as well."""
    needs = [(outer, (outer, inner)) for outer in range(6) for inner in range(8)]
    naive = 0.0
    for tile, following in zip(needs, [*needs[1:], needs[-1]], strict=True):
        moved = sum(new != old for new, old in zip(following, tile, strict=True))
        naive += max(work_blocks, moved) * BLOCK_PS
    streams = (Stream("x", "hbm", 65_536, 6), Stream("y", "hbm", 65_536, 48))
    assert bursts_ps(48, work_blocks * BLOCK_PS, *streams) == pytest.approx(naive, rel=1e-6)


def test_results_go_out_little_by_little():
    """Six blocks of sixteen tiles that take half of the time in which one could go out."""
    stream = Stream("y", "hbm", 65_536, 6, is_output=True)
    assert bursts_ps(16, 0.5 * BLOCK_PS, stream) == pytest.approx(16 * 0.5 * BLOCK_PS, abs=2)


def test_a_scalar_from_another_memory_takes_the_way_of_a_transfer():
    """Its one element takes no bandwidth to speak of."""
    near, far = (
        kernel_time(kernel(scalar=True, streams=streams), CHIP) for streams in ((), (Stream("x", "hbm", 512.0),))
    )
    assert far.fixed_ps - near.fixed_ps == pytest.approx(CHIP.dma.fixed_latency_seconds * PS_PER_SECOND)
    assert (far.compute_ps, far.traffic) == (near.compute_ps, ())
