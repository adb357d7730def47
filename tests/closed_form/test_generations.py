"""Collectives of all generations on meshes and tori of 1 to 3 dimensions, against arithmetic on counted links.

Nothing here comes from the planner: a slice is its sizes and which of them close, and the time is what the poorest chip
can take in, what the narrowest cut lets through, or the hops.
"""

from __future__ import annotations

import pytest

from tests.machine.collectives import GIB, link_rate, pod_of, seconds_on_links

HOP = 1e-6
# Slices, and which axes close: always on v2 and v3, of 16 on v5e and v6e, of whole cubes on v4, v5p and v7x.
SLICES = {
    "v2:4x4": (True, True),
    "v3:8x8": (True, True),
    "v4:4x4x4": (True, True, True),
    "v4:4x4x12": (True, True, True),
    "v5e:2x4": (False, False),
    "v5e:8x8": (False, False),
    "v5e:8x16": (False, True),
    "v5e:16x16": (True, True),
    "v6e:2x2": (False, False),
    "v6e:1x16": (False, True),
    "v5p:2x2x4": (False, False, False),
    "v5p:4x8x12": (True, True, True),
    "tpu7x:4x4x4": (True, True, True),
    "tpu7x:2x2x1": (False, False, False),
}
cases = pytest.mark.parametrize("text", SLICES)


def axes_of(text: str) -> list[tuple[int, bool]]:
    """Return the size of each axis that has more than one chip, and whether it closes."""
    sizes = map(int, text.split(":")[1].split("x"))
    return [(size, closes) for size, closes in zip(sizes, SLICES[text], strict=True) if size > 1]


def chips_of(text: str) -> int:
    """Return the chips of a slice."""
    count = 1
    for size, _ in axes_of(text):
        count *= size
    return count


def one_per_chip(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the group of every chip's first device."""
    step = pod_of(text).devices_per_chip
    return (tuple(range(0, chips_of(text) * step, step)),)


@cases
@pytest.mark.parametrize(("kind", "phases"), [("all-gather", 1), ("reduce-scatter", 1), ("all-reduce", 2)])
def test_a_gibibyte_takes_what_the_poorest_chip_can_take_in(text, kind, phases):
    """It has two links of an axis that closes, one of an axis that does not."""
    links = sum(2 if closes else 1 for _, closes in axes_of(text))
    count = chips_of(text)
    expected = phases * (count - 1) / count * GIB / (links * link_rate(text))
    assert seconds_on_links(text, kind, GIB, one_per_chip(text)) == pytest.approx(expected, rel=0.03)


@cases
@pytest.mark.parametrize(("kind", "phases"), [("all-gather", 1), ("all-reduce", 2)])
def test_4_kib_take_the_hops(text, kind, phases):
    """Half of each axis that closes, the whole of each that does not; and the little time of the bytes."""
    hops = sum(size // 2 if closes else size - 1 for size, closes in axes_of(text))
    links = sum(2 if closes else 1 for _, closes in axes_of(text))
    expected = phases * (hops * HOP + 4096 / (links * link_rate(text)))
    assert seconds_on_links(text, kind, 4096.0, one_per_chip(text)) == pytest.approx(expected, rel=0.03)


@cases
def test_all_to_all_takes_the_narrowest_cut(text):
    """Every axis is cut in halves: what has to pass over the links that the cut severs."""
    count, times = chips_of(text), []
    for size, closes in axes_of(text):
        crossing = count * GIB * (size // 2) * (size - size // 2) / size**2
        times.append(crossing / (count / size * (2 if closes else 1) * link_rate(text)))
    assert seconds_on_links(text, "all-to-all", GIB, one_per_chip(text)) == pytest.approx(max(times), rel=0.03)


@cases
@pytest.mark.parametrize("n_bytes", [4096.0, GIB])
def test_a_message_takes_its_hops_and_bytes(text, n_bytes):
    """From the first chip to each along the last axis; round the back where that is nearer."""
    size, closes = axes_of(text)[-1]
    stride, pod = chips_of(text) // size, pod_of(text)
    # In listed order: one message is no ring of all devices, along which they would be numbered.
    order = list(pod.order)
    for steps in {1, size // 2, size - 1}:
        pairs = ((order.index(0) * pod.devices_per_chip, order.index(steps * stride) * pod.devices_per_chip),)
        hops = min(steps, size - steps) if closes else steps
        expected = hops * HOP + n_bytes / link_rate(text)
        assert seconds_on_links(text, "collective-permute", n_bytes, pairs=pairs) == pytest.approx(expected, rel=0.03)
