"""The record of one collective, by arithmetic: when it ends, what bounds it, and which units it keeps busy."""

from __future__ import annotations

import msgspec
import pytest

from tests.machine.collectives import collective, program_of, run
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import simulate_pod
from tpusim.program.steps import Choice, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.records import LATE
from tpusim.units import PS_PER_SECOND, seconds_to_ps

CHIP = load_chip("v5e")
ALL = (tuple(range(4)),)
N_BYTES = 8e6
LATENCY_PS = seconds_to_ps(CHIP.ici.launch_seconds) + seconds_to_ps(CHIP.ici.hop_latency_seconds)
DONE = Wait(name="d", opcode="wait", needs=("c",))
EACH = pytest.mark.parametrize("apart", [False, True])


def record_of(*steps, apart: bool = True):
    """Return the record of the collective on device 0 of four."""
    records = run("v5e:2x2", *steps, apart=apart).timelines[0].records
    return next(record for record in records if record.name == "c")


@pytest.mark.parametrize(("is_async", "waited_ps"), [(False, LATENCY_PS), (True, 0)])
def test_the_core_waits_for_the_hops_of_its_own_collectives_alone(is_async, waited_ps):
    """Two chips have one message on their links, and the core is kept as long as it waits for launch and hop."""
    send = collective("collective-permute", N_BYTES, pairs=((0, 1),), is_async=is_async)
    peak = CHIP.ici.links * CHIP.ici.link_bytes_per_second
    busy_ps = N_BYTES / 2 / peak * PS_PER_SECOND
    assert record_of(send, *[DONE] * is_async).units["ici"] == pytest.approx(busy_ps + waited_ps, abs=1)


@pytest.mark.parametrize(("name", "cores"), [("v5e:2x2", 1), ("v4-megacore:2x2x1", 2)])
def test_every_element_but_the_own_one_is_added_by_all_cores(name, cores):
    """Of four summands three come in, and each core has the slots of its vector unit."""
    chip = load_chip(name.split(":")[0])
    reduce = msgspec.structs.replace(collective("all-reduce", 8.0, ALL), flops=1e9)
    topology = parse_topology(name.replace("-megacore", ""))
    record = simulate_pod([program_of(reduce, devices=4)], chip, topology).last.records[0]
    per_cycle = chip.vpu.lanes * chip.vpu.sublanes * chip.vpu.alu_slots * cores
    vector_ps = 0.75e9 / per_cycle / chip.clock_hz * PS_PER_SECOND
    assert record.units["vector"] == pytest.approx(vector_ps, abs=1)
    assert record.duration_ps == record.units["vector"]


@pytest.mark.parametrize(("stated_bytes", "hbm_bytes"), [(1e6, 1e6 + N_BYTES / 2), (0.0, 0.0)])
def test_what_is_passed_on_goes_through_hbm_if_the_result_does(stated_bytes, hbm_bytes):
    """A gather of four passes on two of its four parts."""
    gather = msgspec.structs.replace(collective("all-gather", N_BYTES, ALL), hbm_bytes=stated_bytes)
    assert record_of(gather).hbm_bytes == hbm_bytes


@EACH
def test_bytes_through_hbm_may_end_last(apart):
    """A gigabyte through HBM beside a byte over the links."""
    slow = msgspec.structs.replace(collective("all-reduce", 1.0, ALL), hbm_bytes=1e9)
    rate = CHIP.hbm.bandwidth_bytes_per_second * CHIP.hbm.efficiency
    assert record_of(slow, apart=apart).duration_ps == pytest.approx(1e9 / rate * PS_PER_SECOND, abs=2)


@EACH
@pytest.mark.parametrize(("n_bytes", "bound_by"), [(8.0, "ICI latency"), (N_BYTES, "ICI")])
def test_what_bounds_a_collective_is_the_longer_of_latency_and_bytes(n_bytes, bound_by, apart):
    """A few bytes wait for their hops, many for the links."""
    assert record_of(collective("all-reduce", n_bytes, ALL), apart=apart).bound_by == bound_by


def test_waiting_for_others_is_no_transfer():
    """A few bytes are bound by their hops, also where another device is late."""
    late = Loop(
        name="l",
        opcode="while",
        trips=1,
        body=(Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6})),),
        choices=(Choice((3,), (1,)), Choice((0,))),
    )
    assert set(record_of(late, collective("all-reduce", 8.0, ALL)).parts) == {LATE, "ICI latency"}
