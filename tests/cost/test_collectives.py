"""Plans of several groups at once."""

from __future__ import annotations

import pytest

from tests.machine.collectives import collective, pod_of
from tpusim.cost.collectives import NO_PLAN, link_name, plan_collective, plan_group

POD = pod_of("v5e:1x16")
NEAR, FAR = (0, 1), (4, 12)


@pytest.mark.parametrize("groups", [(NEAR, FAR), (FAR, NEAR)])
def test_groups_at_once_take_the_hops_of_the_farthest(groups):
    """Neighbours wait for one hop, devices eight places apart for as many."""
    plan = plan_collective(collective("all-gather", 1.0, groups), POD, groups)
    assert plan.hops == plan_group("all-gather", POD, FAR).hops > plan_group("all-gather", POD, NEAR).hops


def test_groups_at_once_carry_the_bytes_of_all():
    """Bytes on the links add up, and each of the chips carries its share."""
    groups = (NEAR, FAR)
    plan = plan_collective(collective("all-gather", 1.0, groups), POD, groups)
    n_bytes = sum(plan_group("all-gather", POD, group).load.n_bytes.sum() for group in groups)
    assert plan.load.n_bytes.sum() == pytest.approx(n_bytes)
    assert plan.carried == pytest.approx(n_bytes / 4)


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
    assert plan_collective(collective("all-gather", 1.0), POD, ()) is NO_PLAN


@pytest.mark.parametrize(("group", "way"), [((5, 6), (5, "+1")), ((6, 5), (6, "-1"))])
def test_a_broadcast_goes_out_from_the_first(group, way):
    """From one chip to its neighbour there is one link, and it begins at the first of the group."""
    plan = plan_group("collective-broadcast", POD, group)
    assert [link_name(POD, int(link)) for link in plan.load.links] == [way]
