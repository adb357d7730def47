"""The links of a pod by number: what messages load them with, which way they take, what a link is called.

Numbers count the links of each slice, one slice after the other, and then the ways beside them of each chip. Where a
link is down, what would take it goes over the shortest ways round it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from tpusim.hardware.pod import Pod

LOCAL, OUT, IN = range(3)
"""What a chip has beside its links: the way between its own devices, and to and from the data-centre network."""

_EXTRA = 3

LINKS_AT_ONCE = 2**16
"""Of a large pod, so that what is computed of them by the way takes some megabytes."""


class Load(NamedTuple):
    """Bytes on each of some links; a link may come more than once."""

    links: np.ndarray
    n_bytes: np.ndarray

    def times(self, factor: float) -> Load:
        """Return the same links with that many times the bytes."""
        return Load(self.links, self.n_bytes * factor)


NO_LOAD = Load(np.zeros(0, np.int64), np.zeros(0))


def load_of(carried: dict[int, float]) -> Load:
    """Return bytes by link as a load."""
    return Load(np.array(list(carried), np.int64), np.array(list(carried.values()), float))


def load_from(carried: np.ndarray, first: int = 0) -> Load:
    """Return the bytes of links numbered from ``first`` on, of those that carry any, as a load."""
    used = np.nonzero(carried > 0)[0]
    return Load(first + used, carried[used])


def joined(loads: list[Load]) -> Load:
    """Return several loads as one, each link once."""
    if not loads:
        return NO_LOAD
    links, n_bytes = _in_a_row(loads)
    if (links[1:] > links[:-1]).all():
        return Load(links, n_bytes)
    if len(links) > LINKS_AT_ONCE:
        return _counted(links, n_bytes)
    # By hand, and not by np.unique: nearly all loads are of few links, none of which comes twice.
    order = links.argsort(kind="stable")
    in_order = links[order]
    is_first = np.ones(len(links), bool)
    is_first[1:] = in_order[1:] != in_order[:-1]
    if is_first.all():
        return Load(in_order, n_bytes[order])
    places = np.empty(len(links), np.int64)
    places[order] = is_first.cumsum() - 1
    return Load(in_order[is_first], np.bincount(places, n_bytes))


def added(loads: Iterable[Load], pod: Pod) -> Load:
    """Return loads as ``joined`` does, without having all of them at once: groups of a large pod meet on its links."""
    carried = np.zeros(pod.slices * pod.link_count + _EXTRA * pod.chip_count)
    is_one = np.zeros(len(carried), np.bool_)
    for load in loads:
        # One after the other, as in one sum of all: floats added in another order are others.
        np.add.at(carried, load.links, load.n_bytes)
        is_one[load.links] = True
    return Load(np.flatnonzero(is_one), carried[is_one])


def _counted(links: np.ndarray, n_bytes: np.ndarray) -> Load:
    """Return many links, each once, with their bytes: a count for every link of the pod, and not their order."""
    is_one = np.zeros(int(links.max()) + 1, np.bool_)
    is_one[links] = True
    return Load(np.flatnonzero(is_one), np.bincount(links, n_bytes)[is_one])


def _in_a_row(loads: list[Load]) -> Load:
    """Return the links of some loads one after the other; one alone is no copy: it may be of every link of a pod."""
    return loads[0] if len(loads) == 1 else Load(*map(np.concatenate, zip(*loads, strict=True)))


def moved(loads: list[Load], pod: Pod, moves: np.ndarray) -> Load:
    """Return loads of a torus moved, one after the other: each by its row of places along every axis, and slices."""
    links, n_bytes = _in_a_row(loads)
    if not moves.any():
        return Load(links, n_bytes)
    owners = np.arange(len(loads)).repeat([len(load.links) for load in loads])
    return Load(_in_parts(lambda part: _moved(links[part], pod, moves[owners[part]]), len(links)), n_bytes)


def _in_parts(of_part: Callable[[slice], np.ndarray], count: int) -> np.ndarray:
    """Return what is computed of so many links, part by part: a large pod has a million, and it takes many columns."""
    found = np.empty(count, np.int64)
    for start in range(0, count, LINKS_AT_ONCE):
        part = slice(start, start + LINKS_AT_ONCE)
        found[part] = of_part(part)
    return found


def _moved(links: np.ndarray, pod: Pod, moves: np.ndarray) -> np.ndarray:
    """Return links of a torus, each moved by its own row of places along every axis, and slices."""
    torus, sizes = pod.torus, (*pod.torus.sizes, pod.slices)
    first = np.where(links < pod.slices * pod.link_count, 0, pod.slices * pod.link_count)
    per_chip = np.where(first, _EXTRA, 2 * len(torus.sizes))
    chips, which = np.divmod(links - first, per_chip)
    places = np.stack(np.unravel_index(chips, sizes, order="F"))
    places += moves.T
    # Short axes first: where a torus is twisted their turns move what lies along the long ones.
    for axis in sorted(range(len(torus.sizes)), key=lambda axis: sizes[axis]):
        turns, places[axis] = np.divmod(places[axis], sizes[axis])
        for other, by in enumerate(torus.shift(axis)):
            places[other] += turns * by
    found: np.ndarray = np.ravel_multi_index(tuple(places), sizes, order="F") * per_chip + which + first
    return found


def slice_way(pod: Pod, source: int, target: int) -> tuple[Load, int]:
    """Return the load of a byte between two chips of a slice, both numbered in it, and the links that follow."""
    if pod.graph is not None:
        return load_of(pod.graph.spread(source, target)), pod.graph.distances(target)[source]
    route = pod.torus.route(source, pod.torus.displacements(source, target)[0])
    return Load(np.array(route, np.int64), np.ones(len(route))), len(route)


def detour(load: Load, pod: Pod) -> tuple[Load, int]:
    """Return a load with what would take links that are down on the ways round them, and the links that are added."""
    down = [number for number in np.unique(load.links) if int(number) in pod.detours]
    if not down:
        return load, 0
    loads = [Load(load.links[keep], load.n_bytes[keep])] if (keep := ~np.isin(load.links, down)).any() else []
    for number in map(int, down):
        round_it = load_of(dict(pod.detours[number].carried))
        loads.append(round_it.times(float(load.n_bytes[load.links == number].sum())))
    return joined(loads), sum(pod.detours[int(number)].links - 1 for number in down)


def extra_link(pod: Pod, chip: int, which: int) -> int:
    """Return the number of a chip's ``LOCAL``, ``OUT`` or ``IN``."""
    return pod.slices * pod.link_count + chip * _EXTRA + which


def beside(pod: Pod, which: int, carried: np.ndarray) -> Load:
    """Return as a load the bytes that every chip has on its ``LOCAL``, ``OUT`` or ``IN``."""
    chips, n_bytes = load_from(carried)
    return Load(extra_link(pod, 0, which) + chips * _EXTRA, n_bytes)


def chips_left(links: np.ndarray, pod: Pod) -> np.ndarray:
    """Return the number of the chip that each link of a slice leaves; -1 for those of switches and the ways beside."""
    return _in_parts(lambda part: _chips_left(links[part], pod), len(links))


def _chips_left(links: np.ndarray, pod: Pod) -> np.ndarray:
    in_slice, link = np.divmod(links, pod.link_count)
    chips = pod.torus.chip_count
    if pod.graph is None:
        nodes = link // (2 * len(pod.torus.sizes))
    else:
        chips, nodes = pod.graph.chips, np.array([source for source, _ in pod.graph.links], np.int64)[link]
    is_chips: np.ndarray = (in_slice < pod.slices) & (nodes < chips)
    return np.where(is_chips, in_slice * chips + nodes, -1)


def link_name(pod: Pod, number: int) -> tuple[int, str]:
    """Return the chip of a link and which of its links it is; switches are numbered behind all chips."""
    beside = number - pod.slices * pod.link_count
    if beside >= 0:
        return beside // _EXTRA, ("local", "out", "in")[beside % _EXTRA]
    return pod.named_link(number)


def link_rates(pod: Pod, link_bytes_per_second: float, extra_bytes_per_second: tuple[float, ...]) -> np.ndarray:
    """Return the bytes per second of every link: those of the slices, then the ways beside them of each chip."""
    rates = np.ones(pod.slices * pod.link_count)
    if pod.graph is not None:
        rates = np.tile(np.array(pod.graph.rates), pod.slices)
    for number, factor in pod.link_factors.items():
        rates[number] *= factor
    return np.concatenate([rates * link_bytes_per_second, np.tile(np.array(extra_bytes_per_second), pod.chip_count)])
