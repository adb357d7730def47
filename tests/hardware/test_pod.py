"""Slices by name, their links, and where devices sit."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import Place, Topology, make_pod, parse_topology, wraps_of
from tpusim.hardware.torus import Torus, _twisted_ways


def pod(text: str, chip: str = "", **options: bool):
    """Return the pod that a name means."""
    topology = parse_topology(text)
    return make_pod(topology, load_chip(chip or topology.chip), **options)


# Google Cloud documentation of each TPU: accelerator types and topologies.
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("v5e:4x4", (4, 4)),
        ("v5litepod-16", (4, 4)),
        ("v5litepod-8", (2, 4)),
        ("v6e-32", (4, 8)),
        ("v6e-256", (16, 16)),
        ("v4-8", (2, 2, 1)),
        ("v4-16", (2, 2, 2)),
        ("v4-64", (2, 4, 4)),
        ("v5p-128", (4, 4, 4)),
        ("v5p-256", (4, 4, 8)),
        ("v5p-12288", (16, 16, 24)),
        ("v2-8", (2, 2)),
        ("v3-32", (4, 4)),
        ("tpu7x-128", (4, 4, 4)),
    ],
)
def test_names_mean_the_shapes_of_the_documentation(text: str, sizes: tuple[int, ...]) -> None:
    """A number counts cores or chips, as each generation does."""
    assert parse_topology(text).sizes == sizes


def test_slices_and_twists_are_part_of_the_name() -> None:
    """The notation round-trips."""
    assert parse_topology("v4:4x4x8_untwisted*2") == Topology((4, 4, 8), "v4", 2, "untwisted")
    assert str(parse_topology("v4:4x4x8_untwisted*2")) == "v4:4x4x8_untwisted*2"


@pytest.mark.parametrize("text", ["", "4x", "0x4", "v5e:", "v5p-7", "v5e:4x4*0", "4x4_round"])
def test_other_names_are_refused(text: str) -> None:
    """Not a traceback."""
    with pytest.raises(ConfigError):
        parse_topology(text)


@pytest.mark.parametrize(
    ("sizes", "rule", "wraps"),
    [
        ((4, 4, 4), "cube4", (True, True, True)),
        ((2, 4, 4), "cube4", (False, False, False)),
        ((8, 16), "length16", (False, True)),
        ((4, 4), "length16", (False, False)),
        ((4, 2), "always", (True, False)),
    ],
)
def test_axes_wrap_by_the_generation(sizes: tuple[int, ...], rule: str, wraps: tuple[bool, ...]) -> None:
    """Whole cubes on v4, v5p and v7x, a length of 16 on v5e and v6e (jax-ml/scaling-book, TPUs)."""
    assert wraps_of(sizes, rule) == wraps


def test_a_slice_that_the_chip_cannot_form_is_refused() -> None:
    """Three axes on a chip of two, and more chips than a pod has."""
    with pytest.raises(ConfigError, match="links along 2 axes"):
        pod("v5e:2x2x2")
    with pytest.raises(ConfigError, match="at most 256 chips"):
        pod("v5e:16x32")


def test_devices_are_numbered_as_jax_lists_them() -> None:
    """The first coordinate fastest, both devices of a chip together."""
    places = [pod("tpu7x:2x2x1").place_of(device) for device in range(8)]
    assert [place.coordinates[:2] for place in places[::2]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [place.on_chip for place in places] == [0, 1] * 4


def test_second_slice_comes_after_the_first() -> None:
    """Device 16 of two slices of 4x4 is the first chip of the second."""
    two = pod("v5e:4x4*2")
    assert two.place_of(16) == Place(slice_number=1, coordinates=(0, 0), on_chip=0)
    assert (two.chip_count, two.device_count) == (32, 32)


def test_four_chips_hang_on_a_host() -> None:
    """Sixteen hosts for 64 chips, four chips each, in blocks of 2x2x1."""
    hosts = Counter(pod("v5p-128").host_of(device) for device in range(64))
    assert sorted(hosts.items()) == [(host, 4) for host in range(16)]


@pytest.mark.parametrize("text", ["v5e:2x4", "v5e:4x4", "v5p:2x2x2", "v5p:2x2x4", "v5e:2x2"])
def test_small_slices_are_numbered_along_a_ring(text: str) -> None:
    """Every device is one link from the next, the last from the first too, as JAX's meshes of one axis are."""
    slice_ = pod(text, along_ring=True)
    chips = [slice_.chip_of(device) for device in range(slice_.device_count)]
    assert sorted(chips) == list(range(slice_.chip_count))
    assert {slice_.torus.distance(a, b) for a, b in zip(chips, chips[1:] + chips[:1], strict=True)} == {1}


@pytest.mark.parametrize("text", ["v4:4x4x8", "v4:4x8x8", "v4:4x4x8_untwisted"])
def test_every_link_has_one_back(text: str) -> None:
    """Up and then down an axis leads home, also where a twisted torus closes."""
    torus = pod(text).torus
    for chip in range(torus.chip_count):
        place = torus.coordinates(chip)
        assert all(torus.step(torus.step(place, axis, False), axis, True) == place for axis in range(3))


def test_routes_lead_to_their_target() -> None:
    """Each way's links, followed one by one, end where they should, in as many steps as the distance says."""
    torus = pod("v4:4x4x8").torus
    for target in range(torus.chip_count):
        for way in torus.displacements(5, target):
            place = torus.coordinates(5)
            for link in torus.route(5, way):
                chip, rest = divmod(link, 6)
                assert torus.number(place) == chip
                place = torus.step(place, rest // 2, bool(rest % 2))
            assert torus.number(place) == target


def test_distances_are_those_of_a_search() -> None:
    """Breadth first over the links of a twisted torus, as a naive twin."""
    torus = pod("v4:4x4x8").torus
    found, front = {0: 0}, [0]
    while front:
        places = [(chip, torus.coordinates(chip)) for chip in front]
        reached = [(torus.number(torus.step(p, a, d)), found[c]) for c, p in places for a in range(3) for d in (0, 1)]
        fresh = {chip: far + 1 for chip, far in reached if chip not in found}
        found |= fresh
        front = list(fresh)
    assert all(torus.distance(0, chip) == found[chip] for chip in range(torus.chip_count))


@pytest.mark.parametrize("name", ["v4:4x4x8", "v5p:4x8x8"])
def test_a_twisted_torus_looks_the_same_from_every_chip(name: str) -> None:
    """What is kept for pairs that lie alike: from any chip just the displacements of least length that end there."""
    torus = pod(name).torus
    steps = [way for way in product(range(-8, 9), repeat=3) if sum(map(abs, way)) <= 8]
    for source in (0, 37, torus.chip_count - 1):
        ends: dict[int, list[tuple[int, ...]]] = {}
        for way in steps:
            place = torus.coordinates(source)
            for axis, count in enumerate(way):
                for _ in range(abs(count)):
                    place = torus.step(place, axis, count < 0)
            ends.setdefault(torus.number(place), []).append(way)
        for target, ways in ends.items():
            least = min(sum(map(abs, way)) for way in ways)
            nearest = [way for way in ways if sum(map(abs, way)) == least]
            assert torus.displacements(source, target) == sorted(nearest, reverse=True)
        assert len(ends) == torus.chip_count


def test_pairs_that_lie_alike_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs of 256 chips ask for at most 256 searches of 125 candidates each, and not for 65,280."""
    torus, tried = pod("v5p:4x8x8").torus, []
    rounded = Torus.rounded
    monkeypatch.setattr(Torus, "rounded", lambda *given: tried.append(1) or rounded(*given))
    _twisted_ways.cache_clear()
    for source, target in product(range(0, 256, 3), range(256)):
        torus.displacements(source, target)
    assert len(tried) <= 256 * 125 + 3 * 86 * 256


def test_twisting_brings_chips_closer() -> None:
    """The mean distance of 4x4x8 falls (Jouppi et al., ISCA 2023)."""
    twisted, plain = pod("v4:4x4x8").torus, pod("v4:4x4x8_untwisted").torus
    means = [sum(torus.distance(0, chip) for chip in range(128)) / 128 for torus in (twisted, plain)]
    assert means[0] < means[1] == 4.0


def test_a_mesh_has_no_links_over_its_rim() -> None:
    """Routes within 2x4 chips take the 20 one-way links that there are."""
    mesh = Torus((2, 4), (False, False))
    ways = ((chip, way) for chip in range(8) for other in range(8) for way in mesh.displacements(chip, other))
    assert len({link for chip, way in ways for link in mesh.route(chip, way)}) == 20
