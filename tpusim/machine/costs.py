"""What the steps of a run cost on its pod, computed once: kernels by their tiles, collectives by the bytes' ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tpusim.cost.tile import KernelTime, kernel_time

if TYPE_CHECKING:
    from types import ModuleType

    from tpusim.cost.collectives import Way
    from tpusim.hardware.chip import Chip
    from tpusim.hardware.pod import Pod
    from tpusim.program.steps import Branch, Collective, Kernel, Loop

    Groups = tuple[tuple[int, ...], ...]


class Team(NamedTuple):
    """The devices whose numbers a program's groups and pairs mean: so many from a first one on.

    The program was written for ``stated`` of them: what it says of these holds for the others again and again.
    """

    first: int
    size: int
    stated: int


def _routing() -> ModuleType:
    """Return the planner of ways, which loads NumPy: only programs with somebody to talk to need it."""
    from tpusim.cost import collectives as routing

    return routing


def chosen_values(step: Loop | Branch, number: int, team: Team) -> tuple[int, ...]:
    """Return what a device chooses at a step, visit by visit; nothing where the step says nothing of it."""
    if not step.choices:
        return ()
    own = (number - team.first) % team.stated
    return next((choice.values for choice in step.choices if not choice.devices or own in choice.devices), ())


class Part(NamedTuple):
    """What some devices have to do with one group of a collective: its place in the list, its members, and who of
    them is meant.
    """

    place: int
    group: tuple[int, ...]
    own: tuple[int, ...]
    size: int


class Costs:
    """Tables that fill as the steps of a run come up; by identity, since steps are large to hash and live as long.

    ``played`` has of kernels that ran with nothing beside them how long they took, and the details of their records.
    """

    def __init__(self, chip: Chip, pod: Pod) -> None:
        self.chip = chip
        self.pod = pod
        self.played: dict[int, tuple[int, dict[str, Any]]] = {}
        self._kernels: dict[int, KernelTime] = {}
        self._groups: dict[tuple[int, int], Groups] = {}
        self._places: dict[tuple[int, int], dict[int, list[int]]] = {}
        self._ways: dict[tuple[int, int, int], Way] = {}
        self._messages: dict[tuple[int, int], Way] = {}
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[Part, ...]] = {}

    def kernel(self, kernel: Kernel) -> KernelTime:
        """Return what a kernel takes on this chip."""
        if id(kernel) not in self._kernels:
            self._kernels[id(kernel)] = kernel_time(kernel, self.chip)
        return self._kernels[id(kernel)]

    def groups(self, team: Team, step: Collective) -> Groups:
        """Return a collective's groups (or pairs) among the devices of a team, however many the program had."""
        key = (id(step), team.first)
        if key not in self._groups:
            stated = spread(step, team)
            self._groups[key] = tuple(tuple(team.first + number for number in group) for group in stated)
        return self._groups[key]

    def places(self, team: Team, step: Collective, number: int) -> list[int]:
        """Return which of a collective's groups a device is in; of a permute which pairs."""
        key = (id(step), team.first)
        if key not in self._places:
            self._places[key] = {}
            for place, group in enumerate(self.groups(team, step)):
                for member in dict.fromkeys(group):
                    self._places[key].setdefault(member, []).append(place)
        return self._places[key].get(number, [])

    def parts(self, team: Team, step: Collective, members: tuple[int, ...]) -> tuple[Part, ...]:
        """Return the groups that some devices are in, each with those of them that it is of."""
        key = (id(step), members)
        if key not in self._parts:
            own: dict[int, list[int]] = {}
            for number in members:
                for place in self.places(team, step, number):
                    own.setdefault(place, []).append(number)
            groups = self.groups(team, step)
            self._parts[key] = tuple(
                Part(place, groups[place], tuple(own[place]), len(set(groups[place]))) for place in sorted(own)
            )
        return self._parts[key]

    def way(self, team: Team, step: Collective, place: int) -> Way:
        """Return the way of a collective's group, or of all its groups together for -1."""
        key = (id(step), team.first, place)
        if key not in self._ways:
            groups = self.groups(team, step)
            self._ways[key] = self._plan(step, groups if place < 0 else (groups[place],))
        return self._ways[key]

    def message(self, source: int, target: int) -> Way:
        """Return the way of a message between devices."""
        if (source, target) not in self._messages:
            self._messages[source, target] = _routing().plan_pairs(self.pod, [(source, target)])
        return self._messages[source, target]

    def longest_way(self, team: Team, step: Collective, number: int) -> Way:
        """Return that way of a device's own groups which has the most hops."""
        ways = [self.way(team, step, place) for place in self.places(team, step, number)]
        return max(ways, key=lambda way: (way.far_hops, way.hops), default=_routing().NO_WAY)

    def _plan(self, step: Collective, groups: Groups) -> Way:
        """Return the way of some groups of a collective at once."""
        routing = _routing()
        if step.kind == "collective-permute":
            way = routing.plan_pairs(self.pod, [(pair[0], pair[-1]) for pair in groups])
        elif step.shares:
            way = routing.together([routing.plan_shares(self.pod, group, step.shares) for group in groups])
        else:
            way = routing.together([routing.plan_group(step.kind, self.pod, group, step.algorithm) for group in groups])
        members = len({self.pod.chip_of(number) for group in groups for number in group})
        is_link = way.load.links < self.pod.slices * self.pod.torus.link_count
        return way._replace(carried=float(way.load.n_bytes[is_link].sum()) / max(1, members))


def spread(step: Collective, team: Team) -> Groups:
    """Return a collective's groups or pairs among the devices of a team, numbered from 0.

    On a larger machine than the program was compiled for, a group of all its devices is one of all devices, and other
    groups come again and again with higher numbers, as further axes of a mesh do.
    """
    stated, own = step.pairs or step.groups or _neighbours(step), team.stated
    if own >= team.size:
        return stated
    if len(stated) == 1 and len(stated[0]) == own and not step.pairs:
        return (tuple(range(team.size)),)
    starts = range(0, team.size - own + 1, own)
    return tuple(tuple(start + number for number in group) for start in starts for group in stated)


def _neighbours(step: Collective) -> Groups:
    """Return groups of neighbours for a step that only says how many there are; a permute goes round each."""
    sizes = range(0, step.group_size * step.group_count, step.group_size)
    groups = tuple(tuple(range(start, start + step.group_size)) for start in sizes)
    if step.kind != "collective-permute":
        return groups
    return tuple(pair for group in groups for pair in zip(group, (*group[1:], group[0]), strict=True))
