"""Exchanges of unequal parts, beside their messages one by one."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cost.test_groups import by_link
from tests.machine.collectives import pod_of
from tpusim.cost.collectives import plan_group, plan_messages
from tpusim.cost.links import load_of
from tpusim.cost.shares import plan_shares

# A torus, a mesh, half of each, axes of odd length, twisted ones, several slices, several devices on each chip.
PODS = [
    pod_of(text)
    for text in ("v4:4x4x4", "v5e:3x5", "v5e:2x16", "v4:4x4x12", "v5p:4x4x8", "tpu7x:2x3x1*3", "v4:3x3x3", "v5e:1x4*2")
]


def message_by_message(pod, devices, shares):
    """Return the plan of all messages, as the definition has it: in equal parts both ways where they are as long."""
    members = list(zip(devices, shares, strict=True))
    plan = plan_messages(pod, [(s, t, share) for s in devices for t, share in members if s != t and share > 0])
    if pod.torus.twist:
        return plan
    near, carried = [link for link in plan.load.links if link >= pod.slices * pod.link_count], defaultdict(float)
    for source, target, share in ((pod.chip_of(s), pod.chip_of(t), share) for s in devices for t, share in members):
        (this, here), (other, there) = (divmod(chip, pod.torus.chip_count) for chip in (source, target))
        ways = pod.torus.displacements(here, there) if this == other else []
        for way in ways:
            for link in pod.torus.route(here, way):
                carried[this * pod.link_count + link] += share / len(ways)
    by_hand = {link: n_bytes for link, n_bytes in carried.items() if n_bytes} | {n: by_link(plan)[n] for n in near}
    return plan._replace(load=load_of(by_hand))


@settings(max_examples=150)
@given(st.data())
def test_unequal_parts_are_the_sum_of_their_messages(data):
    """The same bytes on the same links, whichever devices are in the group."""
    pod = data.draw(st.sampled_from(PODS))
    devices = data.draw(st.lists(st.integers(0, pod.device_count - 1), min_size=1, max_size=12, unique=True))
    shares = [data.draw(st.sampled_from([0.0, 0.0, 0.125, 0.3])) for _ in devices]
    found, expected = plan_shares(pod, devices, shares), message_by_message(pod, devices, shares)
    assert by_link(found) == pytest.approx(by_link(expected))
    assert (found.far_hops, found.steps, found.way) == (expected.far_hops, expected.steps, expected.way)
    assert found.hops == expected.hops


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: "x".join(map(str, (*pod.torus.sizes, pod.slices))))
def test_blocks_send_no_farther_than_their_messages(pod):
    """Of a whole slice the farthest message is known to the link."""
    devices = range(pod.torus.chip_count * pod.devices_per_chip)
    shares = [float(number % 3 == 1) for number in devices]
    found, expected = plan_shares(pod, devices, shares), message_by_message(pod, devices, shares)
    assert (found.hops, found.far_hops) == (expected.hops, expected.far_hops)
    assert by_link(found) == pytest.approx(by_link(expected))


@settings(max_examples=60)
@given(st.data())
def test_equal_parts_are_an_even_exchange(data):
    """To state them changes nothing."""
    pod = data.draw(st.sampled_from([pod for pod in PODS if pod.devices_per_chip == 1 and not pod.torus.twist]))
    devices = data.draw(st.lists(st.integers(0, pod.torus.chip_count - 1), min_size=2, max_size=12, unique=True))
    plan = plan_shares(pod, devices, [1 / len(devices)] * len(devices))
    assert by_link(plan) == pytest.approx(by_link(plan_group("all-to-all", pod, devices)))


def test_large_twisted_groups_get_even_parts():
    """A million routes are too many to look at: all of what is sent, in equal parts."""
    pod = pod_of("v4:8x8x16")
    devices = range(pod.device_count)
    plan = plan_shares(pod, devices, [0.5 / len(devices)] * len(devices))
    even = plan_group("all-to-all", pod, devices)
    assert by_link(plan) == pytest.approx({link: n_bytes / 2 for link, n_bytes in by_link(even).items()})
    assert plan.way.startswith("even parts assumed")
