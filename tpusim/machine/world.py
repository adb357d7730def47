"""What devices share: the clock, the links between chips, the places where they meet, and who waits for whom.

A world stands for all devices of a program that does the same on each: then one of them is simulated, under the traffic
of all. Or they are ``apart`` and wait for each other; of those that do the same at the same time one is simulated (see
``cohorts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import simpy
from simpy.core import StopSimulation

from tpusim.errors import ConfigError, SimulationError
from tpusim.hardware.pod import Pod, Topology, default_sizes, make_pod
from tpusim.machine.cohorts import Split
from tpusim.machine.communication import Channels
from tpusim.machine.completion import Met
from tpusim.machine.costs import Costs, Part, Team
from tpusim.machine.deadlock import find_cycle
from tpusim.machine.memory import SharedMemory, call_after
from tpusim.program.module import every_step
from tpusim.program.steps import ChannelTransfer, Collective, HostTransfer
from tpusim.units import PS_PER_US, ps_to_us, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from tpusim.cost.collectives import Way
    from tpusim.hardware.chip import Chip
    from tpusim.machine.core import Device
    from tpusim.machine.loops import LoopWatch
    from tpusim.machine.network import Network
    from tpusim.program.module import Program
    from tpusim.program.steps import AnyStep
    from tpusim.timeline.records import LinkUse

    Activity = Generator[simpy.Event, Any, None]


HOST = -1
"""The host's number where devices have theirs."""

NOBODY: Mapping[int, Any] = MappingProxyType({})


class Blocked(NamedTuple):
    """Something of a device that waits for others: the step, what it needs, and from which devices it may come.

    ``come`` fills up with those of a meeting that have come.
    """

    step: AnyStep
    what: str
    peers: tuple[int, ...]
    come: Mapping[int, Any]

    @property
    def absent(self) -> list[int]:
        """Devices that are still waited for."""
        return [peer for peer in self.peers if peer not in self.come]


class _Wait:
    """A device in a collective: how many of its groups have not ended, and when those that have did."""

    def __init__(self, device: Device, step: Collective, parts: tuple[Part, ...], end: simpy.Event) -> None:
        self.device = device
        self.step = step
        self.parts = parts
        self.end = end
        self.met: dict[int, Met] = {}

    def ended(self, place: int, met: Met) -> bool:
        """Note that one of the groups has ended; tell whether it was the last."""
        self.met[place] = met
        return len(self.met) == len(self.parts)

    def each(self) -> dict[int, Met]:
        """Return how the collective went for each that the device stands for, zeros for who has no part in it."""
        found = dict.fromkeys(self.device.members, Met(0, 0))
        for part in self.parts:
            for number in part.own:
                # What ended last held the device; of two that did, bytes moved since the first of them was complete.
                found[number] = max(found[number], self.met[part.place], key=lambda met: (met.end_ps, -met.complete_ps))
        return found


class _Meeting:
    """One occurrence of a group's collective: what the first has come to, who has come, when all had, and who waits for
    its end.
    """

    def __init__(self, way: Way, part: Part) -> None:
        self.way = way
        self.part = part
        self.come: dict[int, Any] = {}
        self.complete_ps = 0
        self.notes: list[tuple[int, Blocked]] = []
        self.waits: list[_Wait] = []


class World:
    """One clock, one network, and the devices on it."""

    def __init__(self, costs: Costs, device_count: int, *, apart: bool = False) -> None:
        self.env = simpy.Environment()
        self.device_count = device_count
        self.costs = costs
        self.chip = costs.chip
        self.pod = costs.pod
        self.apart = apart
        self.devices: list[Device] = []
        self.loops: dict[tuple[int, int], LoopWatch] = {}
        self.blocked: dict[int, list[Blocked]] = {}
        self.channels = Channels(self)
        self.split: Split | None = None
        self._host_links: dict[tuple[int, str], SharedMemory] = {}
        self._ends: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._meetings: dict[tuple[Any, ...], _Meeting] = {}
        self._visits: dict[tuple[Any, ...], int] = {}
        self._mixed: dict[Team, bool] = {}

    @cached_property
    def network(self) -> Network:
        """The links; only programs with somebody to talk to load NumPy for them."""
        from tpusim.machine.network import Network

        return Network(self.env, self.pod, self.chip)

    def collective(self, device: Device, step: Collective) -> tuple[simpy.Event, Callable[[], dict[int, Met]]]:
        """Take part in a collective, for all devices that this one stands for.

        Return the event of its end for all of them, and what then tells how it went for each.
        """
        if not self.apart:
            return self._carry_out(self.way(device, step), step.n_bytes), dict
        parts = self.costs.parts(device.team, step, device.members)
        wait = _Wait(device, step, parts, self.env.event())
        if not parts:
            return wait.end.succeed(), wait.each
        complete: dict[int, list[tuple[int, _Meeting]]] = {}
        for part in parts:
            key = self._place(device, step, part)
            visit = self._visits[*key, device.number] = self._visits.get((*key, device.number), 0) + 1
            meeting = self._meet(wait, step, part, (*key, visit))
            if meeting is not None:
                meeting.complete_ps = int(self.env.now)
                complete.setdefault(self.latency_ps(meeting.way), []).append((part.place, meeting))
        for latency_ps, meetings in complete.items():
            call_after(self.env, latency_ps, partial(self._move, step, meetings))
        return wait.end, wait.each

    def _place(self, device: Device, step: Collective, part: Part) -> tuple[Any, ...]:
        """Return what devices must have in common to meet: the step of their program, or a channel across programs.

        JAX gives all collectives of a ``shard_map`` the same channel, so that within a program it tells nothing.
        """
        if self._is_mixed(device.team):
            return step.channel_id or step.name, tuple(sorted(part.group))
        # Names are unique in their computation only; what a call runs at two places is at one line.
        identity = (step.opcode, step.name, step.line) if step.line else id(step)
        return id(device.program), identity, part.place, device.team.first

    def _is_mixed(self, team: Team) -> bool:
        """Tell whether the devices of a team run different programs."""
        if team not in self._mixed:
            self._mixed[team] = len({id(device.program) for device in self.devices if device.team == team}) > 1
        return self._mixed[team]

    def way(self, device: Device, step: Collective) -> Way:
        """Return the way of the bytes of a device's own groups."""
        if not self.apart:
            return self.costs.way(device.team, step, -1)
        return self.costs.longest_way(device.team, step, device.number)

    def _meet(self, wait: _Wait, step: Collective, part: Part, key: tuple[Any, ...]) -> _Meeting | None:
        """Come to a collective of a group; return it once all have come."""
        meeting = self._meetings.get(key) or _Meeting(self.costs.way(wait.device.team, step, part.place), part)
        if not meeting.waits and len(part.own) == part.size:
            meeting.waits.append(wait)
            return meeting
        self._meetings[key] = meeting
        _check_alike(meeting, wait, part)
        meeting.come.update(dict.fromkeys(part.own))
        meeting.waits.append(wait)
        if len(meeting.come) < part.size:
            note = Blocked(step, f"{step.kind} {step.name!r}", part.group, meeting.come)
            self.blocked.setdefault(wait.device.number, []).append(note)
            meeting.notes.append((wait.device.number, note))
            return None
        for number, note in meeting.notes:
            self.blocked[number].remove(note)
        return self._meetings.pop(key)

    def _move(self, step: Collective, meetings: Iterable[tuple[int, _Meeting]]) -> None:
        """Move the bytes of groups that have been launched."""
        for place, meeting in meetings:
            self.network.begin(meeting.way.load, step.n_bytes, partial(self._finish, place, meeting))

    def _finish(self, place: int, meeting: _Meeting) -> None:
        """End a group's collective for all who wait for it."""
        for wait in meeting.waits:
            if wait.ended(place, Met(int(self.env.now), meeting.complete_ps)):
                wait.end.succeed()

    def compare(self, step: Collective, ends_ps: dict[int, int]) -> None:
        """End the run if some of a cohort could have gone on before others, who waited for a collective as long."""
        if len(set(ends_ps.values())) < 2:
            return
        if self.split is None:
            # What else happens at this moment may show further splits; what comes later would be wrong.
            self.split = Split(step, {})
            self.env.timeout(0).callbacks.append(_stop)
        if self.split.step is step:
            self.split.ends_ps.update(ends_ps)

    def _carry_out(self, way: Way, n_bytes: float) -> simpy.Event:
        """Launch a collective, wait for its hops, and move its bytes; return the event of its end."""
        end = self.env.event()
        call_after(self.env, self.latency_ps(way), lambda: self.network.begin(way.load, n_bytes, end.succeed))
        return end

    def message(self, step: ChannelTransfer, source: int, target: int) -> simpy.Event:
        """Send a message from device to device; return the event of its end."""
        return self._carry_out(self.costs.message(source, target), step.n_bytes)

    def other_ends(self, step: ChannelTransfer) -> tuple[int, ...]:
        """Return the devices whose program has the other end of a transfer's channel."""
        if not self._ends:
            found: dict[tuple[int, bool], list[int]] = {}
            ends = {id(device.program): _ends_of(device.program) for device in self.devices}
            for device in self.devices:
                for end in ends[id(device.program)]:
                    found.setdefault(end, []).append(device.number)
            self._ends = {end: tuple(numbers) for end, numbers in found.items()}
        return self._ends.get((step.channel_id, not step.is_send), ())

    def latency_ps(self, way: Way) -> int:
        """Return what a collective takes before its bytes begin to count: its launch, and the hops that add up."""
        ici, pod = self.chip.ici, self.chip.pod
        hops = way.hops * seconds_to_ps(ici.hop_latency_seconds) + way.far_hops * seconds_to_ps(pod.dcn_latency_seconds)
        # Who is alone in his group has nothing to launch.
        return hops + seconds_to_ps(ici.launch_seconds) if len(way.load.links) else 0

    def block(
        self, number: int, step: AnyStep, what: str, peers: Sequence[int], come: Mapping[int, Any] = NOBODY
    ) -> Blocked:
        """Note that a device waits for others; whoever lifts the wait removes the note."""
        blocked = Blocked(step, what, tuple(peer for peer in peers if peer != number), come)
        self.blocked.setdefault(number, []).append(blocked)
        return blocked

    def host_link(self, device: Device, way: str) -> SharedMemory:
        """Return a device's link to the host, in or out, which the devices of a chip share.

        A device that stands for others has the share of it that is left if all do the same.
        """
        first = device.members[0]
        chip, host = self.pod.chip_of(first), self.pod.host_of(first)
        taking_part = range(self.device_count)
        beside = [number for number in taking_part if self.pod.host_of(number) == host]
        chips = len({self.pod.chip_of(number) for number in beside})
        rate = min(self.chip.host.bandwidth_bytes_per_second, self.chip.host.all_chips_bytes_per_second / max(1, chips))
        if not self.apart or len(device.members) > 1:
            sharers = sum(self.pod.chip_of(number) == chip for number in beside)
            return SharedMemory(self.env, way, rate / max(1, sharers))
        return self._host_links.setdefault((chip, way), SharedMemory(self.env, way, rate))

    def carried(self) -> Mapping[int, float]:
        """Return what the links have carried so far, to give to ``repeat`` later."""
        return self.network.mark() if "network" in self.__dict__ else {}

    def repeat(self, carried: Mapping[int, float], times: int) -> None:
        """Count what the links have carried since then so many times more."""
        if "network" in self.__dict__:
            self.network.repeat(carried, times)

    def links(self) -> tuple[LinkUse, ...]:
        """Return what every link carried that carried anything."""
        return self.network.uses() if "network" in self.__dict__ else ()

    def run(self, timeout_seconds: float | None = None) -> None:
        """Run until nothing is left to do, or a cohort has to be ``split``.

        Raises SimulationError if some device has not ended by then.
        """
        # Not run(until=main): SimPy would meet a deadlock with an error of its own, which does not say who waits.
        limit_ps = seconds_to_ps(timeout_seconds) if timeout_seconds is not None else None
        if limit_ps is None:
            self.env.run()
        elif limit_ps > 0:
            self.env.run(until=limit_ps)
        if self.split or all(device.main.triggered for device in self.devices):
            return
        if limit_ps is not None and self.env.peek() != float("inf"):
            raise SimulationError(
                f"not done after the {limit_ps / PS_PER_US:,.3f} us of --timeout: {self._where()}; allow more time"
            )
        if any(len(device.members) > 1 for device in self.devices):
            # Who waits for whom is told of single devices.
            self.split = Split(None, {number: number for device in self.devices for number in device.members})
            return
        raise SimulationError(self._deadlock())

    def _where(self) -> str:
        """Say where the devices are."""
        at = [f"device {d.number} is at {d.core.place}" for d in self.devices if not d.main.triggered]
        return "; ".join(at[:4]) + (f"; and {len(at) - 4} more" if len(at) > 4 else "")

    def _deadlock(self) -> str:
        """Say who waits for whom: the cycle, if there is one, else everybody who waits."""
        waiting = [device for device in self.devices if not device.main.triggered]
        cycle = find_cycle({device.number: self._needed(device) for device in waiting})
        shown = [self.devices[number] for number in cycle] or waiting[:8]
        after = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        more = f"; and {len(waiting) - len(shown)} more wait" if len(waiting) > len(shown) else ""
        head = "the devices wait for each other for ever" if cycle else "nothing can go on"
        return (
            f"{head} after {ps_to_us(int(self.env.now)):,.3f} us: "
            + "; ".join(self._told(device, after.get(device.number)) for device in shown)
            + more
        )

    def _told(self, device: Device, wanted: int | None) -> str:
        """Say where a device waits, for what, and from whom: of a cycle, first the next one in it."""
        notes = self._holding(device)
        if not notes:
            return f"device {device.number} waits for ever at {device.core.place}"
        blocked = next((note for note in notes if wanted in note.absent), notes[0])
        # The core may stand further down, at the end of what was started before.
        at = device.core.place if blocked.step is not device.core.current else ""
        absent = sorted(blocked.absent, key=lambda peer: peer != wanted)
        from_whom = ", ".join(self._peer(peer) for peer in absent[:4]) or "itself"
        if isinstance(blocked.step, HostTransfer) and blocked.step.to_host in device.host.ended:
            from_whom += ", whose recorded feed has ended"
        place = device.core.place_of(blocked.step)
        also = f" (and stands at {at})" if at else ""
        return f"device {device.number} waits at {place} for {blocked.what} from {from_whom}{also}"

    def _peer(self, number: int) -> str:
        """Return how a message names a device that is waited for."""
        if number < 0:
            return "the host"
        if number < len(self.devices) and self.devices[number].main.triggered:
            return f"device {number}, which has ended"
        return f"device {number}"

    def _holding(self, device: Device) -> list[Blocked]:
        """Return what of a device's waits holds its core; all of them where that is something inside of what it needs.

        A receive that was laid out early waits too, but nobody stands at it yet.
        """
        notes, at = self.blocked.get(device.number, []), device.core.current
        held = [note for note in notes if at is not None and (note.step is at or note.step.name in at.needs)]
        return held or notes

    def _needed(self, device: Device) -> list[int]:
        """Return the devices that one waits for, each once."""
        return list(dict.fromkeys(peer for note in self._holding(device) for peer in note.absent))


def _ends_of(program: Program) -> set[tuple[int, bool]]:
    """Return the ends of channels that a program has: the channel, and whether it sends."""
    return {(s.channel_id, s.is_send) for s in every_step(program.steps) if isinstance(s, ChannelTransfer)}


def _check_alike(meeting: _Meeting, wait: _Wait, part: Part) -> None:
    """Raise SimulationError if a device comes to another collective than the first that came to a meeting."""
    first = meeting.waits[0] if meeting.waits else wait
    if _terms(first.step, meeting.part) != _terms(wait.step, part):
        raise SimulationError(
            f"expected collectives of one kind, group and size on channel {wait.step.channel_id}, found "
            f"{_come_to(first, meeting.part)} and {_come_to(wait, part)}"
        )


def _terms(step: Collective, part: Part) -> tuple[object, ...]:
    """Return what collectives that meet have in common."""
    return step.kind, part.group, step.n_bytes


def _come_to(wait: _Wait, part: Part) -> str:
    """Say what a device has come to."""
    step, group = wait.step, ",".join(map(str, part.group))
    place = wait.device.core.place_of(step)
    return f"device {wait.device.number} at {place} of {step.n_bytes:,.0f} bytes in group {{{group}}}"


def _stop(_: simpy.Event) -> None:
    """End a run: cohorts have to be split before it makes sense."""
    raise StopSimulation(None)


def pod_of(programs: Sequence[Program], chip: Chip, topology: Topology | None) -> Pod:
    """Return the pod that programs run on: of ``topology``, or of as many chips as they need in their usual shape.

    Raises ConfigError if groups or pairs name devices that ``topology`` does not have.
    """
    needed = devices_needed(programs)
    count = needed if topology is None else topology.chip_count * chip.devices_per_chip
    if count < needed:
        raise ConfigError(f"topology: groups and pairs of the program name {needed} devices, this slice has {count}")
    topology = topology or _usual(-(-needed // chip.devices_per_chip), chip)
    return make_pod(topology, chip, along_ring=len(programs) == 1 and _has_one_axis(programs[0], needed, count))


def _usual(chips: int, chip: Chip) -> Topology:
    """Return the usual shape of so many chips: of as few slices as they fit on."""
    slices = -(-chips // chip.pod.chips)
    return Topology(default_sizes(-(-chips // slices), chip), slices=slices)


def devices_needed(programs: Sequence[Program]) -> int:
    """Return how many devices programs need: as many as they are for, and as their groups and pairs name."""
    return max(sum(program.device_count for program in programs), *map(_devices_for, programs))


def _devices_for(program: Program) -> int:
    """Return how many devices a program is for, or those that its groups and pairs need if they are more."""
    steps = list(every_step(program.steps))
    stated = [_devices_of(step) for step in steps if isinstance(step, Collective)]
    sent = [1 + max(pair) for step in steps if isinstance(step, ChannelTransfer) for pair in step.pairs or ()]
    return max([program.device_count, *stated, *sent])


def assign(programs: Sequence[Program], device_count: int) -> list[tuple[Program, Team]]:
    """Return for every device its program and the team that its groups are among.

    One program runs on all devices. Of several each runs on as many as it is for, one after the other, and its groups
    are among those; a program for one device may name any.
    """
    if len(programs) == 1:
        return [(programs[0], Team(0, device_count, _devices_for(programs[0])))] * device_count
    assigned: list[tuple[Program, Team]] = []
    for program in programs:
        count = program.device_count
        team = Team(len(assigned), count, count) if count > 1 else Team(0, device_count, device_count)
        assigned += [(program, team)] * count
    return assigned


def _devices_of(step: Collective) -> int:
    """Return how many devices a collective needs."""
    numbered = [number for group in (*step.groups, *step.pairs) for number in group]
    return 1 + max(numbered) if numbered else step.group_size * step.group_count


def _has_one_axis(program: Program, needed: int, device_count: int) -> bool:
    """Tell whether all collectives are of a single axis that all devices are on: JAX lays such a mesh along a ring."""
    steps = [step for step in every_step(program.steps) if isinstance(step, Collective)]
    permutes = {step.pairs for step in steps if step.pairs}
    groups = (step for step in steps if not step.pairs)
    return all(is_one_line(pairs, device_count) for pairs in permutes) and all(
        _joins_all(step, needed) for step in groups
    )


def _joins_all(step: Collective, device_count: int) -> bool:
    """Tell whether a collective without pairs is of all devices."""
    return len(step.groups) == 1 or step.group_size == device_count


def is_one_line(pairs: Sequence[tuple[int, int]], device_count: int) -> bool:
    """Tell whether pairs form one cycle or one chain over all devices."""
    follower = dict(pairs)
    targets = set(follower.values())
    if len(follower) != len(pairs) or len(targets) != len(pairs) or len(pairs) < device_count - 1:
        return False
    # A chain begins with whom nobody sends to; in a cycle it makes no difference.
    number = next((source for source in follower if source not in targets), pairs[0][0] if pairs else 0)
    seen = {number}
    while follower.get(number, number) not in seen:
        number = follower[number]
        seen.add(number)
    return len(seen) == device_count
