"""The core: issues the steps of a program in order, while copies, collectives and host transfers run beside it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from tpusim.errors import SimulationError
from tpusim.hardware.units import HBM, UNITS
from tpusim.machine.device import Device
from tpusim.machine.events import Event
from tpusim.machine.recording import Recording, amounts_of
from tpusim.machine.rendezvous import split_late
from tpusim.nesting import on_one_stack
from tpusim.program.steps import AnyStep, Call, Collective, Wait
from tpusim.timeline.records import WAITING_FOR, Record
from tpusim.units import bytes_to_ps, seconds_to_ps

Activity = Generator[Event, Any, None]
"""Something that takes time on the clock."""

Holding = Generator[Event | tuple[AnyStep, ...], Any, None]
"""The same of a step that holds others: it yields their lists too, to have them run."""

Handler = Callable[["Core", Any], Activity | Holding | None]
"""Runs a step of one kind: the returned activity on the core, or None where the core need not wait."""

H = TypeVar("H", bound=Handler)

HANDLERS: dict[type, Handler] = {}
"""How each kind of step runs; the files of ``steps/`` fill it."""


def runs(kind: type) -> Callable[[H], H]:
    """Enter a function as the one that runs steps of a kind."""

    def enter(handler: H) -> H:
        HANDLERS[kind] = handler
        return handler

    return enter


def at_once() -> Activity:
    """End at once: an activity for what has nothing to do."""
    yield from ()


_LAUNCH = Call(name="launch", opcode="", category="launch")
"""Stands on the time line for what starts the program."""

_TRAFFIC = Wait(name="traffic", opcode="", category="wait")
"""Stands there for bytes that were counted in trips, and came through a memory after all others."""

_OUTFEED = Wait(name="outfeed", opcode="", category="wait")
"""Stands there for what the host had still to take when all steps were done."""

_HBM_BYTES = "bytes"


class Core:
    """A processor that issues steps in order: those of the program, or of an asynchronous ``call``.

    ``row`` is its row on the time line, ``recorded`` what is recorded of it.
    """

    def __init__(self, device: Device, row: str, recorded: Recording, call: str = "") -> None:
        self.device = device
        self.env = device.env
        self.row = row
        self.recorded = recorded
        self.call = call
        self.current: AnyStep | None = None
        self.ended_ps = 0
        self._collectives: dict[str, Collective] = {}
        # One table for all computations: a loop may end what was started before it.
        self._started: dict[str, tuple[Event, str]] = {}

    def run_program(self) -> Activity:
        """Launch the device's program and run it."""
        launch_ps = seconds_to_ps(self.device.chip.fixed.launch_seconds)
        if launch_ps:
            start_ps = self.now_ps
            yield self.env.timeout(launch_ps)
            self.record(_LAUNCH, start_ps, bound_by="latency")
        yield from self.run(self.device.cohort.program.steps)
        if (emptied := self.device.host.emptied()) is not None:
            yield from self._wait_for_outfeed(emptied)
        if self.device.world.played.is_enough:
            yield from self._catch_up()

    def _wait_for_outfeed(self, emptied: Event) -> Activity:
        """Wait until the host has what was sent to it: until then the program holds it."""
        start_ps = self.now_ps
        yield emptied
        self.record(_OUTFEED, start_ps, bound_by=f"{WAITING_FOR}the host", is_wait=True)
        self.ended_ps = self.now_ps

    def _catch_up(self) -> Activity:
        """Wait until the memories can have moved all that was counted, of what is under way beside each other too."""
        start_ps, rate = self.now_ps, self.device.chip.hbm.bandwidth_bytes_per_second
        totals = amounts_of(self.recorded, lambda record: {**record.units, _HBM_BYTES: record.hbm_bytes})
        least_ps = {unit.key: int(totals.get(unit.key, 0)) for unit in UNITS.values() if unit.rate}
        # Of bytes, since what units count is rounded in every record.
        least_ps[HBM] = bytes_to_ps(totals.get(_HBM_BYTES, 0.0), rate)
        slowest = max(least_ps, key=least_ps.__getitem__)
        if least_ps[slowest] > start_ps:
            yield self.env.timeout(least_ps[slowest] - start_ps)
            self.record(_TRAFFIC, start_ps, bound_by=UNITS[slowest].bound, is_wait=True)
            self.ended_ps = self.now_ps

    def run(self, steps: tuple[AnyStep, ...]) -> Activity:
        """Issue ``steps`` in order, and the steps that they hold: however deep, an event resumes what waits for it."""
        return on_one_stack(lambda wish: self._issue(wish) if isinstance(wish, tuple) else None, self._issue(steps))

    def _issue(self, steps: tuple[AnyStep, ...]) -> Holding:
        """Issue steps in order; asynchronous ones are started, and waited for by the steps that need them."""
        for step in steps:
            self.current = step
            if step.needs:
                yield from self._wait(step)
            activity = HANDLERS[type(step)](self, step)
            if activity is not None:
                yield from activity
        self.ended_ps = self.now_ps

    @property
    def now_ps(self) -> int:
        """The clock: SimPy keeps it an integer as long as every delay is one."""
        return self.env.now  # type: ignore[return-value]

    def record(self, step: AnyStep, start_ps: int, *, end_ps: int | None = None, **details: Any) -> Record:
        """Record that ``step`` held this core from ``start_ps`` until now or until ``end_ps``."""
        until_ps = self.now_ps if end_ps is None else end_ps
        record = self.device.recorder.record(step, self.row, start_ps, until_ps, self.call, details)
        self.recorded.items.append(record)
        self.device.world.played.record()
        return record

    def beside(self, row: str, call: str = "") -> Core:
        """Return what runs beside this core, on a ``row`` of its own.

        What it records stands where it began: a loop counts it with the trip that started it, whenever it ends.
        """
        return Core(self.device, row, self.recorded.beside(self.now_ps), call or self.call)

    def start(self, step: AnyStep, activity: Generator[Event, Any, Any], what: str) -> Event:
        """Start something beside the core under the name of its step; ``what`` is how a wait for it is called."""
        ended = self.device.launch(activity)
        self.note(step, ended, what)
        if isinstance(step, Collective):
            self._collectives[step.name] = step
        return ended

    def note(self, step: AnyStep, ended: Event, what: str) -> None:
        """Note under the name of its step what has been started beside the core, by the event of its end."""
        self._started[step.name] = (ended, what)

    def _wait(self, step: AnyStep) -> Activity:
        """Wait until all that ``step`` needs has ended, and record the time lost."""
        start_ps, reason = self.now_ps, ""
        late_ps: dict[int, int] = {}
        for name in step.needs:
            if name not in self._started:
                raise SimulationError(f"{step.name!r} waits for {name!r}, which has not been started")
            ended, what = self._started[name]
            reason, before_ps = f"{WAITING_FOR}{what}", self.now_ps
            if ended.processed:
                continue
            # Of what needs other devices: when it ended, for all members of the cohort.
            completions = (yield ended) or {}
            if name in self._collectives:
                ends_ps = {number: max(before_ps, one.end_ps) for number, one in completions.items()}
                self.device.world.compare(self._collectives[name], ends_ps)
            for number, one in completions.items():
                late_ps[number] = late_ps.get(number, 0) + one.late_ps(before_ps)
        # A wait of the text is shown even if it was none: readers look for each of their instructions.
        if self.now_ps > start_ps or isinstance(step, Wait):
            self._record_wait(step, start_ps, reason, late_ps)

    def _record_wait(self, step: AnyStep, start_ps: int, reason: str, late_ps: Mapping[int, int]) -> None:
        """Record a wait, and for each member of the cohort how much of it was waiting for other devices."""
        recorder, length_ps, own_ps = self.device.recorder, self.now_ps - start_ps, late_ps.get(self.device.number, 0)
        shown = split_late(reason, length_ps, own_ps)
        record = self.record(step, start_ps, is_wait=not isinstance(step, Wait), **shown)
        for other in self.device.cohort.members[1:] if late_ps else ():
            other_ps = late_ps.get(other, 0)
            if other_ps != own_ps:
                recorder.vary(other, record, split_late(reason, length_ps, other_ps))
