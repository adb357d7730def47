"""Control flow: while, conditional, call, and asynchronous calls."""

from __future__ import annotations

from typing import Any

import msgspec

from tpusim.allocation.forwarding import branch_names
from tpusim.ir.module import Instruction
from tpusim.ir.ops import COLLECTIVES, DMA_COPIES, async_parts, long_form
from tpusim.lowering.collectives import collective_step
from tpusim.lowering.copies import copy_step
from tpusim.lowering.scope import RULES, Nested, Scope, rule
from tpusim.nesting import walk_nested
from tpusim.program.module import inner_lists
from tpusim.program.steps import AnyStep, Branch, Call, Choice, Loop, Steps
from tpusim.semantics.contexts import BodyContext, BranchContext, CallContext, Context, branches_taken, trips_taken
from tpusim.semantics.infer.types import parts
from tpusim.semantics.trip_counts import TripCount, assumed_trips, count_trips

_MOST_LOWERED, _MOST_TIMES = 2**14, 2
"""So many instructions, or so many times those of the program, are lowered for all that tells visits apart.

Ways through calls, loops and branches multiply. Beyond this a computation is lowered once more, for all other visits.
"""

_FORGOTTEN = (
    "computations are entered in too many ways to tell all apart: trips and branches that depend on what comes into "
    "them are assumed"
)


def lower_computation(scope: Scope) -> Steps:
    """Return the steps of all instructions of the scope's computation, in its order.

    What several instructions call is lowered once where nothing tells their visits apart: they share its steps.
    """
    shared = _Shared()
    room = max(_MOST_LOWERED, _MOST_TIMES * scope.module.instruction_count)

    def lowered(inner: Scope) -> Nested:
        nonlocal room
        if room < 0:
            scope.notes.warn(_FORGOTTEN)
            inner = inner.inside(inner.computation.name)
        known = shared.find(inner.context)
        if known is not None:
            return known
        room -= len(inner.computation.instructions)
        steps: list[AnyStep] = []
        for instruction in inner.computation.instructions:
            found = RULES[long_form(instruction.opcode)](inner, instruction)
            steps += found if isinstance(found, tuple) else (yield from found)
        return shared.enter(inner.context, tuple(steps))

    return walk_nested(lowered, scope)


class _Shared:
    """The steps of computations, to be taken again by visits that nothing tells apart."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, frozenset[Any]], list[tuple[Context, Steps]]] = {}
        # Lists of steps in which something is chosen anew at each visit: visits to shared ones could not be counted.
        self._varying: set[int] = set()

    def find(self, context: Context) -> Steps | None:
        """Return the steps of a computation that has been visited with the same known."""
        for other, steps in self._found.get(_known(context), ()):
            if not other.has_visits or other.visits == context.visits:
                return steps
        return None

    def enter(self, context: Context, steps: Steps) -> Steps:
        """Keep the steps of a computation, and return them."""
        if any(self._varies(step) for step in steps if isinstance(step, _HOLDERS)):
            self._varying.add(id(steps))
        else:
            self._found.setdefault(_known(context), []).append((context, steps))
        return steps

    def _varies(self, step: Loop | Branch | Call) -> bool:
        choices = () if isinstance(step, Call) else step.choices
        inner = inner_lists(step)
        return any(len(choice.values) > 1 for choice in choices) or any(id(steps) in self._varying for steps in inner)


_HOLDERS = (Loop, Branch, Call)


def _known(context: Context) -> tuple[str, frozenset[Any]]:
    """Return the name of a computation and what is known at all visits to it."""
    return context.computation.name, frozenset(context.always.items())


@rule("while")
def lower_while(scope: Scope, instruction: Instruction) -> Nested:
    """Lower a loop: its body once, and how often it runs."""
    module, start, budget = scope.module, scope.context.known_of(instruction.operands), scope.context.budget
    counted = count_trips(module, instruction, start, budget)
    choices = () if counted else trips_taken(scope.context, instruction)
    if choices:
        most = max(trips for choice in choices for trips in choice.values)
        counted = TripCount(most, "induction variable")
    counted = counted or assumed_trips(module, instruction, start, scope.default_trips, budget)
    if counted.warning:
        scope.notes.warn(counted.warning)
    body = BodyContext(scope.context, instruction, counted.trips)
    condition = Context(module, module[instruction.attributes["condition"]], body.always, budget)
    return (
        Loop(
            **scope.label(instruction, "while"),
            trips=counted.trips,
            trips_from=counted.source,
            choices=choices if _differ(choices) else (),
            condition=(yield scope.inside(condition)),
            body=(yield scope.inside(body)),
        ),
    )


@rule("conditional")
def lower_conditional(scope: Scope, instruction: Instruction) -> Nested:
    """Lower a conditional; the longest branch is taken, with a warning, where only values tell which one runs."""
    names, context = branch_names(instruction), scope.context
    entered = (BranchContext(context, instruction, name, n, len(names)) for n, name in enumerate(names))
    branches = []
    for branch in entered:
        branches.append((yield scope.inside(branch)))
    choices = branches_taken(context, instruction, len(names))
    possible = {number for choice in choices for number in choice.values} or range(len(names))
    taken = next(iter(possible))
    if len(possible) > 1:
        taken = max(possible, key=lambda number: (scope.alone.steps_ps(branches[number]), -number))
    if not choices:
        scope.notes.warn(
            f"which branch {instruction.name!r} takes depends on values: the longest, {names[taken]!r}, taken"
        )
    label = scope.label(instruction, "conditional")
    return (Branch(**label, taken=taken, choices=choices if _differ(choices) else (), branches=tuple(branches)),)


def _differ(choices: tuple[Choice, ...]) -> bool:
    return len({value for choice in choices for value in choice.values}) > 1


@rule("call")
def lower_call(scope: Scope, instruction: Instruction) -> Nested:
    """Lower a call: the steps of the called computation."""
    context = CallContext(scope.context, instruction.attributes["to_apply"], instruction.operands)
    body = yield scope.inside(context)
    return (Call(**scope.label(instruction, "call"), body=body),)


@rule("async-start")
def lower_async_start(scope: Scope, instruction: Instruction) -> Nested:
    """Lower the start of any asynchronous computation: a collective, a slice that is a copy, or an offloaded call."""
    where, wrapped = _wrapped(scope, instruction)
    if wrapped.opcode in COLLECTIVES:
        return (collective_step(scope, instruction, where.computation, wrapped, is_async=True),)
    if wrapped.opcode in DMA_COPIES:
        return (_async_copy(scope, instruction, where, wrapped),)
    # What remains has no engine of its own: it goes to the processors beside the core.
    label = scope.label(instruction, "async call")
    found = RULES[long_form(wrapped.opcode)](where, wrapped)
    return (Call(**label, body=found if isinstance(found, tuple) else (yield from found), is_async=True),)


def _wrapped(scope: Scope, instruction: Instruction) -> tuple[Scope, Instruction]:
    """Return what an asynchronous start runs, and the scope that it stands in."""
    # The short form (``slice-start``) is the operation itself under another name; the long one calls a computation
    # around it.
    short = async_parts(instruction.opcode)
    if short is None:
        called = scope.inside(instruction.attributes["calls"])
        return called, called.computation.root
    # A start has ((operands), result, flags); what it wraps has the result alone.
    return scope, msgspec.structs.replace(instruction, opcode=short[0], shape=parts(instruction.shape)[1])


def _async_copy(scope: Scope, instruction: Instruction, where: Scope, wrapped: Instruction) -> AnyStep:
    """Return the copy that an asynchronous slice or update in place is; it moves the smaller array."""
    # Some operands may come with updates: what is called knows them all.
    is_whole = len(instruction.operands) >= len(wrapped.operands)
    at, taken = (scope, instruction) if is_whole else (where, wrapped)
    source, target = at.operand(taken, 0).shape, parts(instruction.shape)[1] if is_whole else wrapped.shape
    if wrapped.opcode != "dynamic-update-slice":
        return copy_step(scope, instruction, source, target)
    update = at.operand(taken, 1).shape
    return copy_step(scope, instruction, update, target, moved=update)
