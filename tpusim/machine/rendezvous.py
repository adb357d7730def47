"""Where devices meet: collectives, which begin when all of a group have arrived, and channels between two of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tpusim.cost.kept import Kept
from tpusim.errors import SimulationError
from tpusim.machine.costs import Costs, GroupShare
from tpusim.machine.events import Environment, Event
from tpusim.machine.fluid import call_after
from tpusim.machine.placement import Cohort, DeviceSet
from tpusim.machine.recording import Recording, Sent
from tpusim.machine.waits import Blocked, Waits
from tpusim.program.steps import ChannelTransfer, Collective
from tpusim.timeline.records import LATE

if TYPE_CHECKING:
    from tpusim.cost.collectives import CommunicationPlan
    from tpusim.cost.links import Load

    Move = Callable[[Load, float, Callable[[int], object]], None]
    """Begins to move bytes over links; what it is given is called with the time at which they have arrived."""


_KEPT_BYTES = 2**22

_SHARE_BYTES = 2**8
"""Of a cohort's share of a group, with its own devices, and of a place in a table."""


class Completion(msgspec.Struct, frozen=True):
    """When communication ended for a device, and when the last of the devices that it needed had arrived."""

    end_ps: int
    complete_ps: int

    def late_ps(self, start_ps: int) -> int:
        """Return how long a device that arrived at ``start_ps`` waited for others."""
        return max(0, self.complete_ps - start_ps)


def split_late(bound_by: str, duration_ps: int, late_ps: int) -> dict[str, Any]:
    """Return the fields of a record that say what bounds it, and its parts where others were late."""
    if late_ps <= 0:
        return {"bound_by": bound_by, "parts": {}}
    parts = {LATE: late_ps, bound_by: duration_ps - late_ps}
    longest = max(parts, key=lambda part: parts[part])
    return {"bound_by": longest, "parts": {name: part_ps for name, part_ps in parts.items() if part_ps}}


class _Arrival:
    """A cohort at a collective: ``end`` is the event of the end of all groups that its members are in."""

    def __init__(self, cohort: Cohort, step: Collective, shares: tuple[GroupShare, ...], end: Event) -> None:
        self.cohort = cohort
        self.step = step
        self.end = end
        self._shares = shares
        self._completions: dict[int, Completion] = {}

    def complete(self, place: int, completion: Completion) -> None:
        """Note that one of the groups has ended."""
        self._completions[place] = completion
        if len(self._completions) == len(self._shares):
            self.end.succeed(self.by_member())

    @property
    def waits_in_part(self) -> bool:
        """Whether some of its groups have ended: each by itself, their members would have gone on."""
        return bool(self._completions)

    def by_member(self) -> dict[int, Completion]:
        """Return how the collective went for each member of the cohort, zeros for one that has no part in it."""
        none = Completion(0, 0)
        found = dict.fromkeys(self.cohort.members, none)
        for share in self._shares:
            own = self._completions[share.place]
            for number in share.own:
                other = found[number]
                # The group that ended last held the device; of two that did, the one that was complete first: bytes
                # have moved since then.
                found[number] = (
                    own if other is none else max(other, own, key=lambda one: (one.end_ps, -one.complete_ps))
                )
        return found


class _Bundle(msgspec.Struct, frozen=True):
    """A cohort's shares of the groups that the same cohorts make up: of all of them the last one comes at one time."""

    shares: tuple[GroupShare, ...]
    cohort_count: int


class _Rendezvous:
    """One occurrence of a collective in a bundle's groups: who has arrived, and when all had."""

    def __init__(self, bundle: _Bundle) -> None:
        self.bundle = bundle
        self.arrived: dict[int, None] = {}
        """The devices of the first group."""
        self.arrivals: list[_Arrival] = []
        self.notes: list[Blocked] = []
        self.complete_ps = 0

    def finish(self, place: int, end_ps: int) -> None:
        """End the collective of a group for all that wait for it."""
        completion = Completion(end_ps, self.complete_ps)
        for arrival in self.arrivals:
            arrival.complete(place, completion)


class Collectives:
    """The collectives under way. ``move`` begins to move bytes over the links.

    Where one device stands for all (``for_all``) there is nothing to wait for.
    """

    def __init__(
        self, env: Environment, costs: Costs, waits: Waits, move: Move, cohorts: Sequence[Cohort], *, for_all: bool
    ) -> None:
        self._env = env
        self._costs = costs
        self._waits = waits
        self._move = move
        self._for_all = for_all
        self._open: dict[tuple[Any, ...], _Rendezvous] = {}
        self._visits: dict[tuple[Any, ...], int] = {}
        programs: dict[DeviceSet, set[int]] = {}
        for cohort in cohorts:
            programs.setdefault(cohort.devices, set()).add(id(cohort.program))
        self._mixed = {devices for devices, found in programs.items() if len(found) > 1}
        self._cohort_of = {number: cohort.number for cohort in cohorts for number in cohort.members}
        # Of hundreds of collectives with thousands of groups each, those that are under way and in loops.
        self._bundles = Kept[tuple[int, int], list[_Bundle]](_KEPT_BYTES)
        self._met = Kept[tuple[int, int, int], frozenset[int | None]](_KEPT_BYTES)

    def plan(self, cohort: Cohort, step: Collective) -> CommunicationPlan:
        """Return the plan of a device's own groups."""
        if self._for_all:
            return self._costs.plan(step, cohort.devices)
        return self._costs.longest_plan(step, cohort.devices, cohort.number)

    def join(self, cohort: Cohort, step: Collective, recorded: Recording) -> Event:
        """Take part in a collective; return the event of its end for all members of the cohort.

        Its value has for each member a ``Completion``. What a group sends is ``recorded`` where the last of it came.
        """
        end = self._env.event()
        if self._for_all:
            start_ps = int(self._env.now)
            plan = self.plan(cohort, step)

            def finish(end_ps: int) -> None:
                end.succeed({cohort.number: Completion(end_ps, start_ps)})

            recorded.items.append(Sent(self._whose(cohort, step), lambda _: self.plan(cohort, step).load, step.n_bytes))
            self._launch(plan, step.n_bytes, finish)
            return end
        shares = self._costs.shares(step, cohort.devices, cohort.members)
        arrival = _Arrival(cohort, step, shares, end)
        if not shares:
            return end.succeed(arrival.by_member())
        complete: dict[int, list[tuple[_Rendezvous, int]]] = {}
        latencies_ps = self._costs.latencies_ps(step, cohort.devices)
        for bundle in self._bundles_of(cohort, step, shares):
            found = self._arrive(arrival, bundle)
            if found is None:
                continue
            for share in found.bundle.shares:
                complete.setdefault(latencies_ps[share.place], []).append((found, share.place))
        whose, load_at = self._whose(cohort, step), partial(self._load_at, cohort, step)
        for latency_ps, group in complete.items():
            recorded.items.append(Sent(whose, load_at, step.n_bytes, [place for _, place in group]))
            call_after(self._env, latency_ps, partial(self._begin, cohort, step, group))
        return end

    def send(
        self, plan: CommunicationPlan, n_bytes: float, on_end: Callable[[int], object], recorded: Recording
    ) -> None:
        """Launch a message, wait for its hops, and move its bytes, which are ``recorded``."""
        recorded.items.append(Sent(id(plan), lambda _: plan.load, n_bytes))
        self._launch(plan, n_bytes, on_end)

    def waits_of_each(self) -> Waits | None:
        """Return what each device waits for, also those for which another is simulated; None where that is not known.

        It is where all of a cohort wait for the last to come to each of their groups.
        """
        if any(arrival.waits_in_part for found in self._open.values() for arrival in found.arrivals):
            return None
        # Devices that wait for something else than collectives are not simulated together.
        met = {
            id(note): (found, arrival)
            for found in self._open.values()
            for note, arrival in zip(found.notes, found.arrivals, strict=True)
        }
        waits = Waits()
        for note in self._waits:
            found, arrival = met[id(note)]
            present = {one.cohort.number for one in found.arrivals}
            for share in found.bundle.shares:
                arrived = {number for number in share.group if self._cohort_of.get(number) in present}
                for number in arrived:
                    if self._cohort_of[number] == arrival.cohort.number:
                        waits.begin(number, note.step, note.what, share.group, arrived)
        return waits

    def _launch(self, plan: CommunicationPlan, n_bytes: float, on_end: Callable[[int], object]) -> None:
        call_after(self._env, self._costs.latency_ps(plan), lambda: self._move(plan.load, n_bytes, on_end))

    def _whose(self, cohort: Cohort, step: Collective) -> Hashable:
        """Return what a collective shares with those that send the same."""
        return id(self._costs.alike(step)), cohort.devices

    def _load_at(self, cohort: Cohort, step: Collective, place: int) -> Load:
        """Return what the group at a place sends."""
        return self._costs.plan_of_each(step, cohort.devices)[place].load

    def _begin(self, cohort: Cohort, step: Collective, complete: Sequence[tuple[_Rendezvous, int]]) -> None:
        """Move the bytes of groups that have been launched, each a rendezvous and a place among all groups."""
        plans = self._costs.plan_of_each(step, cohort.devices)
        for found, place in complete:
            self._move(plans[place].load, step.n_bytes, partial(found.finish, place))

    def _bundles_of(self, cohort: Cohort, step: Collective, shares: tuple[GroupShare, ...]) -> list[_Bundle]:
        """Return a cohort's shares by which cohorts they meet; those of programs that differ by themselves."""
        key = id(step), cohort.number
        bundles = self._bundles.get(key)
        if bundles is None:
            found: dict[tuple[frozenset[int | None], int], list[GroupShare]] = {}
            for share in shares:
                met = self._met_in(cohort, step, share)
                found.setdefault((met, share.place if cohort.devices in self._mixed else 0), []).append(share)
            bundles = [_Bundle(tuple(alike), len(met)) for (met, _), alike in found.items()]
            self._bundles.put(key, bundles, _SHARE_BYTES * len(shares))
        return bundles

    def _met_in(self, cohort: Cohort, step: Collective, share: GroupShare) -> frozenset[int | None]:
        """Return the cohorts that make up a group: one of thousands is gone through once, and not by each of them."""
        key = id(step), share.place, cohort.devices.first
        found = self._met.get(key)
        if found is None:
            found = frozenset(map(self._cohort_of.get, share.group))
            self._met.put(key, found, _SHARE_BYTES + getsizeof(found))
        return found

    def _arrive(self, arrival: _Arrival, bundle: _Bundle) -> _Rendezvous | None:
        """Note that a cohort has arrived at the collective of some groups; return the rendezvous once all have."""
        cohort, step, share = arrival.cohort, arrival.step, bundle.shares[0]
        place = self._place(cohort, step, share)
        visit = self._visits[*place, cohort.number] = self._visits.get((*place, cohort.number), 0) + 1
        key = (*place, visit)
        found = self._open.get(key) or _Rendezvous(bundle)
        found.arrivals.append(arrival)
        _check_alike(found, arrival, share)
        found.arrived.update(dict.fromkeys(share.own))
        if len(found.arrivals) < bundle.cohort_count:
            self._open[key] = found
            what = f"{step.kind} {step.name!r}"
            found.notes.append(self._waits.begin(cohort.number, step, what, share.group, found.arrived))
            return None
        for note in found.notes:
            self._waits.end(note)
        self._open.pop(key, None)
        found.complete_ps = int(self._env.now)
        return found

    def _place(self, cohort: Cohort, step: Collective, share: GroupShare) -> tuple[Any, ...]:
        """Return what devices must have in common to meet: the step of their program, or a channel across programs."""
        # JAX gives all collectives of a ``shard_map`` the same channel, so that within a program it tells nothing.
        if cohort.devices in self._mixed:
            return step.channel_id or step.name, tuple(sorted(share.group))
        # Names are unique in their computation only; what a call runs at two places is at one line.
        identity = (step.opcode, step.name, step.line) if step.line else id(step)
        return id(cohort.program), identity, share.place, cohort.devices.first


def _check_alike(found: _Rendezvous, arrival: _Arrival, share: GroupShare) -> None:
    """Raise SimulationError if a device comes to another collective than the first that came to a rendezvous."""
    met = [(one.step, own.group) for one, own in ((found.arrivals[0], found.bundle.shares[0]), (arrival, share))]
    # Compared, not hashed: groups of all devices are mostly one object.
    first, second = ((step.kind, step.n_bytes, group) for step, group in met)
    if first != second:
        what = [
            f"device {one.cohort.number} at {one.cohort.place_of(step)} of {step.n_bytes:,.0f} bytes in group "
            f"{{{','.join(map(str, group))}}}"
            for one, (step, group) in zip((found.arrivals[0], arrival), met, strict=True)
        ]
        raise SimulationError(
            f"expected collectives of one kind, group and size on channel {arrival.step.channel_id}, found "
            + " and ".join(what)
        )


class Slot:
    """Where a receive waits for a send that takes it, and then for its bytes; ``taken_ps`` is when one had."""

    def __init__(self, receiver: int, env: Environment) -> None:
        self.receiver = receiver
        self.taken_ps = 0
        self.taken = env.event()
        self.filled = env.event()

    def take(self, now_ps: int) -> None:
        """Note that a send has found it."""
        self.taken_ps = now_ps
        self.taken.succeed()


T = TypeVar("T")

Key = tuple[int, int | None]
"""A channel and a receiver on it, None for any."""


class _Queues(Generic[T]):
    """What waits for its turn in several queues at once, and leaves all of them with its turn in one."""

    def __init__(self) -> None:
        self._queues: defaultdict[Key, deque[int]] = defaultdict(deque)
        self._waiting: dict[int, T] = {}
        self._count = 0

    def add(self, one: T, keys: Iterable[Key]) -> None:
        """Let something wait in some queues."""
        self._count += 1
        self._waiting[self._count] = one
        for key in keys:
            self._queues[key].append(self._count)

    def take(self, keys: Iterable[Key]) -> T | None:
        """Take what has waited longest in one of some queues; None if nothing waits there."""
        first = min((number for key in keys if (number := self._first(key))), default=0)
        return self._waiting.pop(first, None)

    def _first(self, key: Key) -> int:
        queue = self._queues.get(key, ())
        while queue and queue[0] not in self._waiting:
            queue.popleft()
        return queue[0] if queue else 0


class Channels:
    """The channels between devices: a receive lays out a slot, a send waits for one and fills it.

    So a schedule in which each waits for another is a deadlock here as it is on the machine (XLA, Operation Semantics,
    scheduling of channel instructions).
    """

    def __init__(self, env: Environment, cohorts: Sequence[Cohort]) -> None:
        self._env = env
        self._slots = _Queues[Slot]()
        self._sends = _Queues[Event]()
        # By step, which a program keeps: its pairs by the device at this end. Each device asks.
        self._pairs: dict[int, dict[int, list[int]]] = {}
        ends: dict[tuple[int, bool], list[int]] = {}
        for cohort in cohorts:
            for end in {(step.channel_id, step.is_send) for step in cohort.program.channel_ends}:
                ends.setdefault(end, []).append(cohort.number)
        self._ends = {end: tuple(numbers) for end, numbers in ends.items()}

    def other_ends(self, step: ChannelTransfer) -> tuple[int, ...]:
        """Return the devices whose program has the other end of a transfer's channel."""
        return self._ends.get((step.channel_id, not step.is_send), ())

    def partners(self, step: ChannelTransfer, own: int) -> tuple[int, ...]:
        """Return the devices, counted from the first of the program, at the other end of a transfer's pairs."""
        if id(step) not in self._pairs:
            found: dict[int, list[int]] = {}
            for pair in step.pairs or ():
                found.setdefault(pair[not step.is_send], []).append(pair[step.is_send])
            self._pairs[id(step)] = found
        return tuple(self._pairs[id(step)].get(own, ()))

    def open(self, channel: int, receiver: int) -> Slot:
        """Lay out a slot for a receiver; the send that has waited for it longest takes it."""
        slot = Slot(receiver, self._env)
        keys = (channel, receiver), (channel, None)
        send = self._sends.take(keys)
        if send is None:
            self._slots.add(slot, keys)
        else:
            slot.take(int(self._env.now))
            send.succeed(slot)
        return slot

    def take(self, channel: int, receivers: Sequence[int | None]) -> Slot | Event:
        """Take the first open slot of one of some receivers; return the event of the next one if there is none yet."""
        keys = [(channel, receiver) for receiver in receivers]
        slot = self._slots.take(keys)
        if slot is not None:
            slot.take(int(self._env.now))
            return slot
        opening = self._env.event()
        self._sends.add(opening, keys)
        return opening
