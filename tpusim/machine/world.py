"""What devices share: the clock, the links between chips and to the hosts, and the places where they meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from tpusim.errors import UnsupportedError
from tpusim.machine.cohorts import Split
from tpusim.machine.costs import Costs
from tpusim.machine.events import Environment, Event, StopSimulation
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.placement import Cohort
from tpusim.machine.rendezvous import Channels, Collectives
from tpusim.machine.waits import Waits
from tpusim.program.steps import Collective
from tpusim.timeline.records import LinkUse

if TYPE_CHECKING:
    from tpusim.cost.links import Load
    from tpusim.machine.network import Network


MOST_PLAYED_TRIPS = 4096
"""Trips of a loop that wait for others, or for a host with a pace, before these stand for the rest."""

_PLAYED_RECORDS, _PLAYED_TIMES = 2**14, 4
# When enough was played, every step may be played once more, and devices may be apart by some trips.
_MOST_RECORDS, _MOST_TIMES = 2**16, 6
# For trips in which something lands that began before their loop: others are played in their place, and the last of
# them may run every step once more.
_MORE_RECORDS = 2**14
# Calls in calls begin before any of them has an end to record.
_MOST_CALLS = 2**13
# Of trips in which something is chosen, each as one that was played before: ten seconds at most. So many choices take
# as long as such a trip takes without them.
_MOST_REPLAYED, _CHOICES_A_TRIP = 2**18, 2**5


class Played:
    """How much was played so far of a run of so many ``steps``, those of each device that is simulated.

    Calls of calls and loops in loops run their steps more often than can be played one by one. Where nothing is under
    way beside them one run stands for all. Where something is, every step is played four times on average before it
    counts no longer.
    """

    def __init__(self, steps: int) -> None:
        self._records = self._calls = self._replayed = 0
        self._enough = _PLAYED_RECORDS + _PLAYED_TIMES * steps
        self._most = _MOST_RECORDS + _MOST_TIMES * steps
        self._most_calls = _MOST_CALLS + steps

    @property
    def is_enough(self) -> bool:
        """Whether what follows is like what was played, whatever is under way beside it."""
        return self._records >= self._enough

    @property
    def is_spent(self) -> bool:
        """Whether so much was played beyond that, that the first trip of each loop has to do."""
        return self._records >= (self._enough + self._most) // 2

    @property
    def has_room(self) -> bool:
        """Whether a trip may be played in the place of one that does not stand for others."""
        return self._records < self._enough + _MORE_RECORDS

    def record(self) -> None:
        """Count a record; raise UnsupportedError if what tells trips or devices apart takes far too many."""
        self._records += 1
        if self._records > self._most:
            raise UnsupportedError(
                f"expected a run of at most {self._most:,} records, found more: in loops or calls that multiply its "
                "devices differ and wait for each other, or for a host with a pace, or trips choose while something is "
                "under way beside them"
            )

    def replay(self, choices: int) -> None:
        """Count a trip that is as one that was played, of so many choices; raise UnsupportedError for far too many."""
        self._replayed += 1 + choices // _CHOICES_A_TRIP
        if self._replayed > _MOST_REPLAYED:
            raise UnsupportedError(
                f"expected at most {_MOST_REPLAYED:,} trips that choose anew each time, or "
                f"{_MOST_REPLAYED * _CHOICES_A_TRIP:,} choices in them, found more: loops multiply them"
            )

    def takes_call(self) -> bool:
        """Count a call that begins beside the core, and return whether there is room for it.

        Raises UnsupportedError for the first that has none: what begins at the same moment goes on until that is met.
        """
        self._calls += 1
        if self._calls == self._most_calls + 1:
            raise UnsupportedError(
                f"expected at most {self._most_calls:,} calls beside the core at once, found more: they multiply"
            )
        return self._calls <= self._most_calls

    def call_ended(self, _: Event) -> None:
        """Count a call no longer."""
        self._calls -= 1


class LoopWatch:
    """One visit of all devices to a loop.

    If a trip took all of them equally long, and the one before as well, no device has moved against another, so that
    the next will be the same. Groups of devices that have nothing to do with each other, and share no link, may each
    keep a time of their own: but a delay passes on by at least one device with each trip, so that after as many trips
    without a change, for which ``patience`` is asked, there is none to come. Then all jump ``steady_after`` one trip;
    or, ``enough_after`` one, what was played has to do: where enough was before the visit, its ``least_trips``.
    """

    def __init__(self, cohorts: int, patience: Callable[[], float], *, least_trips: int = 0) -> None:
        self.steady_after: float = inf
        self.was_enough = least_trips > 0
        self.enough_after: float = least_trips or inf
        self._count = cohorts
        self._patience = patience
        self._trip: dict[int, int] = {}
        self._length_ps: dict[int, int] = {}
        self._steady_ps: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def begin(self, number: int, trip: int) -> None:
        """Note that a device begins a trip."""
        self._trip[number] = trip

    def end(self, number: int, length_ps: int, *, was_alone: bool, is_enough: bool) -> None:
        """Note how long a device's trip was; if it was the last to repeat itself, or is enough, all may jump.

        A trip with something else under way says nothing of trips without it.
        """
        trip = self._trip[number]
        if self._length_ps.get(number) != length_ps or not was_alone:
            self._length_ps[number], self._since[number] = length_ps, trip
        self._ended[trip] = self._ended.get(trip, 0) + 1
        if self._ended[trip] < self._count or min(self.steady_after, self.enough_after) < inf:
            return
        # No device has ended the trip after those that have begun: all will see the mark in time.
        if self._repeats(trip):
            self.steady_after = max(self._trip.values()) + 1
            self._steady_ps = dict(self._length_ps)
        elif is_enough:
            self.enough_after = max(self._trip.values()) + 1

    def length_ps(self, number: int) -> int:
        """Return how long the trips of a device were when all had repeated themselves."""
        return self._steady_ps[number]

    def _repeats(self, trip: int) -> bool:
        """Return whether the trips up to one that all have ended stand for those to come."""
        alike = len(set(self._length_ps.values())) == 1
        steady = trip - max(self._since.values())
        return steady >= (1 if alike else self._patience())


class World:
    """One clock, one network, and the cohorts on it.

    ``for_all`` is the world of a single device that stands for all of a program which does the same on each: it runs
    under the traffic of all. Else devices wait for each other, and of each cohort one is simulated. ``device_count``
    is that of all devices, simulated or not.
    """

    def __init__(self, costs: Costs, cohorts: Sequence[Cohort], device_count: int, *, for_all: bool) -> None:
        self.env = Environment()
        self.costs = costs
        self.chip = costs.chip
        self.pod = costs.pod
        self.cohorts = cohorts
        self.for_all = for_all
        self.is_one_program = len({id(cohort.program) for cohort in cohorts}) == 1
        self.member_count = sum(len(cohort.members) for cohort in cohorts)
        self.loop_watches: dict[tuple[int, int], LoopWatch] = {}
        # By loop and device, how long each trip is once all repeat themselves, or on average.
        self.steady_ps: dict[tuple[int, int], int] = {}
        self.played = Played(sum(len(cohort.program.every_step) for cohort in cohorts))
        self.waits = Waits()
        self.channels = Channels(self.env, cohorts)
        self.collectives = Collectives(
            self.env, costs, self.waits, lambda *moved: self._network.begin(*moved), cohorts, for_all=for_all
        )
        self.split: Split | None = None
        self._device_count = device_count
        self._host_links: dict[tuple[int, str], SharedMemory] = {}

    @cached_property
    def _network(self) -> Network:
        """The links; only programs that communicate load NumPy for them."""
        from tpusim.machine.network import Network

        return Network(self.env, self.pod, self.chip)

    def is_enough(self, trips: int) -> bool:
        """Return whether so many trips of a loop were played that they stand for the rest."""
        return trips >= MOST_PLAYED_TRIPS or self.played.is_enough

    @property
    def now_ps(self) -> int:
        """The clock: SimPy keeps it an integer as long as every delay is one."""
        return int(self.env.now)

    def compare(self, step: Collective, ends_ps: dict[int, int]) -> None:
        """End the run if some of a cohort could have gone on before others, which waited for a collective as long."""
        if len(set(ends_ps.values())) < 2:
            return
        if self.split is None:
            # What else happens at this moment may show further splits; what comes later would be wrong.
            self.split = Split(step, {})
            self.env.timeout(0).callbacks.append(StopSimulation.callback)
        if self.split.step is step:
            self.split.ends_ps.update(ends_ps)

    def host_link(self, cohort: Cohort, link: str) -> SharedMemory:
        """Return a device's link to the host, ``host_in`` or ``host_out``, which the devices of a chip share.

        A device that stands for others has the share of it that is left if all do the same.
        """
        chip, host = self.pod.chip_of(cohort.number), self.pod.host_of(cohort.number)
        devices, chips = self._sharers
        rate = min(self.chip.host.bandwidth_bytes_per_second, self.chip.host.all_chips_bytes_per_second / chips[host])
        if self.for_all or len(cohort.members) > 1:
            return SharedMemory(self.env, rate / devices[chip])
        return self._host_links.setdefault((chip, link), SharedMemory(self.env, rate))

    def shares_host_link(self, cohort: Cohort) -> bool:
        """Return whether a device has its link to the host together with another one that is simulated."""
        return len(cohort.members) == 1 and self._simulated_on[self.pod.chip_of(cohort.number)] > 1

    @cached_property
    def _simulated_on(self) -> Counter[int]:
        """How many devices of each chip are simulated each by itself."""
        return Counter(self.pod.chip_of(one.number) for one in self.cohorts if len(one.members) == 1)

    @cached_property
    def _sharers(self) -> tuple[Counter[int], Counter[int]]:
        """The devices of each chip, and the chips of each host: as many as have devices in the run."""
        devices, hosts = Counter[int](), dict[int, int]()
        for number in range(self._device_count):
            chip = self.pod.chip_of(number)
            devices[chip] += 1
            if chip not in hosts:
                hosts[chip] = self.pod.host_of(number)
        return devices, Counter(hosts.values())

    def forget(self) -> None:
        """Let go of all, for the reason that costs do: what it is made of refers to it in circles."""
        vars(self).clear()

    def links(self, sent: Iterable[tuple[Load, float]]) -> Collection[LinkUse]:
        """Return what every link carried that carried anything, of loads that were sent with their bytes."""
        return self._network.uses(sent) if "_network" in self.__dict__ else ()
