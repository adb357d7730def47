"""Many devices: one that stands for all agrees with all of them, bytes are conserved, and nobody is early."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.collectives import GIB, collective, pod_of, program_of, run
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.core import RunOptions, simulate_pod
from tpusim.machine.routing import plan_group
from tpusim.pipeline import lower
from tpusim.program.steps import Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.timeline.store import encode_timeline

TRACES = Path(__file__).parents[2] / "traces"
ALL = (tuple(range(16)),)
ROWS = tuple(tuple(range(start, start + 4)) for start in range(0, 16, 4))
COLUMNS = tuple(tuple(range(start, 16, 4)) for start in range(4))
CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(valu=1e6))
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


@pytest.mark.parametrize("apart", [False, True])
def test_who_is_alone_is_bound_by_hbm(apart):
    """In a group of one, and in no pair of a permute: nothing goes over a link."""
    alone = msgspec.structs.replace(collective("all-reduce", 8e6, ((0,), (1,), (2,), (3,))), hbm_bytes=8e6)
    done = run("v5e:2x2", alone, apart=apart)
    assert {record.bound_by for timeline in done.timelines for record in timeline.records} == {"HBM"}
    permute = msgspec.structs.replace(collective("collective-permute", 8e6, pairs=((0, 1),)), hbm_bytes=8e6)
    bounds = [timeline.records[0].bound_by for timeline in run("v5e:2x2", permute, apart=True).timelines]
    assert bounds == ["ICI", "ICI", "HBM", "HBM"]


def test_long_loops_of_all_devices_jump_together():
    """A million trips of a permute round a ring take as long as one, a million times."""
    permute = collective("collective-permute", 1e6, pairs=tuple((n, (n + 1) % 16) for n in range(16)))
    body = (permute, Loop(name="i", opcode="while", trips=9, body=(KERNEL,)))
    loops = (Loop(name="l", opcode="while", trips=trips, body=body) for trips in (1, 1_000_000))
    one, many = (run("v5e:1x16", loop, apart=True) for loop in loops)
    assert many.last.total_ps == 1_000_000 * one.last.total_ps
    sent = [sum(link.n_bytes for link in each.links) for each in (one, many)]
    assert sent == pytest.approx([16e6, 16e12])


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
        simulate_pod([program], CHIP, parse_topology("v5e:4x4"), None, RunOptions(apart=apart))
        for apart in (None, True)
    )
    assert [timeline.total_ps for timeline in few.timelines] == [timeline.total_ps for timeline in each.timelines]
    assert [(link.chip, link.way) for link in few.links] == [(link.chip, link.way) for link in each.links]
    assert [link.n_bytes for link in few.links] == pytest.approx([link.n_bytes for link in each.links])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama8b_decode_tp.v5e_2x4", "gpt2_train_fsdp.v5p_4x4x4"])
def test_compiled_programs_take_as_long_on_one_as_on_each(name):
    """A decoding step on 8 chips, a training step on 64."""
    program = lower(TRACES / f"{name}.hlo.txt.gz")
    chip = load_chip(program.chip)
    one, each = (simulate_pod([program], chip, None, None, RunOptions(apart=apart)) for apart in (False, True))
    assert len(each.timelines) == program.device_count
    assert each.last.total_ps == one.last.total_ps
