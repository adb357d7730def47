"""Which devices do the same at the same time, so that simulating one of them is simulating all.

A single program in which all have the same distances to go, and share links alike, is simulated on one device, under
the traffic of all. Else devices are put together that have the same program, the same choices and the same distances.
Whether they really keep in step shows during the run: if a wait ends earlier for some of a cohort than for others, the
run begins again with these in cohorts of their own. So the result is that of a run of every device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from tpusim.machine.costs import Costs
from tpusim.machine.placement import Assignment, DeviceSet, RunOptions
from tpusim.program.module import Program
from tpusim.program.overlap import overlapping_collectives
from tpusim.program.steps import Collective

Cohorts = list[tuple[int, ...]]
"""Devices that are simulated together, of each the first; the others are those of its tuple."""

ONE_FOR_ALL: Cohorts = [(0,)]
"""The first device alone, which stands for all."""

MOST_SIMPLE_SPLITS = 6
"""After so many runs that ended in a split, one more is expected of all devices that it may concern."""

MOST_SIMULATED, MOST_COHORTS = 256, 32
"""Up to so many devices are run however much they differ; of more devices so many cohorts. Where there are more for the
distances of their bytes alone, one device stands for all, as slow as the slowest, and a warning says so."""

MOST_COARSE = 256
"""In larger pods every split is dear: there cohorts are cut for all that might split them."""


class Split(msgspec.Struct, frozen=True):
    """What ended a run: when a wait in a collective ended for members of one cohort; no step if they wait for ever."""

    step: Collective | None
    ends_ps: dict[int, int]


def cohorts_of(costs: Costs, assigned: Sequence[Assignment], options: RunOptions) -> tuple[Cohorts, tuple[str, ...]]:
    """Return which devices are simulated together, and a warning if they are not alike."""
    each = options.per_device or _paces_differ(assigned, options)
    permutes = any(step.kind == "collective-permute" for step in assigned[0].program.collectives)
    # Seen at a glance: one program, without permutes and choices, on devices that are alike and in groups that are.
    is_plain = not (each or permutes or _rates_differ(costs, assigned)) and _is_one_program(assigned)
    if options.per_device is False or (
        is_plain and not _choices_differ(costs, assigned) and _are_groups_alike(costs, assigned)
    ):
        return ONE_FOR_ALL, ()
    cohorts = [] if each else _first_cohorts(costs, assigned, coarse=len(assigned) <= MOST_COARSE)
    is_one = len(cohorts) == 1 and _is_one_program(assigned) and len(_first_cohorts(costs, assigned)) == 1
    if is_one and _meet_alike(costs, assigned):
        return ONE_FOR_ALL, ()
    if may_collapse(costs, cohorts, assigned):
        return collapsed(cohorts)
    return (cohorts if _may_share(assigned, options) else apart(assigned)), ()


def apart(assigned: Sequence[Assignment]) -> Cohorts:
    """Return every device by itself."""
    return [(number,) for number in range(len(assigned))]


def collapsed(cohorts: Cohorts) -> tuple[Cohorts, tuple[str, ...]]:
    """Return the first device for all of some cohorts, and a warning that says so."""
    count = sum(map(len, cohorts))
    return ONE_FOR_ALL, (
        f"device 0 stands for all {count:,}, which go at least {len(cohorts):,} different ways in collectives: each is "
        "taken to last as long as the longest of them",
    )


def may_collapse(costs: Costs, cohorts: Cohorts, assigned: Sequence[Assignment]) -> bool:
    """Return whether cohorts are too many to run and differ in nothing but the distances of their bytes."""
    too_many = len(cohorts) > MOST_COHORTS and sum(map(len, cohorts)) > MOST_SIMULATED
    if not too_many or _rates_differ(costs, assigned):
        return False
    return _is_one_program(assigned) and not _choices_differ(costs, assigned)


def _rates_differ(costs: Costs, assigned: Sequence[Assignment]) -> bool:
    """Return whether some devices are slower than others."""
    return bool(costs.chip.devices) and len(set(map(costs.rates_of, range(len(assigned))))) > 1


def _programs(assigned: Iterable[Assignment]) -> list[Program]:
    return list({id(each.program): each.program for each in assigned}.values())


def _may_share(assigned: Sequence[Assignment], options: RunOptions) -> bool:
    """Return whether one device may be simulated for others: not where they wait for single others, or for the host."""
    if options.per_device or options.infeed is not None or options.outfeed is not None:
        return False
    return not any(program.channel_ends or program.uses_host for program in _programs(assigned))


def _paces_differ(assigned: Sequence[Assignment], options: RunOptions) -> bool:
    """Return whether the hosts of some devices take times of their own at the queues that a program uses."""
    paces = {True: options.outfeed, False: options.infeed}
    spread = {to_host for to_host, pace in paces.items() if pace is not None and pace.has_spread}
    return bool(spread) and any(step.to_host in spread for program in _programs(assigned) for step in program.feeds)


def _is_one_program(assigned: Sequence[Assignment]) -> bool:
    """Return whether all devices run one program, without messages to single others."""
    programs = _programs(assigned)
    return len(programs) == 1 and not programs[0].channel_ends


def _choices_differ(costs: Costs, assigned: Sequence[Assignment]) -> bool:
    """Return whether devices that run one program go through its loops and branches in different ways."""
    program, devices = assigned[0]
    return any(
        len({costs.chosen_values(step, devices, number) for number in range(len(assigned))}) > 1
        for step in program.choosers
        if len(step.choices) > 1 or step.choices[0].devices
    )


def _are_groups_alike(costs: Costs, assigned: Sequence[Assignment]) -> bool:
    """Return whether in every collective of a program all groups ask as much of the network, and get as much of it."""
    program, devices = assigned[0]
    each = _distinct_collectives(program, coarse=False)
    return all(costs.are_alike(step, devices) for step in each) and _meet_alike(costs, assigned)


def _meet_alike(costs: Costs, assigned: Sequence[Assignment]) -> bool:
    """Return whether all groups of each collective share links in the same way, with each other and with other ones.

    Of more devices than can be run one by one this is taken to be so.
    """
    if len(assigned) > MOST_SIMULATED:
        return True
    program, devices = assigned[0]
    alone = all(costs.meet_alike([step], devices) for step in _distinct_collectives(program, coarse=False))
    return alone and costs.meet_alike(overlapping_collectives(program), devices)


def _first_cohorts(costs: Costs, assigned: Sequence[Assignment], *, coarse: bool = False) -> Cohorts:
    """Return the devices put together by what is known before the run."""
    # A ``coarse`` cohort may have different distances in permutes that run beside the core: a device that does not wait
    # for one need not part from those for which it ends earlier.
    together: dict[object, list[int]] = defaultdict(list)
    for number, (program, devices) in enumerate(assigned):
        together[id(program), devices].append(number)
    ways = {own: _ways(costs, *assigned[numbers[0]], numbers, coarse=coarse) for own, numbers in together.items()}
    found: dict[object, list[int]] = defaultdict(list)
    for number, (program, devices) in enumerate(assigned):
        own = id(program), devices
        choices = tuple([costs.chosen_values(step, devices, number) for step in program.choosers])
        found[own, ways[own][number], choices, costs.rates_of(number)].append(number)
    return [tuple(members) for members in found.values()]


def _ways(
    costs: Costs, program: Program, devices: DeviceSet, numbers: Iterable[int], *, coarse: bool
) -> dict[int, int]:
    """Return for each of some devices of a program a number: the same where all collectives have the same distances."""
    found = dict.fromkeys(numbers, 0)
    # One after the other: those of thousands of devices in hundreds of collectives would be a hundred megabytes.
    for step in _distinct_collectives(program, coarse=coarse):
        distances, names = costs.distances(step, devices), dict[object, int]()
        found = {number: names.setdefault((way, distances.get(number)), len(names)) for number, way in found.items()}
    return found


def _distinct_collectives(program: Program, *, coarse: bool) -> list[Collective]:
    """Return one collective for all with the same distances; coarsely no permutes that run beside the core."""
    return list(
        {
            (step.kind, step.groups, step.pairs, step.algorithm, step.is_async): step
            for step in program.running_collectives
            if not (coarse and step.is_async and step.kind == "collective-permute")
        }.values()
    )


def refined(
    costs: Costs, assigned: Sequence[Assignment], cohorts: Cohorts, split: Split, *, deep: bool = True
) -> Cohorts:
    """Return cohorts cut by when a wait of their members ended; a ``deep`` cut goes by their groups as well.

    A device that waits for a late one will be late itself the next time: all of that is cut at once, so that the run
    does not have to begin again for each.
    """
    colours = {number: place for place, members in enumerate(cohorts) for number in members}
    colours = _numbered({number: (colour, split.ends_ps.get(number)) for number, colour in colours.items()})
    if deep and split.step is not None:
        sets = {each.devices for each in assigned}
        groups = [group for devices in sets for group in costs.groups(split.step, devices)]
        colours = _settled(colours, groups, is_ordered=split.step.kind == "collective-permute")
    found: dict[int, list[int]] = defaultdict(list)
    for number in sorted(colours):
        found[colours[number]].append(number)
    return [tuple(members) for members in found.values()]


def _numbered(colours: Mapping[int, Hashable]) -> dict[int, int]:
    numbers: dict[Hashable, int] = {}
    return {number: numbers.setdefault(colour, len(numbers)) for number, colour in sorted(colours.items())}


def _settled(colours: dict[int, int], groups: Sequence[tuple[int, ...]], *, is_ordered: bool) -> dict[int, int]:
    """Return colours cut until devices of the same one meet the same colours, where it ``is_ordered`` at one place.

    The larger part of what is cut keeps its colour, so that only what meets the smaller ones is looked at again: a long
    line is cut from its ends as often as it has devices.
    """
    colours = dict(colours)
    places: dict[int, list[tuple[int, int]]] = {number: [] for number in colours}
    for index, group in enumerate(groups):
        for place, member in enumerate(dict.fromkeys(group)):
            if member in places:
                places[member].append((place if is_ordered else 0, index))
    members: dict[int, set[int]] = defaultdict(set)
    for number, colour in colours.items():
        members[colour].add(number)
    # Numbers for the colours in a group: of a large group every member asks for them.
    names: dict[tuple[int, ...], int] = {}
    seen = [0] * len(groups)
    stale: Iterable[int] = range(len(groups))
    while stale:
        for index in stale:
            present = [colours.get(member, -1) for member in groups[index]]
            seen[index] = names.setdefault(tuple(present if is_ordered else sorted(present)), len(names))
        met = {member for index in stale for member in groups[index] if member in colours}
        parts: dict[int, dict[Hashable, set[int]]] = defaultdict(lambda: defaultdict(set))
        for member in met:
            parts[colours[member]][tuple(sorted([(place, seen[index]) for place, index in places[member]]))].add(member)
        moved = [part for colour, cut in parts.items() for part in _cut_off(members[colour], cut.values())]
        for part in moved:
            members[colours[min(part)]] -= part
            new = len(members)
            members[new] = part
            colours.update(dict.fromkeys(part, new))
        stale = {index for part in moved for member in part for _, index in places[member]}
    return colours


def _cut_off(whole: set[int], parts: Iterable[set[int]]) -> list[set[int]]:
    """Return all but the largest of the parts of a whole; what is in none of them is one as well."""
    pieces = sorted(parts, key=len)
    rest = len(whole) - sum(map(len, pieces))
    if not rest:
        return pieces[:-1]
    return pieces if rest >= len(pieces[-1]) else [*pieces[:-1], whole.difference(*pieces)]
