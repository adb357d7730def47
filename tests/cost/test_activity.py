"""What steps do, unit by unit, against arithmetic on kernels written by hand."""

from __future__ import annotations

import pytest

from tests.machine.test_units import kernel
from tpusim.analysis.utilisation import GROUPINGS, group_records, utilisation
from tpusim.cost.dma import copy_activity
from tpusim.cost.tile import kernel_activity
from tpusim.hardware.load import chip_names, load_chip
from tpusim.machine.run import simulate_program
from tpusim.program.module import Program
from tpusim.program.steps import Collective, Copy, Kernel, Loop, Wait
from tpusim.program.work import Matmul, Stream, Work

MIB = 2**20


def records_of(*steps):
    """Return what a v5e did when it ran some steps."""
    return simulate_program(Program(name="p", chip="v5e", steps=steps), load_chip("v5e"))


@pytest.mark.parametrize("chip_name", chip_names())
def test_a_product_does_its_padded_multiply_accumulates(chip_name):
    """512 x 1024 by 1024 x 2048 in whole tiles of the array: M K N, as rows of M pass K N / (R C) tiles; by type."""
    mxu = load_chip(chip_name).mxu
    tiles = 1024 * 2048 / (mxu.rows * mxu.columns)
    product = Matmul(weight_rows=tiles * mxu.rows, streamed_rows=512 * tiles, weight_tiles=tiles)
    narrow = Matmul(1, 8, operand_type="s8", passes=1)
    done = kernel_activity(kernel(work=Work(matmuls=(product, narrow, product))), load_chip(chip_name))
    assert done["matrix.bf16"] == 2 * 512 * 1024 * 2048
    assert done["matrix.s8"] == 8 * mxu.rows * mxu.columns


def test_every_pass_multiplies_again():
    """f32 in six passes of bf16: six times as many."""
    once, six = (kernel(work=Work(matmuls=(Matmul(8, 100, passes=passes),)), tiles=3) for passes in (1, 6))
    chip = load_chip("v6e")
    assert kernel_activity(six, chip)["matrix.bf16"] == 6 * kernel_activity(once, chip)["matrix.bf16"]


def test_operations_of_all_tiles_count_on_all_cores():
    """Ten tiles on two cores: each is done once."""
    work = Work(ops={"vector": 7.0, "eup": 2.0, "xlu": 3.0})
    done = kernel_activity(kernel(work=work, tiles=10, cores=2), load_chip("v4-megacore"))
    assert (done["vector"], done["eup"], done["xlu"]) == (70, 20, 30)


def test_a_copying_kernel_moves_its_array_once_through_each_memory():
    """1 MiB in and out: HBM has both; VMEM has both from HBM, and again what 256 registers load and store."""
    streams = (Stream("x", "hbm", MIB / 4, 4), Stream("y", "hbm", MIB / 4, 4, True))
    done = kernel_activity(kernel(work=Work(ops={"load": 64, "store": 64}), tiles=4, streams=streams), load_chip("v5e"))
    assert (done["hbm"], done["vmem"]) == (2 * MIB, 4 * MIB)
    assert (done["load"], done["store"]) == (256, 256)


def test_what_lies_in_vmem_already_is_only_loaded():
    """No memory but VMEM moves; the host's two ways are told apart."""
    chip = load_chip("v5e")
    near = kernel_activity(kernel(work=Work(ops={"load": 8}), streams=(Stream("x", "vmem", 8 * 4096.0),)), chip)
    assert (near["vmem"], near["hbm"]) == (8 * 4096, 0)
    far = kernel_activity(kernel(streams=(Stream("x", "host", 5.0), Stream("y", "host", 3.0, 1, True))), chip)
    assert (far["host_in"], far["host_out"], far["vmem"]) == (5, 3, 8)


@pytest.mark.parametrize(
    ("spaces", "moved"),
    [
        (("hbm", "vmem"), {"hbm": 9.0, "vmem": 9.0}),
        (("hbm", "hbm"), {"hbm": 18.0}),
        (("host", "hbm"), {"host_in": 9.0, "hbm": 9.0}),
        (("vmem", "host"), {"vmem": 9.0, "host_out": 9.0}),
    ],
)
def test_a_copy_reads_in_one_memory_and_writes_in_another(spaces, moved):
    """Within one memory it does both."""
    source, target = spaces
    copy = Copy(name="c", opcode="copy-start", n_bytes=9.0, source_space=source, target_space=target)
    assert copy_activity(copy, load_chip("v5e")) == moved


def test_a_record_says_what_was_done_and_its_step():
    """Steps are numbered outer before inner; a wait does nothing."""
    body = (Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 5.0})),)
    copy = Copy(name="c", opcode="copy-start", n_bytes=1e6)
    steps = (Loop(name="w", opcode="while", trips=3, body=body), copy, Wait(name="d", opcode="copy-done", needs=("c",)))
    found = {record.name: record for record in records_of(*steps).records}
    assert {name: record.step for name, record in found.items()} == {"w": 0, "k": 1, "c": 2, "d": 3}
    assert found["k"].activity["vector"] == 5
    assert found["c"].activity == {"hbm": 1e6, "vmem": 1e6}
    assert found["d"].activity == {}


@pytest.mark.parametrize("by", GROUPINGS)
def test_what_ops_did_adds_up_to_what_the_run_did(by):
    """By op, category or source; trips of a loop each count."""
    body = (Kernel(name="k", opcode="fusion", category="a", work=Work(ops={"vector": 5.0, "load": 2.0})),)
    loop = Loop(name="w", opcode="while", trips=1000, body=body)
    timeline = records_of(loop, Kernel(name="l", opcode="fusion", category="b", work=Work(ops={"vector": 1.0})))
    total = utilisation(timeline).activity
    assert (total["vector"], total["load"]) == (5001, 2000)
    groups = group_records(timeline, by)
    assert all(sum(g.activity.get(unit, 0) for g in groups) == count for unit, count in total.items())


def test_an_all_reduce_adds_up_what_comes_in():
    """Four devices of 1,024 x 1,000 f32 elements: three quarters of them in registers of 1,024; bytes of links."""
    step = Collective(
        name="r", opcode="all-reduce", kind="all-reduce", n_bytes=4096e3, hbm_bytes=8192e3, group_size=4, flops=1024e3
    )
    (record,) = simulate_program(Program(name="p", chip="v5e", steps=(step,), device_count=4), load_chip("v5e")).records
    assert record.activity["vector"] == 750
    # What is passed on is written and read once more.
    assert record.activity["hbm"] >= 8192e3
    assert record.activity["ici"] == pytest.approx(2 * 0.75 * 4096e3)
