"""How collectives use the links: for each kind the bytes on every link, per byte of the collective, and the hops.

Gathering goes along every axis at once: the data is split into parts that take the axes in different orders, and the
parts are cut so that all axes are busy equally long (the rotated rings of the compiler's ``colors``). Along an axis
that closes it goes both ways round; along one that does not, from both ends. Reduce-scatter is the same backwards, and
all-reduce both, in rings of their own: where a chip has several devices the rings of the first axis go through all of
them (as ``cores:{4 2}`` of two devices on each of 2x2 chips says in compiled programs), not only from chip to chip.
Where the program says so, or a group is no block of chips, one ring goes round the group instead.

Sources: jax-ml/scaling-book, sharding (times of collectives on rings); Thakur et al., Optimization of Collective
Communication Operations in MPICH, 2005 (a large broadcast is a scatter and an all-gather).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice, pairwise, permutations, product
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from tpusim.cost.exchange import exchanged
from tpusim.cost.links import (
    IN,
    LOCAL,
    NO_LOAD,
    OUT,
    Load,
    detour,
    extra_link,
    joined,
    load_from,
    load_of,
    moved,
    slice_way,
)
from tpusim.cost.models.algorithms import Ring
from tpusim.cost.models.protocols import CollectiveAlgorithm
from tpusim.hardware.pod import Pod
from tpusim.hardware.torus import Torus
from tpusim.program.steps import Algorithm

Item = TypeVar("Item")

MOST_ROUTED = 512
"""Groups on a twisted torus that are not all of it are routed pair by pair up to this size, larger ones on a ring."""

_MOST_AT_ONCE = 4096
"""Messages whose routes are kept at the same time."""

ALONE = "each message by itself, on its shortest ways"
"""What is said of messages that do not pass on what others have sent."""


class CommunicationPlan(NamedTuple):
    """What a collective asks of the network, per byte of its larger side.

    ``load`` holds the bytes on each link, ``hops`` and ``far_hops`` the links and the crossings between slices that
    follow each other, ``relayed`` what one device passes on after it has received it, ``carried`` what the links carry
    for one chip of the groups, and ``passing`` what those of one chip carry, chips on the way among them; ``steps`` are
    the messages that wait for each other: those of a ring, one that goes far is one. In a ``single_phase`` every device
    gets the operands of all. ``way`` says in words how it goes.
    """

    load: Load
    hops: int
    far_hops: int = 0
    relayed: float = 0.0
    carried: float = 0.0
    passing: float = 0.0
    steps: int = 1
    single_phase: bool = False
    way: str = ""


NO_PLAN = CommunicationPlan(NO_LOAD, 0)
"""That of a device in no group."""


class _Inside(NamedTuple):
    """What the chips of one slice do among themselves: the load, and the hops and steps that follow each other."""

    load: Load
    hops: int
    steps: int = 1
    way: str = ""


class _Line(NamedTuple):
    """The places of a group along one axis: whether they close to a ring, and how far apart neighbours are.

    Places beyond the end of the axis are those at its beginning, where the way to them leads round.
    """

    axis: int
    places: tuple[int, ...]
    closes: bool
    step: int


def plan_group(
    kind: str,
    pod: Pod,
    devices: Sequence[int],
    algorithm: Algorithm | None = None,
    own: CollectiveAlgorithm | None = None,
) -> CommunicationPlan:
    """Return what one group's collective of a kind asks of the network; ``own`` is the chip's choice of a way."""
    chips = list(dict.fromkeys(map(pod.chip_of, devices)))
    return _PLANS[kind](_Group(pod, chips, len(devices), algorithm, own=own))


def round_what_is_down(plan: CommunicationPlan, pod: Pod) -> CommunicationPlan:
    """Return a plan that takes no link that is down."""
    if not pod.detours:
        return plan
    load, further = detour(plan.load, pod)
    return plan._replace(load=load, hops=plan.hops + further)


def plan_messages(pod: Pod, sent: Iterable[tuple[int, int, float]]) -> CommunicationPlan:
    """Return what messages at the same time ask of the network: source, target and bytes of each."""
    return _sent(pod, ((pod.chip_of(source), pod.chip_of(target), n_bytes) for source, target, n_bytes in sent))


def _sent(pod: Pod, messages: Iterable[tuple[int, int, float]]) -> CommunicationPlan:
    """Return what messages between chips ask of the network."""
    found = CommunicationPlan(NO_LOAD, 0, way=ALONE)
    for part in _some_at_a_time(messages):
        plans = [_message(pod, source, target) for source, target, _ in part]
        loads = [plan.load.times(n_bytes) for plan, (_, _, n_bytes) in zip(plans, part, strict=True)]
        found = found._replace(
            load=joined([found.load, *loads]),
            hops=max(found.hops, *[plan.hops for plan in plans]),
            far_hops=max(found.far_hops, *[plan.far_hops for plan in plans]),
        )
    return found


def _some_at_a_time(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Return items in lists: the routes of all messages may take a thousand times the memory of what they add up to."""
    rest = iter(items)
    while part := list(islice(rest, _MOST_AT_ONCE)):
        yield part


def _message(pod: Pod, source: int, target: int) -> CommunicationPlan:
    if source == target:
        return CommunicationPlan(Load(np.array([extra_link(pod, source, LOCAL)]), np.ones(1)), 0)
    per_slice = pod.torus.chip_count
    if source // per_slice != target // per_slice:
        return CommunicationPlan(
            Load(np.array([extra_link(pod, source, OUT), extra_link(pod, target, IN)]), np.ones(2)), 0, 1
        )
    load, hops = slice_way(pod, source % per_slice, target % per_slice)
    return CommunicationPlan(Load(load.links + source // per_slice * pod.link_count, load.n_bytes), hops)


class _Group(NamedTuple):
    """The chips of a group in its order, the number of its devices, and how the compiler wants them to work."""

    pod: Pod
    chips: list[int]
    size: int
    algorithm: Algorithm | None
    through_devices: bool = False
    """Whether rings go through all devices of a chip; else these exchange what they have over the chip's own way."""
    own: CollectiveAlgorithm | None = None
    """The chip's choice of how to do it, None for the fabric's way."""

    @property
    def ring_devices(self) -> float:
        """Places that a chip has in the rings of the first axis."""
        return self.per_chip if self.through_devices else 1.0

    def steps_of(self, places: int, *, closes: bool) -> int:
        """Return the steps in which a ring or line of so many places passes everything on to everybody."""
        # One direction has to go all the way round.
        one_way = self.algorithm is not None and self.algorithm.one_way
        return places // 2 if closes and not one_way else places - 1

    @property
    def per_chip(self) -> float:
        """Devices of the group on each of its chips."""
        return self.size / len(self.chips)

    @property
    def one_ring(self) -> bool:
        """Whether the program asks for a ring round the whole group."""
        return self.algorithm is not None and self.algorithm.one_ring

    def directions(self, rings: int) -> int:
        """Return in how many directions so many rings are used: both unless the program leaves some lanes idle."""
        return 1 if self.algorithm and 0 < self.algorithm.lanes < 2 * rings else 2

    def by_slice(self, plan: Callable[[_Group, tuple[int, ...]], _Inside]) -> list[CommunicationPlan]:
        """Return what the chips of each slice do among themselves; ``plan`` numbers chips and links from its first."""
        torus = self.pod.torus
        slices: dict[int, list[int]] = {}
        for chip in self.chips:
            slices.setdefault(chip // torus.chip_count, []).append(chip % torus.chip_count)
        plans = []
        for number, chips in slices.items():
            load, hops, steps, way = plan(self, tuple(chips)) if len(chips) > 1 else _Inside(NO_LOAD, 0)
            load = Load(load.links + number * self.pod.link_count, load.n_bytes)
            plans.append(CommunicationPlan(load, hops, steps=steps, way=way))
        return plans


def _gather(group: _Group) -> CommunicationPlan:
    """Return the plan of an all-gather; reduce-scatter runs it backwards."""
    slices, total = group.by_slice(_gather_inside), len(group.chips)
    # A ring through all devices passes between those of a chip nearly everything.
    near = (group.size - 1) / group.size if group.ring_devices > 1 else (group.per_chip - 1) / group.per_chip
    loads = [plan.load for plan in slices] + [_beside(group, near, LOCAL)]
    # A chip gets from every other slice what its peers there have: the rest comes from its own slice.
    if len(slices) > 1:
        loads.append(_beside(group, (len(slices) - 1) / total, OUT, IN))
    relayed = max(0, total - 2) / total / group.per_chip
    slowest = max(slices, key=lambda plan: (plan.hops, plan.steps))
    return slowest._replace(load=joined(loads), far_hops=int(len(slices) > 1), relayed=relayed)


def _in_rounds(group: _Group, kind: str, chips: tuple[int, ...]) -> _Inside | None:
    """Return what the messages of the chip's own algorithm ask of the links; None leaves it to the torus."""
    rounds = group.own.rounds(kind, len(chips)) if group.own else None
    if rounds is None and group.pod.graph is None:
        return None
    # A graph has no way of its own.
    name = "ring" if rounds is None else type(group.own).__name__.lower()
    rounds = Ring().rounds(kind, len(chips)) if rounds is None else rounds
    members = chips if group.pod.graph is not None else group.pod.torus.ring(chips)
    loads, hops, steps = [], 0, 0
    for messages, times in rounds:
        ways = [(slice_way(group.pod, members[a], members[b]), share) for a, b, share in messages]
        loads += [load.times(share * times) for (load, _), share in ways]
        hops, steps = hops + times * max(count for (_, count), _ in ways), steps + times
    return _Inside(joined(loads), hops, steps, f"{name}, in messages between {len(chips)} chips")


def _gather_inside(group: _Group, chips: tuple[int, ...]) -> _Inside:
    if found := _in_rounds(group, "all-gather", chips):
        return found
    lines = _lines(group.pod.torus, chips)
    if group.one_ring or not lines:
        return _gather_round(group, group.pod.torus.ring(chips) if lines else chips)
    return _along_axes(group, chips, lines)


def _gather_round(group: _Group, ring: tuple[int, ...]) -> _Inside:
    """Return what a gather round one ring of chips asks of the links."""
    torus, directions = group.pod.torus, group.directions(1)
    places = round(len(ring) * group.ring_devices)
    load, length = _round(torus, ring, directions, (places - 1) / places)
    steps = group.steps_of(places, closes=directions == 2)
    # Both ways go half round; one way the last step, back to the first place, is not needed.
    hops = length // 2 if steps == places // 2 else length * (places - 1) // places
    far = "half" if steps == places // 2 else "all"
    ways = f"both ways, each {far} the way round" if directions == 2 else "one way"
    return _Inside(load, max(steps, hops), steps, f"a ring through {len(ring)} chips, {ways}")


def _reduce(group: _Group) -> CommunicationPlan:
    """Return the plan of an all-reduce: scattered sums, then gathered; or everything to every device in one phase."""
    # What comes in is added up and passed on in VMEM, which the program states as scoped memory: nothing is relayed.
    once = _gather(group._replace(through_devices=True))._replace(relayed=0.0)
    if group.algorithm is not None and group.algorithm.single_phase:
        return once._replace(
            load=once.load.times(group.size), single_phase=True, way=f"all operands to every device: {once.way}"
        )
    hops, far_hops, steps = 2 * once.hops, 2 * once.far_hops, 2 * once.steps
    way = f"reduce-scatter, then all-gather: {once.way}"
    return once._replace(load=once.load.times(2), hops=hops, far_hops=far_hops, steps=steps, way=way)


def _exchange(group: _Group) -> CommunicationPlan:
    """Return the plan of an all-to-all, in which every device has an equal part for every other."""
    slices = group.by_slice(_exchange_inside)
    loads = [plan.load for plan in slices] + [_beside(group, (group.per_chip - 1) / group.size, LOCAL)]
    if len(slices) > 1:
        loads.append(_beside(group, group.per_chip * (len(slices) - 1) / len(slices), OUT, IN))
    hops = max(plan.hops for plan in slices)
    return CommunicationPlan(joined(loads), hops, int(len(slices) > 1), way=slices[0].way)


def _exchange_inside(group: _Group, chips: tuple[int, ...]) -> _Inside:
    """Return load and hops of what the chips of a slice send to each other in an all-to-all of the group."""
    torus, each = group.pod.torus, len(chips) * (group.per_chip / len(group.chips))
    way = ALONE
    if found := _in_rounds(group, "all-to-all", chips):
        return found._replace(load=found.load.times(each))
    lines = _lines(torus, chips)
    # Of one byte in all from every chip.
    if torus.twist and len(chips) == torus.chip_count:
        load, hops = _exchange_twisted(torus)
    elif not torus.twist:
        senders = np.bincount(chips, minlength=torus.chip_count)
        carried, hops = exchanged(torus, senders, senders / len(chips))
        load, way = load_from(carried), "one axis after the other, each both ways" if lines else ALONE
    elif len(chips) <= MOST_ROUTED:
        load, hops = _exchange_in_pairs(group.pod, chips)
    else:
        ring, length = _round(torus, torus.ring(chips), 2, (len(chips) - 1) / len(chips))
        load, hops = ring.times(len(chips) / 4), length // 2
        way = f"a ring through {len(chips)} chips, both ways"
    return _Inside(load.times(each), hops, way=way)


def _broadcast(group: _Group) -> CommunicationPlan:
    """Return the plan of a broadcast from the first device: parts to every device, then gathered by all."""
    root, total = group.chips[0], len(group.chips)
    if total <= 2:
        plans = [_message(group.pod, root, chip) for chip in group.chips[1:]]
        loads = [plan.load for plan in plans] + [_beside(group, group.per_chip - 1, LOCAL)]
        return (plans or [NO_PLAN])[0]._replace(load=joined(loads))
    parts, gathered = _sent(group.pod, ((root, chip, 1 / total) for chip in group.chips[1:])), _gather(group)
    load, hops = joined([parts.load, gathered.load]), parts.hops + gathered.hops
    way = f"a part to every device, then all-gather: {gathered.way}"
    return gathered._replace(load=load, hops=hops, far_hops=2 * gathered.far_hops, steps=1 + gathered.steps, way=way)


def _beside(group: _Group, n_bytes: float, *ways: int) -> Load:
    """Return bytes on some ways of every chip of a group: between its devices, or to and from other slices."""
    links = [extra_link(group.pod, chip, which) for chip in group.chips for which in ways] if n_bytes > 0 else []
    return Load(np.array(links, np.int64), np.full(len(links), n_bytes))


def _lines(torus: Torus, chips: tuple[int, ...]) -> list[_Line]:
    """Return the axes of the block that chips form, none if they form no block."""
    places = [tuple(sorted(set(line))) for line in zip(*map(torus.coordinates, chips), strict=True)]
    if prod(map(len, places)) != len(chips):
        return []
    whole = [len(line) == size for line, size in zip(places, torus.sizes, strict=True)]
    return [_line(torus, axis, line, whole) for axis, line in enumerate(places) if len(line) > 1]


def _line(torus: Torus, axis: int, places: tuple[int, ...], whole: list[bool]) -> _Line:
    """Return the places of a block along an axis; equal steps all the way round a closed axis make a ring."""
    size = torus.sizes[axis]
    gaps = [b - a for a, b in pairwise((*places, places[0] + size))]
    # Where a twist leads into another line, that line has to be of the block as well: ``whole`` tells which axes are.
    stays = all(is_whole or not by for is_whole, by in zip(whole, torus.shift(axis), strict=True))
    goes_round = torus.wraps[axis] and stays
    if goes_round and max(gaps) > gaps[-1]:
        # The widest gap is left out, wherever it is: neighbours may have the end of the axis between them.
        first = gaps.index(max(gaps)) + 1
        places = (*places[first:], *(place + size for place in places[:first]))
        gaps = gaps[first:] + gaps[:first]
    step = max(gaps[:-1])
    return _Line(axis, places, goes_round and set(gaps) == {step} and len(places) > 2, step)


def _along_axes(group: _Group, chips: tuple[int, ...], lines: list[_Line]) -> _Inside:
    """Return what a gather along all axes of a block at once asks of the links."""
    torus, directions, devices = group.pod.torus, group.directions(len(lines)), group.ring_devices
    peaks = [(1.0 if not line.closes else 1.0 / directions) for line in lines]
    volumes = _balanced([len(line.places) for line in lines], peaks, devices)
    loads = [
        _on_line(torus, chips, line, _gather_profile(torus, line, directions) * volume)
        for line, volume in zip(lines, volumes, strict=True)
    ]
    # The rings through all devices of a chip go along another axis in each part of the data: the longest ends last.
    ways = [
        [_steps_along(group, line, devices if line is first else 1.0, directions) for line in lines] for first in lines
    ]
    hops = max(sum(count * line.step for count, line in zip(way, lines, strict=True)) for way in ways)
    named = (f"{'rings' if line.closes else 'lines'} along axis {line.axis}" for line in lines)
    together = ", all at once" if len(lines) > 1 else ""
    return _Inside(joined(loads), hops, max(map(sum, ways)), " and ".join(named) + together)


def _steps_along(group: _Group, line: _Line, devices: float, directions: int) -> int:
    """Return the steps along a line, or through so many devices of each of its chips."""
    return group.steps_of(round(len(line.places) * devices), closes=line.closes and directions == 2)


def _balanced(sizes: list[int], peaks: list[float], devices: float = 1.0) -> list[float]:
    """Return the bytes that pass along each axis when the parts are cut so that the slowest axis is done earliest."""
    # A part that takes the axes in some order passes along each of them what it has collected so far. Which share of
    # the data takes which order is a game of the orders against the axes; its best mixed answer is among the square
    # parts of the table (Shapley and Snow, 1950).
    orders = list(permutations(range(len(sizes))))
    volumes = np.array([_volumes(sizes, order, devices) for order in orders]).T
    costs = volumes * np.array(peaks)[:, None]
    best, mix = costs.min(axis=1).max() + costs.max(), np.full(len(orders), 1 / len(orders))
    for count in range(1, len(sizes) + 1):
        for rows, columns in product(combinations(range(len(sizes)), count), combinations(range(len(orders)), count)):
            shares = _equalised(costs[np.ix_(rows, columns)], columns, len(orders))
            # Better by more than rounding, so that the first of equal answers is taken on every host.
            if shares is not None and (costs @ shares).max() < best * (1 - 1e-9):
                best, mix = (costs @ shares).max(), shares
    return [float(volume) for volume in volumes @ mix]


def _equalised(costs: np.ndarray, columns: tuple[int, ...], count: int) -> np.ndarray | None:
    """Return the shares of some orders that make some axes equally slow, None if there are none."""
    size = len(columns)
    table = np.block([[costs, -np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    if abs(np.linalg.det(table)) < 1e-15:
        return None
    found = np.linalg.solve(table, np.append(np.zeros(size), 1.0))[:size]
    if found.min() < -1e-12:
        return None
    shares = np.zeros(count)
    shares[list(columns)] = found
    return shares


def _volumes(sizes: list[int], order: tuple[int, ...], devices: float) -> list[float]:
    """Return the bytes that every chip takes in along each axis when the axes come in this order.

    The rings of the last, which is the first of a reduction, go through so many ``devices`` of each chip.
    """
    volumes, collected = [0.0] * len(sizes), 1
    for axis in order:
        volumes[axis] = (sizes[axis] - 1) * collected / prod(sizes)
        collected *= sizes[axis]
    # Between chips pass all parts but one: the fewer parts are a chip's own, the more pass.
    volumes[order[-1]] = 1 - 1 / (sizes[order[-1]] * devices)
    return volumes


def _gather_profile(torus: Torus, line: _Line, directions: int) -> np.ndarray:
    """Return the share of what a chip takes in along an axis that each link there carries, up and down."""
    size, count = torus.sizes[line.axis], len(line.places)
    profile = np.zeros((size, 2))
    if line.closes:
        profile[:, :directions] = 1 / directions
        return profile
    for number, (here, there) in enumerate(pairwise(line.places), start=1):
        way = np.arange(here, there)
        profile[way % size, 0] = number / (count - 1)
        profile[(way + 1) % size, 1] = (count - number) / (count - 1)
    return profile


def _on_line(torus: Torus, chips: tuple[int, ...], line: _Line, profile: np.ndarray) -> Load:
    """Return the load of a profile (place along the axis, up or down) on all of a block's lines along that axis."""
    stride = torus.strides[line.axis]
    own = np.array([torus.coordinates(chip)[line.axis] for chip in chips])
    starts = np.array(chips)[own == line.places[0]] - line.places[0] * stride
    places, downs = np.nonzero(profile)
    chip = starts[:, None] + places[None, :] * stride
    links = (chip * len(torus.sizes) + line.axis) * 2 + downs[None, :]
    return Load(links.ravel(), np.tile(profile[places, downs], len(starts)))


def _round(torus: Torus, ring: tuple[int, ...], directions: int, share: float) -> tuple[Load, int]:
    """Return the load of a ring of chips, both ways or one, that passes on a share of everything; and its length."""
    length, loads = 0, []
    for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
        length += torus.distance(here, there)
        for a, b in ((here, there), (there, here))[:directions]:
            loads += _routed(torus, a, b, share / directions)
    return joined(loads), length


def _routed(torus: Torus, source: int, target: int, n_bytes: float) -> list[Load]:
    """Return the loads of a message between chips, in equal parts over its shortest ways."""
    routes = [torus.route(source, way) for way in torus.displacements(source, target)]
    return [Load(np.array(route, np.int64), np.full(len(route), n_bytes / len(routes))) for route in routes]


def _exchange_in_pairs(pod: Pod, chips: tuple[int, ...]) -> tuple[Load, int]:
    """Return load and hops of an all-to-all among some chips of a twisted torus: those of each pair, moved there."""
    torus, carried = pod.torus, np.zeros(pod.torus.link_count)
    places = np.array([torus.coordinates(chip) for chip in chips])
    sources, targets = np.nonzero(~np.eye(len(chips), dtype=bool))
    # Pairs as far apart along every axis have the same ways between them: each is looked up once.
    apart = np.ravel_multi_index(
        tuple((places[targets] - places[sources] + torus.sizes).T), tuple(2 * np.array(torus.sizes))
    )
    _, first, which = np.unique(apart, return_index=True, return_inverse=True)
    pairs = zip(sources[first].tolist(), targets[first].tolist(), strict=True)
    ways = [tuple(torus.displacements(chips[source], chips[target])) for source, target in pairs]
    loads = [_from_first(torus, each) for each in ways]
    moves = np.pad(places, ((0, 0), (0, 1)))[sources]
    for part in (slice(begin, begin + _MOST_AT_ONCE) for begin in range(0, len(which), _MOST_AT_ONCE)):
        carried += np.bincount(*moved([loads[number] for number in which[part]], pod, moves[part]), torus.link_count)
    return load_from(carried / len(chips)), max([sum(map(abs, each[0])) for each in ways], default=0)


# Groups of one slice have the same ways between them.
@lru_cache(maxsize=2**14)
def _from_first(torus: Torus, ways: tuple[tuple[int, ...], ...]) -> Load:
    """Return the load of a byte that goes from the first chip on some ways, the same share on each."""
    return joined([load_of(dict.fromkeys(torus.route(0, way), 1 / len(ways))) for way in ways])


def _exchange_twisted(torus: Torus) -> tuple[Load, int]:
    """Return load and hops of an all-to-all on a twisted torus: the same from every chip, so counted from one."""
    counts: dict[tuple[int, bool], float] = defaultdict(float)
    farthest = 0
    for target in range(1, torus.chip_count):
        ways = torus.displacements(0, target)
        for way in ways:
            farthest = max(farthest, sum(map(abs, way)))
            for axis, steps in enumerate(way):
                counts[axis, steps < 0] += abs(steps) / len(ways)
    chips = np.arange(torus.chip_count)
    loads = [
        Load((chips * len(torus.sizes) + axis) * 2 + down, np.full(torus.chip_count, count / torus.chip_count))
        for (axis, down), count in sorted(counts.items())
    ]
    return joined(loads), farthest


_PLANS: dict[str, Callable[[_Group], CommunicationPlan]] = {
    "all-gather": _gather,
    "reduce-scatter": _gather,
    "all-reduce": _reduce,
    "all-to-all": _exchange,
    "ragged-all-to-all": _exchange,
    "collective-broadcast": _broadcast,
}
