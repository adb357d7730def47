"""Each unit by its closed form, from both sides: busy one picosecond before, done at that moment."""

from __future__ import annotations

from math import ceil

import pytest

from tpusim.hardware.load import chip_names, load_chip
from tpusim.machine.run import RunOptions, simulate_program
from tpusim.program.module import Program
from tpusim.program.steps import Copy, Kernel, Wait
from tpusim.program.work import Matmul, Stream, Work
from tpusim.units import PS_PER_SECOND, seconds_to_ps

CHIPS = chip_names()


def is_done_at(chip, steps, time_ps):
    """Tell whether the steps have ended one picosecond before a moment, and at it."""
    total_ps = simulate_program(Program(name="p", chip=chip.name, steps=tuple(steps)), chip).total_ps
    return [total_ps <= time_ps - 1, total_ps <= time_ps]


def kernel(**fields):
    """Return a kernel of one tile."""
    return Kernel(name="k", opcode="fusion", **fields)


def started_ps(chip):
    """Return when the first kernel of a program begins to work."""
    return seconds_to_ps(chip.fixed.launch_seconds) + seconds_to_ps(chip.fixed.kernel_seconds)


def cycles_ps(chip, cycles):
    """Return cycles in picoseconds, rounded up as the clock is."""
    return ceil(cycles * PS_PER_SECOND / chip.clock_hz)


UNITS = {
    "vector": lambda vpu: (Work(ops={"vector": 9000}), 9000 / vpu.alu_slots),
    "eup": lambda vpu: (Work(ops={"eup": 9000}), 9000 / vpu.eup_slots),
    "xlu": lambda vpu: (Work(ops={"xlu": 9000}), 9000 * vpu.xlu_cycles_per_op / vpu.xlu_units),
    "load": lambda vpu: (Work(ops={"load": 9000}), 9000 / vpu.load_slots),
    "store": lambda vpu: (Work(ops={"store": 9000}), 9000 / vpu.store_slots),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("chip_name", CHIPS)
def test_a_vector_unit_takes_its_operations_over_its_slots(chip_name, unit):
    """A kernel that keeps one unit busy: its fixed cost and the operations over the unit's rate."""
    chip = load_chip(chip_name)
    work, cycles = UNITS[unit](chip.vpu)
    end_ps = started_ps(chip) + cycles_ps(chip, cycles)
    assert is_done_at(chip, (kernel(work=work),), end_ps) == [False, True]


@pytest.mark.parametrize("chip_name", CHIPS)
def test_streaming_rows_pass_the_arrays_at_their_rate(chip_name):
    """Rows over the rate of all arrays, switches of tiles, and the way out of the last result."""
    chip = load_chip(chip_name)
    mxu, rows, tiles = chip.mxu, 80_000, 16
    cycles = (rows / mxu.lhs_rows_per_cycle / mxu.efficiency + tiles * mxu.tile_switch_cycles) / mxu.count
    work = Work(matmuls=(Matmul(weight_rows=tiles * 8, streamed_rows=rows, weight_tiles=tiles),))
    end_ps = started_ps(chip) + cycles_ps(chip, cycles)
    end_ps += cycles_ps(chip, mxu.result_latency_cycles)
    assert is_done_at(chip, (kernel(work=work),), end_ps) == [False, True]


@pytest.mark.parametrize("chip_name", CHIPS)
def test_weights_load_at_their_rate_where_few_rows_stream(chip_name):
    """Eight rows a tile: what counts is how fast tiles of weights come in."""
    chip = load_chip(chip_name)
    mxu, tiles = chip.mxu, 400
    weight_rows = tiles * mxu.rows
    loading = weight_rows / mxu.weight_load_rows_per_cycle / mxu.efficiency
    cycles = (loading + tiles * mxu.tile_switch_cycles) / mxu.count
    work = Work(matmuls=(Matmul(weight_rows=weight_rows, streamed_rows=tiles * 8, weight_tiles=tiles),))
    end_ps = started_ps(chip) + cycles_ps(chip, cycles)
    end_ps += cycles_ps(chip, mxu.result_latency_cycles)
    assert is_done_at(chip, (kernel(work=work),), end_ps) == [False, True]


@pytest.mark.parametrize("chip_name", CHIPS)
def test_results_leave_no_faster_than_they_can_be_put_away(chip_name):
    """A hundred thousand registers of results behind hardly any row."""
    chip = load_chip(chip_name)
    cycles = 1e5 / chip.mxu.result_registers_per_cycle
    work = Work(matmuls=(Matmul(weight_rows=8, streamed_rows=8, results=1e5),))
    end_ps = started_ps(chip) + cycles_ps(chip, cycles)
    end_ps += cycles_ps(chip, chip.mxu.result_latency_cycles)
    assert is_done_at(chip, (kernel(work=work),), end_ps) == [False, True]


@pytest.mark.parametrize("chip_name", CHIPS)
def test_a_tile_costs_its_loop(chip_name):
    """A hundred tiles of ten stores each: the stores, and 99 turns of the loop from one tile to the next."""
    chip = load_chip(chip_name)
    stores_ps = cycles_ps(chip, 100 * 10 / chip.vpu.store_slots)
    end_ps = started_ps(chip) + stores_ps + cycles_ps(chip, 99 * chip.fixed.tile_cycles)
    assert is_done_at(chip, (kernel(work=Work(ops={"store": 10}), tiles=100),), end_ps) == [False, True]


@pytest.mark.parametrize("is_output", [False, True])
@pytest.mark.parametrize("chip_name", CHIPS)
def test_hbm_delivers_at_its_share_of_the_advertised_rate(chip_name, is_output):
    """One block of 10 MB: latency, and bytes over the rate of reads or of writes."""
    chip = load_chip(chip_name)
    hbm = chip.hbm
    share = hbm.write_efficiency if is_output else hbm.efficiency
    seconds = 1e7 / hbm.bandwidth_bytes_per_second / share
    end_ps = started_ps(chip) + seconds_to_ps(chip.dma.fixed_latency_seconds)
    end_ps += ceil(seconds * PS_PER_SECOND)
    moved = kernel(streams=(Stream("x", "hbm", 1e7, 1, is_output),))
    assert is_done_at(chip, (moved,), end_ps - 1)[0] is False
    assert is_done_at(chip, (moved,), end_ps + 1)[1] is True


def test_a_wait_ends_with_its_copy():
    """A copy of 1 MB to VMEM: latency and bytes over the rate."""
    chip = load_chip("v5e")
    rate = chip.hbm.bandwidth_bytes_per_second * chip.hbm.efficiency
    steps = (Copy(name="c", opcode="copy-start", n_bytes=1e6), Wait(name="d", opcode="copy-done", needs=("c",)))
    end_ps = seconds_to_ps(chip.dma.fixed_latency_seconds) + ceil(1e6 / rate * PS_PER_SECOND)
    assert is_done_at(chip, steps, end_ps) == [False, True]


def test_a_warm_run_finds_what_is_prefetched_across_programs():
    """The copy that the compiler marks takes nothing; any other takes its time."""
    marked = Copy(name="c", opcode="copy-start", n_bytes=1e6, is_prefetch=True)
    steps = (marked, Wait(name="d", opcode="copy-done", needs=("c",)))
    chip = load_chip("v5e")
    program = Program(name="p", chip="v5e", steps=steps)
    assert simulate_program(program, chip, warm=True).total_ps == 0
    assert simulate_program(program, chip).total_ps > 0


NEAR = [("vmem", "vmem"), ("smem", "vmem"), ("smem", "smem")]


@pytest.mark.parametrize(("source", "target"), [*NEAR, ("hbm", "hbm"), ("hbm", "vmem"), ("smem", "hbm")])
def test_a_copy_takes_as_long_as_the_slowest_memory_it_touches(source, target):
    """Within one memory it reads and writes there; the core's own holds up no copy from or to HBM."""
    chip = load_chip("v5e")
    copy = Copy(name="c", opcode="copy-start", n_bytes=1e6, source_space=source, target_space=target)
    shares = chip.hbm.efficiency * (source == "hbm"), chip.hbm.write_efficiency * (target == "hbm")
    seconds = sum(1e6 / (chip.hbm.bandwidth_bytes_per_second * share) for share in shares if share)
    if (source, target) in NEAR:
        seconds = 2 * 1e6 / chip.dma.vmem_bytes_per_second
    end_ps = seconds_to_ps(chip.dma.fixed_latency_seconds) + ceil(seconds * PS_PER_SECOND)
    assert is_done_at(chip, (copy, Wait(name="d", opcode="copy-done", needs=("c",))), end_ps) == [False, True]


def test_a_run_is_cold_and_runs_as_few_devices_as_may_be_unless_it_is_told():
    """And it has no limit, and a host that is always ready."""
    assert RunOptions() == RunOptions(warm=False, per_device=None, timeout_seconds=None, infeed=None, outfeed=None)


@pytest.mark.parametrize(("source", "target"), [("hbm", "vmem"), ("vmem", "hbm"), ("hbm", "smem")])
def test_a_slow_vmem_holds_up_no_copy_from_or_to_hbm(source, target):
    """Also where it takes a byte a microsecond."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=1e6, source_space=source, target_space=target)
    steps = (copy, Wait(name="d", opcode="copy-done", needs=("c",)))
    chips = [load_chip("v5e", {"dma.vmem_bytes_per_second": rate}) for rate in (1.536e12, 1e6)]
    usual, slow = (simulate_program(Program(name="p", chip="v5e", steps=steps), chip).total_ps for chip in chips)
    assert usual == slow
