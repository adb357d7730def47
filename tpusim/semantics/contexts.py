"""What every device knows of the scalars that come into a computation, visit by visit.

From this follow branches and trips that depend on the number of the device (``partition-id``, ``replica-id``, and what
is computed of them) or on the counter of a loop around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Generic, TypeVar

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import DEVICE_IDS
from tpusim.limits import EXECUTIONS
from tpusim.program.steps import Choice
from tpusim.semantics.scalars import Budget, Scalars, State, Unknown
from tpusim.semantics.trip_counts import MOST_TRIPS, is_unchanged, states_of, trips_from

Visits = dict[int, list[State]]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_MOST_STATES = 100_000
"""So many visits of a computation, of all devices together, are looked at; the scalars of one take some 10 us."""

_MOST_WAYS = 256
"""Into one computation."""

_FOUND = 8
"""So many scalars take as long as what is found out of a visit; visits with the same known are one for that."""

_VISITS_AT_ONCE = 2
"""So many visits take the time and the memory of one scalar: each is a place in a list."""


class Context:
    """A computation, and what is known when it is entered.

    ``always`` holds at every visit of every device. ``visits`` has, by device, what holds at each visit in turn; it is
    empty where that cannot be told, and is found only when it is asked for.
    """

    def __init__(self, module: Module, computation: Computation, always: State, budget: Budget | None = None) -> None:
        self.module = module
        self.computation = computation
        self.always = always
        self.caller: Context | None = None
        # One for all of a program.
        self.budget = budget or Budget()
        self._visits: Visits | None = None

    @property
    def has_visits(self) -> bool:
        """Whether its visits have been asked for."""
        return self._visits is not None

    @property
    def visits(self) -> Visits:
        """What is known at each visit, by device; device 0 alone stands for all if the program does not ask for ids."""
        # From the outermost unknown on, since computations nest as deep as they like.
        unknown: list[Context] = []
        context: Context | None = self
        while context is not None and context._visits is None:
            unknown.append(context)
            context = context.caller
        for context in reversed(unknown):
            context._visits = context._known_visits()
        return self._visits or {}

    def _known_visits(self) -> Visits:
        """Return the visits; nothing if they cannot be told, or if they are too many."""
        try:
            found = self._find_visits()
            count = sum(map(len, found.values()))
            self.budget.spend(count // _VISITS_AT_ONCE)
        except Unknown:
            return {}
        return found if count <= _MOST_STATES else {}

    def _find_visits(self) -> Visits:
        """Return the visits; raise ``Unknown`` if they cannot be told."""
        raise Unknown

    def known_of(self, names: Sequence[str], state: State | None = None) -> State:
        """Return what is known of a computation that is called with the named values, at one visit or at all."""
        known = self.always if state is None else state
        return Scalars(self.module, self.computation, known, self.budget).state_of(names)

    def known_at(self, names: Sequence[str], states: Sequence[State]) -> list[State]:
        """Return what is known of a computation that is called with the named values, visit by visit.

        What is equal is one object: a computation is visited again and again with the same known.
        """
        kept: dict[str, State] = {}

        def known(state: State) -> State:
            found = self.known_of(names, state)
            return kept.setdefault(repr(found), found)

        return list(_each(states, known, self.budget))

    def branches_at(self, conditional: Instruction, count: int, states: Sequence[State]) -> list[int]:
        """Return which branch is taken at each visit: the first for true, the last for a number that is none's.

        Source: XLA, Operation Semantics, Conditional.
        """

        def branch(state: State) -> int:
            value = Scalars(self.module, self.computation, state, self.budget).value(conditional.operands[0])
            if isinstance(value, bool):
                return 0 if value else 1
            return int(value) if 0 <= value < count else count - 1

        return list(_each(states, branch, self.budget))


class EntryContext(Context):
    """The entry of a module, which every device visits once."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, module.entry, {})

    def _find_visits(self) -> Visits:
        replicas, partitions = self.module.replica_count, self.module.partition_count
        asked = any(computation.opcodes & DEVICE_IDS for computation in self.module.computations)
        count = replicas * partitions if asked else 1
        return {n: [{"replica-id": n // partitions, "partition-id": n % partitions}] for n in range(count)}


class CallContext(Context):
    """The computation of the given name, which an instruction of another one enters with these operands."""

    def __init__(self, caller: Context, name: str, operands: Sequence[str]) -> None:
        super().__init__(caller.module, caller.module[name], caller.known_of(operands), caller.budget)
        self.caller: Context = caller
        self._operands = operands

    def _find_visits(self) -> Visits:
        return {device: self._entered(states) for device, states in self.caller.visits.items()}

    def _entered(self, states: list[State]) -> list[State]:
        """Return what is known at the visits that a device makes in its visits to the caller."""
        return self.caller.known_at(self._operands, states)


class BodyContext(CallContext):
    """The body of a loop; ``trips`` is how often it runs where its counter does not say so."""

    def __init__(self, caller: Context, loop: Instruction, trips: int) -> None:
        super().__init__(caller, loop.attributes["body"], loop.operands)
        self.always = self._unchanged(self.always)
        self._loop, self._trips = loop, trips

    def _unchanged(self, start: State) -> State:
        """Return the elements of the loop's tuple that no trip changes."""
        return {key: number for key, number in start.items() if is_unchanged(self.computation, key)}

    @cached_property
    def _most_trips(self) -> int:
        """So many trips of one visit are looked at."""
        return min(MOST_TRIPS, _MOST_STATES // max(1, sum(map(len, self.caller.visits.values()))))

    def _entered(self, states: list[State]) -> list[State]:
        starts = super()._entered(states)
        if self._trips > self._most_trips:
            # Too many to look at each: what no trip changes holds at all of them.
            return list(_each(starts, self._unchanged, self.budget))
        return list(chain.from_iterable(_each(starts, self._trip_states, self.budget)))

    def _trip_states(self, start: State) -> list[State]:
        """Return what is known at each trip of one visit."""
        counted = trips_from(self.module, self._loop, start, self.budget)
        trips = self._trips if counted is None else counted
        self.budget.spend(_FOUND * min(trips, MOST_TRIPS))
        return list(islice(states_of(self.module, self._loop, start, self.budget), trips))


class BranchContext(CallContext):
    """The computation of the given name, which is branch number ``branch`` of ``count`` of a conditional."""

    def __init__(self, caller: Context, conditional: Instruction, name: str, branch: int, count: int) -> None:
        super().__init__(caller, name, conditional.operands[1 + branch : 2 + branch])
        self._conditional, self._branch, self._count = conditional, branch, count

    def _entered(self, states: list[State]) -> list[State]:
        branches = self.caller.branches_at(self._conditional, self._count, states)
        taken = [state for state, branch in zip(states, branches, strict=True) if branch == self._branch]
        return super()._entered(taken)


class Ways(Generic[K]):
    """The ways into computations that are still to be gone, each with how often: as many as are worth telling apart.

    Those are one that carry the same and in which the same is known at all visits; branches and calls multiply them.
    """

    def __init__(self) -> None:
        self._into: dict[str, dict[Hashable, tuple[Context, K, int]]] = {}

    def enter(self, context: Context, times: int, carried: K) -> None:
        """Count a way that is gone so many ``times``; nothing is known in those that are too many."""
        ways = self._into.setdefault(context.computation.name, {})
        key = carried, frozenset(context.always.items())
        if key not in ways and len(ways) >= _MOST_WAYS:
            context, key = Context(context.module, context.computation, {}, context.budget), (carried, frozenset())
        before = ways[key][2] if key in ways else 0
        # A run that counts further is refused when it is lowered.
        ways[key] = context, carried, min(before + times, EXECUTIONS.most)

    def into(self, computation: Computation) -> Iterable[tuple[Context, K, int]]:
        """Return the ways into a computation, each with what it carries and how often it is gone, and forget them."""
        return self._into.pop(computation.name, {}).values()


def branches_taken(context: Context, conditional: Instruction, count: int) -> tuple[Choice, ...]:
    """Return which branches the devices take, visit by visit; nothing if it cannot be told."""
    return _choices(context, lambda states: context.branches_at(conditional, count, states))


def trips_taken(context: Context, loop: Instruction) -> tuple[Choice, ...]:
    """Return how often the devices run a loop's body, visit by visit; nothing if it cannot be told."""

    def trips(start: State) -> int:
        counted = trips_from(context.module, loop, start, context.budget)
        if counted is None:
            raise Unknown
        return counted

    return _choices(context, lambda states: _each(context.known_at(loop.operands, states), trips, context.budget))


def _choices(context: Context, choose: Callable[[Sequence[State]], Iterable[int]]) -> tuple[Choice, ...]:
    """Return the choices of all devices, those of devices that choose alike as one."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    try:
        for device, states in context.visits.items():
            values = tuple(choose(states))
            # A choice that is always the same is written once.
            found[values[:1] if len(set(values)) == 1 else values].append(device)
    except Unknown:
        return ()
    # A device that never comes there has nothing to choose.
    found.pop((), None)
    if len(found) == 1:
        return tuple(Choice(values) for values in found)
    return tuple(Choice(values, tuple(devices)) for values, devices in found.items())


def _each(states: Sequence[State], find: Callable[[State], T], budget: Budget) -> Iterator[T]:
    """Yield what is found for each state, found once for those that are one object."""
    found: dict[int, T] = {}
    for state in states:
        if id(state) not in found:
            budget.spend(_FOUND)
            found[id(state)] = find(state)
        yield found[id(state)]
