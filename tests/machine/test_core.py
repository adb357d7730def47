"""The core: order of steps, waiting, loops that repeat, and one time line for one program."""

from __future__ import annotations

import pytest

from tpusim.errors import SimulationError
from tpusim.hardware.load import load_chip
from tpusim.machine.run import simulate_program
from tpusim.program.module import Program
from tpusim.program.steps import Branch, Call, Collective, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import Matmul, Stream, Work
from tpusim.timeline.records import encode_timeline

CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1000.0}))
BIG_READ = Stream("a", "hbm", 1e6, 10)
STREAMING = Kernel(name="s", opcode="fusion", tiles=10, streams=(BIG_READ,))
COPY = Copy(name="c", opcode="copy-start", n_bytes=1e8)
DONE = Wait(name="d", opcode="copy-done", needs=("c",))


def run(*steps, chip=CHIP):
    """Return the time line of some steps."""
    return simulate_program(Program(name="p", chip=chip.name, steps=steps), chip)


def test_kernels_follow_each_other():
    """Two kernels take twice the time of one."""
    assert run(KERNEL, KERNEL).total_ps == 2 * run(KERNEL).total_ps


def test_core_records_tile_the_whole_run():
    """The core's records begin where the one before ends, and reach to the end."""
    records = [r for r in run(COPY, KERNEL, DONE, STREAMING).records if r.row == "core"]
    ends = [0, *(record.end_ps for record in records)]
    assert [record.start_ps for record in records] == ends[:-1]
    assert ends[-1] == run(COPY, KERNEL, DONE, STREAMING).total_ps


def test_copy_runs_under_a_kernel():
    """A copy and a kernel that does not touch HBM overlap fully."""
    long_kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e7}))
    assert run(COPY, long_kernel, DONE).total_ps == run(long_kernel).total_ps


def test_waiting_for_a_copy_is_recorded():
    """The time that the core waits is a record of its own with that bound."""
    wait = next(r for r in run(COPY, DONE).records if r.name == "d")
    assert wait.bound_by == "waiting for a copy"
    assert wait.duration_ps == run(COPY, DONE).total_ps


def test_copy_and_kernel_share_the_bandwidth():
    """Together they take as long as their bytes do, not as long as the longer of the two."""
    both, alone = run(COPY, STREAMING, DONE).total_ps, run(COPY, DONE).total_ps
    assert both > alone + 0.8e7 / CHIP.hbm.bandwidth_bytes_per_second * 1e12


def test_waiting_for_what_never_started_is_an_error():
    """The error names who waits and for what."""
    with pytest.raises(SimulationError, match=r"'d' waits for 'c'"):
        run(DONE)


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
def test_loop_equals_its_unrolled_steps(trips):
    """A loop takes its trips' time, whether simulated or counted."""
    loop = Loop(name="l", opcode="while", trips=trips, body=(COPY, KERNEL, DONE, STREAMING))
    one = run(Loop(name="l", opcode="while", trips=1, body=(COPY, KERNEL, DONE, STREAMING))).total_ps
    assert run(loop).total_ps == trips * one


def test_a_long_loop_is_simulated_once():
    """Ten million equal trips leave as many records as two, counted."""
    loop = Loop(name="l", opcode="while", trips=10_000_000, body=(KERNEL,))
    timeline = run(loop)
    assert len(timeline.records) <= 4
    assert sum(r.count for r in timeline.records if r.name == "k") == 10_000_000


def test_nested_loops_multiply():
    """An inner loop of 5 in an outer one of 7 runs its kernel 35 times."""
    inner = Loop(name="i", opcode="while", trips=5, body=(KERNEL,))
    timeline = run(Loop(name="o", opcode="while", trips=7, body=(inner, STREAMING)))
    assert sum(r.count for r in timeline.records if r.name == "k") == 35
    assert sum(r.total_ps for r in timeline.records) == timeline.total_ps


def test_a_copy_across_a_loop_keeps_trips_apart():
    """While a copy from outside is under way trips differ; they are counted only when it has ended."""
    loop = Loop(name="l", opcode="while", trips=50, body=(STREAMING,))
    timeline = run(COPY, loop, DONE)
    streaming = [r for r in timeline.records if r.name == "s"]
    assert sum(r.count for r in streaming) == 50
    assert streaming[0].duration_ps > streaming[-1].duration_ps


def test_ten_runs_give_one_time_line():
    """The same program on the same chip gives the same bytes."""
    loop = Loop(name="l", opcode="while", trips=3, body=(COPY, STREAMING, KERNEL, DONE))
    assert len({encode_timeline(run(loop, COPY, KERNEL, DONE)) for _ in range(10)}) == 1


def test_branch_runs_only_what_it_takes():
    """The other branch leaves no record."""
    other = Kernel(name="x", opcode="fusion")
    timeline = run(Branch(name="b", opcode="conditional", taken=1, branches=((other,), (KERNEL,))))
    assert {record.name for record in timeline.records} == {"b", "k"}


def test_async_call_runs_beside_the_core():
    """An offloaded call takes no time of the core until somebody waits for it."""
    call = Call(name="c", opcode="async-start", body=(KERNEL, KERNEL), is_async=True)
    assert run(call, KERNEL, KERNEL, DONE).total_ps == run(KERNEL, KERNEL).total_ps


def test_scalar_step_has_no_kernel_cost():
    """A scalar instruction takes its cycles and nothing else."""
    scalar = Kernel(name="i", opcode="add", scalar=True, work=Work(ops={"scalar": 1}))
    assert run(scalar).total_ps == round(CHIP.fixed.scalar_op_cycles / CHIP.clock_hz * 1e12 + 0.4999)


def test_host_transfer_takes_latency_and_bytes():
    """An infeed of 16 MB over 16 GB/s takes a millisecond and the latency."""
    host = CHIP.host
    expected_ps = (host.latency_seconds + 16e6 / host.bandwidth_bytes_per_second) * 1e12
    assert run(HostTransfer(name="i", opcode="infeed", n_bytes=16e6)).total_ps == pytest.approx(expected_ps, rel=1e-6)


def test_async_collective_overlaps():
    """An asynchronous collective hides behind a longer kernel."""
    start = Collective(name="c", opcode="all-gather-start", kind="all-gather", n_bytes=1e6, group_size=8, is_async=True)
    long_kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e7}))
    assert run(start, long_kernel, DONE).total_ps == run(long_kernel).total_ps


def test_more_products_take_longer():
    """The matrix unit's time grows with the rows streamed."""
    times = []
    for rows in (1e4, 1e5, 1e6):
        work = Work(matmuls=(Matmul(weight_rows=1280.0, streamed_rows=rows),))
        times.append(run(Kernel(name="m", opcode="dot", work=work)).total_ps)
    assert times == sorted(set(times))


def test_a_wait_names_what_it_waits_for():
    """A copy, a collective or the host: readers look for different cures."""
    start = Collective(name="c", opcode="all-gather-start", kind="all-gather", n_bytes=1e8, group_size=8, is_async=True)
    assert next(r for r in run(start, DONE).records if r.name == "d").bound_by == "waiting for a collective"


def test_overlapping_permutes_share_the_links():
    """Five at once on a chip of four links take longer than one, and no more than five one after the other."""
    permutes = [
        Collective(name=f"c{i}", opcode="x", kind="collective-permute", n_bytes=1e8, group_size=4, is_async=True)
        for i in range(5)
    ]
    waits = [Wait(name=f"d{i}", opcode="x", needs=(f"c{i}",)) for i in range(5)]
    one, five = run(permutes[0], waits[0]).total_ps, run(*permutes, *waits).total_ps
    assert 1.2 * one < five < 5 * one


def test_a_copy_may_end_inside_a_loop():
    """What was started before a loop can be waited for in it."""
    loop = Loop(name="l", opcode="while", trips=3, body=(KERNEL, DONE))
    assert run(COPY, loop).total_ps >= run(COPY, DONE).total_ps


def test_what_it_needs_may_have_ended_long_ago():
    """Then there is no wait to record; a wait of the text is shown all the same."""
    long_kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e7}))
    needy = Kernel(name="n", opcode="fusion", needs=("c",))
    records = run(COPY, long_kernel, needy, DONE).records
    assert [(r.name, r.duration_ps > 0) for r in records if r.row == "core"] == [("k", True), ("n", True), ("d", False)]
