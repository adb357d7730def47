"""What devices share: the clock, the links between chips and to the hosts, and the places where they meet."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import simpy
from simpy.core import StopSimulation

from tpusim.machine.cohorts import Split
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.rendezvous import Channels, Collectives
from tpusim.machine.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpusim.cost.collectives import Load
    from tpusim.machine.costs import Costs
    from tpusim.machine.network import Network
    from tpusim.machine.placement import Cohort
    from tpusim.machine.steps.control import LoopWatch
    from tpusim.program.steps import Collective
    from tpusim.timeline.records import LinkUse


class World:
    """One clock, one network, and the cohorts on it.

    ``for_all`` is the world of a single device that stands for all of a program which does the same on each: it runs
    under the traffic of all. Else devices wait for each other, and of each cohort one is simulated. ``device_count``
    is that of all devices, simulated or not.
    """

    def __init__(self, costs: Costs, cohorts: Sequence[Cohort], device_count: int, *, for_all: bool) -> None:
        self.env = simpy.Environment()
        self.costs = costs
        self.chip = costs.chip
        self.pod = costs.pod
        self.cohorts = cohorts
        self.for_all = for_all
        self.member_count = sum(len(cohort.members) for cohort in cohorts)
        self.loop_watches: dict[tuple[int, int], LoopWatch] = {}
        self.waits = Waits()
        self.channels = Channels(self.env, cohorts)
        self.collectives = Collectives(self.env, costs, self.waits, self._move, cohorts, for_all=for_all)
        self.split: Split | None = None
        self._device_count = device_count
        self._host_links: dict[tuple[int, str], SharedMemory] = {}

    @cached_property
    def _network(self) -> Network:
        """The links; only programs that communicate load NumPy for them."""
        from tpusim.machine.network import Network

        return Network(self.env, self.pod, self.chip)

    def _move(self, load: Load, n_bytes: float, on_end: Callable[[int], object]) -> None:
        """Begin to move bytes over the links."""
        self._network.begin(load, n_bytes, on_end)

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
            self.env.timeout(0).callbacks.append(_stop)
        if self.split.step is step:
            self.split.ends_ps.update(ends_ps)

    def host_link(self, cohort: Cohort, link: str) -> SharedMemory:
        """Return a device's link to the host, ``host_in`` or ``host_out``, which the devices of a chip share.

        A device that stands for others has the share of it that is left if all do the same.
        """
        chip, host = self.pod.chip_of(cohort.number), self.pod.host_of(cohort.number)
        neighbours = [number for number in range(self._device_count) if self.pod.host_of(number) == host]
        chips = len({self.pod.chip_of(number) for number in neighbours})
        rate = min(self.chip.host.bandwidth_bytes_per_second, self.chip.host.all_chips_bytes_per_second / max(1, chips))
        if self.for_all or len(cohort.members) > 1:
            sharers = sum(self.pod.chip_of(number) == chip for number in neighbours)
            return SharedMemory(self.env, rate / max(1, sharers))
        return self._host_links.setdefault((chip, link), SharedMemory(self.env, rate))

    def carried(self) -> Mapping[int, float]:
        """Return what the links have carried so far, to give to ``repeat`` later."""
        return self._network.mark() if "_network" in self.__dict__ else {}

    def repeat(self, carried: Mapping[int, float], times: int) -> None:
        """Count what the links have carried since then so many times more."""
        if "_network" in self.__dict__:
            self._network.repeat(carried, times)

    def links(self) -> tuple[LinkUse, ...]:
        """Return what every link carried that carried anything."""
        return self._network.uses() if "_network" in self.__dict__ else ()


def _stop(_: simpy.Event) -> None:
    """End a run: cohorts have to be split before it makes sense."""
    raise StopSimulation(None)
