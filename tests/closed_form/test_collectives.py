"""Collectives in their limits: large ones take the bytes over the links, small ones the hops.

The formulas are those of jax-ml/scaling-book (sharding): every chip has to take in the share of the others, on all its
links at once; where an axis does not close, the chip at its end has one link for it.
"""

from __future__ import annotations

from math import prod

import pytest

from tests.machine.collectives import GIB, collective, link_rate, program_of, seconds_on_links
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.steps import Algorithm

# Slices whose axes all close, and the links that every chip has.
RINGS = [("v5e:1x16", 2), ("v5e:16x16", 4), ("v6e:16x16", 4), ("v4:4x4x4", 6), ("v5p:8x8x8", 6), ("v5p:4x8x16", 6)]
HOP = 1e-6


def chips_of(text: str) -> int:
    """Return the chips of a slice."""
    return prod(parse_topology(text).sizes)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
@pytest.mark.parametrize(("text", "links"), RINGS)
def test_gathering_takes_the_others_share_over_all_links(text, links, kind):
    """(n-1)/n of the bytes come in on both links of each axis at once, in 1, 2 and 3 dimensions."""
    count = chips_of(text)
    expected = (count - 1) / count * GIB / (links * link_rate(text))
    assert seconds_on_links(text, kind, GIB) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("text", "links"), [ring for ring in RINGS if not ring[0].startswith("v4")])
def test_all_reduce_takes_twice_a_gather(text, links):
    """2(n-1)/n of the bytes, with a device a chip: the sums are scattered and then gathered."""
    count = chips_of(text)
    expected = 2 * (count - 1) / count * GIB / (links * link_rate(text))
    assert seconds_on_links(text, "all-reduce", GIB) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("text", "links"), [("v5e:1x8", 1), ("v5e:4x4", 2), ("v5e:4x8", 2), ("v4:2x2x2", 3)])
def test_a_mesh_has_one_link_at_its_end(text, links):
    """The chip in the corner takes everything in on one link of each axis."""
    count = chips_of(text)
    expected = (count - 1) / count * GIB / (links * link_rate(text))
    assert seconds_on_links(text, "all-gather", GIB) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("text", "hops"), [("v5e:1x16", 8), ("v5e:16x16", 16), ("v5p:4x4x4", 6), ("v5e:4x4", 6)])
@pytest.mark.parametrize(("kind", "times"), [("all-gather", 1), ("reduce-scatter", 1), ("all-reduce", 2)])
def test_4_kib_take_the_hops(text, hops, kind, times):
    """Half of every ring, or the whole of a line, at 1 us a hop."""
    assert seconds_on_links(text, kind, 4096.0) == pytest.approx(times * hops * HOP, rel=0.03)


def test_rings_of_an_all_reduce_go_through_both_devices_of_a_chip():
    """A ring of the four devices of two chips passes 3/4 of its part between them, one of two chips a half of a half.

    With half of the data first along either axis that is (3/4 + 1/4) / 2 of the bytes on every link, in two phases.
    """
    assert seconds_on_links("v2:2x2", "all-reduce", GIB) == pytest.approx(2 * GIB / 2 / link_rate("v2:2x2"), rel=0.03)


@pytest.mark.parametrize(("text", "steps"), [("v2:2x2", 4), ("v4:2x2x2", 5), ("v4:4x4x4", 8), ("v4:2x2x4", 9)])
def test_rings_through_both_devices_take_more_hops(text, steps):
    """Three for four devices in a line, half of eight in a ring, seven for eight in a line; the other axes as ever."""
    assert seconds_on_links(text, "all-reduce", 4096.0) == pytest.approx(2 * steps * HOP, rel=0.03)


def test_one_way_rings_go_all_the_way_round():
    """Of eight places seven are passed, and not half of them from either side."""
    both, one_way = (Algorithm("Ring", one_ring=True, lanes=2, one_way=value) for value in (False, True))
    small = [seconds_on_links("v5e:2x4", "all-reduce", 512.0, algorithm=way) for way in (both, one_way)]
    assert small == pytest.approx([2 * 4 * HOP, 2 * 7 * HOP], rel=0.03)


@pytest.mark.parametrize(("text", "side"), [("v5e:1x16", 16), ("v5e:16x16", 16), ("v5p:4x4x4", 4), ("v5p:8x8x8", 8)])
def test_all_to_all_takes_the_bisection(text, side):
    """Half of all bytes cross the middle in each direction, of which a torus has two cuts."""
    count = chips_of(text)
    cut_links = 2 * count / side
    crossing = count / 2 * (GIB / 2)
    assert seconds_on_links(text, "all-to-all", GIB) == pytest.approx(
        crossing / (cut_links * link_rate(text)), rel=0.03
    )


def test_all_to_all_on_a_mesh_has_one_cut():
    """Twice as long as on a torus of that size."""
    crossing = 16 / 2 * (GIB / 2)
    assert seconds_on_links("v5e:4x4", "all-to-all", GIB) == pytest.approx(
        crossing / (4 * link_rate("v5e:4x4")), rel=0.03
    )


def test_twisting_makes_all_to_all_faster():
    """Jouppi et al., ISCA 2023: 1.63 times the throughput for 4x4x8, 1.31 times for 4x8x8."""
    gains = [
        seconds_on_links(f"v4:{sizes}_untwisted", "all-to-all", GIB)
        / seconds_on_links(f"v4:{sizes}", "all-to-all", GIB)
        for sizes in ("4x4x8", "4x8x8")
    ]
    assert gains == pytest.approx([1.63, 1.31], rel=0.15)


@pytest.mark.parametrize("hops", [1, 2, 5, 8])
def test_a_permute_takes_its_hops_and_bytes(hops):
    """One message over k links of a ring of 16."""
    expected = hops * HOP + GIB / link_rate("v5e:1x16")
    assert seconds_on_links("v5e:1x16", "collective-permute", GIB, pairs=((0, hops),)) == pytest.approx(
        expected, rel=0.03
    )


def test_shifting_by_k_shares_every_link_k_times():
    """If all 16 chips of a ring send k on, k messages pass each link."""
    pairs = tuple((chip, (chip + 3) % 16) for chip in range(16))
    expected = 3 * HOP + 3 * GIB / link_rate("v5e:1x16")
    assert seconds_on_links("v5e:1x16", "collective-permute", GIB, pairs=pairs) == pytest.approx(expected, rel=0.03)


def test_two_devices_of_a_chip_share_its_links():
    """Groups of one device per chip of v7x: both groups of four pass the same links, as measured (tpu-recipes)."""
    groups = ((0, 2, 4, 6), (1, 3, 5, 7))
    expected = 2 * 3 / 4 * GIB / (2 * link_rate("v7x:2x2x1"))
    assert seconds_on_links("v7x:2x2x1", "all-gather", GIB, groups) == pytest.approx(expected, rel=0.03)


def test_slices_exchange_over_the_data_centre():
    """Of a large all-reduce on two slices of 4 every chip sends a quarter over the data-centre network."""
    rate = load_chip("v5e").pod.dcn_bytes_per_second
    expected = 2 * (1 / 2) * GIB / 4 / rate
    assert seconds_on_links("v5e:2x2*2", "all-reduce", GIB) == pytest.approx(expected, rel=0.03)


def test_a_ragged_exchange_takes_what_its_busiest_link_carries():
    """Four chips in a row, all of which send everything to the last: over the last link come three operands."""
    ragged = {"shares": (0.0, 0.0, 0.0, 1.0)}
    expected = 3 * GIB / link_rate("v5e:1x4")
    assert seconds_on_links("v5e:1x4", "ragged-all-to-all", GIB, **ragged) == pytest.approx(expected, rel=0.03)


KINDS = ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ragged-all-to-all", "collective-broadcast"]


@pytest.mark.parametrize("kind", KINDS)
def test_bigger_is_never_faster(kind):
    """From a byte to a gigabyte."""
    times = [seconds_on_links("v5e:4x4", kind, 2.0**power) for power in range(0, 31, 3)]
    assert times == sorted(times)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mesh_is_never_faster_than_a_torus(kind):
    """4x4 chips with and without wrap-around."""
    torus, mesh = (seconds_with_wrap(kind, rule) for rule in ("always", "length16"))
    assert mesh >= torus


def seconds_with_wrap(kind: str, rule: str) -> float:
    """Return the time on 4x4 chips of v5e if axes closed by another rule."""
    step = collective(kind, GIB, (tuple(range(16)),))
    chip = load_chip("v5e", {"ici.wrap": rule})
    run = simulate_pod([program_of(step, devices=16)], chip, parse_topology("4x4"), None, RunOptions(per_device=False))
    return run.last.total_ps


@pytest.mark.parametrize("kind", KINDS)
def test_more_links_are_never_slower(kind):
    """64 chips in one ring, and in rings of eight along two axes."""
    times = [seconds_on_links(text, kind, GIB) for text in ("v3:1x64", "v3:8x8")]
    assert times == sorted(times, reverse=True)


def test_one_ring_uses_two_links_of_every_chip():
    """Where the program asks for a ring round 4x4 chips, half of a torus' links stay idle."""
    ring = Algorithm("1DAllGather", one_ring=True)
    expected = 15 / 16 * GIB / (2 * link_rate("v3:4x4"))
    groups = (tuple(range(0, 32, 2)),)
    assert seconds_on_links("v3:4x4", "all-gather", GIB, groups, algorithm=ring) == pytest.approx(expected, rel=0.03)


def test_one_lane_goes_one_way():
    """A single one-way ring takes twice as long as one both ways."""
    lane = Algorithm("Ring", one_ring=True, lanes=1)
    expected = 15 / 16 * GIB / link_rate("v5e:4x4")
    assert seconds_on_links("v5e:4x4", "all-gather", GIB, algorithm=lane) == pytest.approx(expected, rel=0.03)


def test_a_single_phase_brings_everything_to_everybody():
    """Half the hops of two phases, and as many bytes as there are devices."""
    sum_of_all = Algorithm("SinglePhaseRingSum", one_ring=True, single_phase=True)
    two = Algorithm("Ring", one_ring=True)
    small = [seconds_on_links("v5e:2x4", "all-reduce", 512.0, algorithm=a) for a in (sum_of_all, two)]
    large = [seconds_on_links("v5e:2x4", "all-reduce", GIB, algorithm=a) for a in (sum_of_all, two)]
    assert small[0] == pytest.approx(small[1] / 2, rel=0.03)
    assert large[0] == pytest.approx(large[1] * 4, rel=0.03)
