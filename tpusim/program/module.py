"""A lowered program: its steps, its buffers, and what lowering could not treat by a rule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from tpusim.nesting import depth_first
from tpusim.program.buffers import Buffer
from tpusim.program.provenance import Provenance, Schedule
from tpusim.program.steps import (
    AnyStep,
    Branch,
    Call,
    ChannelTransfer,
    Collective,
    Copy,
    HostTransfer,
    Kernel,
    Loop,
    meets_host,
)

FORMAT = "tpusim-program-2"


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An instruction whose time was estimated without a rule of its own, and how."""

    name: str
    opcode: str
    how: str


class Program(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """What the machine runs, and what is asked of it again and again, computed once.

    ``chip`` is the name of the chip it was lowered for, ``figures`` by key those of it that are not as it ships,
    ``follows_from`` the keys of those that its steps were worked out from, and ``file`` what the lines count in.

    ``argument_bytes`` and ``output_bytes`` are physical: tiles padded, a tuple result's table of addresses included.
    ``alias_bytes`` are those of outputs that are written over arguments. ``schedule`` names the instruction at each
    position that buffers count in: what a loop, call or conditional runs stands before it. ``topology`` is the slice
    that it was compiled for, ``whose_schedule`` what was made of its text before it was lowered, and ``device_order``
    says which device of it each of the program is, where that is known: the numbers in its steps are those of the
    slice.
    """

    name: str
    chip: str
    figures: dict[str, bool | int | float | str | tuple[str, ...]] = {}
    follows_from: tuple[str, ...] = ()
    steps: tuple[AnyStep, ...]
    buffers: tuple[Buffer, ...] = ()
    schedule: tuple[str, ...] = ()
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    temp_bytes: int = 0
    device_count: int = 1
    unsupported: tuple[Estimate, ...] = ()
    warnings: tuple[str, ...] = ()
    file: str = ""
    provenance: Provenance | None = None
    whose_schedule: Schedule = "given"
    topology: str = ""
    device_order: tuple[int, ...] = ()
    format: str = FORMAT

    @cached_property
    def every_step(self) -> tuple[AnyStep, ...]:
        """All steps, those of branches that are not taken included, outer before inner."""
        return tuple(every_step(self.steps))

    @cached_property
    def every_list(self) -> tuple[tuple[AnyStep, ...], ...]:
        """The lists of steps: the program's own, and those that steps hold, once for each step that holds them."""
        return self.steps, *(listed for step in self.every_step for listed in inner_lists(step))

    @cached_property
    def step_numbers(self) -> dict[int, int]:
        """The place of each step in ``every_step``, by its identity."""
        return {id(step): number for number, step in enumerate(self.every_step)}

    @cached_property
    def shared_lists(self) -> frozenset[int]:
        """The identities of lists of steps that several steps hold."""
        held = Counter(id(listed) for step in self.every_step for listed in inner_lists(step))
        return frozenset(listed for listed, count in held.items() if count > 1)

    @cached_property
    def _by_kind(self) -> Mapping[type, tuple[Any, ...]]:
        """The steps of each kind, in their order: most programs have none of most kinds."""
        found: dict[type, list[AnyStep]] = defaultdict(list)
        for step in self.every_step:
            found[type(step)].append(step)
        return {kind: tuple(steps) for kind, steps in found.items()}

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Steps in which groups of devices communicate."""
        return self._by_kind.get(Collective, ())

    @cached_property
    def running_collectives(self) -> tuple[Collective, ...]:
        """Those of them that some device runs: of a loop without a trip none."""
        lists = _times(self.steps, _most_children) if self.collectives else ()
        return tuple(step for listed, times in lists if times for step in listed if isinstance(step, Collective))

    @property
    def channel_ends(self) -> tuple[ChannelTransfer, ...]:
        """Sends to, and receives from, single other devices."""
        return self._by_kind.get(ChannelTransfer, ())

    @cached_property
    def feeds(self) -> tuple[HostTransfer, ...]:
        """Infeeds and outfeeds: what goes through the queues of the host, at its pace."""
        # Transfers over channels to the host run beside the core, at no pace but the link's.
        return tuple(step for step in self._by_kind.get(HostTransfer, ()) if not step.is_async)

    @cached_property
    def choosers(self) -> tuple[Loop | Branch, ...]:
        """Loops and branches that devices go through in different ways, or in another way at each visit."""
        return tuple(step for kind in (Loop, Branch) for step in self._by_kind.get(kind, ()) if step.choices)

    @cached_property
    def uses_host(self) -> bool:
        """Whether some step uses the link to the host, which the devices of a chip share."""
        return any(meets_host(step) for kind in (HostTransfer, Copy, Kernel) for step in self._by_kind.get(kind, ()))

    @cached_property
    def devices_needed(self) -> int:
        """Devices that the program is for, or those that its groups and pairs name if they are more."""
        sent = [1 + max(pair) for step in self.channel_ends for pair in step.pairs or ()]
        return max([self.device_count, *(step.devices_needed for step in self.collectives), *sent])


def walk(steps: tuple[AnyStep, ...], count: int = 1) -> Iterator[tuple[AnyStep, int]]:
    """Yield every step that runs, outer before inner, with the number of times that it does.

    Steps that several others run come once, with all of their times.
    """
    return ((step, times) for listed, times in _times(steps, children, count) for step in listed)


def written_steps(program: Program) -> int:
    """Return how many steps a program has where those that several hold count for each of them."""
    held = _times(program.steps, lambda step: [(inner, 1) for inner in inner_lists(step)])
    return sum(len(listed) * times for listed, times in held)


def most_executions(program: Program) -> int:
    """Return how often the step of a program may run that runs most often, whatever devices choose at each visit."""
    return max((times for listed, times in _times(program.steps, _most_children) if listed), default=0)


def _most_children(step: AnyStep) -> _Lists:
    """Return the lists of steps that a step may run, each with the most times that it does."""
    if not isinstance(step, Loop | Branch) or not step.choices:
        return children(step)
    chosen = {number for choice in step.choices for number in choice.values}
    if isinstance(step, Branch):
        return [(branch, 1) for number, branch in enumerate(step.branches) if number in chosen | {step.taken}]
    trips = max(chosen | {step.trips})
    return ((step.condition, trips + 1), (step.body, trips))


_Lists = Sequence[tuple[tuple[AnyStep, ...], int]]
"""Lists of steps, each with a number of times."""

_Held = Callable[[AnyStep], _Lists]
"""The lists of steps that a step holds."""


def _times(steps: tuple[AnyStep, ...], held: _Held, count: int = 1) -> list[tuple[tuple[AnyStep, ...], int]]:
    """Return some steps and all lists of steps held in them, each once and before those within it, with its times."""
    found: dict[int, tuple[tuple[AnyStep, ...], _Lists]] = {}
    waiting: list[tuple[tuple[AnyStep, ...], _Lists | None]] = [(steps, None)]
    while waiting:
        listed, inner = waiting.pop()
        if inner is not None:
            found[id(listed)] = listed, inner
        elif id(listed) not in found:
            inner = [pair for step in listed for pair in held(step)]
            waiting.append((listed, inner))
            waiting += [(one, None) for one, _ in inner]
    # Trips are a factor, not a loop: ten million of them walk as fast as ten.
    times = dict.fromkeys(found, 0) | {id(steps): count}
    inner_last = list(reversed(found.values()))
    for listed, inner in inner_last:
        for one, each in inner:
            times[id(one)] += each * times[id(listed)]
    return [(listed, times[id(listed)]) for listed, _ in inner_last]


def children(step: AnyStep) -> tuple[tuple[tuple[AnyStep, ...], int], ...]:
    """Return the lists of steps that a step runs, each with how often it runs them."""
    if isinstance(step, Loop):
        # The condition runs once more than the body, to find that it no longer holds.
        return ((step.condition, step.trips + 1), (step.body, step.trips))
    if isinstance(step, Branch):
        # The other branches stay in the file for those who edit which one is taken.
        return ((step.branches[step.taken], 1),) if step.branches else ()
    if isinstance(step, Call):
        return ((step.body, 1),)
    return ()


def every_step(steps: tuple[AnyStep, ...]) -> Iterator[AnyStep]:
    """Yield every step once, outer before inner, those of branches that are not taken included."""
    return depth_first(steps, lambda step: {id(listed): listed for listed in inner_lists(step)})


def inner_lists(step: AnyStep) -> tuple[tuple[AnyStep, ...], ...]:
    """Return the lists of steps that a step holds, whether it runs them or not."""
    if isinstance(step, Loop):
        return step.condition, step.body
    if isinstance(step, Branch):
        return step.branches
    return (step.body,) if isinstance(step, Call) else ()
