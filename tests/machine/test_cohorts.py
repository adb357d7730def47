"""Which devices part when a wait ends earlier for some of a cohort than for others."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.lowering.hlo import lower_module_text
from tests.machine.collectives import collective, program_of
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine import run
from tpusim.machine.cohorts import ONE_FOR_ALL, Split, _settled, cohorts_of, refined
from tpusim.machine.costs import Costs
from tpusim.machine.placement import RunOptions, assign, pod_of
from tpusim.program.steps import Wait

CHIP, WAYS = load_chip("v5e"), (RunOptions(False), RunOptions(False, True))


def cut(groups, ends_ps, *, deep):
    """Return the cohorts of four devices, together before, for which an all-reduce in these groups ends like this."""
    step = collective("all-reduce", 1e6, groups)
    program, chip = program_of(step, devices=4), load_chip("v5e")
    costs = Costs(chip, pod_of([program], chip, parse_topology("v5e:2x2")))
    split = Split(step, dict(enumerate(ends_ps)))
    return sorted(refined(costs, assign([program], 4), [(0, 1, 2, 3)], split, deep=deep))


def test_a_cut_parts_devices_for_which_the_wait_ends_at_different_times():
    """The third and fourth are of one group, but only the fourth is late."""
    assert cut(((0, 1), (2, 3)), (5, 5, 5, 7), deep=False) == [(0, 1, 2), (3,)]


def test_a_deep_cut_parts_those_that_wait_for_a_late_one_as_well():
    """The partner of the late one will be late itself the next time."""
    assert cut(((0, 1), (2, 3)), (5, 5, 5, 7), deep=True) == [(0, 1), (2,), (3,)]


def test_a_deep_cut_keeps_devices_together_whose_groups_are_alike():
    """Pairs of an early and a late device, whichever of them is named first: a sum has no order."""
    assert cut(((0, 1), (3, 2)), (5, 7, 5, 7), deep=True) == [(0, 2), (1, 3)]


UNLIKE = ((7, 2, 0, 3), (5, 1, 6, 4))
ALL, ROWS, BY_TWOS = ((0, 1, 2, 3, 4, 5, 6, 7),), ((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 4), (2, 6), (1, 5), (3, 7))


def beside(sync, started) -> tuple:
    """Return an all-reduce of some groups that is started, and the reduce-scatter of others that runs beside it."""
    start = collective("all-reduce", 4e6, started, is_async=True)
    scatter = msgspec.structs.replace(collective("reduce-scatter", 4e6, sync), name="s")
    return start, scatter, Wait(name="d", opcode="wait", needs=("c",))


def ends_ps(found) -> tuple[int, int]:
    """Return when the first and the last device of a run ended."""
    totals_ps = [timeline.total_ps for timeline in found.timelines]
    return min(totals_ps), max(totals_ps)


def stands_for_all(text: str, *steps) -> bool:
    """Return whether one device of eight stands for all."""
    program, topology = program_of(*steps, devices=8), parse_topology(text)
    chip = load_chip(topology.chip, {"devices.0.clock": 1.0})
    costs = Costs(chip, pod_of([program], chip, topology))
    return cohorts_of(costs, assign([program], 8), RunOptions(False)) == (ONE_FOR_ALL, ())


@pytest.mark.parametrize("started", [ALL, ROWS, BY_TWOS])
@pytest.mark.parametrize("sync", [UNLIKE, ALL, ROWS, BY_TWOS])
@pytest.mark.parametrize("text", ["v5e:2x4", "v5e:1x8"])
def test_devices_are_together_only_where_each_by_itself_ends_with_the_others(text, sync, started):
    """Groups may ask for as much by themselves, and get less than others where another collective meets them."""
    program, slice_ = program_of(*beside(sync, started), devices=8), parse_topology(text)
    first, last = zip(*(ends_ps(run.simulate_pod([program], CHIP, slice_, None, way)) for way in WAYS), strict=True)
    assert (first[0], last[0]) == pytest.approx((first[1], last[1]), abs=2)


@pytest.mark.parametrize(
    ("text", "steps", "is_one"),
    [
        ("v5e:2x4", beside(UNLIKE, ALL), False),
        ("v5e:2x4", beside(ROWS, ROWS), True),
        ("v5e:2x4", (collective("all-gather", 4e6, ALL), collective("reduce-scatter", 4e6, ROWS)), True),
        ("v5p:2x2x2", beside(ROWS, ALL), True),
    ],
    ids=["unlike", "rows", "one after the other", "all look the same"],
)
def test_one_device_stands_for_all_whose_groups_meet_alike(text, steps, is_one):
    """One that is said to be as fast as its fellows is one of them."""
    assert stands_for_all(text, *steps) == is_one


def twin(colours, groups, *, is_ordered):
    """Cut all again by what they meet, until nothing is cut: the definition."""
    while True:
        meets = {number: (colour, []) for number, colour in colours.items()}
        for group in groups:
            present = [colours.get(member, -1) for member in group]
            for place, member in enumerate(dict.fromkeys(group)):
                if member in meets:
                    meets[member][1].append((place, present) if is_ordered else (0, sorted(present)))
        texts = {number: repr((colour, sorted(met))) for number, (colour, met) in meets.items()}
        known = sorted(set(texts.values()))
        found = {number: known.index(text) for number, text in texts.items()}
        if len(known) == len(set(colours.values())):
            return found
        colours = found


def parts(colours):
    """Return who has the colour of whom."""
    found = {}
    for number, colour in sorted(colours.items()):
        found.setdefault(colour, []).append(number)
    return sorted(found.values())


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("is_ordered", [False, True])
def test_cuts_are_those_of_the_definition(seed, is_ordered):
    """Of groups of any size, with some devices in none and some groups of devices that are not simulated."""
    random = Random(seed)
    count = random.randrange(2, 40)
    size = random.choice((2, 2, 3, 8))
    groups = [tuple(random.choices(range(count + 3), k=random.randrange(1, size + 1))) for _ in range(count)]
    line = [(number, number + 1) for number in range(count)]
    for each in (groups, line):
        colours = {number: int(random.random() < 0.2) for number in range(count)}
        colours = {number: colour if 1 in colours.values() else 0 for number, colour in colours.items()}
        if 0 not in colours.values():
            colours = dict.fromkeys(colours, 0)
        found = _settled(colours, each, is_ordered=is_ordered)
        assert parts(found) == parts(twin(colours, each, is_ordered=is_ordered))


def test_devices_that_part_one_by_one_are_soon_run_by_themselves(monkeypatch):
    """Sixty permutes beside the core, each between two of sixty devices: the run began again 45 times."""
    array = "f32[8,128]{1,0:T(8,128)}"
    starts = [
        f"s_{n} = ({array}, {array}, u32[], u32[]) collective-permute-start(p), channel_id={n + 1},"
        f" source_target_pairs={{{{{n},{(n * 7 + 1) % 60}}}}}"
        for n in range(60)
    ]
    ends = [f"d_{n} = {array} collective-permute-done(s_{n})" for n in range(60)]
    lines = "\n".join([f"p = {array} parameter(0)", *starts, *ends, f"ROOT r = {array} add(d_0, p)"])
    program = lower_module_text(
        f"HloModule m, is_scheduled=true, num_partitions=60\n\nENTRY e {{\n{lines}\n}}\n", "v5p"
    )
    runs = []
    monkeypatch.setattr(run, "_Run", lambda *given: runs.append(given[2]) or began(*given))
    chip, slice_ = load_chip("v5p"), parse_topology("v5p:4x4x4")
    found, each = (run.simulate_pod([program], chip, slice_, None, RunOptions(False, way)) for way in (None, True))
    assert sum(map(len, runs[:-1])) < 3 * 64
    assert [line.records for line in found.timelines] == [line.records for line in each.timelines]


began = run._Run
