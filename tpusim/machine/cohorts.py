"""Which devices do the same at the same time, so that simulating one of them is simulating all.

A single program in which all have as far to go is simulated on one device, under the traffic of all. Else devices are
put together that have the same program, the same branches and the same ways in it. Whether they really keep in step
shows during the run: if a wait ends earlier for some of a cohort than for others, the run begins again with these
apart. So the result is that of a run of every device.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tpusim.machine.costs import chosen_values
from tpusim.program.module import every_step
from tpusim.program.steps import Branch, ChannelTransfer, Collective, Copy, HostTransfer, Kernel, Loop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.machine.core import RunOptions
    from tpusim.machine.costs import Costs, Team
    from tpusim.program.module import Program
    from tpusim.program.steps import AnyStep


Cohorts = list[tuple[int, ...]]
"""Devices that are simulated together, of each the first; the others are those of its tuple."""


MOST_SIMPLE_SPLITS = 6
"""After so many runs that ended in a split, one more is expected of everybody whom it may concern."""


class Split(NamedTuple):
    """What ended a run: when a wait in a collective ended for members of one cohort; none if they wait for ever."""

    step: Collective | None
    ends_ps: dict[int, int]


MOST_APART, MOST_COHORTS = 256, 32
"""Up to so many devices are run however much they differ; of more devices so many cohorts. Where there are more for the
ways of their bytes alone, one device stands for all, as slow as the slowest, and a warning says so."""

MOST_LOOSE = 256
"""In larger pods every split is dear: there cohorts are cut for all that might part them."""


def cohorts_of(
    costs: Costs, assigned: Sequence[tuple[Program, Team]], options: RunOptions
) -> tuple[Cohorts, tuple[str, ...]]:
    """Return which devices are simulated together, the first by itself for all, and a warning if they are not alike."""
    each = options.apart or _draw_differently(assigned, options)
    if options.apart is False or (not each and one_is_enough(assigned)):
        return [(0,)], ()
    cohorts = [] if each else first_cohorts(costs, assigned, loose=len(assigned) <= MOST_LOOSE)
    if len(cohorts) == 1 and _is_one_program(assigned) and len(first_cohorts(costs, assigned)) == 1:
        return [(0,)], ()
    if may_collapse(cohorts, assigned):
        return collapsed(cohorts)
    return (cohorts if may_share(assigned, options) else [(number,) for number in range(len(assigned))]), ()


def collapsed(cohorts: Cohorts) -> tuple[Cohorts, tuple[str, ...]]:
    """Return the first device for all of some cohorts, and a warning that says so."""
    count = sum(map(len, cohorts))
    return [(0,)], (
        f"device 0 stands for all {count:,}, which go at least {len(cohorts):,} different ways in collectives: each is "
        "taken to last as long as the longest of them",
    )


def may_share(assigned: Sequence[tuple[Program, Team]], options: RunOptions) -> bool:
    """Tell whether devices may be simulated together: not if they wait for single others, or for hosts of their own."""
    if options.apart or options.infeed is not None or options.outfeed is not None:
        return False
    programs = {id(program): program for program, _ in assigned}.values()
    steps = [step for program in programs for step in every_step(program.steps)]
    return not any(isinstance(step, ChannelTransfer) or meets_host(step) for step in steps)


def _draw_differently(assigned: Sequence[tuple[Program, Team]], options: RunOptions) -> bool:
    """Tell whether the hosts of some devices take times of their own at the queues that a program uses."""
    spread = {True: options.outfeed, False: options.infeed}
    feeds = {to_host for to_host, feed in spread.items() if feed is not None and feed.has_spread}
    programs = {id(program): program for program, _ in assigned}.values() if feeds else ()
    steps = (step for program in programs for step in every_step(program.steps))
    return any(isinstance(step, HostTransfer) and not step.is_async and step.to_host in feeds for step in steps)


def meets_host(step: AnyStep) -> bool:
    """Tell whether a step uses the link to the host, which devices of a chip share whatever else they do."""
    if isinstance(step, Copy):
        return "host" in (step.source_space, step.target_space)
    return isinstance(step, HostTransfer) or (
        isinstance(step, Kernel) and any(stream.space == "host" for stream in step.streams)
    )


def first_cohorts(costs: Costs, assigned: Sequence[tuple[Program, Team]], *, loose: bool = False) -> Cohorts:
    """Return the devices put together by what is known before the run.

    A ``loose`` cohort may have different ways in permutes that run beside the core: who does not wait for one has no
    part from whom it ends earlier for.
    """
    found: dict[object, list[int]] = defaultdict(list)
    programs = {id(program): program for program, _ in assigned}
    steps = {key: (_collectives(program), _choosers(program)) for key, program in programs.items()}
    for number, (program, team) in enumerate(assigned):
        collectives, choosers = steps[id(program)]
        ways = tuple(_farness(costs, team, step, number) for step in collectives if not (loose and _is_beside(step)))
        choices = tuple(chosen_values(step, number, team) for step in choosers)
        found[id(program), team, ways, choices].append(number)
    return [tuple(members) for members in found.values()]


def one_is_enough(assigned: Sequence[tuple[Program, Team]]) -> bool:
    """Tell at a glance whether one device can stand for all: one program, without permutes and choices."""
    steps = list(every_step(assigned[0][0].steps))
    permutes = any(isinstance(step, Collective) and step.kind == "collective-permute" for step in steps)
    return _is_one_program(assigned) and not permutes and not _choices_differ(assigned)


def _is_one_program(assigned: Sequence[tuple[Program, Team]]) -> bool:
    """Tell whether all devices run one program, without messages to single others."""
    first = assigned[0][0]
    messages = any(isinstance(step, ChannelTransfer) for step in every_step(first.steps))
    return not messages and all(program is first for program, _ in assigned)


def may_collapse(cohorts: Cohorts, assigned: Sequence[tuple[Program, Team]]) -> bool:
    """Tell whether cohorts are too many to run and differ in nothing but the ways of their bytes."""
    return too_many(cohorts) and _is_one_program(assigned) and not _choices_differ(assigned)


def _choices_differ(assigned: Sequence[tuple[Program, Team]]) -> bool:
    """Tell whether devices that run one program go through its loops and branches in different ways."""
    program, team = assigned[0]
    devices = range(len(assigned))
    return any(
        len({chosen_values(step, number, team) for number in devices}) > 1
        for step in _choosers(program)
        if len(step.choices) > 1 or step.choices[0].devices
    )


def _is_beside(step: Collective) -> bool:
    """Tell whether a collective is a permute that runs beside the core."""
    return step.is_async and step.kind == "collective-permute"


def too_many(cohorts: Cohorts) -> bool:
    """Tell whether running one device of each cohort would take too long."""
    return len(cohorts) > MOST_COHORTS and sum(map(len, cohorts)) > MOST_APART


def _choosers(program: Program) -> list[Loop | Branch]:
    """Return the loops and branches of a program that devices go through in different ways."""
    return [step for step in every_step(program.steps) if isinstance(step, Loop | Branch) and step.choices]


def _collectives(program: Program) -> list[Collective]:
    """Return collectives of a program that stand for all that go the same ways."""
    steps = (step for step in every_step(program.steps) if isinstance(step, Collective))
    return list({(step.kind, step.groups, step.pairs, step.algorithm, step.is_async): step for step in steps}.values())


def _farness(costs: Costs, team: Team, step: Collective, number: int) -> tuple[object, ...]:
    """Return what a device's part in a collective depends on."""
    ways = [costs.way(team, step, place) for place in costs.places(team, step, number)]
    return tuple(sorted((way.hops, way.far_hops, way.relayed, way.carried) for way in ways))


def refined(costs: Costs, teams: Sequence[Team], cohorts: Cohorts, split: Split, *, deep: bool = True) -> Cohorts:
    """Return cohorts cut by when a wait of their members ended; a ``deep`` cut also goes by whom they were with.

    Who waits for somebody that is late will be late himself the next time: all of that is cut at once, so that the run
    does not have to begin again for each.
    """
    colours = {number: place for place, members in enumerate(cohorts) for number in members}
    colours = _numbered({number: (colour, split.ends_ps.get(number)) for number, colour in colours.items()})
    while deep and split.step is not None:
        before = len(set(colours.values()))
        partners = _partners(costs, teams, split.step, colours)
        colours = _numbered({number: (colour, partners[number]) for number, colour in colours.items()})
        if len(set(colours.values())) == before:
            break
    found: dict[int, list[int]] = defaultdict(list)
    for number in sorted(colours):
        found[colours[number]].append(number)
    return [tuple(members) for members in found.values()]


def _partners(
    costs: Costs, teams: Sequence[Team], step: Collective, colours: Mapping[int, int]
) -> dict[int, list[object]]:
    """Return for every device the colours of those that it is with in a collective, and its own place among them."""
    found: dict[int, list[object]] = {number: [] for number in colours}
    for team in dict.fromkeys(teams):
        for group in costs.groups(team, step):
            present = tuple(colours.get(member, -1) for member in group)
            alike = tuple(sorted(present)) if step.kind != "collective-permute" else present
            for place, member in enumerate(dict.fromkeys(group)):
                if member in found:
                    found[member].append((place if step.kind == "collective-permute" else 0, alike))
    return {number: sorted(parts) for number, parts in found.items()}  # type: ignore[type-var]


def _numbered(colours: Mapping[int, object]) -> dict[int, int]:
    """Return colours as numbers, in the order of the devices."""
    numbers: dict[object, int] = {}
    return {number: numbers.setdefault(repr(colour), len(numbers)) for number, colour in sorted(colours.items())}
