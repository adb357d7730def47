"""What transfers cost, term by term, and which bytes move before, under and behind the tiles."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpusim.cost.dma import copy_loads, memory_rates, traffic_of
from tpusim.cost.models.memories import loaded_bytes
from tpusim.cost.tile import kernel_activity
from tpusim.hardware.load import load_chip, override_chip
from tpusim.program.steps import Copy, Kernel
from tpusim.program.work import Stream

PLAIN = override_chip(load_chip("v5e"), {"dma.chunk_cost_bytes": 0, "hbm.efficiency": 0.9, "hbm.write_efficiency": 0.9})


def test_long_runs_cost_their_bytes():
    """Without costs of their own, ten blocks of 1000 bytes load the memory with 10,000."""
    assert loaded_bytes(Stream("x", "hbm", 1000, 10), "hbm", PLAIN) == 10_000


def test_each_run_costs_something_more():
    """A hundred bytes for each of the runs of 500 that a block consists of."""
    chip = override_chip(PLAIN, {"dma.chunk_cost_bytes": 100, "dma.min_chunk_bytes": 1})
    assert loaded_bytes(Stream("x", "hbm", 1000, 10, chunk_bytes=500), "hbm", chip) == 12_000


def test_a_short_run_costs_as_much_as_the_least():
    """Runs of 64 bytes where the engine moves 512 at least: eight times."""
    chip = override_chip(PLAIN, {"dma.min_chunk_bytes": 512})
    assert loaded_bytes(Stream("x", "hbm", 1000, 1, chunk_bytes=64), "hbm", chip) == 8000


def test_writes_go_at_their_own_share():
    """At two thirds of the rate of reads a byte that is written counts as one and a half."""
    chip = override_chip(PLAIN, {"hbm.write_efficiency": 0.6})
    assert loaded_bytes(Stream("x", "hbm", 1000, 1, is_output=True), "hbm", chip) == pytest.approx(1500)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2]))
@example(1, 1, 2)
@example(2, 2, 2)
def test_bytes_are_neither_lost_nor_made(reads, writes, cores):
    """First, steady and last bytes add up to what the streams move, on one core and on two."""
    streams = (Stream("x", "hbm", 1000, reads), Stream("y", "hbm", 500, writes, is_output=True))
    kernel = Kernel(name="k", opcode="fusion", tiles=max(reads, writes), streams=streams, cores=cores)
    (found,) = traffic_of(kernel, PLAIN)
    assert found.first_bytes + found.steady_bytes + found.last_bytes == pytest.approx(1000 * reads + 500 * writes)
    assert found.first_bytes == pytest.approx(1000 * min(reads, cores))


@pytest.mark.parametrize(("reads", "writes", "turned"), [(10, 10, 9), (10, 4, 3), (10, 1, 0), (10, 0, 0), (0, 10, 0)])
def test_the_bus_of_hbm_turns_round_between_reads_and_writes(reads, writes, turned):
    """A quarter of a byte for each of the lesser way, the first blocks in and the last ones out apart."""
    chip = override_chip(PLAIN, {"hbm.turn_cost": 0.25})
    streams = [Stream(name, "hbm", 1000, n, name == "y") for name, n in (("x", reads), ("y", writes)) if n]
    kernel = Kernel(name="k", opcode="fusion", tiles=10, streams=tuple(streams))
    (plain,), (found,) = traffic_of(kernel, PLAIN), traffic_of(kernel, chip)
    assert found.steady_bytes - plain.steady_bytes == pytest.approx(250 * turned)
    assert (found.first_bytes, found.last_bytes) == (plain.first_bytes, plain.last_bytes)


def test_what_is_in_vmem_is_not_moved():
    """Blocks there are read by the vector unit's own loads."""
    assert traffic_of(Kernel(name="k", opcode="fusion", streams=(Stream("x", "vmem", 1000),)), PLAIN) == ()


@pytest.mark.parametrize("n_bytes", [0.5, 1.0])
def test_a_single_byte_is_moved_and_none_is_not(n_bytes):
    """However small a block is; one of nothing costs no transfer."""
    kernel, empty = (
        Kernel(name="k", opcode="fusion", streams=(Stream("x", "hbm", size, 1),)) for size in (n_bytes, 0.0)
    )
    assert [traffic.first_bytes for traffic in traffic_of(kernel, PLAIN)] == [n_bytes]
    assert traffic_of(empty, PLAIN) == ()


V4 = load_chip("v4")
OFF = override_chip(V4, {"cmem.capacity_bytes": 0})


def test_writes_to_cmem_go_at_its_own_rate_of_writes():
    """Half the rate of reads on v4: a byte that is written takes twice as long."""
    rates = V4.cmem
    read, written = (loaded_bytes(Stream("x", "cmem", 1000, 1, is_output=out), "cmem", V4) for out in (False, True))
    reading, writing = 1000 / rates.read_bytes_per_second, 1000 / rates.write_bytes_per_second
    assert read / memory_rates(V4)["cmem"] == pytest.approx(reading)
    assert written / memory_rates(V4)["cmem"] == pytest.approx(writing)


@pytest.mark.parametrize("chip", [OFF, load_chip("v5e")], ids=["switched off", "v5e"])
def test_a_cmem_that_is_not_there_is_part_of_hbm(chip):
    """Its bytes share the bandwidth of HBM, to the last detail of their cost: it is no second memory."""
    near, far = (
        Kernel(
            name="k",
            opcode="fusion",
            tiles=4,
            streams=(Stream("x", "hbm", 1000, 4), Stream("w", space, 2000, 4), Stream("y", space, 500, 4, True, 64)),
        )
        for space in ("cmem", "hbm")
    )
    assert "cmem" not in memory_rates(chip)
    assert traffic_of(near, chip) == traffic_of(far, chip)
    assert kernel_activity(near, chip) == kernel_activity(far, chip)


COPIES = {
    "read of cmem": ("cmem", "vmem", V4, {"cmem": 1000, "vmem": 1000}),
    "write to cmem": ("hbm", "cmem", V4, {"hbm": 1000, "cmem": 2000}),
    "within cmem": ("cmem", "cmem", V4, {"cmem": 3000}),
    "from a cmem that is off": ("cmem", "vmem", OFF, {"hbm": 1000, "vmem": 1000}),
    # Read and written.
    "to a cmem that is off": ("hbm", "cmem", OFF, {"hbm": 1000 + 1000 * V4.hbm.efficiency / V4.hbm.write_efficiency}),
}


@pytest.mark.parametrize(("source", "target", "chip", "loads"), COPIES.values(), ids=COPIES.keys())
def test_copies_load_cmem_as_kernels_do(source, target, chip, loads):
    """A thousand bytes; one that is written to CMEM counts twice."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=1000, source_space=source, target_space=target)
    assert copy_loads(copy, chip) == pytest.approx(loads)


SLOW = override_chip(PLAIN, {"hbm.write_efficiency": 0.6})


@pytest.mark.parametrize(
    ("source", "target", "hbm_bytes"),
    [("hbm", "vmem", 1000), ("vmem", "hbm", 1500), ("hbm", "hbm", 2500), ("host", "hbm", 1500), ("hbm", "host", 1000)],
)
def test_copies_write_to_hbm_at_its_share_of_writes(source, target, hbm_bytes):
    """Two thirds of the rate of reads, as kernels do: a byte that is written counts as one and a half."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=1000, source_space=source, target_space=target)
    assert copy_loads(copy, SLOW)["hbm"] == pytest.approx(hbm_bytes)
