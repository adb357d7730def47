"""Plans of groups that are made once for all that lie alike, beside those of every group by itself."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations, product
from operator import mul

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.collectives import collective, pod_of
from tpusim.cost.collectives import plan_group, plan_messages
from tpusim.cost.groups import GroupPlans
from tpusim.cost.models.algorithms import ALGORITHMS
from tpusim.cost.models.fabrics import with_faults
from tpusim.cost.shares import plan_shares
from tpusim.program.steps import Algorithm

# A torus, a mesh, half of each, twisted along two axes and along one, several slices with two devices on each chip.
PODS = [pod_of(text) for text in ("v4:4x4x4", "v5e:3x5", "v5e:3x16", "v4:4x4x8", "v4:8x4x8", "tpu7x:2x3x1*3")]
KINDS = ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"]
WAYS = [None, Algorithm("ring", one_ring=True), Algorithm("lanes", lanes=2, one_way=True)]


@st.composite
def cases(draw):
    """Draw a pod, a collective, and groups of it: of any devices, and of others some places further on."""
    pod, kind = draw(st.sampled_from(PODS)), draw(st.sampled_from(KINDS))
    every = st.integers(0, pod.device_count - 1)
    size = 2 if kind == "collective-permute" else draw(st.integers(1, 6))
    first = draw(st.lists(st.lists(every, min_size=size, max_size=size, unique=True), min_size=1, max_size=3))
    further = [0, *(pod.devices_per_chip * stride for stride in (*pod.torus.strides, pod.torus.chip_count))]
    by = draw(st.lists(st.sampled_from(further), max_size=3))
    groups = [tuple((number + far) % pod.device_count for number in group) for group in first for far in (0, *by)]
    shares = draw(st.sampled_from([(), (0.5, *(0.1,) * (size - 1))])) if kind == "all-to-all" else ()
    return pod, collective(kind, 1.0, shares=shares, algorithm=draw(st.sampled_from(WAYS))), groups


def by_itself(step, pod, group, own):
    """Return the plan of a group, made where it lies."""
    if step.kind == "collective-permute":
        return plan_messages(pod, [(*group, 1.0)])
    if step.shares:
        return plan_shares(pod, group, step.shares)
    return plan_group(step.kind, pod, group, step.algorithm, own)


def by_link(*plans):
    """Return the bytes of plans on each link."""
    carried: dict[int, float] = defaultdict(float)
    for plan in plans:
        for link, n_bytes in zip(*plan.load, strict=True):
            carried[int(link)] += float(n_bytes)
    return carried


@settings(max_examples=200)
@given(cases(), st.sampled_from(["native", "ring", "halving"]))
def test_groups_that_lie_alike_ask_for_what_each_by_itself_would(case, algorithm):
    """The same bytes on the same links, and the same hops and steps, wherever on a torus a group lies."""
    pod, step, groups = case
    own = ALGORITHMS.named(algorithm, {})
    plans, expected = GroupPlans(pod, own), [by_itself(step, pod, group, own) for group in groups]
    at_once = plans.at_once(step, groups)
    assert by_link(at_once) == pytest.approx(by_link(*expected))
    farthest = max((plan.far_hops, plan.hops) for plan in expected)
    is_permute = step.kind == "collective-permute"
    assert (at_once.far_hops, at_once.hops) == (
        farthest[0],
        max(p.hops for p in expected) if is_permute else farthest[1],
    )
    for found, plan in zip(plans.of_each(step, groups), expected, strict=True):
        assert by_link(found) == pytest.approx(by_link(plan))
        assert found._replace(load=plan.load, carried=0.0, passing=0.0) == plan


@pytest.mark.parametrize(
    "steps",
    [
        [collective("all-gather", 1.0, algorithm=way) for way in WAYS],
        [collective("all-to-all", 1.0, shares=shares) for shares in ((), (0.5, *(0.1,) * 15), (0.1, *(0.5,) * 15))],
    ],
    ids=["algorithms", "shares"],
)
def test_steps_that_differ_have_plans_of_their_own(steps):
    """Whatever the same groups were asked for before."""
    pod, groups = PODS[0], [tuple(range(16)), tuple(range(16, 32))]
    plans = GroupPlans(pod)
    found, fresh = (
        [(sorted(by_link(plan).items()), plan.steps) for plan in made]
        for made in ([plans.at_once(s, groups) for s in steps], [GroupPlans(pod).at_once(s, groups) for s in steps])
    )
    assert found == fresh
    assert len(set(map(str, found))) == len(steps)


def test_a_group_whose_link_is_down_is_not_like_others():
    """What would take the link goes round it, while others far from it do not."""
    pod = with_faults(pod_of("v5e:1x16"), ("0:+1",), {})
    pairs = ((0, 1), (4, 5))
    plans = GroupPlans(pod).of_each(collective("collective-permute", 1.0, pairs=pairs), pairs)
    assert [plan.hops for plan in plans] == [15, 1]


def test_groups_on_the_same_chips_ask_for_twice_as_much():
    """Each of the two devices of every chip is in a group of its own."""
    pod = pod_of("tpu7x:2x2x1")
    groups = ((0, 2, 4, 6), (1, 3, 5, 7))
    step = collective("all-gather", 1.0, groups)
    both, one = (GroupPlans(pod).at_once(step, some) for some in (groups, groups[:1]))
    assert by_link(both) == {link: 2 * n_bytes for link, n_bytes in by_link(one).items()}


def test_a_slice_that_chooses_by_size_chooses_for_each_size():
    """The same groups again, with more bytes: the plan kept for them is another's, as one made anew shows."""
    pod, groups = pod_of("v5e:1x16"), (tuple(range(16)),)
    steps = [
        msgspec.structs.replace(
            collective("all-reduce", 1.0, groups, algorithm=Algorithm("", by_slice=True)), n_bytes=n_bytes
        )
        for n_bytes in (1e3, 1e9)
    ]
    kept, anew = GroupPlans(pod), [GroupPlans(pod).at_once(step, groups) for step in steps]
    assert [by_link(kept.at_once(step, groups)) for step in steps] == [by_link(plan) for plan in anew]
    assert by_link(anew[0]) != by_link(anew[1])


@given(st.sampled_from(["v5p:4x4x4", "v5e:16x16", "v5p:8x8x8"]).map(pod_of), st.sampled_from(KINDS[:4]), st.data())
def test_a_block_of_a_torus_takes_the_same_wherever_it_lies(pod, kind, data):
    """Neighbours may have the end of an axis between them: the link round joins them as any other would."""
    sizes = pod.torus.sizes
    block = [data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4, unique=True)) for size in sizes]
    plans = []
    for by in ([0] * len(sizes), [data.draw(st.integers(0, size - 1)) for size in sizes]):
        moved = [[(place + far) % size for place in line] for line, far, size in zip(block, by, sizes, strict=True)]
        chips = [sum(map(mul, place, pod.torus.strides)) for place in product(*moved)]
        plan = plan_group(kind, pod, sorted(chips))
        plans.append((plan.hops, plan.steps, sorted(by_link(plan).values())))
    assert plans[0][:2] == plans[1][:2]
    assert plans[0][2] == pytest.approx(plans[1][2])


@given(st.sampled_from(["v5p:4x4x8", "v5p:4x8x8"]).map(pod_of), st.data())
def test_chips_of_a_twisted_torus_exchange_on_the_ways_of_every_pair(pod, data):
    """Each sends one byte in all, the same part to every other, in equal shares on all shortest ways."""
    chips = data.draw(st.lists(st.integers(0, pod.torus.chip_count - 1), min_size=2, max_size=12, unique=True))
    expected: dict[int, float] = defaultdict(float)
    hops = 0
    for source, target in permutations(chips, 2):
        ways = pod.torus.displacements(source, target)
        for way in ways:
            route = pod.torus.route(source, way)
            hops = max(hops, len(route))
            for link in route:
                expected[link] += 1 / len(chips) / len(ways)
    plan = plan_group("all-to-all", pod, chips)
    assert pod.torus.twist
    assert (by_link(plan), plan.hops) == (pytest.approx(expected), hops)


@pytest.mark.parametrize("kind", KINDS)
def test_loads_of_many_links_are_added_in_the_same_order(monkeypatch, kind):
    """Some links at a time or all at once: the same floats, since figures of a slice must not depend on its size."""
    pod, groups = PODS[3], [(n, n + 5, n + 70) if kind != "collective-permute" else (n, n + 70) for n in range(50)]
    step = collective(kind, 1.0, groups)
    whole = GroupPlans(pod).at_once(step, groups).load
    for room in ("groups", "links"):
        monkeypatch.setattr(f"tpusim.cost.{room}.LINKS_AT_ONCE", 7)
    parts = GroupPlans(pod).at_once(step, groups).load
    assert [column.tolist() for column in parts] == [column.tolist() for column in whole]
