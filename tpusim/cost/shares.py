"""What an exchange in which the members of a group get parts of different sizes asks of the links.

Every device sends a member the same share of a byte, whoever it is itself. A thousand devices have a million messages,
but on a plain torus, where each takes one axis after the other, they need not be looked at one by one: what goes along
an axis comes from where senders are along it and the axes still ahead, and goes where shares are along it and the axes
behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpusim.cost.collectives import ALONE, MOST_ROUTED, CommunicationPlan, plan_group, plan_messages
from tpusim.cost.links import IN, LOCAL, OUT, Load, extra_link, joined
from tpusim.hardware.pod import Pod
from tpusim.hardware.torus import Torus


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
    beside = {LOCAL: (senders - 1) * sent, OUT: senders * sent_else, IN: sent * senders_else}
    loads = [_load(carried, extra_link(pod, 0, which), 3) for which, carried in beside.items()]
    hops = 0
    for number, (here, given) in enumerate(zip(*in_slices, strict=True)):
        loads.append(_load(_along_axes(pod.torus, here, given), number * pod.link_count))
        hops = max(hops, _farthest(pod.torus, here, given))
    return CommunicationPlan(joined(loads), hops, int(beside[OUT].any()), way=ALONE)


def _load(carried: np.ndarray, first: int, step: int = 1) -> Load:
    """Return the bytes of links that are numbered from ``first`` on, of those that carry any."""
    used = np.nonzero(carried > 0)[0]
    return Load(first + used * step, carried[used])


def _along_axes(torus: Torus, senders: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Return what each link of a slice carries, by its number."""
    carried = np.zeros((torus.chip_count, len(torus.sizes), 2))
    for axis, (size, stride) in enumerate(zip(torus.sizes, torus.strides, strict=True)):
        # Those ahead are still the senders', those behind already the receivers'.
        begins = senders.reshape(-1, size, stride).sum(axis=2)
        ends = sent.reshape(-1, size, stride).sum(axis=0)
        up, down = (size // 2, (size - 1) // 2) if torus.wraps[axis] else (size - 1, size - 1)
        carried[:, axis, 0] = _up(begins, ends, up, torus.wraps[axis]).ravel()
        carried[:, axis, 1] = _up(begins[:, ::-1], ends[::-1], down, torus.wraps[axis])[:, ::-1].ravel()
    return carried.ravel()


def _up(begins: np.ndarray, ends: np.ndarray, farthest: int, wraps: bool) -> np.ndarray:
    """Return what the links up an axis carry: where messages begin by the axes ahead and place, end by place and behind.

    They go ``farthest`` places at most.
    """
    size = len(ends)
    if not wraps:
        # What would come round comes from nowhere.
        begins, ends = np.pad(begins, ((0, 0), (0, size))), np.pad(ends, ((0, size), (0, 0)))
    carried, ahead = np.zeros((*begins.shape, ends.shape[1])), np.zeros(ends.shape)
    for back in reversed(range(farthest)):
        # Messages from so many places before come here if they go farther: to one place more for each place nearer.
        ahead += np.roll(ends, back - farthest, axis=0)
        carried += np.roll(begins, back, axis=1)[:, :, None] * ahead
    return carried[:, :size]


def _farthest(torus: Torus, senders: np.ndarray, sent: np.ndarray) -> int:
    """Return the links to the farthest chip that gets anything; of senders that form no block, no fewer."""
    reach = np.zeros(torus.chip_count, np.int64)
    for axis, (size, stride) in enumerate(zip(torus.sizes, torus.strides, strict=True)):
        places = np.nonzero(senders.reshape(-1, size, stride).any(axis=(0, 2)))[0]
        apart = abs(np.arange(size)[None, :] - places[:, None])
        shortest = np.minimum(apart, size - apart) if torus.wraps[axis] else apart
        reach.reshape(-1, size, stride)[:] += shortest.max(axis=0, initial=0)[:, None]
    return int(reach[sent > 0].max(initial=0)) if senders.any() else 0
