"""One kernel, by arithmetic: what it costs to begin, first blocks in, tiles under traffic, last blocks out."""

from __future__ import annotations

from math import ceil

import pytest

from tpusim.hardware.load import load_chip, override_chip
from tpusim.machine.run import simulate_pod, simulate_program
from tpusim.program.module import Program
from tpusim.program.steps import Copy, Kernel, Wait
from tpusim.program.work import Stream, TileClass, TilePart, Work
from tpusim.timeline.records import DEPENDENT
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
    ops = alu * chip.vpu.alu_slots
    return Kernel(name="k", opcode="fusion", tiles=tiles, cores=cores, work=Work(ops={"vector": ops}), streams=streams)


def blocks(count: int, *, is_output: bool = False, space="hbm") -> Stream:
    """Return a stream of so many blocks."""
    return Stream("x", space, BLOCK_BYTES, count, is_output)


def run(*steps, chip=CHIP):
    """Return the time line of some steps."""
    return simulate_program(Program(name="p", chip=chip.name, steps=steps), chip)


def read_ps(count: float, rate: float = RATE) -> float:
    """Return how long so many blocks take to come in."""
    return count * BLOCK_BYTES / rate * PS_PER_SECOND


def write_ps(count: float) -> float:
    """Return how long so many blocks take to go out: the memory's rate is that of reads."""
    slower = CHIP.hbm.efficiency / CHIP.hbm.write_efficiency
    return count * BLOCK_BYTES * slower / RATE * PS_PER_SECOND


def tiles_ps(count: int, alu: float, chip=CHIP) -> float:
    """Return how long one core computes so many tiles."""
    return count * alu / chip.clock_hz * PS_PER_SECOND


def between_ps(tiles: int, *fetches: float, chip=CHIP) -> float:
    """Return what nothing overlaps: turns from one tile to the next, and all transfers of a stream but the first."""
    cycles = (tiles - 1) * chip.fixed.tile_cycles + sum(count - 1 for count in fetches) * chip.dma.issue_cycles
    return cycles / chip.clock_hz * PS_PER_SECOND


def test_traffic_bounds_a_kernel_without_work():
    """Ten blocks in, ten out: the first in before the tiles, the last out behind them, the other 18 meanwhile."""
    done = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10))
    expected_ps = FIXED_PS + 2 * LATENCY_PS + read_ps(10) + write_ps(10) + between_ps(10, 10, 10)
    assert done.total_ps == pytest.approx(expected_ps, abs=3)
    assert done.records[0].bound_by == "HBM"


def test_work_hides_all_but_the_first_and_the_last_block():
    """Tiles that take longer than their traffic: one block in, all tiles, one block out."""
    done = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10, alu=1e5))
    expected_ps = FIXED_PS + 2 * LATENCY_PS + read_ps(1) + write_ps(1) + tiles_ps(10, 1e5)
    assert done.total_ps == pytest.approx(expected_ps + between_ps(10, 10, 10), abs=3)
    assert done.records[0].bound_by == "vector"


@pytest.mark.parametrize(("depth", "bound"), [(90, "vector"), (110, DEPENDENT)])
def test_a_body_is_bound_by_what_holds_it_up_most(depth, bound):
    """Ten tiles of 100 cycles of the vector unit, each behind operations that wait for each other."""
    work = Work(ops={"vector": 100.0 * CHIP.vpu.alu_slots})
    parts, classes = (TilePart((work,), depth_cycles=depth),), (TileClass(10, runs=(1.0,)),)
    (record,) = run(Kernel(name="k", opcode="custom-call", tiles=10, work=work, parts=parts, classes=classes)).records
    assert record.bound_by == bound
    assert record.parts["vector"] == pytest.approx(tiles_ps(10, 100), abs=1)
    assert record.parts[DEPENDENT] == pytest.approx(tiles_ps(10, depth), abs=1)
    assert sum(record.parts.values()) == record.duration_ps


def test_a_block_that_stays_is_fetched_before_all_tiles():
    """One block for ten tiles: no computation can hide it."""
    expected_ps = FIXED_PS + LATENCY_PS + read_ps(1) + tiles_ps(10, 1e5) + between_ps(10, 1)
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
    compute_ps = tiles_ps(longest, 1e5, MEGACORE) + between_ps(longest, chip=MEGACORE)
    assert done.total_ps == pytest.approx(seconds_to_ps(MEGACORE.fixed.kernel_seconds) + compute_ps, abs=2)


def test_units_of_two_cores_are_busy_for_their_share():
    """Three tiles over two cores keep each core's vector unit busy for one and a half, at its peak."""
    record = run(kernel(tiles=3, cores=2, alu=1e5, chip=MEGACORE), chip=MEGACORE).records[0]
    busy_ps = 1.5e5 / MEGACORE.clock_hz * PS_PER_SECOND
    assert record.units == {"vector": pytest.approx(busy_ps, abs=1)}


def test_two_cores_wait_for_two_first_blocks():
    """Each core's first tile needs a block of its own, through one memory."""
    rate = MEGACORE.hbm.bandwidth_bytes_per_second * MEGACORE.hbm.efficiency
    one, two = (
        run(kernel(blocks(8), tiles=8, cores=cores, alu=1e6 * cores, chip=MEGACORE), chip=MEGACORE) for cores in (1, 2)
    )
    tiles = [tiles_ps(n, 8e6 / n, MEGACORE) + between_ps(n, n, chip=MEGACORE) for n in (8, 4)]
    assert two.total_ps - tiles[1] - (one.total_ps - tiles[0]) == pytest.approx(read_ps(1, rate), abs=3)


@pytest.mark.parametrize("alu", [7e4 + 1e3 * n for n in range(12)])
def test_traffic_held_back_to_the_tiles_bounds_nothing(alu):
    """A flow at the tiles' own speed ends with them, but for a rounding error that is no reason."""
    assert run(kernel(blocks(10), tiles=10, alu=alu)).records[0].bound_by == "vector"


def test_the_longer_of_traffic_and_tiles_is_the_bound():
    """Traffic that ends two nanoseconds before the tiles, and after them; here transfers begin at once."""
    bounds, chip = [], override_chip(CHIP, {"dma.fixed_latency_seconds": 0})
    for late_ps in (-2_000, 2_000):
        cycles = (read_ps(9) - late_ps) / PS_PER_SECOND * CHIP.clock_hz / 10
        bounds.append(run(kernel(blocks(10), tiles=10, alu=cycles), chip=chip).records[0].bound_by)
    assert bounds == ["vector", "HBM"]


def test_a_copy_has_what_the_tiles_leave():
    """Tiles that need 40 % of the rate for their blocks: the copy has the other 60 % from the first tile on."""
    alu = read_ps(9) / 0.4 / PS_PER_SECOND * CHIP.clock_hz / 10
    copied = next(r for r in run(COPY, kernel(blocks(10), tiles=10, alu=alu), DONE).records if r.name == "c")
    # By itself while the kernel begins, and at half of the rate while its first block comes in.
    before_ps, shared_ps = FIXED_PS + between_ps(10, 10), 2 * read_ps(1)
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
    """Four blocks over the link: a latency, the bytes, and what the loop takes."""
    link_ps = read_ps(4, CHIP.host.bandwidth_bytes_per_second) + between_ps(4, 4)
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


def late(buffers: int, latency_seconds: float = 1e-5):
    """Return the chip with so many buffers, where transfers take so long to begin."""
    return override_chip(CHIP, {"dma.fixed_latency_seconds": latency_seconds, "dma.buffers": buffers})


@pytest.mark.parametrize(("buffers", "least_us"), [(1, 10_240), (2, 5_120), (4, 2_560)])
def test_a_fetch_waits_for_a_buffer(buffers, least_us):
    """1,024 tiles of 64 KiB with a latency of 10 us, so many on their way at once; all their bytes take 90 us."""
    stream = Stream("x", "hbm", 65_536, 1024)
    total_ps = run(kernel(stream, tiles=1024), chip=late(buffers)).total_ps
    bytes_ps = 1024 * 65_536 / RATE * PS_PER_SECOND
    # The first block comes by itself, and those that share its round wait for it as well.
    own_ps = FIXED_PS + 10_000_000 + between_ps(1024, 1024) + bytes_ps
    assert least_us * 1e6 <= total_ps <= least_us * 1e6 + own_ps


def pipeline_ps(buffers: int, latency_ps: float, block_ps: float, tile_ps: float, tiles: int) -> float:
    """Return when the last of some tiles is computed: one after another, through one memory, each from a buffer."""
    moved_ps, done_ps = 0.0, []
    for tile in range(tiles):
        asked_ps = done_ps[tile - buffers] if tile >= buffers else 0.0
        moved_ps = max(asked_ps + latency_ps, moved_ps) + block_ps
        done_ps.append(max(moved_ps, done_ps[-1] if done_ps else 0.0) + tile_ps)
    return done_ps[-1]


@pytest.mark.parametrize("buffers", [1, 2, 3, 5])
@pytest.mark.parametrize("latency_us", [0.0, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("alu", [0.0, 500.0, 2e3, 2e4])
def test_tiles_go_round_as_their_buffers_do(buffers, latency_us, alu):
    """As counted block by block over 200 tiles, but for the parts of one round at the ends."""
    chip = late(buffers, latency_us * 1e-6)
    parts_ps = latency_us * 1e6, read_ps(1), tiles_ps(1, alu)
    counted_ps = pipeline_ps(buffers, *parts_ps, 200)
    found_ps = run(kernel(blocks(200), tiles=200, alu=alu), chip=chip).total_ps - FIXED_PS - between_ps(200, 200)
    assert found_ps == pytest.approx(counted_ps, abs=sum(parts_ps) + 10)


@pytest.mark.parametrize("alu", [0.0, 1e5])
def test_parts_of_a_kernel_are_all_of_its_time(alu):
    """Latencies, what the loop takes from tile to tile, and what the blocks and the tiles take, add up."""
    record = run(kernel(blocks(10), blocks(10, is_output=True), tiles=10, alu=alu)).records[0]
    assert sum(record.parts.values()) == record.duration_ps
    assert record.parts["latency"] == pytest.approx(FIXED_PS + 2 * LATENCY_PS + between_ps(10, 10, 10), abs=1)


def test_an_instruction_of_the_scalar_core_takes_at_least_one():
    """Work that names no scalar operation is one all the same."""
    step = Kernel(name="i", opcode="add", scalar=True)
    assert run(step).total_ps == ceil(CHIP.fixed.scalar_op_cycles / CHIP.clock_hz * PS_PER_SECOND)


@pytest.mark.parametrize("is_output", [False, True])
def test_the_smallest_block_takes_a_latency_of_its_own(is_output):
    """A byte in before the tile, or out behind it."""
    small = kernel(Stream("x", "hbm", 1.0, 1, is_output))
    rest_ps = run(small).total_ps - run(kernel()).total_ps - LATENCY_PS
    cost_bytes = CHIP.hbm.efficiency / CHIP.hbm.write_efficiency if is_output else 1
    assert rest_ps == pytest.approx(cost_bytes / RATE * PS_PER_SECOND, abs=2)


def test_a_memory_is_busy_with_all_blocks_of_a_kernel():
    """At its advertised rate: the first, those under the tiles and the last."""
    record = run(kernel(blocks(10), blocks(4, is_output=True), tiles=10)).records[0]
    reads, writes = 10 * BLOCK_BYTES, 4 * BLOCK_BYTES * CHIP.hbm.efficiency / CHIP.hbm.write_efficiency
    loaded = reads + writes
    assert record.units["hbm"] == pytest.approx(loaded / CHIP.hbm.bandwidth_bytes_per_second * PS_PER_SECOND, abs=2)
