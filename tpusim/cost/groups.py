"""What the groups of a collective ask of the network at once.

A torus looks the same from each of its chips, a twisted one too (Jouppi et al., ISCA 2023), and a mesh wherever a group
fits in. So groups whose chips lie alike, counted from the lowest corner of each, have one plan: it is made for one of
them, and its links are moved to where the others lie. Thousands of groups of a large pod lie in a handful of ways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np

from tpusim.cost.by_slice import Way, way_of
from tpusim.cost.collectives import (
    NO_PLAN,
    CommunicationPlan,
    plan_group,
    plan_messages,
    plan_shares,
    round_what_is_down,
)
from tpusim.cost.links import chips_left, joined, moved
from tpusim.cost.models.protocols import CollectiveAlgorithm
from tpusim.hardware.pod import Pod
from tpusim.program.steps import Collective

Group = tuple[int, ...]


class GroupPlans:
    """The plans of groups on a pod; ``own`` is the chip's choice of an algorithm."""

    def __init__(self, pod: Pod, own: CollectiveAlgorithm | None = None) -> None:
        self._pod = pod
        self._own = own
        self._chips = np.array([pod.chip_of(device) for device in range(pod.device_count)], np.int64)
        # By what is done and how the chips lie, with the corner of the group that it was made for.
        self._known: dict[tuple[Way, tuple[float, ...], bytes], tuple[CommunicationPlan, np.ndarray]] = {}

    def at_once(self, step: Collective, groups: Sequence[Group]) -> CommunicationPlan:
        """Return what some groups (or pairs) of a collective ask of the network at once; ``NO_PLAN`` without groups."""
        if not groups:
            return NO_PLAN
        chips, lies, corners = self._lies(groups)
        alike: dict[bytes, list[int]] = defaultdict(list)
        for place, lie in enumerate(lies):
            alike[lie].append(place)
        plans, loads = [], []
        for lie, places in alike.items():
            plan, corner = self._plan(step, groups[places[0]], lie, corners[places[0]])
            plans.append(plan)
            loads.append(moved(plan.load, self._pod, corners[places] - corner))
        slowest = max(plans, key=lambda plan: (plan.far_hops, plan.hops, plan.steps))
        # Messages do not wait for each other: one that goes far in a slice may last longer than one between slices.
        hops = max(plan.hops for plan in plans) if step.kind == "collective-permute" else slowest.hops
        plan = round_what_is_down(slowest._replace(load=joined(loads), hops=hops), self._pod)
        return _with_means(plan, self._pod, np.unique(chips))

    def of_each(self, step: Collective, groups: Sequence[Group]) -> list[CommunicationPlan]:
        """Return the plan of each group by itself: one for all that lie alike, with the links of the first of them."""
        # A link that is down is at one place.
        lies = groups if self._pod.detours or not groups else self._lies(groups)[1]
        plans: dict[object, CommunicationPlan] = {}
        for lie, group in zip(lies, groups, strict=True):
            if lie not in plans:
                plans[lie] = self.at_once(step, (group,))
        return [plans[lie] for lie in lies]

    def message(self, source: int, target: int) -> CommunicationPlan:
        """Return what a message between two devices asks of the network."""
        return round_what_is_down(plan_messages(self._pod, [(source, target, 1.0)]), self._pod)

    def _lies(self, groups: Sequence[Group]) -> tuple[np.ndarray, list[bytes], np.ndarray]:
        """Return the chips of groups one after the other, how those of each lie to each other, and its lowest corner.

        Corners are places along every axis, and the slice. On a graph no place is like another: all corners are zero.
        """
        pod, ends = self._pod, np.cumsum([len(group) for group in groups])
        chips = self._chips[np.fromiter(chain.from_iterable(groups), np.int64, ends[-1])]
        starts = [0, *ends[:-1]]
        if pod.graph is not None:
            places, corners = chips[:, None], np.zeros((len(groups), 1), np.int64)
        else:
            places = np.stack(np.unravel_index(chips, (*pod.torus.sizes, pod.slices), order="F"), axis=1)
            corners = np.minimum.reduceat(places, starts)
            places -= corners.repeat(np.diff([0, *ends]), axis=0)
        return chips, [places[start:end].tobytes() for start, end in zip(starts, ends, strict=True)], corners

    def _plan(
        self, step: Collective, group: Group, lie: bytes, corner: np.ndarray
    ) -> tuple[CommunicationPlan, np.ndarray]:
        """Return the plan of a group that lies like this, and the lowest corner of the group that it was made for."""
        way = self._way(step, group)
        key = way, step.shares, lie
        if key not in self._known:
            self._known[key] = self._made(way, step.shares, group), corner
        return self._known[key]

    def _way(self, step: Collective, group: Group) -> Way:
        """Return how a group is to do what a step says, which may leave it to the slice."""
        stated = Way(step.kind, step.algorithm)
        if step.algorithm is None or not step.algorithm.by_slice:
            return stated
        is_native = self._own is None or self._own.rounds(step.kind, len(group)) is None
        return way_of(step.kind, self._pod, group, step.n_bytes) if is_native else stated

    def _made(self, way: Way, shares: tuple[float, ...], group: Group) -> CommunicationPlan:
        """Return the plan of one group, as if no link were down."""
        if way.kind == "collective-permute":
            return plan_messages(self._pod, [(group[0], group[-1], 1.0)])
        if shares:
            return plan_shares(self._pod, group, shares)
        return plan_group(way.kind, self._pod, group, way.algorithm, self._own)


def _with_means(plan: CommunicationPlan, pod: Pod, members: np.ndarray) -> CommunicationPlan:
    """Return a plan with what its links carry for each of some chips, and for each that they leave as well."""
    senders = chips_left(plan.load.links, pod)
    n_bytes = float(plan.load.n_bytes[senders >= 0].sum())
    on_the_way = np.union1d(members, senders[senders >= 0])
    return plan._replace(carried=n_bytes / max(1, len(members)), passing=n_bytes / max(1, len(on_the_way)))
