"""One device: its shared memories, its link to the host with the queues there, and what it records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cached_property
from itertools import chain, cycle, islice, repeat
from typing import Any, TypeGuard

import msgspec

from tpusim.cost.dma import memory_rates
from tpusim.hardware.units import HOST_IN, HOST_OUT, UNITS, VMEM, peak_bytes_per_second
from tpusim.machine.choices import Chooser
from tpusim.machine.events import Environment, Event, Store
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.placement import Cohort, RunOptions
from tpusim.machine.recorder import Recorder
from tpusim.machine.recording import Recording
from tpusim.machine.world import World
from tpusim.program.feed import Feed, intervals_ps
from tpusim.program.module import Program, inner_lists
from tpusim.program.steps import AnyStep, Branch, HostTransfer, Loop, Steps
from tpusim.timeline.records import Record
from tpusim.units import bytes_to_ps, seconds_to_ps

Activity = Generator[Event, Any, Any]

HOST_LINKS = (HOST_IN, HOST_OUT)
_NOT_SHOWN = frozenset({VMEM})
"""Its time is that of the vector loads and stores."""


class HostQueues:
    """The host's queues for one device: a producer fills the infeed's, a consumer empties the outfeed's.

    Items come over the link ahead of time, as many as the queue holds; what is sent out waits until the host takes it.
    A queue without a stated pace is None: the host is always ready. ``latency_ps`` is that of the link.
    """

    def __init__(self, env: Environment, number: int, latency_ps: int) -> None:
        self.infeed: Store | None = None
        self.outfeed: Store | None = None
        # The ways, to the host or from it, whose feeds have no more to give or to take.
        self.ended: set[bool] = set()
        # Whether a recorded infeed has fewer items than the program takes.
        self.will_end = False
        # What was sent out and is still here, and who waits until nothing is.
        self._left = 0
        self._empty: Event | None = None
        self._env = env
        self._number = number
        self._latency_ps = latency_ps

    def feed(self, pace: Feed, link: SharedMemory, program: Program) -> None:
        """Make items ready at a pace and bring them over a link, in the order in which a program takes them."""
        self.infeed = Store(self._env, pace.depth)
        taken = islice(_taken_in(program), len(pace.times) + 1)
        self.will_end = pace.kind == "file" and sum(1 for _ in taken) > len(pace.times)
        sizes = [step.n_bytes for step in program.feeds if not step.to_host]
        # A device that chooses to go on for longer is sent them once more, in the order of the text.
        self._env.process(self._produce(pace, link, self.infeed, chain(_taken_in(program), cycle(sizes))))

    def drain(self, pace: Feed, link: SharedMemory) -> None:
        """Take items over a link at a pace."""
        self.outfeed = Store(self._env, pace.depth)
        self._env.process(self._consume(pace, link, self.outfeed))

    def send(self, queue: Store, n_bytes: float) -> Event:
        """Return the event of the outfeed's having room for so many bytes."""
        self._left += 1
        return queue.put(n_bytes)

    def emptied(self) -> Event | None:
        """Return the event of the last byte's leaving the chip, None if none is left or the host takes no more."""
        if not self._left or True in self.ended:
            return None
        self._empty = self._env.event()
        return self._empty

    def _produce(self, pace: Feed, link: SharedMemory, queue: Store, sizes: Iterator[float]) -> Activity:
        """Make one item after the other ready and bring it over the link, as long as the queue has room."""
        for interval_ps in intervals_ps(pace, self._number):
            size = next(sizes, None)
            if size is None:
                return
            yield self._env.timeout(interval_ps)
            yield self._env.timeout(self._latency_ps)
            yield link.transfer(size)
            yield queue.put(size)
        self.ended.add(False)

    def _consume(self, pace: Feed, link: SharedMemory, queue: Store) -> Activity:
        for interval_ps in intervals_ps(pace, self._number):
            size = yield queue.get()
            yield self._env.timeout(self._latency_ps)
            yield link.transfer(size)
            self._left -= 1
            self._tell(not self._left)
            yield self._env.timeout(interval_ps)
        self.ended.add(True)
        self._tell(True)

    def _tell(self, is_empty: bool) -> None:
        if is_empty and self._empty is not None and not self._empty.triggered:
            self._empty.succeed()


def _taken_in(program: Program) -> Iterator[float]:
    """Yield the bytes of infeeds as a program comes to them, with the trips and the branches that it states."""
    # Only lists that have one somewhere inside: others may turn for ever.
    has_infeed = set[int]()
    # Inner ones first.
    for listed in reversed(program.every_list):
        holds = chain.from_iterable(map(inner_lists, listed))
        if any(map(_is_infeed, listed)) or any(id(inner) in has_infeed for inner in holds):
            has_infeed.add(id(listed))
    ahead: list[Iterator[AnyStep | Steps]] = [iter([program.steps])]
    while ahead:
        one = next(ahead[-1], None)
        if one is None:
            ahead.pop()
        elif isinstance(one, tuple):
            ahead += [iter(one)] if id(one) in has_infeed else []
        elif _is_infeed(one):
            yield one.n_bytes
        elif isinstance(one, Loop):
            turns = chain.from_iterable(repeat((one.condition, one.body), one.trips))
            ahead.append(turns if {id(one.condition), id(one.body)} & has_infeed else iter(()))
        elif isinstance(one, Branch):
            ahead.append(iter(one.branches[one.taken : one.taken + 1]))
        else:
            ahead.append(iter(inner_lists(one)))


def _is_infeed(step: AnyStep) -> TypeGuard[HostTransfer]:
    return isinstance(step, HostTransfer) and not step.to_host and not step.is_async


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
    after: dict[int, Trips] = msgspec.field(default_factory=dict)
    visit: Visit | None = None


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
