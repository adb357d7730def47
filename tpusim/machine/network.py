"""The links of a pod under traffic: transfers over many links at once that share them fairly.

A transfer is so many bytes on each of its links: the route of one message, or all that a collective sends. It advances
on all of them together, as chunks that follow each other closely do, and alone it takes as long as its busiest link.
Where transfers meet, each gets the same share of its own full speed, as far as its links allow (max-min fair).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from math import inf
from operator import eq

import numpy as np

from tpusim.cost.kept import Kept
from tpusim.cost.links import Load, link_name, link_rates
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Pod
from tpusim.machine.events import Environment
from tpusim.machine.fluid import ROUNDING, Flow, Fluid, OnEnd, call_after
from tpusim.timeline.records import LinkUse
from tpusim.units import PS_PER_SECOND

_FULL = 1 - 1e-12
"""A link used beyond this share has no room left."""

_DEMAND_BYTES = 2**23
"""Of what transfers ask of the links, as far as it is kept: with its arrays each is some hundred bytes."""

_MOST_KEPT = 2**18
"""Rates of transfers that met before and may meet again, in all: some forty bytes each."""


class LinkUses(Collection[LinkUse]):
    """What links carried, each made when it is looked at: a large slice has hundreds of thousands of them."""

    def __init__(self, pod: Pod, numbers: np.ndarray, n_bytes: np.ndarray, busy_ps: np.ndarray) -> None:
        self._pod = pod
        self._numbers = numbers
        self._n_bytes = n_bytes
        self._busy_ps = busy_ps

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[LinkUse]:
        for number, n_bytes, busy_ps in zip(self._numbers, self._n_bytes, self._busy_ps, strict=True):
            yield LinkUse(*link_name(self._pod, int(number)), float(n_bytes), int(busy_ps))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __contains__(self, link: object) -> bool:
        return any(link == one for one in self)


class LinkDemand:
    """What a byte of some load asks of the links: how long it takes alone, and how much of that each link is busy.

    ``number`` tells it from all others, those that are no longer there as well.
    """

    __slots__ = ("_bytes_per_ps", "_shares", "load", "number", "ps_per_byte")

    def __init__(self, load: Load, bytes_per_ps: np.ndarray, number: int = 0) -> None:
        self.load = load
        self.number = number
        self.ps_per_byte = float((load.n_bytes / bytes_per_ps[load.links]).max())
        self._bytes_per_ps = bytes_per_ps
        self._shares: np.ndarray | None = None

    @property
    def shares(self) -> np.ndarray:
        """How much of the time each link is busy: only asked where transfers meet."""
        if self._shares is None:
            self._shares = self.load.n_bytes / self._bytes_per_ps[self.load.links] / self.ps_per_byte
        return self._shares

    @property
    def n_bytes(self) -> int:
        """How many bytes it takes in memory, about, once it is asked for all that it tells."""
        return 2**8 + 24 * len(self.load.links)


class Transfer(Flow):
    """A load under way, in picoseconds that it would still take alone; its rate is a share of that full speed."""

    __slots__ = ("demand", "rate")

    def __init__(self, demand: LinkDemand, n_bytes: float, on_end: OnEnd) -> None:
        super().__init__(demand.ps_per_byte * n_bytes, on_end)
        self.demand = demand
        self.rate = 0.0


class Network(Fluid[Transfer]):
    """All links of a pod and the transfers on them."""

    def __init__(self, env: Environment, pod: Pod, chip: Chip) -> None:
        super().__init__(env)
        self._pod = pod
        ici = chip.ici.link_bytes_per_second * chip.ici.efficiency
        extra = chip.ici.local_bytes_per_second, *(chip.pod.dcn_bytes_per_second,) * 2
        self._bytes_per_ps = link_rates(pod, ici, extra) / PS_PER_SECOND
        self._demands = Kept[int, LinkDemand](_DEMAND_BYTES)
        self._numbers = count()
        self._rates: dict[tuple[int, ...], list[float]] = {}
        self._kept = 0
        self._flows: list[Transfer] = []
        self._is_stale = False

    def begin(self, load: Load, n_bytes: float, on_end: OnEnd) -> None:
        """Begin to move ``n_bytes`` times a load (each link once); ``on_end`` is called with the time of its end.

        A load that is used again should be the same object: what it costs is remembered by it.
        """
        if not (n_bytes and load.n_bytes.any()):
            call_after(self._env, 0, partial(on_end, int(self._env.now)))
            return
        demand = self._demands.get(id(load.links))
        if demand is None:
            # It keeps its load, so that no other load can take its address.
            demand = LinkDemand(load, self._bytes_per_ps, next(self._numbers))
            self._demands.put(id(load.links), demand, demand.n_bytes)
        self._begin(Transfer(demand, n_bytes, on_end))

    def uses(self, sent: Iterable[tuple[Load, float]]) -> LinkUses:
        """Return what every link carried that carried anything, of loads with their bytes."""
        carried = np.zeros(len(self._bytes_per_ps))
        for load, n_bytes in sent:
            carried[load.links] += load.n_bytes * n_bytes
        numbers = np.nonzero(carried)[0]
        return LinkUses(self._pod, numbers, carried[numbers], np.ceil(carried[numbers] / self._bytes_per_ps[numbers]))

    def _changed(self) -> None:
        """Share the links anew once all that begins at this moment has begun: sharing them is dear."""
        if not self._is_stale:
            self._is_stale = True
            call_after(self._env, 0, self._reschedule)

    def _reschedule(self) -> None:
        self._is_stale = False
        super()._reschedule()

    def _add(self, flow: Transfer) -> None:
        self._flows.append(flow)

    def _move(self, passed_ps: int) -> None:
        for flow in self._flows:
            flow.left -= flow.rate * passed_ps

    def _until_first_end(self) -> float:
        return min([max(0.0, flow.left) / flow.rate for flow in self._flows], default=inf)

    def _take_ended(self) -> list[Transfer]:
        ended = [flow for flow in self._flows if flow.left <= ROUNDING]
        self._flows = [flow for flow in self._flows if flow.left > ROUNDING]
        return ended

    def _set_rates(self) -> None:
        demands = [transfer.demand for transfer in self._flows]
        # The same transfers have the same rates each time; one alone has its full speed.
        key = tuple([demand.number for demand in demands])
        if key not in self._rates:
            self._kept += len(key)
            if self._kept > _MOST_KEPT:
                self._rates, self._kept = {}, len(key)
            self._rates[key] = fair_speeds(demands) if len(demands) > 1 else [1.0] * len(demands)
        for transfer, rate in zip(self._flows, self._rates[key], strict=True):
            transfer.rate = rate


def fair_speeds(demands: Sequence[LinkDemand]) -> list[float]:
    """Return the speeds of transfers: all rise together, and those on a link that is full stop rising."""
    owners = np.repeat(np.arange(len(demands)), [len(demand.load.links) for demand in demands])
    # Numbered anew, so that the cost is by the links in use and not by those of the pod.
    _, links = np.unique(np.concatenate([demand.load.links for demand in demands]), return_inverse=True)
    shares = np.concatenate([demand.shares for demand in demands])
    rising, speeds, speed = np.ones(len(demands), bool), np.zeros(len(demands)), 0.0
    used = np.zeros(int(links.max()) + 1)
    while speed < _FULL and rising.any():
        # Only those that still rise, of which there are fewer in every round.
        going = rising[owners] & (shares > 0)
        owners, links, shares = owners[going], links[going], shares[going]
        weights = np.bincount(links, shares, len(used))
        wanted = weights > 0
        rise = min(1.0 - speed, float(((1.0 - used[wanted]) / weights[wanted]).min()))
        speed += rise
        speeds[rising] = speed
        used += rise * weights
        rising[owners[(used >= _FULL)[links]]] = False
    return speeds.tolist()
