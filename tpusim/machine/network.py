"""The links of a pod under traffic: transfers over many links at once that share them fairly.

A transfer is so many bytes on each of its links: the path of one message, or all that a collective sends. It advances
on all of them together, as chunks that follow each other closely do, and alone it takes as long as its busiest link.
Where transfers meet, each gets the same share of its own full speed, as far as its links allow (max-min fair). Rates
are floats; the moments at which transfers end are rounded up to whole picoseconds before they reach the clock.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from tpusim.cost.links import Load, link_name
from tpusim.machine.memory import call_after
from tpusim.timeline.records import LinkUse
from tpusim.units import PS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simpy import Environment, Event

    from tpusim.hardware.chip import Chip
    from tpusim.hardware.pod import Pod

_ROUNDING_PS = 1e-3
"""A transfer with less than this left at full speed has ended: what remains is rounding."""

_FULL = 1 - 1e-12
"""A link used beyond this share has no room left."""


class Transfer:
    """A load under way. ``left_ps`` is how long it would still take alone, ``speed`` its share of that."""

    __slots__ = ("left_ps", "on_end", "road", "speed")

    def __init__(self, road: Road, n_bytes: float, on_end: Callable[[], object]) -> None:
        self.road = road
        self.left_ps = road.ps_per_byte * n_bytes
        self.speed = 0.0
        self.on_end = on_end


class Road:
    """A load per byte on the links of a pod: how long a byte takes alone, and how much of that each link is busy."""

    __slots__ = ("demand", "load", "moved_bytes", "ps_per_byte")

    def __init__(self, load: Load, bytes_per_ps: np.ndarray) -> None:
        self.load = load
        times = load.n_bytes / bytes_per_ps[load.links]
        self.ps_per_byte = float(times.max())
        self.demand = times / self.ps_per_byte
        self.moved_bytes = 0.0


class Network:
    """All links of a pod and the transfers on them."""

    def __init__(self, env: Environment, pod: Pod, chip: Chip) -> None:
        self._env = env
        self._pod = pod
        ici = chip.ici.link_bytes_per_second * chip.ici.efficiency
        extra = np.array([chip.ici.local_bytes_per_second, *(chip.pod.dcn_bytes_per_second,) * 2])
        rates = [np.full(pod.slices * pod.torus.link_count, ici), np.tile(extra, pod.chip_count)]
        self._bytes_per_ps = np.concatenate(rates) / PS_PER_SECOND
        self._roads: dict[int, Road] = {}
        self._shares: dict[tuple[int, ...], list[float]] = {}
        self._transfers: list[Transfer] = []
        self._updated_ps = 0
        self._version = 0
        self._stale = False

    def begin(self, load: Load, n_bytes: float, on_end: Callable[[], object]) -> None:
        """Begin to move ``n_bytes`` times a load (each link once), and call ``on_end`` when it has come.

        A load that is used again should be the same object: what it costs is remembered by it.
        """
        if not (n_bytes and load.n_bytes.any()):
            call_after(self._env, 0, on_end)
            return
        road = self._roads.get(id(load.links))
        if road is None:
            # The road keeps its load, so that no other can be at its address.
            road = self._roads[id(load.links)] = Road(load, self._bytes_per_ps)
        self._advance()
        road.moved_bytes += n_bytes
        self._transfers.append(Transfer(road, n_bytes, on_end))
        self._refresh()

    def mark(self) -> dict[int, float]:
        """Return what has been moved so far, to give to ``repeat`` later."""
        return {key: road.moved_bytes for key, road in self._roads.items()}

    def repeat(self, mark: Mapping[int, float], times: float) -> None:
        """Count what has been moved since ``mark`` so many times more."""
        for key, road in self._roads.items():
            road.moved_bytes += (road.moved_bytes - mark.get(key, 0.0)) * times

    def uses(self) -> tuple[LinkUse, ...]:
        """Return what every link carried that carried anything."""
        carried = np.zeros(len(self._bytes_per_ps))
        for road in self._roads.values():
            carried[road.load.links] += road.load.n_bytes * road.moved_bytes
        numbers = np.nonzero(carried)[0]
        busy = np.ceil(carried[numbers] / self._bytes_per_ps[numbers])
        return tuple(
            LinkUse(*link_name(self._pod, int(number)), float(carried[number]), int(busy_ps))
            for number, busy_ps in zip(numbers, busy, strict=True)
        )

    def _refresh(self) -> None:
        """Share the links anew once all that begins at this moment has begun."""
        if not self._stale:
            self._stale = True
            call_after(self._env, 0, self._reschedule)

    def _advance(self) -> None:
        """Bring all transfers up to now."""
        passed_ps = int(self._env.now) - self._updated_ps
        if not passed_ps:
            return
        for transfer in self._transfers:
            transfer.left_ps -= transfer.speed * passed_ps
        self._updated_ps += passed_ps

    def _reschedule(self) -> None:
        """Set the speeds and wake up when the first transfer ends."""
        self._stale = False
        self._advance()
        if not self._transfers:
            return
        for transfer, speed in zip(self._transfers, self._speeds(), strict=True):
            transfer.speed = speed
        wait_ps = ceil(min(max(0.0, transfer.left_ps) / transfer.speed for transfer in self._transfers))
        # SimPy cannot take a timeout back: the number tells an outdated one.
        self._version += 1
        self._env.timeout(wait_ps, self._version).callbacks.append(self._on_wake)

    def _speeds(self) -> list[float]:
        """Return the speeds of the transfers under way; the same ones on the same roads have the same each time."""
        if len(self._transfers) == 1:
            return [1.0]
        roads = [transfer.road for transfer in self._transfers]
        key = tuple(map(id, roads))
        if key not in self._shares:
            self._shares[key] = fair_speeds(roads)
        return self._shares[key]

    def _on_wake(self, wake: Event) -> None:
        """End the transfers that have nothing left; a wake-up that something has overtaken does nothing."""
        if wake.value != self._version:
            return
        self._advance()
        ended = [transfer for transfer in self._transfers if transfer.left_ps <= _ROUNDING_PS]
        self._transfers = [transfer for transfer in self._transfers if transfer.left_ps > _ROUNDING_PS]
        # In the order of arrival, so that transfers that end together resume in one order on every run.
        for transfer in ended:
            transfer.on_end()
        self._refresh()


def fair_speeds(roads: Sequence[Road]) -> list[float]:
    """Return the speeds of transfers on roads: all rise together until a link is full, which holds those on it; the
    others rise on.
    """
    owners = np.repeat(np.arange(len(roads)), [len(road.demand) for road in roads])
    # Numbered anew, so that the cost is by the links in use and not by those of the pod.
    _, links = np.unique(np.concatenate([road.load.links for road in roads]), return_inverse=True)
    demand = np.concatenate([road.demand for road in roads])
    rising = np.ones(len(roads), bool)
    speeds = np.zeros(len(roads))
    used = np.zeros(int(links.max()) + 1)
    while rising.any():
        weights = np.bincount(links, demand * rising[owners], len(used))
        wanted = weights > 0
        rise = min(1.0 - float(speeds[rising][0]), float(((1.0 - used[wanted]) / weights[wanted]).min()))
        speeds[rising] += rise
        used += rise * weights
        held = rising.copy()
        held[owners[(used[links] >= _FULL) & (demand > 0)]] = False
        rising = held & (speeds < _FULL)
    return [float(speed) for speed in speeds]
