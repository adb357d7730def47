"""What the steps of a run cost on its pod, computed once: kernels by their tiles, collectives by their plans."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Sized
from functools import cache, cached_property
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import structs

from tpusim.cost.kept import Kept
from tpusim.cost.models.algorithms import algorithm_of
from tpusim.cost.tile import KernelTime, kernel_time
from tpusim.hardware.chip import Chip, device_chip
from tpusim.hardware.pod import Pod
from tpusim.machine.placement import DeviceSet, Groups
from tpusim.nesting import walk_nested
from tpusim.program.module import every_step, inner_lists
from tpusim.program.steps import AnyStep, Branch, ChannelTransfer, Collective, Kernel, Loop, meets_host
from tpusim.units import seconds_to_ps

if TYPE_CHECKING:
    from tpusim.cost.collectives import CommunicationPlan
    from tpusim.cost.groups import GroupPlans

S = TypeVar("S")
P = ParamSpec("P")
V = TypeVar("V")


class ByIdentity(Generic[S, P, V]):
    """What is computed once of each step, by which object the step is: steps are large to hash and to compare.

    Further arguments count by their value. Steps that are ``alike`` to it share what is computed of one of them.
    """

    def __init__(self, compute: Callable[Concatenate[S, P], V], alike: Callable[[S], S] = lambda step: step) -> None:
        self._compute = compute
        self._alike = alike
        self._found: dict[tuple[object, ...], tuple[V, S]] | Kept[tuple[object, ...], tuple[V, S]] = {}

    def __call__(self, step: S, /, *rest: P.args, **named: P.kwargs) -> V:
        """Return the value for a step."""
        step = self._alike(step)
        key = (id(step), *rest)
        found = self._found.get(key)
        if found is None:
            # With its step, so that no other step can take its address.
            found = self._compute(step, *rest, **named), step
            self._keep(key, found)
        return found[0]

    def _keep(self, key: tuple[object, ...], found: tuple[V, S]) -> None:
        assert isinstance(self._found, dict)
        self._found[key] = found

    def forget(self) -> None:
        """Let go of all that was computed."""
        self._found.clear()


class Recent(ByIdentity[S, P, V]):
    """The same of the steps that were asked for last, as far as what is kept of them fits.

    What is known of a collective may have an entry for each device of a large slice, and a program hundreds of them.
    """

    def __init__(
        self,
        compute: Callable[Concatenate[S, P], V],
        alike: Callable[[S], S],
        bytes_of: Callable[[V], int],
        most_bytes: int = 2**22,
    ) -> None:
        super().__init__(compute, alike)
        self._bytes_of = bytes_of
        self._found = self._recent = Kept[tuple[object, ...], tuple[V, S]](most_bytes)

    def _keep(self, key: tuple[object, ...], found: tuple[V, S]) -> None:
        self._recent.put(key, found, self._bytes_of(found[0]))


class GroupShare(msgspec.Struct, frozen=True):
    """One group of a collective: its place in the list, its devices, its own members of a cohort, its device count."""

    place: int
    group: tuple[int, ...]
    own: tuple[int, ...]
    size: int


class Traits(msgspec.Struct, frozen=True):
    """What of some steps may keep one run of them from standing for others.

    Devices wait for each other in them (``communicates``), they meet the host (``meets_host``), or something in them is
    chosen anew at each visit (``varies``).
    """

    communicates: bool = False
    meets_host: bool = False
    varies: bool = False

    def __or__(self, other: Traits) -> Traits:
        return Traits(
            self.communicates or other.communicates, self.meets_host or other.meets_host, self.varies or other.varies
        )


class KernelCost(msgspec.Struct):
    """What a kernel takes, and what it took, with the details of its record, when nothing disturbed it."""

    time: KernelTime
    undisturbed: tuple[int, dict[str, Any]] | None = None


class KernelCosts:
    """What kernels cost on devices that are alike, in a table that fills as they come up."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._alike: dict[bytes, KernelCost] = {}
        self.kernel: ByIdentity[Kernel, [], KernelCost] = ByIdentity(self._cost)

    def _cost(self, kernel: Kernel) -> KernelCost:
        """Return the cost of a kernel, which those share that differ in names alone: networks repeat their layers."""
        streams = tuple([structs.replace(stream, operand="") for stream in kernel.streams])
        # As JSON, whose whole numbers have no end: those of the largest arrays multiply beyond 64 bits.
        content = msgspec.json.encode(structs.replace(kernel, **_NO_LABELS, streams=streams))
        found = self._alike.get(content)
        if found is None:
            found = self._alike[content] = KernelCost(kernel_time(kernel, self.chip))
        return found


_NO_LABELS: dict[str, Any] = {"name": "", "needs": (), "line": 0, "op_name": "", "source": ""}
"""Fields of a kernel that only say where it comes from, and when it may begin."""


_PLANS_BYTES = 2**23
"""Of plans that are kept: of all chips of the largest slice one takes a megabyte."""


def _bytes_of_plans(plans: Sequence[CommunicationPlan]) -> int:
    """Return how many bytes some plans take in memory."""
    from tpusim.cost.groups import bytes_of

    return sum(map(bytes_of, plans))


def _bytes_of_entries(found: Sized) -> int:
    """Return how many bytes what is known of some groups or devices takes in memory, about."""
    return 2**7 * len(found)


def _bytes_of_groups(groups: Groups) -> int:
    """Return how many bytes groups take in memory, without the numbers in them."""
    return sum(map(getsizeof, groups)) + getsizeof(groups)


def _choices_of(step: Loop | Branch) -> tuple[dict[int, tuple[int, ...]], tuple[int, ...]]:
    """Return what a step has devices choose, by device: the first that is said of one; and what all others do."""
    stated: dict[int, tuple[int, ...]] = {}
    for choice in step.choices:
        if not choice.devices:
            return stated, choice.values
        for device in choice.devices:
            stated.setdefault(device, choice.values)
    return stated, ()


def _first_of(first: dict[int, int], number: int) -> int:
    """Return which device stands for all that one is joined to."""
    while first.setdefault(number, number) != number:
        number = first[number]
    return number


class Costs:
    """Tables that fill as the steps of a run come up."""

    def __init__(self, chip: Chip, pod: Pod) -> None:
        self.chip = chip
        self.pod = pod
        self._kernels: dict[tuple[tuple[str, float], ...], KernelCosts] = {}
        self._traits: dict[int, tuple[Traits, tuple[AnyStep, ...]]] = {}
        self.loop: ByIdentity[Loop, [], Traits] = ByIdentity(
            lambda loop: self.traits(loop.condition) | self.traits(loop.body)
        )
        # Layers repeat their collectives, and what is known of one has as many entries as there are devices.
        alike: ByIdentity[Collective, [], Collective] = ByIdentity(self._alike)
        self.alike = alike
        self._same_collectives: dict[tuple[object, ...], Collective] = {}
        self.groups: ByIdentity[Collective, [DeviceSet], Groups] = Recent(
            lambda step, devices: devices.groups_of(step), alike, _bytes_of_groups
        )
        self.shares = Recent(self._shares, alike, lambda shares: 2 * _bytes_of_entries(shares))
        self.plan = Recent(self._plan, alike, lambda plan: _bytes_of_plans([plan]), _PLANS_BYTES)
        self.plan_of_each = Recent(self._plan_of_each, alike, _bytes_of_plans, _PLANS_BYTES)
        self._passing: ByIdentity[Collective, [DeviceSet], list[float]] = Recent(
            lambda step, devices: self._group_plans.passing_of_each(
                self.groups(step, devices), self.plan_of_each(step, devices)
            ),
            alike,
            _bytes_of_entries,
        )
        self.latencies_ps: ByIdentity[Collective, [DeviceSet], list[int]] = Recent(
            lambda step, devices: [self.latency_ps(plan) for plan in self.plan_of_each(step, devices)],
            alike,
            _bytes_of_entries,
        )
        self.message = cache(self._message)
        self._places = Recent(self._places_of, alike, lambda places: _bytes_of_entries(places[0]))
        self._choices = ByIdentity(_choices_of)
        self.are_apart: ByIdentity[Loop, [DeviceSet], bool] = ByIdentity(self._are_apart)
        self.other_plans = Recent(
            self._other_plans, alike, lambda plans: _bytes_of_plans(list(plans.values())), _PLANS_BYTES
        )
        # Asked by every device of a group, of which there may be as many as devices.
        self._sizes: ByIdentity[Collective, [DeviceSet], list[int]] = Recent(
            lambda step, devices: [len(set(group)) for group in self.groups(step, devices)], alike, _bytes_of_entries
        )

    def forget(self) -> None:
        """Let go of all that was computed.

        Objects that refer to each other in circles hold it until Python looks for garbage, which counts objects, and
        not the bytes of their arrays: who tries a hundred orders of a pod's devices would have all tables at once.
        """
        for table in vars(self).values():
            if isinstance(table, ByIdentity):
                table.forget()
        # What tables compute with refers to all of this, the pod with its thousands of places too.
        vars(self).clear()

    def _alike(self, step: Collective) -> Collective:
        """Return the first collective that has the same devices do the same, of as many bytes if they decide how."""
        by_size = step.algorithm is not None and step.algorithm.by_slice
        which = step.groups, step.pairs, step.group_size, step.group_count
        how = step.kind, step.algorithm, step.shares, by_size and step.n_bytes
        return self._same_collectives.setdefault((*which, *how), step)

    def chosen_values(self, step: Loop | Branch, devices: DeviceSet, number: int) -> tuple[int, ...]:
        """Return what a device chooses at a step, visit by visit; nothing where the step does not say."""
        if not step.choices:
            return ()
        stated, others = self._choices(step)
        return stated.get(devices.stated(number), others)

    def traits(self, steps: tuple[AnyStep, ...]) -> Traits:
        """Return the traits of steps and of all that they hold, whichever branches are taken."""
        return walk_nested(self._traits_of, steps)

    def _traits_of(self, steps: tuple[AnyStep, ...]) -> Generator[tuple[AnyStep, ...], Traits, Traits]:
        # Of each list once, however many hold it and ask.
        if id(steps) in self._traits:
            return self._traits[id(steps)][0]
        found = Traits(
            communicates=any(isinstance(step, Collective | ChannelTransfer) for step in steps),
            meets_host=any(map(meets_host, steps)),
            varies=any(
                isinstance(step, Loop | Branch) and any(len(choice.values) > 1 for choice in step.choices)
                for step in steps
            ),
        )
        for step in steps:
            for listed in inner_lists(step):
                found |= yield listed
        # With the steps, so that no others can take their address.
        self._traits[id(steps)] = found, steps
        return found

    def _are_apart(self, loop: Loop, devices: DeviceSet) -> bool:
        """Return whether devices that do not wait for each other in a loop share no link: each has its own pace."""
        steps = list(every_step((*loop.condition, *loop.body)))
        if any(isinstance(step, ChannelTransfer) for step in steps):
            return False
        first: dict[int, int] = {}
        used: dict[int, set[int]] = {}
        for step in (step for step in steps if isinstance(step, Collective)):
            for group, plan in zip(self.groups(step, devices), self.plan_of_each(step, devices), strict=True):
                joined = {_first_of(first, number) for number in group}
                least = min(joined)
                first |= dict.fromkeys(joined, least)
                links = used.setdefault(least, set())
                links.update(plan.load.links.tolist())
                for other in joined - {least}:
                    links |= used.pop(other, set())
        count = sum(map(len, used.values()))
        return count == len(set[int]().union(*used.values()))

    def rates_of(self, number: int) -> tuple[tuple[str, float], ...]:
        """Return what of a device's rates is other than its fellows'."""
        own = self.chip.devices.get(str(number), {})
        return tuple(sorted((key, rate) for key, rate in own.items() if rate != 1.0))

    def kernels(self, number: int) -> KernelCosts:
        """Return the table of a device, which those share that are as fast."""
        key = self.rates_of(number)
        if key not in self._kernels:
            self._kernels[key] = KernelCosts(device_chip(self.chip, number))
        return self._kernels[key]

    def places(self, step: Collective, devices: DeviceSet, number: int) -> list[int]:
        """Return which of a collective's groups a device is in; of a permute which pairs."""
        first, more = self._places(step, devices)
        if number not in first:
            return []
        return [first[number], *more.get(number, ())]

    def _places_of(self, step: Collective, devices: DeviceSet) -> tuple[dict[int, int], dict[int, list[int]]]:
        """Return the first group of each device that is in one, and the others of those that are in several."""
        # No list for each device: most are in one group.
        first: dict[int, int] = {}
        more: dict[int, list[int]] = {}
        for place, group in enumerate(self.groups(step, devices)):
            for member in dict.fromkeys(group):
                if first.setdefault(member, place) != place:
                    more.setdefault(member, []).append(place)
        return first, more

    def _shares(self, step: Collective, devices: DeviceSet, members: tuple[int, ...]) -> tuple[GroupShare, ...]:
        own: dict[int, list[int]] = {}
        for number in members:
            for place in self.places(step, devices, number):
                own.setdefault(place, []).append(number)
        groups, sizes = self.groups(step, devices), self._sizes(step, devices)
        return tuple(GroupShare(place, groups[place], tuple(own[place]), sizes[place]) for place in sorted(own))

    @cached_property
    def _group_plans(self) -> GroupPlans:
        # The planner loads NumPy: only programs that communicate need it.
        from tpusim.cost.groups import GroupPlans

        return GroupPlans(self.pod, algorithm_of(self.chip))

    def _plan(self, step: Collective, devices: DeviceSet) -> CommunicationPlan:
        """Return the plan of all groups of a collective at once."""
        return self._group_plans.at_once(step, self.groups(step, devices))

    def are_alike(self, step: Collective, devices: DeviceSet) -> bool:
        """Return whether all groups of a collective ask as much of the network, each of its own part."""
        return self._group_plans.are_alike(step, self.groups(step, devices))

    def meet_alike(self, steps: Sequence[Collective], devices: DeviceSet) -> bool:
        """Return whether all groups of a collective share links alike, of several those that overlap as well."""
        distinct = {id(step): step for step in map(self._alike, steps)}.values()
        if all(len(self.groups(step, devices)) < 2 for step in distinct):
            return True
        from tpusim.cost.groups import meet_alike

        return meet_alike([self.plan_of_each(step, devices) for step in distinct], overlap=len(steps) > 1)

    def _plan_of_each(self, step: Collective, devices: DeviceSet) -> list[CommunicationPlan]:
        """Return the plan of each of a collective's groups by itself."""
        return self._group_plans.of_each(step, self.groups(step, devices))

    def distances(self, step: Collective, devices: DeviceSet) -> dict[int, tuple[int, ...]]:
        """Return for each device in a collective a number for each of its groups: the same where plans are alike."""
        numbers: dict[object, int] = {}
        found: dict[int, tuple[int, ...]] = {}
        for group, plan in zip(self.groups(step, devices), self.plan_of_each(step, devices), strict=True):
            number = numbers.setdefault(plan[1:], len(numbers))
            for member in dict.fromkeys(group):
                found[member] = (*found.get(member, ()), number)
        return {member: tuple(sorted(own)) for member, own in found.items()}

    def longest_plan(self, step: Collective, devices: DeviceSet, number: int) -> CommunicationPlan:
        """Return the plan with the most hops among those of a device's own groups, with what all of them carry.

        What passes through its chip is of the groups of others as well, as where one device stands for all.
        """
        places = self.places(step, devices, number)
        if not places:
            return self._group_plans.at_once(step, ())
        of_each, passing = self.plan_of_each(step, devices), self._passing(step, devices)
        # A device of a permute may send and receive, in two pairs.
        plans = [of_each[place] for place in places]
        longest = max(plans, key=lambda plan: (plan.far_hops, plan.hops, plan.steps))
        mean = sum([passing[place] for place in places]) / len(places)
        return longest._replace(carried=sum([plan.carried for plan in plans]), passing=mean)

    def _other_plans(
        self, step: Collective, devices: DeviceSet, members: tuple[int, ...]
    ) -> dict[int, CommunicationPlan]:
        """Return the longest plans of members for whom it is another one than for the first, loads aside."""
        # Where one device stands for all there is nothing to compare, and no plan of each group to be made.
        if len(members) < 2:
            return {}
        first, *others = ((number, self.longest_plan(step, devices, number)) for number in members)
        return {number: plan for number, plan in others if plan[1:] != first[1][1:]}

    def _message(self, source: int, target: int) -> CommunicationPlan:
        return self._group_plans.message(source, target)

    def latency_ps(self, plan: CommunicationPlan) -> int:
        """Return what communication takes beside moving its bytes: its launch, and the hops and steps that add up."""
        # A device that is alone in its group has nothing to launch.
        if not len(plan.load.links):
            return 0
        ici, pod = self.chip.ici, self.chip.pod
        hops_ps = plan.hops * seconds_to_ps(ici.hop_latency_seconds)
        hops_ps += plan.far_hops * seconds_to_ps(pod.dcn_latency_seconds)
        return hops_ps + plan.steps * seconds_to_ps(ici.step_seconds) + seconds_to_ps(ici.launch_seconds)
