"""What an exchange in which the members of a group get parts of different sizes asks of the links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpusim.cost.collectives import ALONE, MOST_ROUTED, CommunicationPlan, plan_group, plan_messages
from tpusim.cost.exchange import exchanged
from tpusim.cost.links import IN, LOCAL, OUT, beside, joined, load_from
from tpusim.hardware.pod import Pod


def plan_shares(pod: Pod, devices: Sequence[int], shares: Sequence[float]) -> CommunicationPlan:
    """Return what an all-to-all asks of the network in which every device sends each member its share of a byte.

    On twisted tori and graphs, groups that are too large to look at pair by pair are taken to get even parts.
    """
    if pod.graph is None and not pod.torus.twist:
        return _on_torus(pod, devices, shares)
    if len(devices) > MOST_ROUTED:
        even = plan_group("all-to-all", pod, devices)
        return even._replace(load=even.load.times(sum(shares)), way=f"even parts assumed: {even.way}")
    given = [(target, share) for target, share in zip(devices, shares, strict=True) if share > 0]
    pairs = ((source, target, share) for source in devices for target, share in given if source != target)
    return plan_messages(pod, pairs)


def _on_torus(pod: Pod, devices: Sequence[int], shares: Sequence[float]) -> CommunicationPlan:
    chips = [pod.chip_of(device) for device in devices]
    senders, sent = (np.bincount(chips, column, pod.chip_count) for column in (np.ones(len(chips)), shares))
    in_slices = [column.reshape(pod.slices, -1) for column in (senders, sent)]
    # Of the other slices, added up and not taken from the sum of all, which would leave what rounding leaves.
    others = [(1 - np.eye(pod.slices)) @ column.sum(axis=1) for column in in_slices]
    senders_else, sent_else = (np.repeat(column, pod.torus.chip_count) for column in others)
    leaving = senders * sent_else
    ways = {LOCAL: (senders - 1) * sent, OUT: leaving, IN: sent * senders_else}
    loads = [beside(pod, which, carried) for which, carried in ways.items()]
    hops = 0
    for number, column in enumerate(zip(*in_slices, strict=True)):
        carried, farthest = exchanged(pod.torus, *column)
        loads.append(load_from(carried, number * pod.link_count))
        hops = max(hops, farthest)
    return CommunicationPlan(joined(loads), hops, int(leaving.any()), way=ALONE)
