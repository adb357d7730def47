"""The fabrics that ship, and the pod of a slice with the links that its chip's fabric has.

``torus`` is the slice by the chip's own rules; ``mesh`` and ``twisted-torus`` are the same chips without closed axes or
with shifted ones. ``switch``, ``fat-tree`` and ``dragonfly`` are graphs, in which a chip puts all of its links into one
way to its first switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from math import comb

from msgspec import structs

from tpusim.cost.models.checked import links_fault
from tpusim.cost.models.protocols import Fabric
from tpusim.cost.models.registry import Registry
from tpusim.cost.models.settings import LEAST_RATE, MOST_JOINED, MOST_RATE, WAYS, amounts, whole
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.chip import Chip
from tpusim.hardware.fabric import Graph
from tpusim.hardware.pod import Detour, Pod, Topology, make_pod
from tpusim.hardware.torus import Torus

FABRICS: Registry[Fabric] = Registry("ici.model", links=links_fault)
"""By the name in a chip's file."""

Wire = tuple[int, int, float]
"""Two nodes that are joined, both ways, and the rate in rates of a chip's link."""


def build_pod(topology: Topology, chip: Chip, *, along_ring: bool = False) -> Pod:
    """Return the slices of ``topology`` with the links that the chip's fabric has, less those that are down.

    Raises ConfigError if the chip cannot form them, for links that there are not, and if nothing leads round one.
    """
    pod = make_pod(topology, chip, along_ring=along_ring)
    found = FABRICS.of(chip.ici).links(pod.torus, chip)
    _require_links(chip, found)
    pod = structs.replace(pod, torus=found) if isinstance(found, Torus) else structs.replace(pod, graph=found)
    if not chip.ici.links_down and not chip.ici.link_factors:
        return pod
    return with_faults(pod, chip.ici.links_down, chip.ici.link_factors)


def _require_links(chip: Chip, fabric: Torus | Graph) -> None:
    """Refuse a chip with fewer links than it would have to use: its collectives would be faster than all its links."""
    if isinstance(fabric, Torus):
        # To both neighbours along an axis, or to the only one.
        needed = sum(min(size - 1, 2) for size in fabric.sizes)
        slice_ = f"{'x'.join(map(str, fabric.sizes))} chips"
    else:
        needed, slice_ = min(1, fabric.chips - 1), f"{fabric.chips} chips"
    if chip.ici.links < needed:
        raise ConfigError(f"ici.links: expected at least {needed} for a slice of {slice_}, found {chip.ici.links}")


def with_faults(pod: Pod, down: tuple[str, ...], factors: Mapping[str, float]) -> Pod:
    """Return a pod in which some links are down, both ways, and others have another rate."""
    wires = list(_wires_of(pod))
    known = {f"{chip}:{way}": number for *_, number in wires for chip, way in [pod.named_link(number)]}
    for name in (*down, *factors):
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"ici: expected a link of this slice such as {next(iter(known), 'none')}, found {name!r}{hint}"
            )
    ends = {number: (source, target) for source, target, number in wires}
    # A cable is both its ways.
    failed = {ends[known[name]] for name in down}
    cut = {number for source, target, number in wires if {(source, target), (target, source)} & failed}
    left = [wire for wire in wires if wire[2] not in cut]
    rates = {known[name]: factor for name, factor in factors.items()}
    graph = Graph(
        pod.chip_count,
        1 + max((max(source, target) for source, target, _ in wires), default=0),
        tuple((source, target) for source, target, _ in left),
        tuple(rates.get(number, 1.0) for *_, number in left),
    )
    detours = {number: _detour(graph, ends[number], left, pod.named_link(number)) for number in sorted(cut)}
    return structs.replace(pod, detours=detours, link_factors=rates)


def _detour(graph: Graph, ends: tuple[int, int], left: list[tuple[int, int, int]], name: tuple[int, str]) -> Detour:
    """Return the ways between the ends of a link without it."""
    carried = graph.spread(*ends)
    if not carried:
        raise ConfigError(f"ici.links_down: no way is left round the link {name[0]}:{name[1]}")
    far = graph.distances(ends[1])[ends[0]]
    return Detour(tuple((left[number][2], share) for number, share in carried.items()), far)


def _wires_of(pod: Pod) -> Iterator[tuple[int, int, int]]:
    """Yield all links of a pod: the nodes that each leads from and to, numbered through all slices, and its number."""
    for slice_number in range(pod.slices):
        first = slice_number * pod.link_count
        nodes = pod.graph.nodes if pod.graph else pod.torus.chip_count
        links = enumerate(pod.graph.links) if pod.graph else _torus_links(pod.torus)
        for number, (source, target) in links:
            yield source + slice_number * nodes, target + slice_number * nodes, first + number


def _torus_links(torus: Torus) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the links of a torus by number, those that a mesh lacks at its rim left out."""
    for chip in range(torus.chip_count):
        here = torus.coordinates(chip)
        for axis, size in enumerate(torus.sizes):
            for down in (False, True):
                is_rim = here[axis] == (0 if down else size - 1)
                if size > 1 and (torus.wraps[axis] or not is_rim):
                    yield torus.link(chip, axis, down), (chip, torus.number(torus.step(here, axis, down)))


@FABRICS.enter("torus")
class OwnTorus:
    """The mesh or torus that the chip's rules make of a slice, twisted where they say so."""

    def links(self, torus: Torus, chip: Chip) -> Torus:
        """Return the slice as it is."""
        return torus


@FABRICS.enter("mesh")
class Mesh:
    """No axis closes to a ring."""

    def links(self, torus: Torus, chip: Chip) -> Torus:
        """Return the same chips without the links round the back."""
        return Torus(torus.sizes, (False,) * len(torus.sizes))


@FABRICS.enter("twisted-torus")
class TwistedTorus:
    """All axes close; the short ones meet their beginnings shifted along the long ones."""

    def links(self, torus: Torus, chip: Chip) -> Torus:
        """Return the twisted slice; raise ConfigError where it has no short and long axes, one twice the other."""
        short, long = min(torus.sizes), max(torus.sizes)
        if len(torus.sizes) < 2 or set(torus.sizes) != {short, long} or long != 2 * short or short < 2:
            sizes = "x".join(map(str, torus.sizes))
            raise ConfigError(f"ici.model: a twisted torus has axes of n and 2n chips, found {sizes}")
        return Torus(torus.sizes, (True,) * len(torus.sizes), short)


@FABRICS.enter("switch")
class Switch:
    """One switch that all chips of a slice hang on."""

    def links(self, torus: Torus, chip: Chip) -> Graph:
        """Return a star."""
        return star(torus.chip_count, _own_links(chip))


@lru_cache(maxsize=64)
def star(chips: int, rate: float) -> Graph:
    """Return chips that hang on one switch."""
    return graph_of(chips, chips + 1, [(number, chips, rate) for number in range(chips)])


@FABRICS.enter("fat-tree")
class FatTree:
    """Leaf switches of ``leaf_chips`` each, every one of them joined to all of ``spines`` switches above.

    Each way up has ``up_rate``, in rates of a chip's link.
    """

    def __init__(self, *, leaf_chips: int, spines: int, up_rate: float) -> None:
        self._leaf_chips, self._spines = whole(FABRICS.section, MOST_JOINED, leaf_chips=leaf_chips, spines=spines)
        (self._up_rate,) = amounts(FABRICS.section, LEAST_RATE, MOST_RATE, up_rate=up_rate)

    def links(self, torus: Torus, chip: Chip) -> Graph:
        """Return two levels of switches, one where all chips hang on a leaf."""
        return self._tree(torus.chip_count, _own_links(chip))

    # The same graph each time, so that its distances are found once.
    @lru_cache(maxsize=64)  # noqa: B019 (models live as long as the process)
    def _tree(self, chips: int, rate: float) -> Graph:
        leaves = -(-chips // self._leaf_chips)
        if leaves == 1:
            return star(chips, rate)
        _check_ways(leaves * self._spines, "more leaf_chips or fewer spines")
        first_spine = chips + leaves
        wires: list[Wire] = [(number, chips + number // self._leaf_chips, rate) for number in range(chips)]
        wires += [
            (chips + leaf, first_spine + spine, self._up_rate)
            for leaf in range(leaves)
            for spine in range(self._spines)
        ]
        return graph_of(chips, first_spine + self._spines, wires)


@FABRICS.enter("dragonfly")
class Dragonfly:
    """Groups of routers that are joined each to each, and a way between any two groups (Kim et al., ISCA 2008).

    ``router_chips`` hang on a router, ``group_routers`` are a group. Rates are in those of a chip's link: between the
    routers of a group, and between two groups.
    """

    def __init__(self, *, router_chips: int, group_routers: int, local_rate: float, global_rate: float) -> None:
        counts = {"router_chips": router_chips, "group_routers": group_routers}
        self._router_chips, self._group_routers = whole(FABRICS.section, MOST_JOINED, **counts)
        rates = {"local_rate": local_rate, "global_rate": global_rate}
        self._local_rate, self._global_rate = amounts(FABRICS.section, LEAST_RATE, MOST_RATE, **rates)

    def links(self, torus: Torus, chip: Chip) -> Graph:
        """Return the routers of as many groups as the chips need."""
        return self._dragonfly(torus.chip_count, _own_links(chip))

    @lru_cache(maxsize=64)  # noqa: B019 (as above)
    def _dragonfly(self, chips: int, rate: float) -> Graph:
        routers = -(-chips // self._router_chips)
        groups = [range(at, min(at + self._group_routers, routers)) for at in range(0, routers, self._group_routers)]
        ways = comb(len(groups), 2) + sum(comb(len(group), 2) for group in groups)
        _check_ways(ways, "more router_chips, or other group_routers")
        wires: list[Wire] = [(number, chips + number // self._router_chips, rate) for number in range(chips)]
        for group in groups:
            wires += [(chips + one, chips + other, self._local_rate) for one, other in combinations(group, 2)]
        for (a, one), (b, other) in combinations(enumerate(groups), 2):
            # Ways to other groups go round the routers of each.
            ends = one[(b - 1) % len(one)], other[a % len(other)]
            wires.append((chips + ends[0], chips + ends[1], self._global_rate))
        return graph_of(chips, chips + routers, wires)


def _check_ways(ways: int, advice: str) -> None:
    """Refuse more ways between switches than can be gone through; ``advice`` says which settings make fewer."""
    if fault := WAYS.fault(ways):
        raise ConfigError(f"{FABRICS.section}.settings: {fault}: give {advice}")


def graph_of(chips: int, nodes: int, wires: list[Wire]) -> Graph:
    """Return the graph of nodes that wires join, a link each way."""
    ends = [(a, b) for one, other, _ in wires for a, b in ((one, other), (other, one))]
    return Graph(chips, nodes, tuple(ends), tuple(rate for *_, rate in wires for _ in range(2)))


def _own_links(chip: Chip) -> float:
    """Return the links that a chip has, all of which it puts into its way to a switch."""
    return max(1, chip.ici.links)
