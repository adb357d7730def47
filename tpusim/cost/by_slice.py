"""How XLA's compiler for TPUs has a collective carried out: what follows from the slice, the group and the bytes.

Sums go along the axes that a group fills from end to end, if those are two or more, and round one ring otherwise. What
is gathered or scattered goes round one ring, but for groups of a whole slice, for which it is often done as a sum.

Source: 2,019 collectives of programs compiled ahead of time, which state their algorithm: on slices of v5e and v6e of 4
to 256 chips and of v5p of 4 to 4,096, among the groups along every axis of meshes on them, of 2 KiB to 2 GiB. The rule
was found on 1,505 of them. Of the other 514 it names what all 330 sums, all 132 gathers and 49 of 52 scatters state;
``tests/data/collective_algorithms.csv`` has these and some of the first. Programs of chips with two devices state
nothing, or something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tpusim.hardware.pod import Pod
from tpusim.ir.ops import ON_RINGS
from tpusim.program.steps import Algorithm

SINGLE_PHASE_BYTES = 8 * 2**10
"""Up to so much round a ring every device gets all operands and adds them up itself."""
ONE_WAY_BYTES = 2**20
"""From so much on the sums of short rings go one way round in each of two lanes."""
MANY_LANES_BYTES = 2 * 2**20
"""Sums of more bytes along several axes use as many lanes as there are."""
SUMMED_GATHER_BYTES = 16 * 2**20
"""Up to so much is gathered as a sum on a whole slice of two axes."""
SHORT_RING = 8
"""The members of the longest ring that goes one way."""
SUMMED_CHIPS = 64
"""The smallest whole slice on which things are gathered as a sum."""

ROUND = Algorithm("ring", one_ring=True)
"""One ring through all members, both ways."""
ALONG_AXES = Algorithm("axes")
"""All axes at once, both ways."""


class Way(NamedTuple):
    """What a collective is done as: its own kind or an all-reduce, and how."""

    kind: str
    algorithm: Algorithm | None


def way_of(kind: str, pod: Pod, devices: Sequence[int], n_bytes: float) -> Way:
    """Return how a collective of some devices is carried out whose larger side has so many bytes.

    The algorithm is None where there is no evidence: on chips of several devices, across slices, off a torus.
    """
    chips = [pod.chip_of(device) for device in devices]
    in_slice = len({chip // pod.torus.chip_count for chip in chips}) == 1
    if pod.graph is not None or pod.devices_per_chip > 1 or not in_slice or kind not in ON_RINGS:
        return Way(kind, None)
    sides = _filled_sides(pod, chips)
    if kind != "all-reduce" and not _is_summed(kind, sides, len(chips) == pod.torus.chip_count, n_bytes):
        return Way(kind, ALONG_AXES if set(sides) == {2} else ROUND)
    # Two rows of a slice without a third axis are one ring.
    is_round = not sides or (len(pod.torus.sizes) == 2 and sides[0] == 2)
    return Way("all-reduce", _round(len(chips), n_bytes) if is_round else _along(sides, n_bytes))


def _filled_sides(pod: Pod, chips: Sequence[int]) -> list[int]:
    """Return the lengths of two or more axes that chips fill from end to end, in order; none if there is another."""
    sizes = pod.torus.sizes
    counts = [len(set(places)) for places in zip(*map(pod.torus.coordinates, chips), strict=True)]
    sides = sorted(count for count in counts if count > 1)
    fills = prod(counts) == len(chips) and all(count in (1, size) for count, size in zip(counts, sizes, strict=True))
    return sides if fills and len(sides) > 1 else []


def _is_summed(kind: str, sides: list[int], is_whole: bool, n_bytes: float) -> bool:
    """Return whether what is gathered or scattered is done as a sum."""
    if not sides or not is_whole:
        return False
    if kind == "all-gather":
        return prod(sides) >= SUMMED_CHIPS and (len(sides) > 2 or n_bytes <= SUMMED_GATHER_BYTES)
    return len(sides) > 2 or (sides[0] == sides[1] > 2)


def _along(sides: list[int], n_bytes: float) -> Algorithm:
    """Return how sums go along axes of such lengths: a colour for each that is as long as most are."""
    main = sides[len(sides) // 2]
    colors = sides.count(main)
    if n_bytes <= MANY_LANES_BYTES:
        return Algorithm("short axes", lanes=2 * colors)
    if sides[-1] == 2 * sides[0]:
        return ALONG_AXES
    return Algorithm("axes", lanes=2 * colors, one_way=main <= SHORT_RING)


def _round(members: int, n_bytes: float) -> Algorithm:
    """Return how sums go round a ring."""
    if n_bytes <= SINGLE_PHASE_BYTES:
        return Algorithm("single phase", one_ring=True, single_phase=True)
    if n_bytes >= ONE_WAY_BYTES and members <= SHORT_RING:
        return Algorithm("one-way ring", one_ring=True, lanes=2, one_way=True)
    return ROUND
