"""One device: its shared memories, its link to the host with the queues there, and what it records."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from tpusim.cost.dma import memory_rates
from tpusim.hardware.units import HOST_IN, HOST_OUT, UNITS, VMEM, peak_bytes_per_second
from tpusim.machine.choices import Chooser
from tpusim.machine.events import Event
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.host.queues import HostQueues
from tpusim.machine.placement import Cohort, RunOptions
from tpusim.machine.recorder import Recorder
from tpusim.machine.recording import Recording
from tpusim.machine.world import World
from tpusim.program.steps import Branch, Loop
from tpusim.timeline.records import Record
from tpusim.units import bytes_to_ps, seconds_to_ps

Activity = Generator[Event, Any, Any]

HOST_LINKS = (HOST_IN, HOST_OUT)
_NOT_SHOWN = frozenset({VMEM})
"""Its time is that of the vector loads and stores."""


class UnderWay:
    """What is under way beside the cores of a device, numbered in the order in which it begins."""

    def __init__(self) -> None:
        self.begun = 0
        # In order, as they begin.
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def begin(self) -> int:
        """Note that something begins; return its number."""
        self.begun += 1
        self._numbers.append(self.begun)
        return self.begun

    def end(self, number: int) -> None:
        """Note that something has landed."""
        del self._numbers[bisect_left(self._numbers, number)]

    def up_to(self, number: int) -> int:
        """Return how much is under way of what began up to a number."""
        return bisect_left(self._numbers, number + 1)


class Visit(msgspec.Struct, frozen=True):
    """A visit to steps that others run as well: how long it took, and what was recorded."""

    duration_ps: int
    recorded: Recording


class Trips(msgspec.Struct, eq=False):
    """Trips of a loop that began with the same choices: the step that chooses next and what follows, or one trip."""

    chooser: Loop | Branch | None = None
    visit: Visit | None = None
    # Nearly all go on in one way only: tables for these would be a third of what a run keeps.
    _first: int = 0
    _then: Trips | None = None
    _others: dict[int, Trips] | None = None

    def after(self, number: int) -> Trips | None:
        """Return those that went on with this choice, if any did."""
        if number == self._first:
            return self._then
        return self._others.get(number) if self._others else None

    def going_on(self, number: int) -> Trips:
        """Return those that go on with this choice."""
        if self._then is None:
            self._first, self._then = number, Trips()
        elif number != self._first:
            self._others = {} if self._others is None else self._others
            return self._others.setdefault(number, Trips())
        return self._then


class CopyCost(msgspec.Struct, frozen=True):
    """The bytes of a copy by memory, as the memory feels them, and the details of its record."""

    loads: dict[str, float]
    details: dict[str, Any]


class Device:
    """A simulated device, which stands for all members of its cohort."""

    def __init__(
        self, world: World, cohort: Cohort, options: RunOptions, progress: Callable[[Record], None] | None = None
    ) -> None:
        self.world = world
        self.cohort = cohort
        self.number = cohort.number
        self.kernels = world.costs.kernels(self.number)
        chip = self.chip = self.kernels.chip
        self.warm = options.warm
        self.env = world.env
        self.recorder = Recorder(cohort.program, progress)
        # What overlaps shares the rate that transfers reach, so the efficiency stands here and not in each of them.
        rates = {**memory_rates(chip), VMEM: peak_bytes_per_second(chip, UNITS[VMEM])}
        self.memories = {space: SharedMemory(self.env, rate) for space, rate in rates.items()}
        # Asked for by every copy, and by every kernel twice.
        self.dma_latency_ps = seconds_to_ps(chip.dma.fixed_latency_seconds)
        self.under_way = UnderWay()
        # By the identity of the steps and the call whose they are: records say of which core they are.
        self.visits: dict[tuple[int, str], Visit] = {}
        self.trips: dict[tuple[int, str], Trips] = {}
        # Of loops that meet a host with a pace, which is at another place at each visit: the last ones, in turns.
        self.paced_visits: dict[tuple[int, str], deque[Visit]] = {}
        # Loops of which rounds were counted.
        self.counted: set[tuple[int, str]] = set()
        costs, devices = world.costs, cohort.devices
        self.chooser = Chooser(lambda step: costs.chosen_values(step, devices, cohort.number))
        self.copies: dict[tuple[object, ...], CopyCost] = {}
        self.host = HostQueues(self.env, self.number, seconds_to_ps(chip.host.latency_seconds))
        if cohort.program.uses_host or options.infeed is not None or options.outfeed is not None:
            self.memories |= {link: world.host_link(cohort, link) for link in HOST_LINKS}
        if options.infeed is not None:
            self.host.feed(options.infeed, self.memories[HOST_IN], cohort.program)
        if options.outfeed is not None:
            self.host.drain(options.outfeed, self.memories[HOST_OUT])

    @cached_property
    def shares_host_link(self) -> bool:
        """Whether another device that is simulated has the same link to the host."""
        return self.world.shares_host_link(self.cohort)

    @property
    def is_alone(self) -> bool:
        """Whether nothing is under way beside the core, or so much was played that it counts no longer."""
        return not self.under_way or self.world.played.is_enough

    def busy_ps(self, n_bytes: Mapping[str, float]) -> dict[str, int]:
        """Return how long bytes keep memories and links busy, those that records show; rows that open are no bytes."""
        # At advertised rates, so that shares of time can be held against the roofline.
        shown = [unit for unit in n_bytes if unit in UNITS and unit not in _NOT_SHOWN]
        peaks = {unit: peak_bytes_per_second(self.chip, UNITS[unit]) for unit in shown}
        return {unit: bytes_to_ps(n_bytes[unit], peak) for unit, peak in peaks.items() if peak and n_bytes[unit]}

    def launch(self, activity: Activity) -> Event:
        """Start something that runs beside the core; return the event of its end."""
        return self.env.process(self._landed(activity, self.under_way.begin()))

    def _landed(self, activity: Activity, number: int) -> Activity:
        value = yield from activity
        self.under_way.end(number)
        return value
