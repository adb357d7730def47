"""One kernel, by arithmetic: what it costs to begin, first blocks in, tiles under traffic, last blocks out."""

from __future__ import annotations

from math import ceil

import pytest

from tpusim.hardware.load import load_chip
from tpusim.machine.run import simulate_pod, simulate_program
from tpusim.program.module import Program
from tpusim.program.steps import Copy, Kernel, Wait
from tpusim.program.work import Stream, Work
from tpusim.units import PS_PER_SECOND, seconds_to_ps

CHIP = load_chip("v5e")
MEGACORE = load_chip("v4-megacore")
RATE = CHIP.hbm.bandwidth_bytes_per_second * CHIP.hbm.efficiency
FIXED_PS = seconds_to_ps(CHIP.fixed.kernel_seconds)
LATENCY_PS = seconds_to_ps(CHIP.dma.fixed_latency_seconds)
BLOCK_BYTES = 1e6
COPY = Copy(name="c", opcode="copy-start", n_bytes=1e7)
DONE = Wait(name="d", opcode="copy-done", needs=("c",))


def kernel(*streams: Stream, tiles: int = 1, cores: int = 1, alu: float = 0.0, chip=CHIP) -> Kernel:
    """Return a kernel each of whose tiles takes ``alu`` cycles of the vector unit."""
    ops = alu * chip.vpu.alu_slots * chip.vpu.slot_efficiency
    return Kernel(name="k", opcode="fusion", tiles=tiles, cores=cores, work=Work(ops={"vector": ops}), streams=streams)


def blocks(count: int, *, is_output: bool = False, space="hbm") -> Stream:
    """Return a stream of so many blocks."""
    return Stream("x", space, BLOCK_BYTES, count, is_output)


def run(*steps, chip=CHIP):
    """Return the time line of some steps."""
    return simulate_program(Program(name="p", chip=chip.name, steps=steps), chip)


def read_ps(count: float, rate: float = RATE) -> float:
    """Return how long so many blocks take to come in."""
    return count * (BLOCK_BYTES + CHIP.dma.transfer_cost_bytes) / rate * PS_PER_SECOND


def write_ps(count: float) -> float:
    """Return how long so many blocks take to go out: the memory's rate is that of reads."""
    slower = CHIP.hbm.efficiency / CHIP.hbm.write_efficiency
    return count * (BLOCK_BYTES * slower + CHIP.dma.transfer_cost_bytes) / RATE * PS_PER_SECOND


def tiles_ps(count: int, alu: float, chip=CHIP) -> float:
    """Return how long one core takes for so many of several tiles."""
    return count * (alu + chip.fixed.tile_cycles) / chip.clock_hz * PS_PER_SECOND


def test_traffic_bounds_a_kernel_without_work():
    """Ten blocks in, ten out: the first in before the tiles, the last out behind them, the other 18 meanwhile."""
    done = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10))
    expected_ps = FIXED_PS + 2 * LATENCY_PS + read_ps(10) + write_ps(10)
    assert done.total_ps == pytest.approx(expected_ps, abs=3)
    assert done.records[0].bound_by == "HBM"


def test_work_hides_all_but_the_first_and_the_last_block():
    """Tiles that take longer than their traffic: one block in, all tiles, one block out."""
    done = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10, alu=1e5))
    expected_ps = FIXED_PS + 2 * LATENCY_PS + read_ps(1) + write_ps(1) + tiles_ps(10, 1e5)
    assert done.total_ps == pytest.approx(expected_ps, abs=3)
    assert done.records[0].bound_by == "vector"


def test_a_block_that_stays_is_fetched_before_all_tiles():
    """One block for ten tiles: no computation can hide it."""
    expected_ps = FIXED_PS + LATENCY_PS + read_ps(1) + tiles_ps(10, 1e5)
    assert run(kernel(blocks(1), tiles=10, alu=1e5)).total_ps == pytest.approx(expected_ps, abs=2)


def test_operands_of_two_memories_pay_one_latency_and_the_longer_transfer():
    """A block from HBM beside one from the faster CMEM takes as long as without the other."""
    chip = load_chip("v4")
    both, slower = (kernel(*streams, chip=chip) for streams in ((blocks(1), blocks(1, space="cmem")), (blocks(1),)))
    assert run(both, chip=chip).total_ps == run(slower, chip=chip).total_ps


@pytest.mark.parametrize(("tiles", "longest"), [(1, 1), (2, 1), (3, 2), (4, 2), (7, 4)])
def test_the_core_with_more_tiles_decides(tiles, longest):
    """Of three tiles one core has two: the other waits for it."""
    done = run(kernel(tiles=tiles, cores=2, alu=1e5, chip=MEGACORE), chip=MEGACORE)
    per_tile = 1e5 + (MEGACORE.fixed.tile_cycles if tiles > 1 else 0)
    compute_ps = longest * per_tile / MEGACORE.clock_hz * PS_PER_SECOND
    assert done.total_ps == pytest.approx(seconds_to_ps(MEGACORE.fixed.kernel_seconds) + compute_ps, abs=2)


def test_units_of_two_cores_are_busy_for_their_share():
    """Three tiles over two cores keep each core's vector unit busy for one and a half, at its peak."""
    record = run(kernel(tiles=3, cores=2, alu=1e5, chip=MEGACORE), chip=MEGACORE).records[0]
    busy_ps = 1.5e5 * MEGACORE.vpu.slot_efficiency / MEGACORE.clock_hz * PS_PER_SECOND
    assert record.units == {"vector": pytest.approx(busy_ps, abs=1)}


def test_two_cores_wait_for_two_first_blocks():
    """Each core's first tile needs a block of its own, through one memory."""
    rate = MEGACORE.hbm.bandwidth_bytes_per_second * MEGACORE.hbm.efficiency
    block_ps = (BLOCK_BYTES + MEGACORE.dma.transfer_cost_bytes) / rate * PS_PER_SECOND
    one, two = (
        run(kernel(blocks(8), tiles=8, cores=cores, alu=1e6 * cores, chip=MEGACORE), chip=MEGACORE) for cores in (1, 2)
    )
    tiles = [tiles_ps(8 // cores, 1e6 * cores, MEGACORE) for cores in (1, 2)]
    assert two.total_ps - tiles[1] - (one.total_ps - tiles[0]) == pytest.approx(block_ps, abs=3)


@pytest.mark.parametrize("alu", [7e4 + 1e3 * n for n in range(12)])
def test_traffic_held_back_to_the_tiles_bounds_nothing(alu):
    """A flow at the tiles' own speed ends with them, but for a rounding error that is no reason."""
    assert run(kernel(blocks(10), tiles=10, alu=alu)).records[0].bound_by == "vector"


def test_traffic_a_little_longer_than_the_tiles_is_the_bound():
    """Two nanoseconds after the tiles is late, half a nanosecond is not."""
    bounds = []
    for late_ps in (500, 2_000):
        cycles = (read_ps(9) - late_ps) / PS_PER_SECOND * CHIP.clock_hz / 10 - CHIP.fixed.tile_cycles
        bounds.append(run(kernel(blocks(10), tiles=10, alu=cycles)).records[0].bound_by)
    assert bounds == ["vector", "HBM"]


def test_a_copy_has_what_the_tiles_leave():
    """Tiles that need 40 % of the rate for their blocks: the copy has the other 60 % from the first tile on."""
    alu = read_ps(9) / 0.4 / PS_PER_SECOND * CHIP.clock_hz / 10 - CHIP.fixed.tile_cycles
    copied = next(r for r in run(COPY, kernel(blocks(10), tiles=10, alu=alu), DONE).records if r.name == "c")
    # By itself while the kernel begins, and at half of the rate while its first block comes in.
    before_ps, shared_ps = FIXED_PS, 2 * read_ps(1)
    left_ps = COPY.n_bytes / RATE * PS_PER_SECOND - before_ps - shared_ps / 2
    assert left_ps / 0.6 < tiles_ps(10, alu)
    assert copied.end_ps == pytest.approx(LATENCY_PS + before_ps + shared_ps + left_ps / 0.6, abs=5)


def test_what_a_copy_disturbed_stands_for_no_other():
    """A kernel beside a copy is slower; the same one alone, before and after, is not."""
    reading = kernel(blocks(10), tiles=10)
    alone_ps = run(reading).total_ps
    records = [r for r in run(reading, COPY, reading, DONE, reading).records if r.name == "k"]
    assert [record.duration_ps == alone_ps for record in records] == [True, False, True]


def test_blocks_from_the_host_come_at_its_rate():
    """Four blocks over the link: a latency, and the bytes."""
    link_ps = 4 * (BLOCK_BYTES + CHIP.dma.transfer_cost_bytes) / CHIP.host.bandwidth_bytes_per_second * PS_PER_SECOND
    record = run(kernel(blocks(4, space="host"), tiles=4)).records[0]
    assert record.duration_ps == pytest.approx(FIXED_PS + LATENCY_PS + link_ps, abs=3)
    assert record.bound_by == "host"


def test_another_device_of_the_chip_disturbs_a_kernel_that_reads_from_the_host():
    """Both devices of a chip share its link: alone the kernel is quick, and slow when the other one reads as well."""
    chip = load_chip("v3")
    reading, computing = kernel(blocks(4, space="host"), tiles=4), kernel(alu=2.45e5, chip=chip)
    programs = [Program(name="p", chip="v3", steps=steps) for steps in ((reading,) * 2, (computing, reading))]
    alone_ps = run(reading, chip=chip).total_ps
    first, second = (record.duration_ps for record in simulate_pod(programs, chip).timelines[0].records)
    assert first == alone_ps
    assert second > 1.5 * alone_ps


@pytest.mark.parametrize("alu", [0.0, 1e5])
def test_parts_of_a_kernel_are_all_of_its_time(alu):
    """Latencies, and what the blocks and the tiles take, add up."""
    record = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10, alu=alu)).records[0]
    assert sum(record.parts.values()) == record.duration_ps
    assert record.parts["latency"] == FIXED_PS + 2 * LATENCY_PS


def test_an_instruction_of_the_scalar_core_takes_at_least_one():
    """Work that names no scalar operation is one all the same."""
    step = Kernel(name="i", opcode="add", scalar=True)
    assert run(step).total_ps == ceil(CHIP.fixed.scalar_op_cycles / CHIP.clock_hz * PS_PER_SECOND)


@pytest.mark.parametrize("is_output", [False, True])
def test_the_smallest_block_takes_a_latency_of_its_own(is_output):
    """A byte in before the tile, or out behind it."""
    small = kernel(Stream("x", "hbm", 1.0, 1, is_output))
    rest_ps = run(small).total_ps - run(kernel()).total_ps - LATENCY_PS
    cost_bytes = CHIP.dma.transfer_cost_bytes + (CHIP.hbm.efficiency / CHIP.hbm.write_efficiency if is_output else 1)
    assert rest_ps == pytest.approx(cost_bytes / RATE * PS_PER_SECOND, abs=2)


def test_a_memory_is_busy_with_all_blocks_of_a_kernel():
    """At its advertised rate: the first, those under the tiles and the last."""
    record = run(kernel(blocks(10), blocks(4, is_output=True), tiles=10)).records[0]
    reads, writes = 10 * BLOCK_BYTES, 4 * BLOCK_BYTES * CHIP.hbm.efficiency / CHIP.hbm.write_efficiency
    loaded = reads + writes + 14 * CHIP.dma.transfer_cost_bytes
    assert record.units["hbm"] == pytest.approx(loaded / CHIP.hbm.bandwidth_bytes_per_second * PS_PER_SECOND, abs=2)
