"""Fabrics by closed forms: bytes over the rate of the link that carries most; links that fail, and slow devices."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machine.collectives import collective, program_of
from tpusim.cost.models.algorithms import ALGORITHMS, Native
from tpusim.cost.models.fabrics import build_pod
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip, override_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.steps import Kernel
from tpusim.program.work import Work

GIB = 2.0**30
AT_ONCE = {"ici.hop_latency_seconds": 0.0, "ici.launch_seconds": 0.0, "ici.step_seconds": 0.0}


def run_of(text, *steps, **over):
    """Return the run of some steps on all devices of a slice whose links answer at once."""
    topology = parse_topology(text)
    chip = override_chip(load_chip(topology.chip), AT_ONCE | {key.replace("__", "."): v for key, v in over.items()})
    count = topology.chip_count * chip.devices_per_chip
    return simulate_pod([program_of(*steps, devices=count)], chip, topology, None, RunOptions())


def seconds_of(text, kind, **over):
    """Return what a collective of 1 GiB among all devices takes on the links."""
    devices = parse_topology(text).chip_count
    return run_of(text, collective(kind, GIB, (tuple(range(devices)),)), **over).last.total_ps / 1e12


def link_rate(text):
    """Return the bytes per second that a link of a slice's chip reaches."""
    ici = load_chip(parse_topology(text).chip).ici
    return ici.link_bytes_per_second * ici.efficiency


@pytest.mark.parametrize("algorithm", ["native", "ring", "halving", "direct"])
@pytest.mark.parametrize("kind", ["all-gather", "all-to-all"])
def test_on_a_switch_every_chip_takes_in_what_the_others_have(kind, algorithm):
    """15 parts of 16 through all four links of a v5e, whatever the order of the messages."""
    seconds = seconds_of("v5e:4x4", kind, ici__model="switch", ici__algorithm=algorithm)
    assert seconds == pytest.approx(15 / 16 * GIB / (4 * link_rate("v5e:4x4")), rel=1e-6)


def test_a_mesh_has_no_way_round_the_back():
    """Sixteen chips in a line: what a ring sends both ways, the links at its ends carry one way."""
    ring, line = (seconds_of("v5e:1x16", "all-gather", ici__model=model) for model in ("torus", "mesh"))
    assert line == pytest.approx(2 * ring, rel=1e-6)


def test_the_torus_of_the_chip_is_twisted_where_it_says_so():
    """v4 twists 4x4x8 by itself; a mesh of the same chips is slower."""
    own, twisted, mesh = (
        seconds_of("v4:4x4x8", "all-to-all", ici__model=m) for m in ("torus", "twisted-torus", "mesh")
    )
    assert own == twisted < mesh


def test_a_slice_that_cannot_twist_is_refused():
    """4 x 4 has no long axis."""
    with pytest.raises(ConfigError, match="n and 2n chips, found 4x4"):
        seconds_of("v5e:4x4", "all-gather", ici__model="twisted-torus")


@pytest.mark.parametrize(("spines", "up_rate"), [(4, 16.0), (2, 16.0), (4, 4.0)])
def test_a_fat_tree_is_as_fast_as_its_ways_up(spines, up_rate):
    """Of 64 chips on four leaves each sends three quarters up; as much up as down, its own links decide."""
    settings = {"ici__settings__leaf_chips": 16, "ici__settings__spines": spines, "ici__settings__up_rate": up_rate}
    seconds = seconds_of("v5e:8x8", "all-to-all", ici__model="fat-tree", **settings)
    up, own = 48 / 64 * 16 * 4 / (spines * up_rate), 63 / 64
    assert seconds == pytest.approx(max(up, own) * GIB / (4 * link_rate("v5e:8x8")), rel=1e-6)


def test_a_dragonfly_waits_for_the_way_between_its_groups():
    """Two groups of 16 chips: half of all parts of 16 chips cross on one link."""
    settings = {"ici__settings__router_chips": 2, "ici__settings__group_routers": 8}
    seconds = seconds_of("v5e:4x8", "all-to-all", ici__model="dragonfly", **settings)
    assert seconds == pytest.approx(16 * 16 / 32 * GIB / link_rate("v5e:4x8"), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "setting", "value"),
    [
        *(("dragonfly", "router_chips", value) for value in (0, 2.5, "a", True, 1e9)),
        *(("dragonfly", "local_rate", value) for value in (1e-300, 0, True)),
        *(("fat-tree", "spines", 0), ("fat-tree", "leaf_chips", 2.5), ("fat-tree", "up_rate", 1e300)),
    ],
)
def test_settings_of_switches_are_in_bounds(model, setting, value):
    """Others would be a fault of their reader, or a wait without end; true is none, also where 1 was asked for."""
    assert seconds_of("v5e:4x8", "all-to-all", ici__model="dragonfly", ici__settings__router_chips=1)
    with pytest.raises(ConfigError, match=rf"ici\.settings\.{setting}: expected .*, found"):
        seconds_of("v5e:4x8", "all-to-all", ici__model=model, **{f"ici__settings__{setting}": value})


def test_counts_of_switches_may_be_written_as_floats():
    """4.0 chips on a router are 4."""
    found = [
        seconds_of("v5e:4x8", "all-to-all", ici__model="dragonfly", ici__settings__router_chips=chips)
        for chips in (4, 4.0)
    ]
    assert found[0] == found[1]


def test_ways_between_switches_end_at_a_bound():
    """They grow as the square of the groups: two million of 2,048 chips that are a group each."""
    settings = {"ici__settings__router_chips": 1, "ici__settings__group_routers": 1}
    with pytest.raises(ConfigError, match="expected ways between switches, at most 262144, found 2096128"):
        seconds_of("v5p:8x16x16", "all-to-all", ici__model="dragonfly", **settings)


@pytest.mark.parametrize("down", ["3:+1", "4:-1"])
def test_a_ring_without_a_link_carries_all_of_it_one_way_more(down):
    """Both ways of the cable fail: what took them goes round the other way, and every link carries twice as much."""
    whole = seconds_of("v5e:1x16", "all-gather")
    assert seconds_of("v5e:1x16", "all-gather", ici__links_down=down) == pytest.approx(2 * whole, rel=1e-6)


def test_a_torus_goes_round_a_link_that_is_down():
    """Slower than whole, and faster than with that link at a hundredth; nothing is carried there."""
    group = (tuple(range(64)),)
    runs = [
        run_of("v5p:4x4x4", collective("all-gather", GIB, group), **over)
        for over in ({}, {"ici__links_down": "0:+0"}, {"ici__link_factors__0:+0": 0.01})
    ]
    whole, down, slow = (run.last.total_ps for run in runs)
    assert whole < down < slow
    assert {(0, "+0"), (1, "-0")}.isdisjoint((link.chip, link.way) for link in runs[1].links)


def test_a_slow_link_holds_up_what_it_carries():
    """A quarter of the rate on one link of a ring: four times as long."""
    whole, slow = (seconds_of("v5e:1x16", "all-gather", **o) for o in ({}, {"ici__link_factors__5:-1": 0.25}))
    assert slow == pytest.approx(4 * whole, rel=1e-6)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"ici__links_down": "0:+7"}, "expected a link of this slice such as 0:.*found '0:\\+7'"),
        ({"ici__link_factors__99:+0": 0.5}, "found '99:\\+0'"),
        ({"ici__links_down": "3:+1", "ici__model": "mesh"}, "no way is left round the link 3:\\+1"),
        ({"ici__links_down": "0:>16", "ici__model": "switch"}, "no way is left"),
    ],
)
def test_links_that_cannot_be_down_are_refused(over, message):
    """None of that name, or no other way."""
    with pytest.raises(ConfigError, match=message):
        seconds_of("v5e:1x16", "all-gather", **over)


def test_switches_stand_behind_the_chips_of_all_slices():
    """A link is named by the nodes at its ends, through both slices."""
    chip = override_chip(load_chip("v5e"), {"ici.model": "switch"})
    pod = build_pod(parse_topology("v5e:2x2*2"), chip)
    assert [pod.named_link(number) for number in (0, 1, pod.link_count)] == [(0, ">8"), (8, ">0"), (4, ">9")]


def test_a_slow_device_makes_the_others_wait():
    """Half the clock on device 2: its kernel takes twice as long, and the others are late by as much."""
    work = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 4e6}))
    gather = collective("all-gather", 1.0, ((0, 1, 2, 3),))
    alike, uneven = (run_of("v5e:2x2", work, gather, **over) for over in ({}, {"devices__2__clock": 0.5}))
    cycles_ps = 4e6 / 4 / 1.5e9 * 1e12
    assert len(alike.timelines) == 1
    kernels = [timeline.records[0].duration_ps for timeline in uneven.timelines]
    assert kernels[2] - kernels[0] == pytest.approx(cycles_ps, rel=1e-3)
    late = [timeline.records[-1].late_ps for timeline in uneven.timelines]
    assert late == [kernels[2] - kernels[0]] * 2 + [0] + [kernels[2] - kernels[0]]


@pytest.mark.parametrize("name", ["ring", "halving", "direct"])
@given(kind=st.sampled_from(["all-gather", "all-to-all"]), members=st.integers(2, 33))
def test_every_member_gets_what_the_others_have(name, kind, members):
    """Of one byte in all, all but its own part, and it sends as much."""
    came, went = Counter(), Counter()
    for messages, times in ALGORITHMS.named(name, {}).rounds(kind, members):
        for source, target, share in messages:
            came[target] += share * times
            went[source] += share * times
    for found in (came, went):
        assert list(found.values()) == pytest.approx([(members - 1) / members] * members)


@pytest.mark.parametrize(("name", "rounds"), [("ring", 8), ("halving", 4), ("direct", 1)])
def test_algorithms_differ_in_their_rounds(name, rounds):
    """Of sixteen: seven and a half both ways round, four doublings, everything at once."""
    assert sum(one.times for one in ALGORITHMS.named(name, {}).rounds("all-gather", 16)) == rounds
    assert Native().rounds("all-gather", 16) is None
