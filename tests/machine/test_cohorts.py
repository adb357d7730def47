"""Which devices part when a wait ends earlier for some of a cohort than for others."""

from __future__ import annotations

from random import Random

import pytest

from tests.lowering.hlo import lower_module_text
from tests.machine.collectives import collective, program_of
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine import run
from tpusim.machine.cohorts import Split, _settled, refined
from tpusim.machine.costs import Costs
from tpusim.machine.placement import RunOptions, assign, pod_of


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
