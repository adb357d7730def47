"""The host: queues of finite depth, their paces, and what is said when the infeed starves the core."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

import tpusim
from tests.machine.collectives import collective, program_of
from tpusim.analysis.utilisation import group_records
from tpusim.errors import ConfigError, SimulationError
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.feed import Feed, intervals_ps, parse_feed
from tpusim.program.steps import Branch, Call, Choice, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.records import encode_timeline

CHIP = load_chip("v5e")
TRACES = Path(__file__).parents[2] / "traces" / "host"
INFEED = HostTransfer(name="i", opcode="infeed", n_bytes=16e3)
OUTFEED = HostTransfer(name="o", opcode="outfeed", n_bytes=16e3, to_host=True)
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
# 16 kB over 16 GB/s, and the latency of the link.
TRANSFER_PS = 1_000_000 + 2_000_000


def run(*steps, infeed: str | None = None, outfeed: str | None = None, depth: int = 2):
    """Return the time line of some steps with the host at a pace."""
    feeds = [parse_feed(pace, depth) if pace else None for pace in (infeed, outfeed)]
    return simulate_pod([program_of(*steps)], CHIP, None, None, RunOptions(False, None, None, *feeds)).last


def loop_of(*body, trips: int = 20) -> Loop:
    """Return a loop."""
    return Loop(name="l", opcode="while", trips=trips, body=body)


def test_a_slow_host_sets_the_pace():
    """Twenty batches of 100 us each take that long, and the transfer between them."""
    total_ps = run(loop_of(INFEED), infeed="100us").total_ps
    assert total_ps == pytest.approx(20 * (100e6 + TRANSFER_PS), rel=0.001)


def test_a_fast_host_hides_behind_the_kernels():
    """Batches come while kernels run: the loop takes its kernels, after the first batch."""
    kernel_ps = run(KERNEL).total_ps
    fed = run(loop_of(INFEED, KERNEL), infeed="1us").total_ps
    assert fed == pytest.approx(20 * kernel_ps, rel=0.05)
    assert fed < run(loop_of(INFEED, KERNEL)).total_ps


def test_trips_with_the_same_choices_wait_for_a_host_of_changing_pace():
    """Those with an infeed come every other time: as long as the same trips one after the other, in no loop."""
    inner = Branch(name="b", opcode="conditional", branches=((KERNEL,), (INFEED,)), choices=(Choice((0, 1)),))
    each = [msgspec.structs.replace(inner, taken=trip % 2, choices=()) for trip in range(12)]
    looped = run(loop_of(inner, trips=12), infeed="normal:900us:300us:7")
    apart = run(*(loop_of(one, trips=1) for one in each), infeed="normal:900us:300us:7")
    found = [[(r.name, r.start_ps, r.end_ps) for r in run.records if r.name != "l"] for run in (looped, apart)]
    assert found[0] == found[1]


def test_a_starved_core_is_told_apart():
    """The wait is a record of its own, and most of the time."""
    records = run(loop_of(INFEED), infeed="100us").records
    starved_ps = sum(r.total_ps for r in records if r.bound_by == "infeed starved")
    assert starved_ps > 0.95 * 20 * 100e6


@pytest.mark.parametrize("pace", ["1us", "100us", "normal:100us:20us:3"])
def test_an_infeed_counts_once_for_each_execution(pace):
    """Twenty of them, whether or not each had to wait; so does a kernel that waits for a copy."""
    needy = msgspec.structs.replace(KERNEL, needs=("c",))
    copy = Copy(name="c", opcode="copy-start", n_bytes=16e6, source_space="host", target_space="hbm")
    groups = group_records(run(loop_of(copy, INFEED, needy), infeed=pace))
    assert {group.name: group.count for group in groups if group.name in "ik"} == {"i": 20, "k": 20}


def test_a_full_outfeed_holds_the_core():
    """A host that takes 100 us for each result lets as many wait as the queue holds; the end waits for the last."""
    slow, deep = (run(loop_of(OUTFEED), outfeed="100us", depth=depth) for depth in (2, 32))
    held_ps = [sum(r.total_ps for r in one.records if r.bound_by == "outfeed full") for one in (slow, deep)]
    assert held_ps == [pytest.approx((20 - 3) * (100e6 + TRANSFER_PS), rel=0.01), 0]
    assert [slow.total_ps, deep.total_ps] == [pytest.approx(19 * 100e6 + 20 * TRANSFER_PS, rel=0.001)] * 2


@pytest.mark.parametrize("sizes", [(1e6, 64e6), (64e6, 1e6)])
def test_a_queue_holds_what_the_program_takes_next(sizes):
    """Ten of one size in a loop and one of another behind it, at a host that is always ready: its bytes on the link."""
    small, large = (msgspec.structs.replace(INFEED, n_bytes=n_bytes) for n_bytes in sizes)
    branch = Branch(name="b", opcode="conditional", taken=1, branches=((KERNEL,), (small,)))
    steps = loop_of(Call(name="c", opcode="call", body=(branch,)), trips=10), large
    queued, ready = (run(*steps, infeed=pace).total_ps for pace in ("0us", None))
    assert queued == pytest.approx(ready, rel=0.02)


def test_what_is_sent_out_has_left_when_the_run_ends():
    """A host at its own pace is no faster than the link."""
    steps = (msgspec.structs.replace(OUTFEED, n_bytes=16e6), KERNEL)
    quick, ready = (run(*steps, outfeed=pace).total_ps for pace in ("1us", None))
    assert 1e9 < quick <= ready


def test_a_pace_that_nothing_is_held_to_is_warned_of():
    """Of a program with an infeed and no outfeed, and of one with neither."""
    fed, unfed = (msgspec.structs.replace(program_of(step), chip="v5e") for step in (loop_of(INFEED), KERNEL))
    assert tpusim.simulate(fed, "v5e", infeed="1us").program.warnings == ()
    (warning,) = tpusim.simulate(fed, "v5e", infeed="1us", outfeed="1us").program.warnings
    assert warning.startswith("a pace of the outfeed was given, but no program of this run has an outfeed")
    assert len(tpusim.simulate(unfed, "v5e", infeed="1us", outfeed="1us").program.warnings) == 2


@pytest.mark.parametrize("timeout_us", [-5, 0, float("nan"), 1e308])
def test_a_timeout_that_is_none_is_refused(timeout_us):
    """Of the function as of the command."""
    with pytest.raises(ConfigError, match="timeout: expected microseconds above 0"):
        tpusim.simulate(msgspec.structs.replace(program_of(KERNEL), chip="v5e"), timeout_us=timeout_us)


def test_an_infeed_that_ends_is_named():
    """A file of three times feeds three batches; the fourth never comes."""
    with pytest.raises(
        SimulationError,
        match=r"device 0 waits at infeed 'i' for the host \(infeed starved\) from the host, whose .* has ended",
    ):
        simulate_pod(
            [program_of(loop_of(INFEED))],
            CHIP,
            None,
            None,
            RunOptions(infeed=Feed(kind="file", times=(1e-6, 2e-6, 3e-6))),
        )


def test_a_seed_repeats_a_run():
    """Bit for bit, and another seed is another run."""
    runs = [run(loop_of(INFEED, KERNEL), infeed=f"normal:200us:50us:{seed}") for seed in (1, 1, 2)]
    assert encode_timeline(runs[0]) == encode_timeline(runs[1]) != encode_timeline(runs[2])


def test_fetching_from_host_memory_takes_the_link():
    """16 MB from S(5) over 16 GB/s."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=16e6, source_space="host", target_space="hbm")
    total_ps = run(copy, Wait(name="d", opcode="copy-done", needs=("c",))).total_ps
    assert total_ps == pytest.approx(1e9 + 2e6, rel=0.001)


@pytest.mark.parametrize("apart", [False, True])
def test_the_devices_of_a_chip_share_its_link(apart):
    """Eight devices of v7x on four chips fetch 63 MB each over 63 GB/s a chip: 2 ms, and on one device alone 1 ms."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=63e6, source_space="host", target_space="hbm")
    steps = (copy, Wait(name="d", opcode="copy-done", needs=("c",)))
    chip, options = load_chip("v7x"), RunOptions(per_device=apart)
    times = [simulate_pod([program_of(*steps, devices=n)], chip, None, None, options).last.total_ps for n in (1, 8)]
    assert times == pytest.approx([1e9 + 2e6, 2e9 + 2e6], rel=0.001)


def test_a_host_may_be_what_its_chips_share():
    """Four chips of v5e through 32 GB/s: 8 GB/s for each, where the chips' own links have 16."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=16e6, source_space="host", target_space="hbm")
    program = program_of(copy, Wait(name="d", opcode="copy-done", needs=("c",)), devices=4)
    chip = load_chip("v5e", {"host.all_chips_bytes_per_second": 32e9})
    assert simulate_pod([program], chip, parse_topology("v5e:2x2")).last.total_ps == pytest.approx(2e9, rel=0.01)


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.hlo.txt.gz")), ids=lambda path: path.name)
def test_the_examples_are_right_and_run(path):
    """Each verifies, runs, and needs no estimate."""
    assert tpusim.check(path) == []
    result = tpusim.simulate(path)
    assert result.time_us > 0
    assert result.program.unsupported == ()


REDUCE = collective("all-reduce", 1e3, (tuple(range(8)),))


def feed_pod(pace: str, apart: bool | None = None, *, step: HostTransfer = INFEED):
    """Return the run of fifty steps of eight devices that each feeds before all reduce."""
    feeds = (parse_feed(pace), None) if not step.to_host else (None, parse_feed(pace))
    program = program_of(loop_of(step, REDUCE, trips=50), devices=8)
    return simulate_pod([program], CHIP, parse_topology("v5e:2x4"), None, RunOptions(False, apart, None, *feeds))


@pytest.mark.parametrize("pace", ["exponential:300us:1", "normal:300us:100us:1"])
@pytest.mark.parametrize("step", [INFEED, OUTFEED])
def test_hosts_that_draw_their_times_hold_up_all_devices(pace, step):
    """Each host has draws of its own: as with every device by itself, and later than device 0's would be alone."""
    drawn, each, first = (feed_pod(pace, apart, step=step).last.total_ps for apart in (None, True, False))
    assert drawn == each > first


def test_the_slowest_draw_of_each_step_is_a_bound():
    """Every all-reduce waits for the slowest host: with a queue of depth 1 and no kernels that is near a sum of it."""
    draws = [list(islice(intervals_ps(parse_feed("exponential:300us:1"), device), 50)) for device in range(8)]
    total_ps = feed_pod("exponential:300us:1").last.total_ps
    assert total_ps > max(map(sum, draws))
    assert total_ps < sum(map(max, zip(*draws, strict=True))) + 50 * feed_pod("0us").last.total_ps


@pytest.mark.parametrize("pace", ["300us", "normal:300us:0us:1"])
def test_a_pace_without_spread_needs_one_device(pace):
    """All hosts take the same times: one device stands for all, and agrees with all."""
    one, each = (feed_pod(pace, apart) for apart in (None, True))
    assert (len(one.timelines), len(each.timelines)) == (1, 8)
    assert one.last.total_ps == each.last.total_ps


def test_a_recorded_pace_is_one_for_all_devices(tmp_path):
    """The file's lines are every host's: one device is run."""
    path = tmp_path / "times.txt"
    path.write_text("\n".join(str(100 + 7 * number % 50) for number in range(50)))
    one, each = (feed_pod(str(path), apart) for apart in (None, True))
    assert (len(one.timelines), one.last.total_ps) == (1, each.last.total_ps)


def test_a_pace_that_no_step_meets_changes_nothing():
    """Random infeeds of a program without any."""
    program = program_of(KERNEL, collective("all-reduce", 1e3, ((0, 1),)), devices=2)
    options = RunOptions(infeed=parse_feed("exponential:300us:1"))
    assert len(simulate_pod([program], CHIP, None, None, options).timelines) == 1


@pytest.mark.parametrize(("to_host", "link"), [(False, "host_in"), (True, "host_out")])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_transfer_is_recorded_with_its_bytes_on_its_way(to_host, link, is_async):
    """16 kB over 16 GB/s keep one way busy for 1 us; their latency does not, whether the core waits for it or not."""
    step = HostTransfer(name="t", opcode="send", n_bytes=16e3, hbm_bytes=8e3, to_host=to_host, is_async=is_async)
    steps = (step, Wait(name="d", opcode="send-done", needs=("t",))) if is_async else (step,)
    (record,) = [record for record in run(*steps).records if record.name == "t"]
    assert (record.start_ps, record.duration_ps, record.bound_by) == (0, TRANSFER_PS, "host")
    assert record.units[link] == 1_000_000
    assert record.activity == {link: 16e3, "hbm": 8e3}
    assert (record.row == "core") is not is_async


@pytest.mark.parametrize(("pace", "spread"), [("normal:200us:50us:1", 0.02), ("exponential:200us:1", 0.08)])
def test_trips_that_were_played_stand_for_the_others_on_average(pace, spread):
    """Of twenty thousand draws those that were played have nearly the mean; each by itself may be far from it."""
    assert run(loop_of(INFEED, trips=20_000), infeed=pace).total_ps == pytest.approx(20_000 * 200e6, rel=spread)


def visits_to(*body, trips: int, visits: int, between=()) -> Loop:
    """Return a loop that comes to another one again and again."""
    inner = msgspec.structs.replace(loop_of(*body, trips=trips), name="inner")
    return loop_of(inner, *between, trips=visits)


@pytest.mark.parametrize(
    ("pace", "spread"), [("50us", 0.005), ("normal:50us:10us:7", 0.02), ("exponential:50us:7", 0.06)]
)
@pytest.mark.parametrize("trips", [7, 100, 1000])
@pytest.mark.parametrize(("step", "way"), [(INFEED, "infeed"), (OUTFEED, "outfeed")])
def test_visits_to_a_loop_meet_the_host_as_one_loop_of_as_many_trips(step, way, trips, pace, spread):
    """Its queues are full at the first trips of a visit, and not at those that these stand for."""
    count = 35_000 // trips
    found = run(visits_to(step, trips=trips, visits=count), **{way: pace}).total_ps
    assert found == pytest.approx(run(loop_of(step, trips=count * trips), **{way: pace}).total_ps, rel=spread)


@pytest.mark.parametrize(("step", "way"), [(INFEED, "infeed"), (OUTFEED, "outfeed")])
@pytest.mark.parametrize("trips", [3, 1000])
@pytest.mark.parametrize("depth", [1, 40])
def test_no_run_is_faster_than_its_host(step, way, trips, depth):
    """At most what the queue holds, and one item more, comes for nothing, however the visits lie."""
    items = 40_000 // trips * trips
    least_ps = (items - depth - 1) * (50_000_000 + TRANSFER_PS)
    found = run(visits_to(step, trips=trips, visits=items // trips, between=(KERNEL,)), depth=depth, **{way: "50us"})
    assert found.total_ps >= least_ps


def test_visits_that_the_core_is_slow_in_take_its_time():
    """A kernel of each trip takes longer than the host: it is never waited for."""
    kernel_ps, pace = run(KERNEL).total_ps, "10us"
    found = run(visits_to(INFEED, KERNEL, trips=1000, visits=50), infeed=pace).total_ps
    assert found == pytest.approx(run(loop_of(INFEED, KERNEL, trips=50_000), infeed=pace).total_ps, rel=0.001)
    assert found >= 50_000 * (kernel_ps - 2_000_000)


def test_a_host_feeds_a_loop_of_ages():
    """More trips than a list may have: the host takes its time for each."""
    assert run(loop_of(INFEED, trips=10**30), infeed="50us").total_ps >= (10**30 - 3) * (50_000_000 + TRANSFER_PS)


def test_loops_one_after_the_other_meet_the_host_as_one():
    """Where enough was played, a loop that comes for the first time drains the queue before trips stand for others."""
    apart = run(*[loop_of(INFEED, trips=1000)] * 40, infeed="50us").total_ps
    assert apart == pytest.approx(run(loop_of(INFEED, trips=40_000), infeed="50us").total_ps, rel=0.005)


def test_devices_that_wait_for_each_other_meet_their_hosts_at_each_visit():
    """As in one loop: eight devices whose hosts draw their times."""
    feed = parse_feed("exponential:300us:1")
    options = RunOptions(infeed=feed)
    loops = [visits_to(INFEED, REDUCE, trips=100, visits=100), loop_of(INFEED, REDUCE, trips=10_000)]
    visits, one = (simulate_pod([program_of(each, devices=8)], CHIP, None, None, options) for each in loops)
    assert visits.last.total_ps == pytest.approx(one.last.total_ps, rel=0.05)


def test_the_wait_for_a_host_is_shown_for_trips_that_were_jumped_over():
    """As a share of the run, the same in visits as in one loop."""
    steps = visits_to(INFEED, trips=100, visits=400), loop_of(INFEED, trips=40_000)
    runs = [run(one, infeed="exponential:50us:3") for one in steps]
    starved = [sum(r.total_ps for r in one.records if r.bound_by == "infeed starved") / one.total_ps for one in runs]
    assert starved[0] == pytest.approx(starved[1], rel=0.02)


def test_a_recorded_pace_ends_however_many_trips_a_loop_has(tmp_path):
    """Three thousand batches for a hundred thousand trips."""
    path = tmp_path / "pace.txt"
    path.write_text("200\n" * 3000, encoding="utf-8")
    with pytest.raises(SimulationError, match="recorded feed has ended"):
        run(loop_of(INFEED, trips=100_000), infeed=str(path))


FETCH = Copy(name="f", opcode="copy-start", n_bytes=1e6, source_space="host", target_space="hbm")


def test_trips_that_share_the_link_to_the_host_differ():
    """Copies beside a queue that fills at first: all that comes over the link takes its time."""
    end = Wait(name="e", opcode="copy-done", needs=("f",))
    fed = [run(INFEED, loop_of(FETCH, end, trips=trips), infeed="1us", depth=1000).total_ps for trips in (50, 100)]
    alone = [run(loop_of(FETCH, end, trips=trips)).total_ps for trips in (50, 100)]
    assert fed[1] - fed[0] < 1.5 * (alone[1] - alone[0])


def test_devices_of_a_chip_that_come_later_share_its_link():
    """One device of each chip is late: what both bring over the link takes twice what one does."""
    chip = load_chip("v7x")
    late = Branch(name="b", opcode="conditional", branches=((), (KERNEL,)), choices=(Choice((1,), (1,)), Choice((0,))))
    end = Wait(name="e", opcode="copy-done", needs=("f",))
    program = program_of(late, loop_of(FETCH, end, trips=500), devices=2)
    run_of_two = simulate_pod([program], chip, parse_topology("v7x:1x1x1"), None, RunOptions(False, True))
    least_ps = 2 * 500 * FETCH.n_bytes / chip.host.bandwidth_bytes_per_second * 1e12
    assert least_ps <= run_of_two.last.total_ps
