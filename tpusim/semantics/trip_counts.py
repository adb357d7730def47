"""How often a ``while`` runs: from what the compiler states, else from its counter.

A counter is an element of the loop's tuple that starts at a known number, grows by a constant, and is compared with a
value that no trip changes: its trips follow in closed form, however many they are, as long as no value on the way
leaves its type. Everything else is played out with the loop's few scalars until the condition says stop; that stays
cheap because only what is known at the start is computed, and few trips are tried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import msgspec

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import SAME_ELEMENTS
from tpusim.semantics.scalars import Budget, Scalars, State, Unknown, element_of_parameter, integer_range, origin_of
from tpusim.shapes.shape import ArrayShape

MOST_TRIPS = 4096
"""Trips that are played out before a loop counts as unknown; each costs some microseconds per instruction."""

_DEEPEST = 40
"""So many additions may a counter pass through, fusions included; what they add may depend on as much again."""

_FOREVER = sys.maxsize
_SIGNS = {"add": 1, "subtract": -1}


class TripCount(msgspec.Struct, frozen=True, gc=False):
    """How often a loop runs its body, where that is known from, and a warning if it is only assumed."""

    trips: int
    source: str
    warning: str = ""


def count_trips(module: Module, loop: Instruction, start: State, budget: Budget | None = None) -> TripCount | None:
    """Return how often ``loop`` runs, or None; ``start`` is what is known of the elements of its initial tuple."""
    # What the compiler states comes first: it saw the loop before fusion hid the counter.
    stated = loop.backend_config.known_trip_count
    if stated is not None:
        run = _Run(module, loop, start, budget)
        counted = run.closed_form(*_past_fusions(run.condition))
        differs = f"{loop.name!r} states {stated} trips and its condition gives {counted}: {stated} taken"
        return TripCount(stated, "known_trip_count", "" if counted in (None, stated) else differs)
    trips = trips_from(module, loop, start, budget)
    return None if trips is None else TripCount(trips, "induction variable")


def assumed_trips(
    module: Module, loop: Instruction, start: State, default: int, budget: Budget | None = None
) -> TripCount:
    """Return how often to run a loop that depends on values: its upper bound if its condition has one, else a default.

    A bound is a counter's limit of which the condition is the ``and`` with something else.
    """
    run = _Run(module, loop, start, budget)
    lines, root = _past_fusions(run.condition)
    sides = root.operands if root.opcode == "and" else ()
    counts = [run.closed_form(*_past_fusions(lines, side)) for side in sides]
    most = min((count for count in counts if count is not None), default=None)
    named = f"the trip count of {loop.name!r}"
    if most is not None:
        return TripCount(most, "upper bound", f"{named} depends on values: its upper bound, {most}, taken")
    warning = f"{named} is not known from the program: {default} taken (set it with --default-trip-count)"
    return TripCount(default, "default", warning)


def trips_from(
    module: Module, loop: Instruction, start: State, budget: Budget | None = None, *, tried: int = MOST_TRIPS
) -> int | None:
    """Return how often ``loop`` runs if its condition depends only on scalars known at ``start``, else None.

    ``tried`` is how many trips are played out where there is no closed form.
    """
    budget = budget or Budget()
    run = _Run(module, loop, start, budget)
    counted = run.closed_form(*_past_fusions(run.condition))
    if counted is not None:
        return counted
    condition, before = module[loop.attributes["condition"]], None
    try:
        for trips, state in enumerate(islice(states_of(module, loop, start, budget), tried)):
            if not Scalars(module, condition, state, budget).value(condition.root_name):
                return trips
            # As far as this is known it never ends.
            if state == before:
                break
            before = state
    except Unknown:
        pass
    return None


def states_of(module: Module, loop: Instruction, start: State, budget: Budget | None = None) -> Iterator[State]:
    """Yield the known elements of a loop's tuple trip by trip, as many as are worth trying."""
    budget = budget or Budget()
    body, state = module[loop.attributes["body"]], dict(start)
    for _ in range(MOST_TRIPS):
        yield state
        # What is not known at the start is not looked for.
        state = Scalars(module, body, state, budget).state_of((body.root_name,), state)


def is_unchanged(body: Computation, element: int | str) -> bool:
    """Return whether a loop's body hands an element of its tuple on as it is; the device's number never changes."""
    if isinstance(element, str):
        return True
    root = origin_of(body, body.root_name)
    if root.opcode != "tuple":
        return root.opcode == "parameter"
    return element_of_parameter(body, root.operands[element]) == element


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An element of a loop's tuple plus ``offset``; exactly that as long as the element is from ``low`` to ``high``."""

    element: int
    offset: int
    low: int
    high: int


class _Lines:
    """Finds the values of a computation that are an element of its tuple plus a number."""

    def __init__(
        self,
        module: Module,
        computation: Computation,
        state: State,
        budget: Budget | None,
        arguments: dict[int, _Line | None] | None = None,
        depth: int = 0,
    ) -> None:
        self.module = module
        self.computation = computation
        self.scalars = Scalars(module, computation, state, budget)
        self._arguments = arguments or {}
        self._depth = depth
        self._found: dict[str, _Line | None] = {}

    def line(self, name: str) -> _Line | None:
        """Return a value as a line, or None."""
        if name not in self._found:
            self._found[name] = None
            made = self.computation[name]
            shape = made.shape
            self._depth += 1
            line = self._made_line(made) if self._depth <= _DEEPEST else None
            self._depth -= 1
            if line is None or not isinstance(shape, ArrayShape) or not shape.dtype.is_integer:
                return None
            low, high = (limit - line.offset for limit in integer_range(shape.dtype))
            self._found[name] = _Line(line.element, line.offset, max(low, line.low), min(high, line.high))
        return self._found[name]

    def _made_line(self, made: Instruction) -> _Line | None:
        if made.opcode == "parameter":
            return self._arguments.get(int(made.immediate))  # type: ignore[arg-type]
        if made.opcode == "get-tuple-element":
            element = element_of_parameter(self.computation, made.name)
            return None if element is None else _Line(element, 0, -_FOREVER, _FOREVER)
        if made.opcode in SAME_ELEMENTS or made.opcode == "convert":
            return self.line(made.operands[0])
        if made.opcode == "fusion":
            inner = self.inside(made)
            return inner.line(inner.computation.root_name)
        if made.opcode not in _SIGNS:
            return None
        line, number = self.line(made.operands[0]), self.scalars.get(made.operands[1])
        if made.opcode == "add" and line is None:
            line, number = self.line(made.operands[1]), self.scalars.get(made.operands[0])
        # What subtracts a moving value runs the other way, which a line cannot say: no counter does.
        if line is None or number is None:
            return None
        offset = line.offset + int(number) * _SIGNS[made.opcode]
        return _Line(line.element, offset, line.low, line.high)

    def inside(self, fusion: Instruction) -> _Lines:
        """Return the lines of the computation that a fusion runs."""
        called = self.module[fusion.attributes["calls"]]
        arguments = {number: self.line(name) for number, name in enumerate(fusion.operands)}
        state = self.scalars.state_of(fusion.operands)
        return _Lines(self.module, called, state, self.scalars.budget, arguments, self._depth)


def _past_fusions(lines: _Lines, name: str = "") -> tuple[_Lines, Instruction]:
    """Return the instruction that makes a value (by default the computation's), and the computation it stands in."""
    made = origin_of(lines.computation, name or lines.computation.root_name)
    while made.opcode == "fusion":
        lines = lines.inside(made)
        made = origin_of(lines.computation, lines.computation.root_name)
    return lines, made


class _Course(msgspec.Struct, frozen=True, gc=False):
    """The numbers of a value from the first trip on: ``first``, and ``step`` more each trip, up to trip ``last``."""

    first: int
    step: int
    last: int = _FOREVER


class _Run:
    """One visit to a loop: the known elements of its tuple at the start, and the lines of its condition and body."""

    def __init__(self, module: Module, loop: Instruction, start: State, budget: Budget | None) -> None:
        condition, body = (module[loop.attributes[name]] for name in ("condition", "body"))
        self._start = start
        fixed = {key: number for key, number in start.items() if is_unchanged(body, key)}
        self.condition, self._trip = (_Lines(module, lines, fixed, budget) for lines in (condition, body))

    def closed_form(self, lines: _Lines, compare: Instruction) -> int | None:
        """Return how often a comparison in the condition holds before it first does not, or None."""
        if compare.opcode != "compare":
            return None
        left, right = (self._course(lines, name) for name in compare.operands)
        if left is None or right is None:
            return None
        # One comparison with 0 decides when the loop ends.
        trips = _trips(left.first - right.first, left.step - right.step, str(compare.attributes["direction"]))
        return trips if trips is not None and trips <= min(left.last, right.last) else None

    def _course(self, lines: _Lines, name: str) -> _Course | None:
        number, line = lines.scalars.get(name), lines.line(name)
        if isinstance(number, int):
            return _Course(number, 0)
        root = origin_of(self._trip.computation, self._trip.computation.root_name)
        if line is None or line.element not in self._start or root.opcode != "tuple":
            return None
        # An element that takes the place of another (a rotation of buffers) is no counter.
        step, first = self._trip.line(root.operands[line.element]), int(self._start[line.element])
        if step is None or step.element != line.element:
            return None
        # What the condition sees at a trip the body has made in the one before.
        last = min(_last_within(first, step.offset, line), _last_within(first, step.offset, step) + 1)
        return _Course(first + line.offset, step.offset, last)


def _last_within(first: int, step: int, line: _Line) -> int:
    """Return the last trip up to which an element that starts at ``first`` stays where a line is exact; -1 if none."""
    if not line.low <= first <= line.high:
        return -1
    if step == 0:
        return _FOREVER
    return (line.high - first) // step if step > 0 else (first - line.low) // -step


def _trips(difference: int, step: int, direction: str) -> int | None:
    """Return how often ``difference + i * step`` compares with 0 before it first does not."""
    if direction == "NE":
        # NE must meet 0 exactly; one that steps over it ends when the counter wraps, if ever.
        reaches = difference == 0 or (step != 0 and difference % step == 0 and difference * step < 0)
        return abs(difference // step) if reaches and difference else 0 if reaches else None
    if direction == "EQ":
        return None
    sign, inclusive = 1 if direction in ("LT", "LE") else -1, direction in ("LE", "GE")
    room = -sign * difference + inclusive
    if room <= 0:
        return 0
    # A counter that runs the wrong way gets no answer rather than a wrong one.
    return -(-room // (sign * step)) if sign * step > 0 else None
