"""Where programs run: the pod that they need, the devices of each, and how a run treats them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from operator import sub
from typing import NamedTuple

import msgspec
from msgspec import structs

from tpusim.cost.models.fabrics import build_pod
from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Pod, Topology, default_sizes, parse_topology
from tpusim.program.feed import Feed
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Collective

Groups = tuple[tuple[int, ...], ...]


class RunOptions(msgspec.Struct, frozen=True):
    """How to run: ``warm`` as in ``simulate_program``, within so many seconds of simulated time, at the host's paces.

    ``per_device`` simulates every device (True), one for all (False), or one of each that differs (None).
    """

    warm: bool = False
    per_device: bool | None = None
    timeout_seconds: float | None = None
    infeed: Feed | None = None
    outfeed: Feed | None = None


class DeviceSet(msgspec.Struct, frozen=True):
    """The devices that a program's device numbers mean: ``size`` of them from ``first`` on.

    The program was written for ``stated_size``: what it says of these holds for the others again and again.
    """

    first: int
    size: int
    stated_size: int

    def stated(self, number: int) -> int:
        """Return the number that the program has for a device of the pod."""
        return (number - self.first) % self.stated_size

    def first_beside(self, number: int) -> int:
        """Return the device that the program has number 0 for, in the copy of it that a device runs."""
        return number - self.stated(number)

    def groups_of(self, step: Collective) -> Groups:
        """Return a collective's groups or pairs, as numbers of devices of the pod.

        On a larger machine than the program was compiled for they come again and again with higher numbers: its copies
        exchange nothing.
        """
        groups, own = step.pairs or step.groups or _neighbours(step), self.stated_size
        if own >= self.size:
            # Many steps share the groups of a large slice.
            if not self.first:
                return groups
            starts = range(1)
        else:
            starts = range(0, self.size - own + 1, own)
        return tuple(tuple(self.first + start + number for number in group) for start in starts for group in groups)


def _neighbours(step: Collective) -> Groups:
    """Return groups of neighbours for a step that only says how many there are; a permute goes round each."""
    sizes = range(0, step.group_size * step.group_count, step.group_size)
    groups = tuple(tuple(range(start, start + step.group_size)) for start in sizes)
    if step.kind != "collective-permute":
        return groups
    return tuple(pair for group in groups for pair in zip(group, (*group[1:], group[0]), strict=True))


class Assignment(NamedTuple):
    """What a device runs, and the devices that its program's numbers mean."""

    program: Program
    devices: DeviceSet


class Cohort(msgspec.Struct, frozen=True):
    """Devices that do the same at the same time, so that the first of ``members`` is simulated for all."""

    members: tuple[int, ...]
    program: Program
    devices: DeviceSet

    @property
    def number(self) -> int:
        """The device that is simulated."""
        return self.members[0]

    @property
    def each(self) -> list[Cohort]:
        """Its members, each by itself."""
        return [Cohort((number,), self.program, self.devices) for number in self.members]

    def place_of(self, step: AnyStep | None) -> str:
        """Return a step's name with its file and line, as messages name where a device is."""
        if step is None:
            return "its start"
        file = self.program.file or self.program.name
        return f"{step.opcode} {step.name!r} ({file}:{step.line})" if step.line else f"{step.opcode} {step.name!r}"


def pod_of(programs: Sequence[Program], chip: Chip, topology: Topology | None) -> Pod:
    """Return the pod that programs run on: of ``topology``, or of as many chips as they need in their usual shape.

    Raises ConfigError if groups, pairs or the chip's figures name devices that it does not have.
    """
    needed = devices_needed(programs)
    count = needed if topology is None else topology.chip_count * chip.devices_per_chip
    if count < needed:
        raise ConfigError(f"topology: groups and pairs of the program name {needed} devices, this slice has {count}")
    topology = topology or _own_slices(programs, chip) or usual_slice(needed, chip)
    pod = build_pod(topology, chip, along_ring=_lie_along_ring(programs, chip, topology))
    if (named := max(map(int, chip.devices), default=0)) >= pod.device_count:
        there = f"0 to {pod.device_count - 1}" if pod.device_count > 1 else "0"
        raise ConfigError(f"devices: expected a device of this slice, which has {there}, found {named}")
    return pod


def _own_slices(programs: Sequence[Program], chip: Chip) -> Topology | None:
    """Return slices of which each program has those that it has alone, if these are alike and programs do not meet."""
    own = [
        (start, stated_slice(program, chip) or usual_slice(program.devices_needed, chip))
        for start, program in _wide(programs, chip)
    ]
    if not own or (len(programs) > 1 and any(map(_meets_others, programs))):
        return None
    first = own[0][1]
    devices = prod(first.sizes) * chip.devices_per_chip
    if any(start % devices or (one.sizes, one.twist) != (first.sizes, first.twist) for start, one in own):
        return None
    return structs.replace(first, slices=-(-devices_needed(programs) // devices))


def _wide(programs: Sequence[Program], chip: Chip) -> list[tuple[int, Program]]:
    """Return the programs that one chip is too few for, each with its first device."""
    starts = accumulate((program.device_count for program in programs), initial=0)
    pairs = zip(starts, programs, strict=False)
    return [(start, program) for start, program in pairs if program.devices_needed > chip.devices_per_chip]


def _meets_others(program: Program) -> bool:
    """Return whether a program may exchange something with those beside it."""
    return bool(program.channel_ends) or program.devices_needed > program.device_count


def _lie_along_ring(programs: Sequence[Program], chip: Chip, topology: Topology) -> bool:
    """Return whether the devices of a slice are numbered along a ring, as of each program on it alone."""
    # Programs that share a slice, copies of one too, have none of them its ring.
    devices = prod(topology.sizes) * chip.devices_per_chip
    wide = _wide(programs, chip)
    return bool(wide) and all(
        not program.device_order
        and start % devices == program.devices_needed % devices == 0
        and _has_one_axis(program, program.devices_needed)
        for start, program in wide
    )


def moved_by_others(programs: Sequence[Program], chip: Chip, pod: Pod) -> Iterator[str]:
    """Yield a warning for each program whose devices lie otherwise than they do without the programs beside it."""
    if len(programs) == 1:
        return
    for start, program in _wide(programs, chip):
        alone = pod_of([program], chip, None)
        if not _lie_alike(pod, start, alone, program.devices_needed):
            sizes, own = ("x".join(map(str, one.torus.sizes)) for one in (pod, alone))
            yield (
                f"{program.name}: beside others its {program.devices_needed} devices lie on {sizes} chips, numbered "
                f"from {start} on, and not as alone on {own}: what they exchange may take longer"
            )


def _lie_alike(pod: Pod, start: int, alone: Pod, devices: int) -> bool:
    """Return whether so many devices from ``start`` on lie to each other as the first ones of another pod do."""
    has_rings = any(wraps and size > 1 for size, wraps in zip(alone.torus.sizes, alone.torus.wraps, strict=True))
    if has_rings and pod.torus != alone.torus:
        return False
    shifts = set()
    for number in range(devices):
        here, there = pod.place_of(start + number), alone.place_of(number)
        moved = map(sub, here.coordinates, there.coordinates)
        shifts.add((here.slice_number - there.slice_number, here.on_chip - there.on_chip, *moved))
    return len(shifts) == 1


def usual_slice(devices: int, chip: Chip) -> Topology:
    """Return the usual shape of the chips of so many devices, of as few slices as they fit on."""
    chips = -(-devices // chip.devices_per_chip)
    slices = -(-chips // chip.pod.chips)
    return Topology(default_sizes(-(-chips // slices), chip), slices=slices)


def is_order_open(programs: Sequence[Program], pod: Pod) -> bool:
    """Return whether a program states no order of its devices, and meets others in that of ``jax.devices()``."""
    if len(programs) > 1 or programs[0].device_order or programs[0].devices_needed != pod.device_count:
        return False
    each = pod.devices_per_chip
    taken = [pod.chip_of(device) * each + device % each for device in range(pod.device_count)]
    listed = structs.replace(pod, order=tuple(sorted(pod.order))).by_host
    if list(listed) == taken:
        return False
    meetings = {met for step in programs[0].collectives for met in (step.groups, step.pairs)}
    meetings |= {step.pairs or () for step in programs[0].channel_ends}
    return any(_met(groups, taken) != _met(groups, listed) for groups in meetings)


def _met(groups: Sequence[Sequence[int]], devices: Sequence[int]) -> set[frozenset[int]]:
    """Return the groups of the devices that some numbers stand for."""
    return {frozenset(devices[number] for number in group) for group in groups}


def stated_slice(program: Program, chip: Chip) -> Topology | None:
    """Return the slice that a program was compiled for, if it says so and there is one of so many devices of a chip."""
    return fitting_slice(program.topology, program.devices_needed, chip)


def fitting_slice(name: str, devices: int, chip: Chip) -> Topology | None:
    """Return the slice of a name, which may be empty, if there is one of so many devices of a chip."""
    if not name:
        return None
    stated = structs.replace(parse_topology(name), chip="")
    stated = stated if chip.pod.twists else structs.replace(stated, twist="")
    fits = len(stated.sizes) <= max(1, chip.ici.dimensions) and prod(stated.sizes) <= chip.pod.chips
    return stated if fits and stated.chip_count * chip.devices_per_chip == devices else None


def devices_needed(programs: Sequence[Program]) -> int:
    """Return how many devices programs need: as many as they are for, and as their groups and pairs name."""
    return max(sum(program.device_count for program in programs), *(program.devices_needed for program in programs))


def assign(programs: Sequence[Program], device_count: int) -> list[Assignment]:
    """Return for every device its program and the devices that its groups are among.

    One program runs on all devices. Of several each runs on as many as it is for, one after the other, and its groups
    are among those; a program for one device may name any. Raises ProgramError for one for several that names others.
    """
    if len(programs) == 1:
        all_of_them = DeviceSet(0, device_count, programs[0].devices_needed)
        return [Assignment(programs[0], all_of_them)] * device_count
    assigned: list[Assignment] = []
    for program in programs:
        count, named = program.device_count, program.devices_needed
        if 1 < count < named:
            raise ProgramError(f"{program.name}: groups and pairs name {named} devices, the program is for {count}")
        own = DeviceSet(len(assigned), count, count) if count > 1 else DeviceSet(0, device_count, device_count)
        assigned += [Assignment(program, own)] * count
    return assigned


def devices_of(program: Program, run_on: int) -> DeviceSet:
    """Return the devices that a program's numbers mean on so many devices, or on as many more as it needs."""
    return assign([program], max(run_on, program.devices_needed))[0].devices


def _has_one_axis(program: Program, device_count: int) -> bool:
    """Return whether all that devices exchange is along a single axis of all: JAX lays such a mesh along a ring."""
    sent = {step.pairs for step in program.collectives if step.pairs}
    sent |= {step.pairs for step in program.channel_ends if step.pairs}
    groups = [step for step in program.collectives if not step.pairs]
    if not sent and not groups:
        return False
    return all(is_one_line(pairs, device_count) for pairs in sent) and all(
        len(step.groups) == 1 or step.group_size == program.devices_needed for step in groups
    )


def meetings_of(program: Program) -> tuple[Collective, ...]:
    """Return a few of a program's collectives that have its devices lie as all of them do, and be told apart so."""
    needed = program.devices_needed
    lines = {pairs: is_one_line(pairs, needed) for pairs in {step.pairs for step in program.collectives}}
    found: dict[tuple[object, ...], Collective] = {}
    for step in program.collectives:
        is_one = lines[step.pairs] if step.pairs else len(step.groups) == 1 or step.group_size == needed
        key = step.kind == "collective-permute", bool(step.pairs), is_one
        found[key] = max(found.get(key, step), step, key=lambda one: one.devices_needed)
    return tuple(found.values())


def is_one_line(pairs: Sequence[tuple[int, int]], device_count: int) -> bool:
    """Return whether pairs form one cycle or one chain over all devices."""
    follower = dict(pairs)
    targets = set(follower.values())
    if len(follower) != len(pairs) or len(targets) != len(pairs) or len(pairs) < device_count - 1:
        return False
    # A chain begins at the device that nothing is sent to; in a cycle any will do.
    number = next((source for source in follower if source not in targets), pairs[0][0] if pairs else 0)
    seen = {number}
    while follower.get(number, number) not in seen:
        number = follower[number]
        seen.add(number)
    return len(seen) == device_count
