"""One device: its shared memories, its link to the host, and what it records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.cost.dma import memory_rates
from tpusim.hardware.units import HOST_IN, HOST_OUT, UNITS, VMEM, peak_bytes_per_second
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.host_queues import HostQueues
from tpusim.machine.recorder import Recorder
from tpusim.units import bytes_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import simpy

    from tpusim.machine.placement import Cohort, RunOptions
    from tpusim.machine.world import World
    from tpusim.timeline.records import Record

HOST_LINKS = (HOST_IN, HOST_OUT)
_NOT_SHOWN = frozenset({VMEM})
"""Its time is that of the vector loads and stores."""


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
        self.recorder = Recorder(cohort.program, progress)
        # What overlaps shares the rate that transfers reach, so the efficiency stands here and not in each of them.
        rates = {**memory_rates(chip), VMEM: peak_bytes_per_second(chip, UNITS[VMEM])}
        self.memories = {space: SharedMemory(self.env, rate) for space, rate in rates.items()}
        self.in_flight = 0
        self.host = HostQueues(self.env, self.number, seconds_to_ps(chip.host.latency_seconds))
        if cohort.program.uses_host or options.infeed is not None or options.outfeed is not None:
            self.memories |= {link: world.host_link(cohort, link) for link in HOST_LINKS}
        if options.infeed is not None:
            self.host.feed(options.infeed, self.memories[HOST_IN], cohort.program.feeds)
        if options.outfeed is not None:
            self.host.drain(options.outfeed, self.memories[HOST_OUT])

    def busy_ps(self, n_bytes: Mapping[str, float]) -> dict[str, int]:
        """Return how long bytes keep memories and links busy, those that records show."""
        # At advertised rates, so that shares of time can be held against the roofline.
        peaks = {unit: peak_bytes_per_second(self.chip, UNITS[unit]) for unit in n_bytes if unit not in _NOT_SHOWN}
        return {unit: bytes_to_ps(n_bytes[unit], peak) for unit, peak in peaks.items() if peak and n_bytes[unit]}

    def launch(self, activity: Generator[simpy.Event, Any, Any]) -> simpy.Event:
        """Start something that runs beside the core; return the event of its end."""
        self.in_flight += 1
        return self.env.process(self._landed(activity))

    def _landed(self, activity: Generator[simpy.Event, Any, Any]) -> Generator[simpy.Event, Any, Any]:
        """Run ``activity``, count it out when it ends, and return what it does."""
        value = yield from activity
        self.in_flight -= 1
        return value
