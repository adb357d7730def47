"""How often a ``while`` runs: from what the compiler states, else from its counter.

The counter is an element of the loop's tuple that starts at a constant, grows by a constant, and is compared with a
value that no trip changes. Following values through copies, conversions, tuples and fusions is all the evaluation this
takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpusim.ir.module import Literal
from tpusim.semantics.scalars import literal_number, play_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.ir.module import Computation, Instruction
    from tpusim.lowering.scope import Scope
    from tpusim.semantics.scalars import State

# Conversions too: a counter that overflowed its narrower type would be a fault of the program.
_SAME = ("copy", "bitcast", "convert", "reshape", "bitcast-convert", "opt-barrier")
# Far above any counter seen; where there is no end, giving up is an answer and a recursion error none.
_DEPTH = 64


class Affine(msgspec.Struct, frozen=True, gc=False):
    """``offset`` plus, if ``element`` is not None, that element of the loop's tuple."""

    offset: int
    element: int | None = None


Environment = dict[str, "Affine | None"]


def trip_count(scope: Scope, loop: Instruction) -> tuple[int, str] | None:
    """Return how often ``loop`` runs its body at every visit of every device, and where that is known from."""
    # The compiler's word comes first: it saw the loop before fusion hid the counter.
    stated = loop.backend_config.known_trip_count
    if stated is not None:
        return stated, "known_trip_count"
    counted = _count(scope, loop)
    if counted is not None:
        return counted, "induction variable"
    played = play_counter(scope.module, loop, _known_scalars(scope, loop))
    if played is not None:
        return played, "induction variable"
    return None


def assumed_trips(scope: Scope, loop: Instruction) -> tuple[int, str]:
    """Return how often to run a loop that depends on values: its upper bound, or what the user says; with a warning."""
    most = _upper_bound(scope, loop)
    if most is not None:
        scope.notes.warn(f"the trip count of {loop.name!r} depends on values: its upper bound, {most}, taken")
        return most, "upper bound"
    scope.notes.warn(
        f"the trip count of {loop.name!r} is not known from the program: {scope.default_trips} taken "
        "(set it with --default-trip-count)"
    )
    return scope.default_trips, "default"


def loop_invariants(scope: Scope, loop: Instruction) -> dict[int, int]:
    """Return the elements of a loop's tuple that start at a known scalar and that no trip changes."""
    starts = _start_values(scope, loop)
    steps = _step_values(scope, loop)
    return {index: value for index, value in starts.items() if steps.get(index) == Affine(0, index)}


def _known_scalars(scope: Scope, loop: Instruction) -> State:
    """Return the elements of a loop's initial tuple that are known scalars of any type."""
    start = scope.operand(loop, 0)
    if start.opcode != "tuple":
        return {}
    known: State = {}
    starts = _start_values(scope, loop)
    for index, name in enumerate(start.operands):
        if index in starts:
            known[index] = starts[index]
        made = scope.computation[name]
        while made.opcode in _SAME:
            made = scope.computation[made.operands[0]]
        number = literal_number(made)
        if index not in known and number is not None:
            known[index] = number
    return known


def _upper_bound(scope: Scope, loop: Instruction) -> int | None:
    """Return the most trips of a loop whose condition is a counter's limit and something else."""
    condition = scope.module[loop.attributes["condition"]]
    # The compiler fuses a comparison with what it compares into one scalar kernel.
    computation, root, environment = _through_fusion(scope, condition, condition.root, {})
    if root.opcode != "and":
        return None
    sides = (_comparison(scope, computation, computation[name], environment) for name in root.operands)
    counts = [_trips_of(scope, loop, side) for side in sides if side is not None]
    return min((count for count in counts if count is not None), default=None)


def _count(scope: Scope, loop: Instruction) -> int | None:
    """Return the trips of a loop with a counter, or None."""
    condition = scope.module[loop.attributes["condition"]]
    comparison = _comparison(scope, condition, condition.root, {})
    return None if comparison is None else _trips_of(scope, loop, comparison)


def _trips_of(scope: Scope, loop: Instruction, comparison: tuple[Affine, Affine, str]) -> int | None:
    """Return how often a comparison of the loop's counter holds before it first does not."""
    left, right, direction = comparison
    starts, steps = _start_values(scope, loop), _step_values(scope, loop)
    # Both sides may move: only their difference decides when the loop ends.
    left_now, right_now = _progress(left, starts, steps), _progress(right, starts, steps)
    if left_now is None or right_now is None:
        return None
    return _trips(left_now[0] - right_now[0], left_now[1] - right_now[1], direction)


def _progress(value: Affine, starts: dict[int, int], steps: Environment | dict[int, Affine]) -> tuple[int, int] | None:
    """Return a value's number at the first trip and how much each trip adds to it."""
    if value.element is None:
        return value.offset, 0
    # An element that takes the place of another (a rotation of buffers) is no counter.
    step = steps.get(value.element)  # type: ignore[call-overload]
    if value.element not in starts or step is None or step.element != value.element:
        return None
    return starts[value.element] + value.offset, step.offset


def _trips(difference: int, step: int, direction: str) -> int | None:
    """Return how often ``difference + i * step`` compares with 0 before it first does not."""
    signed = {"LT": (1, 0), "LE": (1, 1), "GT": (-1, 0), "GE": (-1, 1)}
    if direction == "NE":
        # NE must meet 0 exactly; one that steps over it ends when the counter wraps, if ever.
        reaches = difference == 0 or (step != 0 and difference % step == 0 and difference * step < 0)
        return abs(difference // step) if reaches and difference else 0 if reaches else None
    if direction not in signed:
        return None
    sign, inclusive = signed[direction]
    room = -sign * difference + inclusive
    if room <= 0:
        return 0
    # A counter that runs the wrong way gets no answer rather than a wrong one.
    return -(-room // (sign * step)) if sign * step > 0 else None


def _comparison(
    scope: Scope, computation: Computation, value: Instruction, environment: Environment
) -> tuple[Affine, Affine, str] | None:
    """Return both sides and the direction of the comparison that makes ``value``."""
    computation, root, environment = _through_fusion(scope, computation, value, environment)
    if root.opcode != "compare":
        return None
    left, right = (_value(scope, computation, name, environment) for name in root.operands)
    return None if left is None or right is None else (left, right, str(root.attributes["direction"]))


def _through_fusion(
    scope: Scope, computation: Computation, instruction: Instruction, environment: Environment
) -> tuple[Computation, Instruction, Environment]:
    """Step into fusions and past copies to the instruction that makes a value; return where it stands."""
    for _ in range(_DEPTH):
        if instruction.opcode in _SAME:
            instruction = computation[instruction.operands[0]]
        elif instruction.opcode == "fusion":
            environment = _fusion_environment(scope, computation, instruction, environment)
            computation = scope.module[instruction.attributes["calls"]]
            instruction = computation.root
        else:
            break
    return computation, instruction, environment


def _fusion_environment(
    scope: Scope, computation: Computation, fusion: Instruction, environment: Environment
) -> Environment:
    """Return what is known of a fusion's parameters, by name."""
    called = scope.module[fusion.attributes["calls"]]
    values = [_value(scope, computation, name, environment) for name in fusion.operands]
    return dict(zip((p.name for p in called.parameters), values, strict=True))


def _start_values(scope: Scope, loop: Instruction) -> dict[int, int]:
    """Return the elements of a loop's initial tuple that are known scalars."""
    start = scope.operand(loop, 0)
    while start.opcode in ("opt-barrier", "copy"):
        start = scope.operand(start, 0)
    if start.opcode != "tuple":
        return {}
    outer: Environment = {}
    found = ((i, _value(scope, scope.computation, name, outer)) for i, name in enumerate(start.operands))
    return {i: _settled(scope, value) for i, value in found if _settled(scope, value) is not None}  # type: ignore[misc]


def _settled(scope: Scope, value: Affine | None) -> int | None:
    """Return the number of a value, given what is known of the tuple that comes into the scope."""
    if value is None:
        return None
    if value.element is None:
        return value.offset
    known = scope.known.get(value.element)
    return None if known is None else known + value.offset


def _step_values(scope: Scope, loop: Instruction) -> dict[int, Affine]:
    """Return, for the elements of a loop's tuple, what one trip makes of them, where that is simple."""
    body = scope.module[loop.attributes["body"]]
    root = body.root
    while root.opcode == "opt-barrier":
        root = body[root.operands[0]]
    if root.opcode != "tuple":
        return {}
    known: Environment = {}
    found = ((i, _value(scope, body, name, known)) for i, name in enumerate(root.operands))
    return {i: value for i, value in found if value is not None}


def _value(
    scope: Scope, computation: Computation, name: str, environment: Environment, depth: int = 0
) -> Affine | None:
    """Return a scalar as a constant or as an element of the incoming tuple plus a constant, or None."""
    if name in environment:
        return environment[name]
    if depth > _DEPTH:
        return None
    where, made, known = _through_fusion(scope, computation, computation[name], environment)
    evaluate = _EVALUATE.get(made.opcode)
    if made.name in known:
        value = known[made.name]
    else:
        value = evaluate(scope, where, made, known, depth + 1) if evaluate else None
    # Remembered, since a chain of values that are each used twice would else take twice as long per link.
    environment[name] = value
    return value


def _constant(scope: Scope, where: Computation, made: Instruction, known: Environment, depth: int) -> Affine | None:
    """Return an integer constant."""
    # Floats, arrays and elided values are not digits alone, and are no counters.
    text = made.immediate.text if isinstance(made.immediate, Literal) else ""
    return Affine(int(text)) if text.lstrip("-").isdigit() else None


def _element(scope: Scope, where: Computation, made: Instruction, known: Environment, depth: int) -> Affine | None:
    """Return an element of the computation's tuple parameter, or of a tuple that it builds itself."""
    index = made.attributes["index"]
    source = where[made.operands[0]]
    if source.opcode == "parameter":
        return Affine(0, index)
    return _value(scope, where, source.operands[index], known, depth) if source.opcode == "tuple" else None


def _sum(scope: Scope, where: Computation, made: Instruction, known: Environment, depth: int) -> Affine | None:
    """Return the sum or difference of two values of which at most one moves."""
    left, right = (_value(scope, where, name, known, depth) for name in made.operands)
    if left is None or right is None:
        return None
    # What subtracts a moving value runs the other way, which Affine cannot say: no counter does.
    if made.opcode == "subtract":
        return Affine(left.offset - right.offset, left.element) if right.element is None else None
    if left.element is not None and right.element is not None:
        return None
    return Affine(left.offset + right.offset, right.element if left.element is None else left.element)


_EVALUATE: dict[str, Callable[..., Affine | None]] = {
    "constant": _constant,
    "get-tuple-element": _element,
    "add": _sum,
    "subtract": _sum,
}
