"""What the groups of a collective ask of the network at once.

A torus looks the same from each of its chips, a twisted one too (Jouppi et al., ISCA 2023), and a mesh wherever a group
fits in. So groups whose chips lie alike, counted from the lowest corner of each, have one plan: it is made for one of
them, and its links are moved to where the others lie. Thousands of groups of a large pod lie in a handful of ways.
Chips that are joined as a graph says have no such places, and where a link is down a group is planned by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from math import fsum

import numpy as np

from tpusim.cost.by_slice import Way, way_of
from tpusim.cost.collectives import (
    NO_PLAN,
    CommunicationPlan,
    plan_group,
    plan_messages,
    round_what_is_down,
)
from tpusim.cost.kept import Kept
from tpusim.cost.links import LINKS_AT_ONCE, Load, added, chips_left, joined, moved
from tpusim.cost.models.protocols import CollectiveAlgorithm
from tpusim.cost.shares import plan_shares
from tpusim.hardware.pod import Pod
from tpusim.program.steps import Collective

Group = tuple[int, ...]

_KEPT_BYTES = 2**23
"""Of plans of single groups: those of a large slice in hundreds of ways would be as many megabytes."""

_PLAN_BYTES = 2**9
"""Of a plan without its links: two tuples, and two arrays."""


class GroupPlans:
    """The plans of groups on a pod, each of at least one device; ``own`` is the chip's choice of an algorithm."""

    def __init__(self, pod: Pod, own: CollectiveAlgorithm | None = None) -> None:
        self._pod = pod
        self._own = own
        self._chip_of = np.array([pod.chip_of(device) for device in range(pod.device_count)], np.int64)
        # By what is done and how the chips lie, with the lowest corner of the group that it was made for.
        self._known = Kept[tuple[Way, tuple[float, ...], bytes], tuple[CommunicationPlan, np.ndarray]](_KEPT_BYTES)

    def at_once(self, step: Collective, groups: Sequence[Group]) -> CommunicationPlan:
        """Return what some groups (or pairs) of a collective ask of the network at once; ``NO_PLAN`` without groups."""
        if not groups:
            return NO_PLAN
        plans, moves = self._planned(step, groups)
        slowest = max(plans, key=lambda plan: (plan.far_hops, plan.hops, plan.steps))
        # Messages do not wait for each other: one that goes far in a slice may last longer than one between slices.
        hops = max(plan.hops for plan in plans) if step.kind == "collective-permute" else slowest.hops
        load = self._joined(plans, moves)
        return self._with_means(round_what_is_down(slowest._replace(load=load, hops=hops), self._pod), groups)

    def _joined(self, plans: Sequence[CommunicationPlan], moves: np.ndarray) -> Load:
        """Return the loads of plans as one, each moved by its row of places, some at a time."""
        parts = list(_parts(plans))
        each = (moved([plan.load for plan in plans[part]], self._pod, moves[part]) for part in parts)
        return joined(list(each)) if len(parts) == 1 else added(each, self._pod)

    def are_alike(self, step: Collective, groups: Sequence[Group]) -> bool:
        """Return whether all groups ask as much of the network, each of its own part, where no link is down."""
        distinct = {id(plan): plan for plan in self._planned(step, groups)[0]} if len(groups) > 1 else {}
        if len(distinct) < 2:
            return True
        return len({(plan[1:], np.sort(plan.load.n_bytes).tobytes()) for plan in distinct.values()}) == 1

    def of_each(self, step: Collective, groups: Sequence[Group]) -> list[CommunicationPlan]:
        """Return the plan of each group by itself."""
        # A link that is down is at one place.
        if self._pod.detours or not groups:
            return [self.at_once(step, (group,)) for group in groups]
        plans, moves = self._planned(step, groups)
        load = moved([plan.load for plan in plans], self._pod, moves)
        spans = pairwise(accumulate((len(plan.load.links) for plan in plans), initial=0))
        loads = [Load(load.links[start:end], load.n_bytes[start:end]) for start, end in spans]
        return [plan._replace(load=own) for plan, own in zip(plans, loads, strict=True)]

    def passing_of_each(self, groups: Sequence[Group], plans: Sequence[CommunicationPlan]) -> list[float]:
        """Return by group, with its plan, what the links carry of one of its chips and those on its ways, on average.

        Bytes of all groups count: those of others go through its chips as well.
        """
        count, parts = self._pod.chip_count, list(_parts(plans))
        by_chip, means = np.zeros(count), list[float]()
        for part in parts:
            by_chip += self._sent(plans[part])
        for part in parts:
            of_groups = np.arange(len(groups[part])).repeat(list(map(len, groups[part])))
            own = of_groups * count + self._chips(groups[part])
            owners, chips = np.divmod(np.union1d(own, self._ways(plans[part])), count)
            means += (np.bincount(owners, by_chip[chips]) / np.bincount(owners)).tolist()
        # In which order the bytes of a chip are added up is chance: groups that lie alike have the same.
        return [float(f"{mean:.12g}") for mean in means]

    def _sent(self, plans: Sequence[CommunicationPlan]) -> np.ndarray:
        """Return the bytes that leave every chip in some plans."""
        senders, is_chip = self._senders(plans)
        n_bytes = np.concatenate([plan.load.n_bytes for plan in plans])
        return np.bincount(senders[is_chip], n_bytes[is_chip], self._pod.chip_count)

    def _ways(self, plans: Sequence[CommunicationPlan]) -> np.ndarray:
        """Return the chips that the links of each of some plans leave, each once: those of the second after all."""
        senders, is_chip = self._senders(plans)
        senders += np.arange(len(plans)).repeat([len(plan.load.links) for plan in plans]) * self._pod.chip_count
        return np.unique(senders[is_chip])

    def _senders(self, plans: Sequence[CommunicationPlan]) -> tuple[np.ndarray, np.ndarray]:
        """Return by link of some plans the chip that it leaves, and whether it leaves one."""
        senders = chips_left(np.concatenate([plan.load.links for plan in plans]), self._pod)
        return senders, senders >= 0

    def message(self, source: int, target: int) -> CommunicationPlan:
        """Return what a message between two devices asks of the network."""
        return round_what_is_down(plan_messages(self._pod, [(source, target, 1.0)]), self._pod)

    def _planned(self, step: Collective, groups: Sequence[Group]) -> tuple[list[CommunicationPlan], np.ndarray]:
        """Return for each group the plan of one like it, and how far off it lies: along each axis, and in slices."""
        pod, chips, sizes = self._pod, self._chips(groups), list(map(len, groups))
        *starts, end = accumulate(sizes, initial=0)
        if pod.graph is None:
            places = np.stack(np.unravel_index(chips, (*pod.torus.sizes, pod.slices), order="F"), axis=1)
            corners = np.minimum.reduceat(places, starts)
            places -= corners.repeat(sizes, axis=0)
        else:
            # On a graph no place is like another.
            places, corners = chips[:, None], np.zeros((len(groups), 1), np.int64)
        found: dict[bytes, tuple[CommunicationPlan, np.ndarray]] = {}
        each = []
        for group, corner, span in zip(groups, corners, pairwise((*starts, end)), strict=True):
            lie = places[slice(*span)].tobytes()
            if lie not in found:
                found[lie] = self._plan(step, group, lie, corner)
            each.append(found[lie])
        return [plan for plan, _ in each], corners - np.array([corner for _, corner in each])

    def _plan(
        self, step: Collective, group: Group, lie: bytes, corner: np.ndarray
    ) -> tuple[CommunicationPlan, np.ndarray]:
        """Return the plan of a group that lies like this, and the lowest corner of the one that it was made for."""
        way = self._way(step, group)
        key = way, step.shares, lie
        found = self._known.get(key)
        if found is None:
            plan = self._with_means(self._made(way, step.shares, group), [group])
            found = self._known.put(key, (plan, corner.copy()), len(lie) + bytes_of(plan))
        return found

    def _way(self, step: Collective, group: Group) -> Way:
        """Return how a group is to do what a step says, which may leave it to the slice."""
        stated = Way(step.kind, step.algorithm)
        if not self._by_size(step):
            return stated
        is_native = self._own is None or self._own.rounds(step.kind, len(group)) is None
        return way_of(step.kind, self._pod, group, step.n_bytes) if is_native else stated

    def _by_size(self, step: Collective) -> bool:
        """Return whether the slice chooses how to do a step, by its size."""
        return step.algorithm is not None and step.algorithm.by_slice

    def _made(self, way: Way, shares: tuple[float, ...], group: Group) -> CommunicationPlan:
        """Return the plan of one group, as if no link were down."""
        if way.kind == "collective-permute":
            return plan_messages(self._pod, [(group[0], group[-1], 1.0)])
        if shares:
            return plan_shares(self._pod, group, shares)
        return plan_group(way.kind, self._pod, group, way.algorithm, self._own)

    def _with_means(self, plan: CommunicationPlan, groups: Sequence[Group]) -> CommunicationPlan:
        """Return a plan with what its links carry for each chip of its groups, and for each that they leave as well."""
        senders = chips_left(plan.load.links, self._pod)
        # The same whichever group of its kind the plan was made for.
        is_chip = senders >= 0
        n_bytes = fsum(plan.load.n_bytes[is_chip])
        own, passed = self._distinct(self._chips(groups), senders[is_chip])
        return plan._replace(carried=n_bytes / own, passing=n_bytes / passed)

    def _distinct(self, chips: np.ndarray, others: np.ndarray) -> tuple[int, int]:
        """Return how many different chips some are, and together with others."""
        # No array of all chips: tens of thousands of messages have two each.
        if 8 * len(others) < self._pod.chip_count:
            own = set(chips.tolist())
            return len(own), len(own.union(others.tolist()))
        is_one = np.zeros(self._pod.chip_count, np.bool_)
        is_one[chips] = True
        count = int(is_one.sum())
        is_one[others] = True
        return count, int(is_one.sum())

    def _chips(self, groups: Sequence[Group]) -> np.ndarray:
        """Return the chips of groups, one after the other."""
        return self._chip_of[np.fromiter(chain.from_iterable(groups), np.int64)]


def bytes_of(plan: CommunicationPlan) -> int:
    """Return how many bytes a plan takes in memory, its load and what Python has beside it."""
    return _PLAN_BYTES + plan.load.links.nbytes + plan.load.n_bytes.nbytes


def _parts(plans: Sequence[CommunicationPlan]) -> Iterator[slice]:
    """Yield runs of plans of some ten thousand links: all of a large pod would be copied several times over."""
    start, links = 0, 0
    for end, plan in enumerate(plans, 1):
        links += len(plan.load.links)
        if links >= LINKS_AT_ONCE or end == len(plans):
            yield slice(start, end)
            start, links = end, 0


def meet_alike(each: Sequence[Sequence[CommunicationPlan]], *, overlap: bool) -> bool:
    """Return whether all groups of each of some collectives meet as many bytes of the same ones on their links.

    Then the groups of one get the same shares of links, whichever of the collectives are under way beside it. Those
    that ``overlap`` are to share no link among their own groups: together they would get less of it than one by one.
    """
    met: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for number, plans in enumerate(each):
        for link, n_bytes in chain.from_iterable(map(_by_link, plans)):
            met[link].append((number, n_bytes))
    if overlap and any(len(users) > len(dict(users)) for users in met.values()):
        return False
    names: dict[tuple[tuple[int, float], ...], int] = {}
    names_of = {link: names.setdefault(tuple(sorted(users)), len(names)) for link, users in met.items()}
    return all(
        len({tuple(sorted((names_of[link], n_bytes) for link, n_bytes in _by_link(plan))) for plan in plans}) <= 1
        for plans in each
    )


def _by_link(plan: CommunicationPlan) -> Iterable[tuple[int, float]]:
    return zip(plan.load.links.tolist(), plan.load.n_bytes.tolist(), strict=True)
