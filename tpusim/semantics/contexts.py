"""What every device knows of the scalars that come into a computation, visit by visit.

From this follow branches and trips that depend on the number of the device (``partition-id``, ``replica-id``, and what
is computed of them) or on the counter of a loop around them. Nothing is computed before it is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from tpusim.program.steps import Choice
from tpusim.semantics.scalars import CANNOT, MOST_TRIPS, Scalars, Unknown, elements_of, play_counter, states_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.ir.module import Computation, Instruction, Module
    from tpusim.semantics.scalars import Number, State

    States = dict[int, list[State]]

_MOST_STATES = 100_000
"""So many visits, of all devices together, are looked at; computing the scalars of one takes some 10 us."""

_IDS = frozenset(("partition-id", "replica-id"))


class Visits:
    """The visits to a computation on every device, in order; no visits where they cannot be told."""

    def __init__(self, find: Callable[[], States]) -> None:
        self._find = find

    @cached_property
    def states(self) -> States:
        """What is known at each visit, by device; device 0 alone stands for all if none asks for its number."""
        try:
            found = self._find()
        except CANNOT:
            return {}
        return found if sum(map(len, found.values())) <= _MOST_STATES else {}


def entry_visits(module: Module) -> Visits:
    """Return the visits to the entry: one by each device."""
    replicas, partitions = (int(module.attributes.get(name, 1)) for name in ("replica_count", "num_partitions"))
    asked = any(computation.opcodes & _IDS for computation in module.computations)
    count = replicas * partitions if asked else 1
    return Visits(lambda: {n: [{"replica-id": n // partitions, "partition-id": n % partitions}] for n in range(count)})


def loop_visits(module: Module, where: Computation, visits: Visits, loop: Instruction, trips: int) -> Visits:
    """Return the visits to a loop's body; ``trips`` is how often it runs unless its counter says so."""

    def of(state: State, most: int) -> list[State]:
        start = _argument(module, where, state, loop.operands[0])
        if trips > most:
            # Too many to look at each: what no trip changes holds at all of them.
            return [_without(start, _changed(module[loop.attributes["body"]]))]
        played = play_counter(module, loop, start)
        return list(islice(states_of(module, loop, start), trips if played is None else played))

    def find() -> States:
        most = min(MOST_TRIPS, _MOST_STATES // max(1, sum(map(len, visits.states.values()))))
        return {number: [s for state in states for s in of(state, most)] for number, states in visits.states.items()}

    return Visits(find)


def _without(state: State, changed: Callable[[int | str], bool]) -> State:
    """Return the elements of a state that do not change."""
    return {key: value for key, value in state.items() if not changed(key)}


def _changed(body: Computation) -> Callable[[int | str], bool]:
    """Return a test for the elements of a loop's tuple that its body does not hand on as they are."""

    def changed(key: int | str) -> bool:
        if isinstance(key, str):
            return False
        made = body[body.root.operands[key]] if body.root.opcode == "tuple" else body.root
        while made.opcode == "copy":
            made = body[made.operands[0]]
        handed_on = made.opcode == "get-tuple-element" and made.attributes["index"] == key
        return not (handed_on and body[made.operands[0]].opcode == "parameter")

    return changed


def branch_visits(
    module: Module, where: Computation, visits: Visits, conditional: Instruction, branch: int, count: int
) -> Visits:
    """Return the visits to one of the ``count`` branches of a conditional."""

    def find() -> States:
        found: States = {}
        for number, states in visits.states.items():
            taken = (state for state in states if _branch(module, where, state, conditional, count) == branch)
            found[number] = [_argument(module, where, state, conditional.operands[1 + branch]) for state in taken]
        return found

    return Visits(find)


def call_visits(module: Module, where: Computation, visits: Visits, call: Instruction) -> Visits:
    """Return the visits to a called computation."""

    def of(state: State) -> State:
        return elements_of(Scalars(module, where, state), call)

    return Visits(lambda: {number: [of(state) for state in states] for number, states in visits.states.items()})


def _argument(module: Module, where: Computation, state: State, name: str) -> State:
    """Return what is known of the one parameter of a computation, which is called with the value of that name."""
    made, scalars = where[name], Scalars(module, where, state)
    while made.opcode in ("opt-barrier", "copy"):
        made = where[made.operands[0]]
    if made.opcode == "tuple":
        return elements_of(scalars, made)
    if made.opcode == "parameter":
        return state
    try:
        return scalars.ids | {0: scalars.value(made.name)}
    except CANNOT:
        return scalars.ids


def _branch(module: Module, where: Computation, state: State, conditional: Instruction, count: int) -> int:
    """Return which branch is taken: the first for true, the last for a number that is none's (XLA, Conditional)."""
    value: Number = Scalars(module, where, state).value(conditional.operands[0])
    if isinstance(value, bool):
        return 0 if value else 1
    return int(value) if 0 <= value < count else count - 1


def branches_taken(
    module: Module, where: Computation, visits: Visits, conditional: Instruction, count: int
) -> tuple[Choice, ...]:
    """Return which branches the devices take, visit by visit; nothing if it cannot be told."""
    return _choices(visits, lambda state: _branch(module, where, state, conditional, count))


def trips_taken(module: Module, where: Computation, visits: Visits, loop: Instruction) -> tuple[Choice, ...]:
    """Return how often the devices run a loop's body, visit by visit; nothing if it cannot be told."""

    def of(state: State) -> int:
        trips = play_counter(module, loop, _argument(module, where, state, loop.operands[0]))
        if trips is None:
            raise Unknown
        return trips

    return _choices(visits, of)


def _choices(visits: Visits, choose: Callable[[State], int]) -> tuple[Choice, ...]:
    """Return the choices of all devices, those of devices that choose alike as one."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    try:
        for number, states in visits.states.items():
            found[_shortest(tuple(map(choose, states)))].append(number)
    except CANNOT:
        return ()
    # Who never comes there has nothing to choose.
    found.pop((), None)
    if len(found) == 1:
        return tuple(Choice(values) for values in found)
    return tuple(Choice(values, tuple(devices)) for values, devices in found.items())


def _shortest(values: tuple[int, ...]) -> tuple[int, ...]:
    """Return one value for a choice that is always the same."""
    return values[:1] if len(set(values)) == 1 else values
