"""Plans of several groups at once."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations
from operator import contains

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.machine.collectives import collective, pod_of
from tpusim.cost.collectives import NO_PLAN, plan_group
from tpusim.cost.groups import GroupPlans
from tpusim.cost.links import link_name
from tpusim.program.steps import Algorithm

POD = pod_of("v5e:1x16")
NEAR, FAR = (0, 1), (4, 12)


@pytest.mark.parametrize("groups", [(NEAR, FAR), (FAR, NEAR)])
def test_groups_at_once_take_the_hops_of_the_farthest(groups):
    """Neighbours wait for one hop, devices eight places apart for as many."""
    plan = GroupPlans(POD).at_once(collective("all-gather", 1.0, groups), groups)
    assert plan.hops == plan_group("all-gather", POD, FAR).hops > plan_group("all-gather", POD, NEAR).hops


def test_groups_at_once_carry_the_bytes_of_all():
    """Bytes on the links add up, and each of the chips carries its share."""
    groups = (NEAR, FAR)
    plan = GroupPlans(POD).at_once(collective("all-gather", 1.0, groups), groups)
    n_bytes = sum(plan_group("all-gather", POD, group).load.n_bytes.sum() for group in groups)
    assert plan.load.n_bytes.sum() == pytest.approx(n_bytes)
    assert plan.carried == pytest.approx(n_bytes / 4)


def test_a_message_keeps_the_links_of_the_chips_on_its_way_busy():
    """Three hops are the doing of two chips, and the work of links of four: none is busy for longer than it takes."""
    pairs = ((0, 3),)
    plan = GroupPlans(pod_of("v5e:1x8")).at_once(collective("collective-permute", 1.0, pairs=pairs), pairs)
    assert (plan.carried, plan.passing) == (3 / 2, 3 / 4)


@pytest.mark.parametrize(
    ("kind", "text", "steps"),
    [
        ("all-gather", "v7x:2x2x1", 2),
        ("reduce-scatter", "v7x:2x2x4", 5),
        ("all-reduce", "v7x:2x2x4", 18),
        ("all-reduce", "v5e:1x16", 16),
        ("all-to-all", "v5e:1x16", 1),
        ("collective-broadcast", "v5e:1x16", 9),
    ],
)
def test_messages_of_a_ring_wait_for_each_other(kind, text, steps):
    """Along each axis; an all-reduce goes twice, through both devices of a chip, and waits for the longest way.

    That is a line of four chips with two devices each, and two lines of two chips: 7 + 1 + 1 messages.
    """
    pod = pod_of(text)
    assert plan_group(kind, pod, range(pod.chip_count * (2 if text.startswith("v7x") else 1))).steps == steps


def test_a_message_that_goes_far_is_one_step():
    """It is passed on by the links, not by the chips between."""
    plan = plan_group("collective-broadcast", POD, FAR)
    assert (plan.hops, plan.steps) == (8, 1)


def test_sums_are_passed_on_without_memory():
    """A gather reads again what it has written, an all-reduce has its rings in VMEM."""
    relayed = [plan_group(kind, POD, range(16)).relayed for kind in ("all-gather", "all-reduce")]
    assert relayed == [14 / 16, 0.0]


def test_a_device_in_no_group_has_no_plan():
    """Nothing moves and nothing is waited for."""
    assert GroupPlans(POD).at_once(collective("all-gather", 1.0), ()) is NO_PLAN


@pytest.mark.parametrize(("group", "way"), [((5, 6), (5, "+1")), ((6, 5), (6, "-1"))])
def test_a_broadcast_goes_out_from_the_first(group, way):
    """From one chip to its neighbour there is one link, and it begins at the first of the group."""
    plan = plan_group("collective-broadcast", POD, group)
    assert [link_name(POD, int(link)) for link in plan.load.links] == [way]


@pytest.mark.parametrize(("lanes", "ways"), [(1, 1), (0, 2), (2, 2)])
@pytest.mark.parametrize("count", [2, 5, 16])
def test_a_ring_takes_its_hops_and_each_link_its_share(count, lanes, ways):
    """Neighbours in a row, the last one ``count - 1`` from the first: one way round n - 1 steps, both ways half.

    Steps are of the mean length of the ring; each sends the (n - 1)/n of the others' parts on, in both directions half.
    """
    algorithm = Algorithm("Ring", one_ring=True, lanes=lanes)
    plan = plan_group("all-gather", POD, range(count), algorithm)
    length = 16 if count == 16 else 2 * (count - 1)
    assert plan.hops == (length // 2 if ways == 2 else length * (count - 1) // count)
    assert plan.load.n_bytes.sum() == pytest.approx(length * (count - 1) / count)


@pytest.mark.parametrize("count", [2, 4, 16])
def test_in_a_single_phase_everybody_gets_whole_operands(count):
    """Each link carries n times what it does in a gather of n parts, in as many steps."""
    algorithm = Algorithm("SinglePhaseRingSum", one_ring=True, single_phase=True)
    plan = plan_group("all-reduce", POD, range(count), algorithm)
    gathered = plan_group("all-gather", POD, range(count), Algorithm("Ring", one_ring=True))
    assert plan.load.n_bytes.sum() == pytest.approx(gathered.load.n_bytes.sum() * count)
    assert (plan.hops, plan.steps) == (gathered.hops, gathered.steps)


TORI = [pod_of(text) for text in ("v5e:4x4", "v5e:16x16", "v5e:8x16", "v4:4x4x4", "v4:2x4x4")]


@st.composite
def blocks(draw):
    """Draw a pod, and the chips of a block: on each axis some places, not always neighbours."""
    pod = draw(st.sampled_from(TORI))
    places = [
        sorted(draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3, unique=True)))
        for size in pod.torus.sizes
    ]
    chips = [chip for chip in range(pod.torus.chip_count) if all(map(contains, places, pod.torus.coordinates(chip)))]
    assume(len(chips) > 1)
    return pod, chips


def walked(torus, source, target):
    """Yield the links of the messages of one pair, axis after axis: chip, way, and which part of the bytes goes there.

    Round an axis that closes it goes the shorter way, and half of it each way where both are as long.
    """
    here = list(torus.coordinates(source))
    chip_at = {tuple(torus.coordinates(chip)): chip for chip in range(torus.chip_count)}
    for axis, end in enumerate(torus.coordinates(target)):
        size, start = torus.sizes[axis], here[axis]
        up, down = (end - start) % size, (start - end) % size
        if not torus.wraps[axis]:
            ways = [(1, end - start, 1.0)] if end > start else [(-1, start - end, 1.0)]
        else:
            ways = [(1, up, 0.5), (-1, down, 0.5)] if up == down else [(1, up, 1.0) if up < down else (-1, down, 1.0)]
        for sign, steps, part in ways:
            for step in range(steps):
                here[axis] = (start + sign * step) % size
                yield chip_at[tuple(here)], f"{'+' if sign > 0 else '-'}{axis}", part
        here[axis] = end


@settings(max_examples=50)
@given(blocks())
def test_an_exchange_of_a_block_is_that_of_its_messages(block):
    """Of each device an equal part for every other, walked link by link."""
    pod, chips = block
    expected: dict[tuple[int, str], float] = defaultdict(float)
    for source, target in permutations(chips, 2):
        for chip, way, part in walked(pod.torus, source, target):
            expected[chip, way] += part / len(chips)
    plan = plan_group("all-to-all", pod, [chip * pod.devices_per_chip for chip in chips])
    assert plan.hops == max(pod.torus.distance(*pair) for pair in permutations(chips, 2))
    found = {link_name(pod, int(link)): n for link, n in zip(*plan.load, strict=True)}
    assert found == pytest.approx(dict(expected))


CROSSINGS = {
    "all-gather": (0, 1),
    "reduce-scatter": (0, 1),
    # Scattered, then gathered.
    "all-reduce": (0, 2),
    "all-to-all": (0, 1),
    # To the parts' devices, then gathered.
    "collective-broadcast": (0, 2),
}


@pytest.mark.parametrize("kind", CROSSINGS)
def test_slices_are_crossed_once_in_each_phase(kind):
    """Within one slice never; the data is the same whichever devices of the two take part."""
    pod = pod_of("v5e:2x2*2")
    crossings = CROSSINGS[kind]
    for group, expected in (((0, 1, 2, 3), crossings[0]), (range(8), crossings[1]), ((0, 1, 4, 5), crossings[1])):
        assert plan_group(kind, pod, group).far_hops == expected


def test_a_message_between_slices_crosses_once():
    """Out of one chip and into the other, over no link of either slice."""
    pod = pod_of("v5e:2x2*2")
    plan = GroupPlans(pod).at_once(collective("collective-permute", 1.0, pairs=((0, 5),)), ((0, 5),))
    assert (plan.hops, plan.far_hops, plan.carried) == (0, 1, 0.0)
    assert {link_name(pod, int(link)) for link in plan.load.links} == {(0, "out"), (5, "in")}
