"""The host's queues: how fast it fills and empties them, also where the clock jumps over trips that meet it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, cycle, islice, repeat
from sys import maxsize
from typing import Any, NamedTuple, TypeGuard

from tpusim.machine.events import Environment, Event, Store
from tpusim.machine.fluid import SharedMemory
from tpusim.machine.host.side import HostSide
from tpusim.program.feed import Feed, intervals_ps
from tpusim.program.module import Program, every_step, inner_lists, walk
from tpusim.program.steps import AnyStep, Branch, HostTransfer, Loop, Steps
from tpusim.units import seconds_to_ps

Activity = Generator[Event, Any, Any]

WAIT_AT_QUEUE = {False: "infeed starved", True: "outfeed full"}
"""What a core waits for at a queue, by whether that leads to the host."""


class Meeting(NamedTuple):
    """What trips of a loop take of an infeed or put into an outfeed, and how far the host is ahead of the first."""

    step: HostTransfer
    side: HostSide
    items: int
    cycle_ps: int
    ahead_ps: int

    @property
    def least_ps(self) -> int:
        """How long the host takes at least until the last of the trips has met it."""
        return self.items * self.cycle_ps - self.ahead_ps


class _Feeds(NamedTuple):
    """What a trip of a loop takes of an infeed, or puts into an outfeed: the first step, and all items."""

    step: HostTransfer
    items: int
    n_bytes: float


class HostQueues:
    """The host's queues for one device: a producer fills the infeed's, a consumer empties the outfeed's.

    Items come over the link ahead of time, as many as the queue holds; what is sent out waits until the host takes it.
    A queue without a stated pace is None: the host is always ready. ``latency_ps`` is that of the link.
    """

    def __init__(self, env: Environment, number: int, latency_ps: int) -> None:
        self._sides: dict[bool, HostSide] = {}
        # The ways, to the host or from it, whose feeds have no more to give or to take.
        self.ended: set[bool] = set()
        # Whether a recorded infeed has fewer items than the program takes.
        self.will_end = False
        self._meetings: dict[int, tuple[_Feeds, ...]] = {}
        # What was sent out and is still here, and who waits until nothing is.
        self._left = 0
        self._empty: Event | None = None
        self._env = env
        self._number = number
        self._latency_ps = latency_ps

    @property
    def infeed(self) -> Store | None:
        """What the host has made ready, None if it always is."""
        return self._sides[False].queue if False in self._sides else None

    @property
    def outfeed(self) -> Store | None:
        """What the host has still to take, None if it always does at once."""
        return self._sides[True].queue if True in self._sides else None

    def feed(self, pace: Feed, link: SharedMemory, program: Program) -> None:
        """Make items ready at a pace and bring them over a link, in the order in which a program takes them."""
        taken = sum(1 for _ in islice(_taken_in(program), len(pace.times) + 1))
        self.will_end = pace.kind == "file" and taken > len(pace.times)
        side = self._side(pace, link, to_host=False, items=taken)
        sizes = [step.n_bytes for step in program.feeds if not step.to_host]
        # A device that chooses to go on for longer is sent them once more, in the order of the text.
        self._env.process(self._produce(pace, side, chain(_taken_in(program), cycle(sizes))))

    def drain(self, pace: Feed, link: SharedMemory) -> None:
        """Take items over a link at a pace."""
        self._env.process(self._consume(pace, self._side(pace, link, to_host=True)))

    def _side(self, pace: Feed, link: SharedMemory, *, to_host: bool, items: int | None = None) -> HostSide:
        recorded_ps = [seconds_to_ps(seconds) for seconds in pace.times[:items]]
        self._sides[to_host] = HostSide(
            self._env, pace.depth, self._latency_ps, link, to_host=to_host, recorded_ps=recorded_ps
        )
        return self._sides[to_host]

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

    def meetings(self, loop: Loop, trips: int) -> list[Meeting]:
        """Return how some trips of a loop meet the host in its queues, as far as it is known how fast it is."""
        if not self._sides:
            return []
        if id(loop) not in self._meetings:
            self._meetings[id(loop)] = tuple(_feeds_of(loop))
        found = []
        for feeds in self._meetings[id(loop)]:
            side = self._sides.get(feeds.step.to_host)
            cycle_ps = side.cycle_ps(feeds.n_bytes / feeds.items) if side else 0
            if side and cycle_ps and feeds.step.to_host not in self.ended:
                found.append(Meeting(feeds.step, side, feeds.items * trips, cycle_ps, side.ahead_ps(cycle_ps)))
        return found

    def land(self, meeting: Meeting, passed_ps: int) -> None:
        """Leave the host as far ahead as it is after so much time, in which the clock jumped over a meeting."""
        ahead_ps = meeting.ahead_ps + passed_ps - meeting.items * meeting.cycle_ps
        put = meeting.side.land(ahead_ps, meeting.cycle_ps, meeting.step.n_bytes)
        self._left += put if meeting.step.to_host else 0

    def _produce(self, pace: Feed, side: HostSide, sizes: Iterator[float]) -> Activity:
        """Make one item after the other ready and bring it over the link, as long as the queue has room."""
        for interval_ps in intervals_ps(pace, self._number):
            size = next(sizes, None)
            if size is None:
                return
            side.begin(interval_ps)
            yield self._env.timeout(interval_ps)
            yield self._env.timeout(self._latency_ps)
            yield side.link.transfer(size)
            yield side.queue.put(size)
        self.ended.add(False)

    def _consume(self, pace: Feed, side: HostSide) -> Activity:
        for interval_ps in intervals_ps(pace, self._number):
            size = yield side.queue.get()
            side.begin(interval_ps)
            yield self._env.timeout(self._latency_ps)
            yield side.link.transfer(size)
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
            # More trips than a list may have are never all taken.
            turns = chain.from_iterable(repeat((one.condition, one.body), min(one.trips, maxsize)))
            ahead.append(turns if {id(one.condition), id(one.body)} & has_infeed else iter(()))
        elif isinstance(one, Branch):
            ahead.append(iter(one.branches[one.taken : one.taken + 1]))
        else:
            ahead.append(iter(inner_lists(one)))


def _feeds_of(loop: Loop) -> Iterator[_Feeds]:
    """Yield what a trip of a loop takes of an infeed or puts into an outfeed; nothing where something chooses."""
    if any(isinstance(step, Loop | Branch) and step.choices for step in every_step((loop,))):
        return
    for to_host in (False, True):
        steps = [
            (step, times)
            for step, times in chain(walk(loop.condition), walk(loop.body))
            if isinstance(step, HostTransfer) and step.to_host == to_host and not step.is_async and times
        ]
        if steps:
            n_bytes = sum(step.n_bytes * times for step, times in steps)
            yield _Feeds(steps[0][0], sum(times for _, times in steps), n_bytes)


def _is_infeed(step: AnyStep) -> TypeGuard[HostTransfer]:
    return isinstance(step, HostTransfer) and not step.to_host and not step.is_async
