"""Values of what names, orders and calls: constants, tuples, copies, calls, loops, branches, asynchronous pairs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import numpy as np

from tpusim.allocation.forwarding import branch_names
from tpusim.errors import SimulationError
from tpusim.ir.module import Instruction, Literal
from tpusim.ir.ops import async_parts, async_phase
from tpusim.numerics.elided import guess_left_out
from tpusim.numerics.registry import RULES, TOKEN, computes
from tpusim.numerics.scalar_loops import ScalarLoop
from tpusim.numerics.site import COMPILED, PATIENCE, Run, Site
from tpusim.numerics.values.registers import NoRowError
from tpusim.semantics.scalars import State
from tpusim.semantics.trip_counts import trips_from
from tpusim.shapes.shape import TupleShape

Calls = Generator[Run, Any, Any]

computes("tuple")(lambda site, instruction, operands: tuple(operands))
computes("get-tuple-element")(lambda site, instruction, operands: operands[0][instruction.attributes["index"]])
# A copy changes the place and the layout of a value, not the value.
computes("copy", "opt-barrier", "domain", "add-dependency")(lambda site, instruction, operands: operands[0])
computes("copy-done")(lambda site, instruction, operands: operands[0][0])
# Target, source and a flag: the value is there at once.
computes("copy-start")(lambda site, instruction, operands: (operands[0], operands[0], TOKEN))
# A token says no more than that its operands exist.
computes("after-all")(lambda site, instruction, operands: TOKEN)
# The result stands beside the operands.
computes("async-done")(lambda site, instruction, operands: operands[0][1])


@computes("constant")
def constant(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the literal's value, or what it must have been where the compiler has left it out."""
    if isinstance(instruction.immediate, Literal) and instruction.immediate.elided:
        guessed = guess_left_out(site.module, site.computation, instruction)
        if guessed is not None:
            return guessed
    return site.settings.read_literal(instruction.immediate, instruction.shape)  # type: ignore[arg-type]


@computes("fusion", "call")
def call(site: Site, instruction: Instruction, operands: list[Any]) -> Calls:
    """Return what the called computation returns: fusions and calls are transparent."""
    return (yield Run(instruction.called_computations[0], operands))


@computes("while")
def run_while(site: Site, instruction: Instruction, operands: list[Any]) -> Calls:
    """Run the body as long as the condition says so; a limit on iterations stops what never ends."""
    state, trips = operands[0], 0
    condition, body = instruction.attributes["condition"], instruction.attributes["body"]
    work = site.device.work
    each = work.of(condition, body)
    # Yielded, not called: a loop's body may wait for other devices, and nesting costs no stack of Python.
    while (yield Run(condition, [state])):
        if trips == site.settings.max_iterations:
            raise SimulationError(f"{instruction.name!r} has not ended after {trips:,} iterations (--max-iterations)")
        if trips == PATIENCE and (compiled := _compiled(site, instruction)) is not None:
            most = min((site.settings.max_iterations or _NO_LIMIT) - trips, work.left * COMPILED // each)
            state, more = compiled.run(state, int(most))
            work.spend(more * each / COMPILED, repr(instruction.name))
            trips += more
            # Without any it is the rules that say that there is no work left.
            if more:
                continue
        elif trips == PATIENCE:
            work.expect(each * _trips_ahead(site, instruction, state), repr(instruction.name))
        work.spend(each, repr(instruction.name))
        state = yield Run(body, [state])
        trips += 1
    return state


_NO_LIMIT = 2**62


def _compiled(site: Site, loop: Instruction) -> ScalarLoop | None:
    """Return a loop over scalars in compiled code, None if it is not such a loop."""
    try:
        return ScalarLoop(site, loop)
    except NoRowError:
        return None


def _trips_ahead(site: Site, loop: Instruction, state: Any) -> int:
    """Return how many trips more its counters say that a loop makes, 0 if they do not.

    One that would be given up in the end is not worth the minutes that trips over large arrays take until then.
    """
    elements = enumerate(state if isinstance(state, tuple) else ())
    numbers: State = {at: int(one) for at, one in elements if np.ndim(one) == 0 and np.asarray(one).dtype.kind in "iub"}
    return trips_from(site.module, loop, numbers) or 0


@computes("conditional")
def conditional(site: Site, instruction: Instruction, operands: list[Any]) -> Calls:
    """Run the branch that the first operand chooses: a predicate, or an index of which a wrong one means the last."""
    branches, index = branch_names(instruction), int(operands[0])
    if operands[0].dtype.kind == "b":
        # The branch of what is true comes first.
        index = 1 - index
    # XLA, Conditional: every index out of range means the last branch.
    chosen = index if 0 <= index < len(branches) else len(branches) - 1
    return (yield Run(branches[chosen], [operands[1 + chosen]]))


@computes("async-start")
def async_start(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return operands, result and a flag: what runs beside the core is computed when it starts."""
    short = async_parts(instruction.opcode)
    if short is None or short[0] == "call":
        name = instruction.attributes["to_apply" if short else "calls"]
        return (yield from _begun(site, name, operands))
    # The rule inside sees an ordinary instruction, so that no rule has to know of asynchronous forms.
    shape = instruction.shape
    inner = shape.elements[1] if isinstance(shape, TupleShape) and len(shape.elements) > 1 else shape
    wrapped = msgspec.structs.replace(instruction, opcode=short[0], shape=inner)
    value = RULES[short[0]](site, wrapped, operands)
    if hasattr(value, "send"):
        value = yield from value
    return (tuple(operands), value, TOKEN)


def _begun(site: Site, name: str, operands: list[Any]) -> Calls:
    """Return operands, result and a flag of a computation; what runs waits for operands that come with an update."""
    if len(operands) < len(site.module[name].parameters):
        return (tuple(operands), (), TOKEN)
    return (tuple(operands), (yield Run(name, operands)), TOKEN)


@computes("async-update")
def async_update(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what was started, unchanged, or run what has waited for the operands that come now."""
    if len(operands) == 1:
        return operands[0]
    start = site.operand(instruction, 0)
    while async_phase(start.opcode) == "update":
        start = site.operand(start, 0)
    name = start.attributes["calls" if start.opcode == "async-start" else "to_apply"]
    return (yield from _begun(site, name, [*operands[0][0], *operands[1:]]))
