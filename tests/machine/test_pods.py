"""Many devices: one that stands for all agrees with all of them, bytes are conserved, and nobody is early."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpusim
from tests.machine.collectives import GIB, collective, pod_of, program_of, run
from tpusim.cost.collectives import plan_group
from tpusim.errors import ConfigError, ProgramError, SimulationError
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.placement import pod_of as placed_on
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.pipeline.stages import lower
from tpusim.program.steps import Branch, ChannelTransfer, Choice, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.records import encode_timeline

TRACES = Path(__file__).parents[2] / "traces"
ALL = (tuple(range(16)),)
ROWS = tuple(tuple(range(start, start + 4)) for start in range(0, 16, 4))
COLUMNS = tuple(tuple(range(start, 16, 4)) for start in range(4))
CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
KINDS = ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-broadcast"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [ALL, ROWS, COLUMNS], ids=["all", "rows", "columns"])
@pytest.mark.parametrize("text", ["v5e:4x4", "v3:4x4"])
def test_one_stands_for_all_sixteen(text, groups, kind):
    """The same time for a collective beside a kernel in a loop, whether one device is run or each."""
    groups = groups if text == "v5e:4x4" else tuple(tuple(2 * n + c for n in g) for g in groups for c in (0, 1))
    start = collective(kind, GIB / 64, groups, is_async=True)
    body = (start, KERNEL, Wait(name="d", opcode="wait", needs=("c",)))
    loop = Loop(name="l", opcode="while", trips=3, body=body)
    one, each = (run(text, loop, KERNEL, apart=apart) for apart in (False, True))
    assert len(each.timelines) == (16 if text == "v5e:4x4" else 32)
    assert {timeline.total_ps for timeline in each.timelines} == {one.last.total_ps}
    assert sum(link.n_bytes for link in each.links) == pytest.approx(sum(link.n_bytes for link in one.links))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["v5e:2x2*2", "v5e:2x4"])
@pytest.mark.parametrize("groups", [(), (tuple(range(4)),)], ids=["neighbours", "all"])
def test_copies_of_a_program_exchange_nothing(text, groups, kind):
    """A group of all four devices of the program is one of each copy's four, which take as long as they do alone."""
    step = msgspec.structs.replace(collective(kind, GIB / 64, groups), group_size=4)
    program = program_of(step, devices=4)
    alone, copied = (simulate_pod([program], CHIP, parse_topology(name)) for name in ("v5e:2x2", text))
    assert copied.last.total_ps == alone.last.total_ps
    assert sum(link.n_bytes for link in copied.links) == pytest.approx(2 * sum(link.n_bytes for link in alone.links))


@pytest.mark.parametrize("apart", [False, True])
def test_who_is_alone_is_bound_by_hbm(apart):
    """In a group of one, and in no pair of a permute: nothing goes over a link."""
    alone = msgspec.structs.replace(collective("all-reduce", 8e6, ((0,), (1,), (2,), (3,))), hbm_bytes=8e6)
    done = run("v5e:2x2", alone, apart=apart)
    assert {record.bound_by for timeline in done.timelines for record in timeline.records} == {"HBM"}
    permute = msgspec.structs.replace(collective("collective-permute", 8e6, pairs=((0, 1),)), hbm_bytes=8e6)
    bounds = [timeline.records[0].bound_by for timeline in run("v5e:2x2", permute, apart=True).timelines]
    assert bounds == ["ICI", "ICI", "HBM", "HBM"]


@pytest.mark.parametrize("apart", [False, True])
def test_who_is_alone_launches_nothing(apart):
    """A collective of groups of one that moves nothing through HBM takes no time."""
    assert run("v5e:2x2", collective("all-reduce", 8e6, ((0,), (1,), (2,), (3,))), apart=apart).last.total_ps == 0


@pytest.mark.parametrize("shift", [1, 5])
def test_devices_of_a_permute_carry_what_its_links_do(shift):
    """A device that both sends and receives counts both of its pairs: over all devices that is what the links carry."""
    permute = collective("collective-permute", 1e6, pairs=tuple((n, (n + shift) % 16) for n in range(16)))
    done = run("v5e:4x4", permute, apart=True)
    carried_bytes = sum(timeline.records[0].activity["ici"] for timeline in done.timelines)
    assert carried_bytes == pytest.approx(sum(link.n_bytes for link in done.links))


def test_long_loops_of_all_devices_jump_together():
    """A million trips of a permute round a ring take as long as one, a million times."""
    permute = collective("collective-permute", 1e6, pairs=tuple((n, (n + 1) % 16) for n in range(16)))
    body = (permute, Loop(name="i", opcode="while", trips=9, body=(KERNEL,)))
    loops = (Loop(name="l", opcode="while", trips=trips, body=body) for trips in (1, 1_000_000))
    one, many = (run("v5e:1x16", loop, apart=True) for loop in loops)
    assert many.last.total_ps == 1_000_000 * one.last.total_ps
    sent = [sum(link.n_bytes for link in each.links) for each in (one, many)]
    assert sent == pytest.approx([16e6, 16e12])


def loops_of_pairs(first_trips: int, second_trips: int, *, branches: bool) -> list:
    """Return loops of an all-reduce in pairs: two of one name in two branches, or one with trips of two kinds."""
    reduce = collective("all-reduce", 1e6, ((0, 1), (2, 3)))
    loops = [
        Loop(name="l", opcode="while", trips=trips, body=(KERNEL,) * count + (reduce,))
        for count, trips in ((1, first_trips), (2, second_trips))
    ]
    if branches:
        choices = (Choice((0,), (0, 1)), Choice((1,), (2, 3)))
        return [Branch(name="b", opcode="conditional", branches=tuple((loop,) for loop in loops), choices=choices)]
    choices = (Choice((first_trips,), (0, 1)), Choice((second_trips,), (2, 3)))
    return [msgspec.structs.replace(loops[0], choices=choices)]


@pytest.mark.parametrize("branches", [True, False])
@pytest.mark.parametrize("trips", [(50, 50), (50, 70), (70, 50)])
def test_bytes_of_loops_of_which_devices_turn_differently_are_all_counted(branches, trips):
    """An all-reduce in pairs sends its bytes once each way: twice its bytes for each trip of each pair."""
    done = run("v5e:2x2", *loops_of_pairs(*trips, branches=branches), apart=True)
    assert sum(link.n_bytes for link in done.links) == pytest.approx(2e6 * sum(trips))


@settings(max_examples=40, deadline=None)
@given(
    text=st.sampled_from(["v5e:4x4", "v5e:1x16", "v3:4x4", "v4:4x4x4", "v4:2x2x4", "v5p:4x4x8", "v5e:3x5"]),
    data=st.data(),
)
def test_every_chip_takes_in_the_share_of_the_others(text, data):
    """Over the links into a chip come (n-1)/n of the bytes of a gather: no more, no less, whatever block it is of."""
    check_taken_in(text, data)


@settings(max_examples=40, deadline=None)
@given(text=st.sampled_from(["v4:4x4x8", "v5p:4x8x8"]), data=st.data())
def test_a_line_that_a_twist_leads_out_of_does_not_close(text, data):
    """The same on twisted tori: no bytes of a block go to chips outside of it as if they were of it."""
    check_taken_in(text, data)


def check_taken_in(text, data) -> None:
    """Draw a block and compare what its chips take in."""
    torus = pod_of(text).torus
    corner = [data.draw(st.integers(0, size - 1)) for size in torus.sizes]
    # Whole axes come up as often as others: they are what closes.
    corner = [0 if data.draw(st.booleans()) else start for start in corner]
    whole = [data.draw(st.booleans()) for _ in corner]
    ends = [
        size - 1 if all_of_it else data.draw(st.integers(start, size - 1))
        for start, size, all_of_it in zip(corner, torus.sizes, whole, strict=True)
    ]
    spans = [range(start, end + 1) for start, end in zip(corner, ends, strict=True)]
    places = [torus.coordinates(chip) for chip in range(torus.chip_count)]
    chips = [torus.number(p) for p in places if all(x in span for x, span in zip(p, spans, strict=True))]
    pod = pod_of(text)
    way = plan_group("all-gather", pod, [chip * pod.devices_per_chip for chip in chips])
    taken_in = dict.fromkeys(range(torus.chip_count), 0.0)
    for link, n_bytes in zip(way.load.links, way.load.n_bytes, strict=True):
        chip, rest = divmod(int(link), 2 * len(torus.sizes))
        taken_in[torus.number(torus.step(torus.coordinates(chip), rest // 2, bool(rest % 2)))] += n_bytes
    expected = dict.fromkeys(chips, (len(chips) - 1) / len(chips))
    assert {chip: taken_in[chip] for chip in chips} == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(16)), st.sampled_from([2, 4, 8, 16]), st.sampled_from(["v5e:4x4", "v4:2x2x4"]))
def test_all_to_all_moves_every_message_over_its_distance(order, size, text):
    """Bytes over links add up to the distances of all pairs of a group, any chips in any order."""
    pod = pod_of(text)
    group = order[:size] if text == "v5e:4x4" else [2 * number for number in order[:size]]
    way = plan_group("all-to-all", pod, group)
    chips = [pod.chip_of(device) for device in group]
    distance = sum(pod.torus.distance(a, b) for a in chips for b in chips)
    assert way.load.n_bytes.sum() == pytest.approx(distance / size)


def test_each_stage_of_a_pipeline_works_in_its_turn():
    """Compiled from JAX for 16 stages: stage n works on trips n to n + 3 of 20 (four microbatches), and only then."""
    program = lower(TRACES / "pipeline.v5e_4x4.hlo.txt.gz")
    done = simulate_pod([program], load_chip("v5e"))
    for timeline in done.timelines:
        worked = [record.start_ps for record in timeline.records if record.name == "convolution_tanh_fusion"]
        trips = [record.start_ps for record in timeline.records if record.opcode == "while"]
        assert [sum(trip <= start for trip in trips) - 1 for start in worked] == [timeline.device + n for n in range(4)]


def test_nobody_ends_before_the_last_has_come():
    """One device comes late to an all-gather; all end after it has come."""
    gather = collective("all-gather", 1e6, ((0, 1),), channel_id=1)
    late = [KERNEL] * 5
    programs = [program_of(gather), program_of(*late, gather)]
    done = simulate_pod(programs, load_chip("v5e"))
    came_ps = next(r.start_ps for r in done.timelines[1].records if r.name == "c")
    assert all(timeline.total_ps > came_ps > 0 for timeline in done.timelines)
    assert done.timelines[0].total_ps == done.timelines[1].total_ps


def test_ten_runs_of_all_devices_give_one_time_line():
    """Bit for bit."""
    permute = collective("collective-permute", 1e6, pairs=((0, 5), (5, 3), (1, 2)), is_async=True)
    steps = (permute, collective("all-reduce", 1e6, ROWS), Wait(name="d", opcode="wait", needs=("c",)))
    runs = [run("v5e:4x4", *steps, apart=True) for _ in range(10)]
    assert len({tuple(encode_timeline(timeline) for timeline in one.timelines) for one in runs}) == 1


PAIRS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=16)


def pairs_of(drawn) -> tuple[tuple[int, int], ...]:
    """Return drawn pairs of which each device sends to one and receives from one at most."""
    senders, receivers, kept = set(), set(), []
    for source, target in drawn:
        if source not in senders and target not in receivers:
            kept.append((source, target))
            senders.add(source)
            receivers.add(target)
    return tuple(kept)


@settings(max_examples=40, deadline=None)
@given(PAIRS, PAIRS, st.permutations(range(16)), st.sampled_from([2, 4, 8]), st.booleans())
def test_devices_that_keep_in_step_are_run_once_and_agree(first, second, order, size, beside):
    """Any two permutes in a loop with any groups between: the same time lines as of each device by itself."""
    groups = tuple(tuple(sorted(order[start : start + size])) for start in range(0, 16, size))
    start = collective("collective-permute", 3e6, pairs=pairs_of(first), is_async=beside)
    other = msgspec.structs.replace(start, name="e", pairs=pairs_of(second), is_async=False)
    gather = msgspec.structs.replace(collective("all-gather", 1e6, groups), name="g")
    body = (start, KERNEL, other, gather, Wait(name="d", opcode="wait", needs=("c",) if beside else ()))
    program = program_of(Loop(name="l", opcode="while", trips=9, body=body), KERNEL, devices=16)
    few, each = (
        simulate_pod([program], CHIP, parse_topology("v5e:4x4"), None, RunOptions(per_device=apart))
        for apart in (None, True)
    )
    assert [timeline.total_ps for timeline in few.timelines] == [timeline.total_ps for timeline in each.timelines]
    assert [(link.chip, link.way) for link in few.links] == [(link.chip, link.way) for link in each.links]
    assert [link.n_bytes for link in few.links] == pytest.approx([link.n_bytes for link in each.links])


MANY = 1024
REDUCE = collective("all-reduce", 1e6, (tuple(range(MANY)),), channel_id=1)


def run_many(*steps, apart: bool | None = None):
    """Return the run of some steps on 1024 devices."""
    return run("v5p:8x8x16", *steps, apart=apart)


def test_many_devices_with_trips_of_their_own_wait_for_the_slowest():
    """128 different trip counts on 1024 devices: as with each by itself, and 128 times the loop of one trip."""
    trips = tuple(Choice((n // 8 + 1,), (n,)) for n in range(MANY))
    loop = Loop(name="l", opcode="while", trips=1, body=(KERNEL,), choices=trips)
    few, each = (run_many(loop, REDUCE, apart=apart) for apart in (None, True))
    one, none = (run_many(*steps).last.total_ps for steps in ((msgspec.structs.replace(loop, choices=()), REDUCE), ()))
    assert few.last.total_ps == each.last.total_ps
    assert few.last.total_ps - one == 127 * (run_many(msgspec.structs.replace(loop, choices=())).last.total_ps - none)
    assert few.warnings == ()


def test_many_devices_of_which_half_reduce_wait_for_ever():
    """Also where there are too many kinds of devices to run one of each."""
    trips = tuple(Choice((n // 8 + 1,), (n,)) for n in range(MANY))
    loop = Loop(name="l", opcode="while", trips=1, body=(KERNEL,), choices=trips)
    halves = tuple(Choice((n % 2,), (n,)) for n in range(MANY))
    branch = Branch(name="b", opcode="conditional", choices=halves, branches=((REDUCE,), ()))
    with pytest.raises(SimulationError, match=r"device 0 waits at all-reduce 'c' .* from device 1, which has ended"):
        run_many(loop, branch)


def test_a_choice_of_one_device_alone_counts():
    """Device 3 turns nine times and the others, of which nothing is said, once."""
    loop = Loop(name="l", opcode="while", trips=1, body=(KERNEL,), choices=(Choice((9,), (3,)),))
    reduce = collective("all-reduce", 1e6, ALL)
    totals = [run("v5e:4x4", loop, reduce, apart=apart).last.total_ps for apart in (None, True)]
    assert totals[0] == totals[1]


def test_a_device_that_stands_for_unlike_ones_is_no_faster_and_says_so():
    """A permute in any order on 576 devices: no device of the run apart ends later, and the run has a warning."""
    order = random.Random(1).sample(range(576), 576)
    permute = collective("collective-permute", 1e6, pairs=tuple(enumerate(order)))
    twice = (permute, msgspec.structs.replace(permute, name="d", pairs=tuple(enumerate(order[1:]))))
    program = msgspec.structs.replace(program_of(*twice, devices=576), chip="v5p")
    one = tpusim.simulate(program, topology="v5p:8x8x9")
    each = run("v5p:8x8x9", *twice, apart=True)
    assert len(one.pod.timelines) == 1
    assert one.timeline.total_ps >= each.last.total_ps
    assert "device 0 stands for all 576" in str(one)
    assert each.warnings == ()


def ring_of(*numbers: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of a ring through some devices."""
    return tuple(zip(numbers, (*numbers[1:], numbers[0]), strict=True))


RING = ring_of(*range(16))
TWO_RINGS = ring_of(*range(8)) + ring_of(*range(8, 16))


def exchange(pairs):
    """Return the steps of a message between some pairs of devices."""
    both = {"n_bytes": 1e6, "channel_id": 1, "pairs": pairs}
    receive = ChannelTransfer(name="r", opcode="recv", is_send=False, **both)
    send = ChannelTransfer(name="s", opcode="send", is_send=True, **both)
    return receive, send, Wait(name="d", opcode="recv-done", needs=("r", "s"))


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize(
    ("pairs", "order"),
    [
        (RING, "ring"),
        (tuple((target, source) for source, target in RING), "ring"),
        (RING[:-1], "ring"),
        (TWO_RINGS, "listed"),
        (RING[:7] + RING[8:-1], "listed"),
        (ring_of(*range(8)), "listed"),
        (((0, 5), (5, 3), (1, 2)), "listed"),
    ],
)
def test_devices_are_numbered_along_a_ring_if_pairs_are_one(pairs, order, is_sent):
    """A cycle or a chain of all 16 is of a mesh of one axis; two rings, or one of half of them, are not."""
    steps = exchange(pairs) if is_sent else (collective("collective-permute", 1e6, pairs=pairs),)
    assert run("v5e:4x4", *steps).device_order == order


def test_devices_that_do_not_meet_are_on_no_ring():
    """Nothing says that their mesh has one axis."""
    assert simulate_pod([program_of(KERNEL, devices=16)], CHIP).device_order == "listed"


def test_the_hops_of_a_ring_are_those_of_its_order():
    """One hop each along a ring; in listed order on a 4x4 mesh a ring of 8 goes back 3 columns and a row at its end."""
    permutes = (collective("collective-permute", 1e6, pairs=pairs) for pairs in (RING, TWO_RINGS))
    one, two = (run("v5e:4x4", permute).last.total_ps for permute in permutes)
    pod = pod_of("v5e:4x4")
    farthest = max(pod.torus.distance(a, b) for a, b in TWO_RINGS)
    assert farthest == 4
    assert two - one >= 3 * round(CHIP.ici.hop_latency_seconds * 1e12)


def test_a_ring_of_half_a_larger_slice_is_not_one_of_all():
    """A program for 8 chips on 16: two rings of its own, each along a ring where it has a slice to itself."""
    permute, reduce = collective("collective-permute", 1e6, pairs=ring_of(*range(8))), collective("all-reduce", 1e6)
    for step in (permute, msgspec.structs.replace(reduce, group_size=8)):
        program, names = program_of(step, devices=8), ("v5e:2x4", "v5e:4x4", "v5e:2x4*2")
        orders = [simulate_pod([program], CHIP, parse_topology(name)).device_order for name in names]
        assert orders == ["ring", "listed", "ring"]


GATHER = program_of(collective("all-gather", 1e6, (tuple(range(8)),)), devices=8)
HALVES = program_of(collective("all-reduce", 1e6, (tuple(range(4)), tuple(range(4, 8)))), devices=8)
STATED = msgspec.structs.replace(GATHER, topology="v5e:1x8", device_order=(*range(4), *range(7, 3, -1)))
ALONE = program_of(KERNEL)


@pytest.mark.parametrize(
    ("programs", "sizes", "slices"),
    [
        ([GATHER, ALONE], (2, 4), 2),
        ([GATHER, GATHER], (2, 4), 2),
        ([HALVES, ALONE, ALONE], (2, 4), 2),
        ([STATED, ALONE], (1, 8), 2),
        ([ALONE] * 4, (2, 2), 1),
    ],
)
def test_programs_side_by_side_lie_as_each_does_alone(programs, sizes, slices):
    """On the slice that each has alone, its devices in that order; and none of them is slower."""
    run, alone = simulate_pod(programs, CHIP), simulate_pod(programs[:1], CHIP)
    assert (run.sizes, run.slices, run.warnings) == (sizes, slices, ())
    assert run.timelines[0].total_ps == alone.last.total_ps


@pytest.mark.parametrize(
    ("programs", "place"),
    [
        ([ALONE, GATHER], "beside others its 8 devices lie on 3x3 chips, numbered from 1 on, and not as alone on 2x4"),
        ([GATHER, HALVES], "beside others its 8 devices lie on 2x4 chips, numbered from 0 on, and not as alone on 2x4"),
        ([GATHER, STATED], "beside others its 8 devices lie on 4x4 chips, numbered from 8 on, and not as alone on 1x8"),
    ],
)
def test_a_program_that_lies_otherwise_than_alone_is_said(programs, place):
    """One chip before it, another order of its slice, another slice."""
    assert any(place in warning for warning in simulate_pod(programs, CHIP).warnings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama8b_decode_tp.v5e_2x4", "gpt2_train_fsdp.v5p_4x4x4"])
def test_compiled_programs_take_as_long_on_one_as_on_each(name):
    """A decoding step on 8 chips, a training step on 64."""
    program = lower(TRACES / f"{name}.hlo.txt.gz")
    chip = load_chip(program.chip)
    one, each = (simulate_pod([program], chip, None, None, RunOptions(per_device=apart)) for apart in (False, True))
    assert len(each.timelines) == program.device_count
    assert each.last.total_ps == one.last.total_ps


def test_a_program_beyond_a_pod_has_as_many_slices_as_it_fits_on():
    """Groups of 512 devices on v5e, whose pods have 256 chips: two slices, of the usual shape each."""
    chip = load_chip("v5e")
    everyone = tuple(range(2 * chip.pod.chips))
    pod = placed_on([program_of(collective("all-reduce", 1024.0, groups=(everyone,)))], chip, None)
    assert (pod.slices, pod.torus.chip_count) == (2, chip.pod.chips)


def test_programs_side_by_side_name_their_own_devices_only():
    """Those of the second are counted from its first, so that others of its numbers would be nobody's."""
    far = program_of(collective("all-reduce", 8.0, ((0, 9),), channel_id=1), devices=2)
    with pytest.raises(ProgramError, match="name 10 devices, the program is for 2"):
        simulate_pod([far, far], CHIP)


@pytest.mark.parametrize(("text", "there"), [("v5e:2x2", "0 to 3"), ("v5e:1", "0")])
def test_a_figure_of_a_device_that_is_not_there_is_refused(text, there):
    """As one of a link is: nothing that somebody asks for changes nothing in silence."""
    chip = load_chip("v5e", {"devices.4.clock": 0.5})
    with pytest.raises(ConfigError, match=f"which has {there}, found 4"):
        simulate_pod([program_of(KERNEL, devices=1)], chip, parse_topology(text))
