"""The record of one collective, by arithmetic: when it ends, what bounds it, and which units it keeps busy."""

from __future__ import annotations

import msgspec
import pytest

from tests.machine.collectives import collective, program_of, run
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import simulate_pod
from tpusim.program.steps import Algorithm, Choice, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.records import LATE
from tpusim.units import PS_PER_SECOND, seconds_to_ps

CHIP = load_chip("v5e")
ALL = (tuple(range(4)),)
N_BYTES = 8e6
RATE = CHIP.hbm.bandwidth_bytes_per_second * CHIP.hbm.efficiency
LATENCY_PS = seconds_to_ps(CHIP.ici.launch_seconds) + seconds_to_ps(CHIP.ici.hop_latency_seconds)
DONE = Wait(name="d", opcode="wait", needs=("c",))
EACH = pytest.mark.parametrize("apart", [False, True])


def record_of(*steps, apart: bool = True):
    """Return the record of the collective on device 0 of four."""
    records = run("v5e:2x2", *steps, apart=apart).timelines[0].records
    return next(record for record in records if record.name == "c")


@pytest.mark.parametrize("is_async", [False, True])
def test_launch_and_hops_keep_no_link_busy(is_async):
    """Two chips have one message on their links, whether the core waits for it or not: its bytes at the peak rate."""
    send = collective("collective-permute", N_BYTES, pairs=((0, 1),), is_async=is_async)
    peak = CHIP.ici.links * CHIP.ici.link_bytes_per_second
    record = record_of(send, *[DONE] * is_async)
    assert record.units["ici"] == pytest.approx(N_BYTES / 2 / peak * PS_PER_SECOND, abs=1)
    assert record.duration_ps > LATENCY_PS


@pytest.mark.parametrize(("name", "cores"), [("v5e:2x2", 1), ("v4-megacore:2x2x1", 2)])
def test_every_element_but_the_own_one_is_added_by_all_cores(name, cores):
    """Of four summands three come in, and each core has the slots of its vector unit."""
    chip = load_chip(name.split(":")[0])
    reduce = msgspec.structs.replace(collective("all-reduce", 8.0, ALL), flops=1e9)
    topology = parse_topology(name.replace("-megacore", ""))
    record = simulate_pod([program_of(reduce, devices=4)], chip, topology).last.records[0]
    registers = 0.75e9 / chip.vpu.register_elements
    slots = {"vector": chip.vpu.alu_slots, "load": chip.vpu.load_slots / 2, "store": chip.vpu.store_slots}
    for unit, count in slots.items():
        unit_ps = registers / (count * cores) / chip.clock_hz * PS_PER_SECOND
        assert record.units[unit] == pytest.approx(unit_ps, abs=1)
    # Two are loaded and one is stored for each addition: whichever takes longest.
    assert record.duration_ps == max(record.units[unit] for unit in slots)


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("reduce-scatter", ((7, 2, 0, 3), (5, 1, 6, 4))),
        ("all-gather", ((0, 6), (1, 7), (2, 4), (3, 5))),
        ("all-to-all", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ],
    ids=["across", "corners", "apart"],
)
def test_links_of_a_chip_are_as_busy_whoever_stands_for_whom(kind, groups):
    """What other groups send through a chip keeps its links busy too, whether all are run or one for all."""
    one, each = (
        timeline.records[0].units["ici"]
        for apart in (False, True)
        for timeline in run("v5e:2x4", collective(kind, N_BYTES, groups, is_async=True), apart=apart).timelines[:1]
    )
    assert each == pytest.approx(one, rel=1e-9)


def test_in_a_single_phase_each_device_adds_up_everything():
    """Three operands come in whole, and not three quarters of one."""
    whole = Algorithm("SinglePhaseRingSum", one_ring=True, single_phase=True)
    sums = [collective("all-reduce", 8.0, ALL, flops=1e6, algorithm=way) for way in (None, whole)]
    two, one = (record_of(step).activity["vector"] for step in sums)
    assert one == 4 * two == pytest.approx(3e6 / CHIP.vpu.register_elements)


@pytest.mark.parametrize(("stated_bytes", "hbm_bytes"), [(1e6, 1e6 + N_BYTES / 2), (0.0, 0.0)])
def test_what_is_passed_on_goes_through_hbm_if_the_result_does(stated_bytes, hbm_bytes):
    """A gather of four passes on two of its four parts."""
    gather = msgspec.structs.replace(collective("all-gather", N_BYTES, ALL), hbm_bytes=stated_bytes)
    assert record_of(gather).hbm_bytes == hbm_bytes


@EACH
def test_bytes_through_hbm_may_end_last(apart):
    """A gigabyte through HBM beside a byte over the links."""
    slow = msgspec.structs.replace(collective("reduce-scatter", 1.0, ALL), hbm_bytes=1e9)
    assert record_of(slow, apart=apart).duration_ps == pytest.approx(1e9 / RATE * PS_PER_SECOND, abs=2)


@EACH
@pytest.mark.parametrize(("hbm_bytes", "bound_by"), [(N_BYTES, "ICI"), (1e9, "HBM")])
def test_an_all_reduce_brings_its_operand_in_and_its_sums_out(hbm_bytes, bound_by, apart):
    """Before and after what the links do, in VMEM: both add up, and the longer is the bound."""
    bare = collective("all-reduce", N_BYTES, ALL)
    links_ps = record_of(bare, apart=apart).duration_ps
    record = record_of(msgspec.structs.replace(bare, hbm_bytes=hbm_bytes), apart=apart)
    assert record.duration_ps == pytest.approx(links_ps + hbm_bytes / RATE * PS_PER_SECOND, abs=2)
    assert (record.hbm_bytes, record.bound_by) == (hbm_bytes, bound_by)


@pytest.mark.parametrize(("kind", "steps"), [("all-gather", 2), ("all-reduce", 4), ("collective-permute", 1)])
def test_each_step_of_a_ring_takes_its_time(kind, steps):
    """On 2x2 chips a message along each axis, twice for an all-reduce; a pair has a single one."""
    step = collective(kind, 8.0, () if kind == "collective-permute" else ALL)
    step = msgspec.structs.replace(step, pairs=((0, 1),)) if kind == "collective-permute" else step
    times = [
        simulate_pod([program_of(step, devices=4)], load_chip("v5e", {"ici.step_seconds": s}), parse_topology("2x2"))
        for s in (0.0, 5e-6)
    ]
    assert times[1].last.total_ps - times[0].last.total_ps == steps * seconds_to_ps(5e-6)


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "reduce-scatter"])
@pytest.mark.parametrize("key", ["ici.efficiency", "ici.link_bytes_per_second", "hbm.bandwidth_bytes_per_second"])
@pytest.mark.parametrize("n_bytes", [1e3, 1e6, 1e9])
def test_what_is_faster_makes_no_collective_slower(kind, key, n_bytes):
    """Links and memory at half their rate and at the whole."""
    step = msgspec.structs.replace(collective(kind, n_bytes, ALL, flops=n_bytes / 2), hbm_bytes=2 * n_bytes)
    section, name = key.split(".")
    whole = getattr(getattr(CHIP, section), name)
    times = [
        simulate_pod([program_of(step, devices=4)], load_chip("v5e", {key: rate}), parse_topology("2x2"))
        for rate in (whole / 2, whole)
    ]
    assert times[0].last.total_ps >= times[1].last.total_ps


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
