"""One device: its shared memories, its link to the host, and what it records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.cost.dma import memory_rates
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.host_queues import HostQueues
from tpusim.machine.recorder import Recorder
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy

    from tpusim.machine.placement import Cohort, RunOptions
    from tpusim.machine.world import World
    from tpusim.timeline.records import Record

BOUND_NAMES = {
    "matrix": "matrix",
    "vector": "vector",
    "eup": "EUP",
    "xlu": "XLU",
    "load": "VMEM",
    "store": "VMEM",
    "scalar": "scalar",
    "hbm": "HBM",
    "cmem": "CMEM",
    "host_in": "host",
    "host_out": "host",
}
"""How reports name what bounds a step, by functional unit or memory."""

HOST_LINKS = ("host_in", "host_out")


class Device:
    """A simulated device, which stands for all members of its cohort."""

    def __init__(
        self, world: World, cohort: Cohort, options: RunOptions, progress: Callable[[Record], None] | None = None
    ) -> None:
        chip = world.chip
        self.world = world
        self.cohort = cohort
        self.number = cohort.number
        self.chip = chip
        self.warm = options.warm
        self.env = world.env
        self.recorder = Recorder(progress)
        # Advertised rates, so that shares of time can be held against the roofline.
        self._peaks = {
            "hbm": chip.hbm.bandwidth_bytes_per_second,
            "cmem": chip.cmem.read_bytes_per_second,
            "host_in": chip.host.bandwidth_bytes_per_second,
            "host_out": chip.host.bandwidth_bytes_per_second,
            "ici": max(1, chip.ici.links) * chip.ici.link_bytes_per_second,
        }
        # What overlaps shares the rate that transfers reach, so the efficiency stands here and not in each of them.
        rates = {**memory_rates(chip), "vmem": chip.dma.vmem_bytes_per_second}
        self.memories = {space: SharedMemory(self.env, rate) for space, rate in rates.items()}
        self.in_flight = 0
        self.host = HostQueues(self.env, self.number, seconds_to_ps(chip.host.latency_seconds))
        if cohort.program.uses_host or options.infeed is not None or options.outfeed is not None:
            self.memories |= {link: world.host_link(cohort, link) for link in HOST_LINKS}
        if options.infeed is not None:
            self.host.feed(options.infeed, self.memories["host_in"], cohort.program.feeds)
        if options.outfeed is not None:
            self.host.drain(options.outfeed, self.memories["host_out"])

    def peak(self, space: str) -> float:
        """Return the advertised bytes per second of a memory that reports show, 0 for others."""
        return self._peaks.get(space, 0.0)

    def hbm_units(self, n_bytes: float) -> dict[str, int]:
        """Return how long bytes keep HBM busy at its peak, as records have it."""
        return {"hbm": bytes_to_ps(n_bytes, self.peak("hbm"))} if n_bytes else {}

    def launch(self, activity: Generator[simpy.Event, Any, Any]) -> simpy.Event:
        """Start something that runs beside the core; return the event of its end."""
        self.in_flight += 1
        return self.env.process(self._landed(activity))

    def _landed(self, activity: Generator[simpy.Event, Any, Any]) -> Generator[simpy.Event, Any, Any]:
        """Run ``activity``, count it out when it ends, and return what it does."""
        value = yield from activity
        self.in_flight -= 1
        return value
