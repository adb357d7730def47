"""Which devices wait for which others, and the message of a deadlock, which names a cycle of them if there is one."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec

from tpusim.machine.placement import Cohort
from tpusim.program.steps import AnyStep, HostTransfer
from tpusim.units import ps_to_us

HOST = -1
"""The host's number where devices have theirs."""

_MOST_NAMED = 4
"""Devices that a message names before it only counts them."""


class Blocked(msgspec.Struct, eq=False):
    """A device that waits for others: at which step, for what, and from which devices it may come.

    ``arrived`` fills up with those of a rendezvous that have arrived.
    """

    number: int
    step: Any
    what: str
    peers: Sequence[int]
    arrived: Any = ()

    @property
    def absent(self) -> list[int]:
        """Devices that are still waited for."""
        return [peer for peer in self.peers if peer not in self.arrived and peer != self.number]


class Waits:
    """The waits that are under way, by device."""

    def __init__(self) -> None:
        self._notes: dict[int, list[Blocked]] = {}

    def begin(
        self, number: int, step: AnyStep, what: str, peers: Sequence[int], arrived: Container[int] = ()
    ) -> Blocked:
        """Note that a device waits for others; whatever ends the wait gives the note back."""
        # Of all devices, those of a pod wait for as many: none copies them.
        note = Blocked(number, step, what, peers, arrived)
        self._notes.setdefault(number, []).append(note)
        return note

    def end(self, note: Blocked) -> None:
        """Note that a wait has ended."""
        self._notes[note.number].remove(note)

    @contextmanager
    def noted(self, number: int, step: AnyStep, what: str, peers: Sequence[int]) -> Iterator[None]:
        """Note that a device waits for others as long as the context lasts."""
        note = self.begin(number, step, what, peers)
        yield
        self.end(note)

    def __iter__(self) -> Iterator[Blocked]:
        """Iterate over the waits of all devices, those of each oldest first."""
        return chain.from_iterable(self._notes.values())

    def of(self, number: int) -> Sequence[Blocked]:
        """Return the waits of a device, oldest first."""
        return self._notes.get(number, ())


class Standing(msgspec.Struct, frozen=True):
    """Where a device stands when a run is over: its core's step, and which of the host's feeds (True: to it) ended."""

    cohort: Cohort
    step: AnyStep | None
    has_ended: bool
    ended_feeds: AbstractSet[bool]

    @property
    def place(self) -> str:
        """Where the core is, as messages name it."""
        return self.cohort.place_of(self.step)


def whereabouts(standings: Sequence[Standing]) -> str:
    """Return where the devices are that have not ended."""
    at = [f"device {each.cohort.number} is at {each.place}" for each in standings if not each.has_ended]
    more = f"; and {len(at) - _MOST_NAMED} more" if len(at) > _MOST_NAMED else ""
    return "; ".join(at[:_MOST_NAMED]) + more


def deadlock_message(standings: Sequence[Standing], waits: Waits, now_ps: int) -> str:
    """Return which devices wait for which: the cycle, if there is one, else all that wait."""
    waiting = {each.cohort.number: each for each in standings if not each.has_ended}
    holding = {number: _holding(each, waits) for number, each in waiting.items()}
    cycle = find_cycle(
        {
            number: list(dict.fromkeys(peer for note in notes for peer in note.absent))
            for number, notes in holding.items()
        }
    )
    after = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    shown = cycle or list(waiting)[: 2 * _MOST_NAMED]
    ended = {each.cohort.number for each in standings if each.has_ended}
    head = "the devices wait for each other for ever" if cycle else "nothing can go on"
    lines = [_described(waiting[number], holding[number], after.get(number), ended) for number in shown]
    more = f"; and {len(waiting) - len(shown)} more wait" if len(waiting) > len(shown) else ""
    return f"{head} after {ps_to_us(now_ps):,.3f} us: {'; '.join(lines)}{more}"


def _holding(standing: Standing, waits: Waits) -> Sequence[Blocked]:
    """Return what of a device's waits holds its core; all of them where that is something inside of what it needs."""
    # A receive that was laid out early waits too, but no core stands at it yet.
    notes, at = waits.of(standing.cohort.number), standing.step
    held = [note for note in notes if at is not None and (note.step is at or note.step.name in at.needs)]
    return held or notes


def _described(standing: Standing, notes: Sequence[Blocked], wanted: int | None, ended: AbstractSet[int]) -> str:
    """Return where a device waits, for what, and from which devices: of a cycle, first the next one in it."""
    number = standing.cohort.number
    if not notes:
        return f"device {number} waits for ever at {standing.place}"
    blocked = next((note for note in notes if wanted in note.absent), notes[0])
    absent = sorted(blocked.absent, key=lambda peer: peer != wanted)
    named = {HOST: "the host"} | {peer: f"device {peer}, which has ended" for peer in ended}
    sources = ", ".join(named.get(peer, f"device {peer}") for peer in absent[:_MOST_NAMED]) or "itself"
    if isinstance(blocked.step, HostTransfer) and blocked.step.to_host in standing.ended_feeds:
        sources += ", whose recorded feed has ended"
    place = standing.cohort.place_of(blocked.step)
    # The core may stand further down, at the end of what was started before.
    also = f" (and stands at {standing.place})" if blocked.step is not standing.step else ""
    return f"device {number} waits at {place} for {blocked.what} from {sources}{also}"


def find_cycle(needed: Mapping[int, Sequence[int]]) -> list[int]:
    """Return devices each of which waits for the next, and the last for the first; none if there are none.

    ``needed`` has for every device that waits those that it waits for. The search goes depth first and comes to each
    device once.
    """
    seen: set[int] = set()
    path: list[int] = []
    place: dict[int, int] = {}
    ahead: list[Iterator[int]] = [iter(needed)]
    while ahead:
        number = next((peer for peer in ahead[-1] if peer in needed and peer not in seen), None)
        if number is None:
            ahead.pop()
            if path:
                del place[path.pop()]
            continue
        seen.add(number)
        place[number] = len(path)
        path.append(number)
        # The nearest makes the shortest cycle: other devices that led here may have no part in it.
        back = max((place[peer] for peer in needed[number] if peer in place), default=-1)
        if back >= 0:
            return path[back:]
        ahead.append(iter(needed[number]))
    return []
