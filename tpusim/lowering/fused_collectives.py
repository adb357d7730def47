"""Fusions that hold a collective: what runs on the links, what on the core, and what waits.

A collective that shall run beside the core is fused three times, whole each time: into a start, whose root is a custom
call to ``AsyncCollectiveStart``, into the kernels under which it goes on, which hand its buffers and flags through, and
into an end, whose root is a call to ``AsyncCollectiveDone``. All of them are one collective, with one channel.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tpusim.ir.module import Instruction
from tpusim.ir.ops import VIEWS
from tpusim.lowering.collectives import collective_step, inner_collective, is_collective
from tpusim.program.steps import Wait
from tpusim.semantics.aliasing import behind_views
from tpusim.semantics.contexts import Context
from tpusim.shapes.shape import Shape, TupleShape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpusim.ir.module import Computation, Module
    from tpusim.lowering.scope import Scope
    from tpusim.program.steps import AnyStep

START, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"


def collective_part(scope: Scope, fusion: Instruction) -> tuple[AnyStep, ...]:
    """Return what a fusion does with its collectives: starts, runs or awaits them; nothing where they only go on."""
    computation, collectives = _held(scope, fusion)
    return tuple(step for collective in collectives for step in _steps(scope, fusion, computation, collective))


def _steps(scope: Scope, fusion: Instruction, computation: Computation, collective: Instruction) -> tuple[AnyStep, ...]:
    """Return what a fusion does with one collective, which stands in ``computation``."""
    called = scope.module[fusion.attributes["calls"]]
    if _calls(called, START):
        return (collective_step(scope, fusion, computation, _with_result_of(fusion, collective), is_async=True),)
    started = _start_of(scope, fusion, collective)
    if not started:
        return (collective_step(scope, fusion, computation, collective, kind=_kind(computation, collective)),)
    return (Wait(**scope.label(fusion, "wait"), needs=(started,)),) if _calls(called, DONE) else ()


def is_fed(scope: Scope, fusion: Instruction) -> bool:
    """Tell whether the collective in a fusion takes what the fusion makes, and so comes behind it."""
    computation, collectives = _held(scope, fusion)
    return not all(_takes_parameters(computation, collective) for collective in collectives)


def other_part(scope: Scope, fusion: Instruction) -> tuple[Scope, Instruction]:
    """Return a fusion without its collective, and a scope for it.

    Results that are only handed on, or are the collective's, are left out with all that makes them. Where the rest
    takes what the collective gives it reads what that took.
    """
    holder, _ = _held(scope, fusion)
    module = _with_computation(scope.module, _without_collectives(holder))
    called = module[fusion.attributes["calls"]]
    whole = scope.module[called.name]
    kept = {value.name: shape for value, shape in _results(whole, fusion) if not _is_handed_on(whole, value)}
    if len(kept) == 1:
        ((name, shape),) = kept.items()
        rest = _needed(called, called[name])
    else:
        shape = TupleShape(tuple(kept.values()))
        rest = _needed(called, Instruction(whole.root_name, shape, "tuple", tuple(kept)))
    inside = scope.inside(Context(_with_computation(module, rest), scope.computation, {}))
    return inside, replace(fusion, shape=shape)


def _held(scope: Scope, fusion: Instruction) -> tuple[Computation, list[Instruction]]:
    """Return the collectives of a fusion that has some, with the computation they stand in."""
    found = inner_collective(scope, fusion.attributes["calls"])
    assert found is not None
    return found[0], [instruction for instruction in found[0] if is_collective(instruction)]


def _kind(computation: Computation, collective: Instruction) -> str:
    """Return what a fused collective is: an all-reduce of which each device keeps its slice is a reduce-scatter."""
    scatters = collective.opcode == "all-reduce" and computation.root.opcode == "dynamic-slice"
    return "reduce-scatter" if scatters else collective.opcode


def _calls(computation: Computation, target: str) -> bool:
    """Tell whether a computation has a custom call to ``target``."""
    if "custom-call" not in computation.opcodes:
        return False
    return any(instruction.attributes.get("custom_call_target") == target for instruction in computation)


def _with_result_of(fusion: Instruction, collective: Instruction) -> Instruction:
    """Return a collective whose result lies where the fusion that starts it says."""
    # (operands, results, flags): inside the fusion nothing says in which memory the result will be.
    elements = fusion.shape.elements if isinstance(fusion.shape, TupleShape) else ()
    count = len(collective.operands)
    return replace(collective, shape=TupleShape(elements[count : 2 * count])) if elements else collective


def _start_of(scope: Scope, fusion: Instruction, collective: Instruction) -> str:
    """Return the name of the fusion that started the collective of ``fusion``, empty if none did."""
    channel = collective.attributes.get("channel_id")
    behind = (_start_behind(scope, name) for name in fusion.operands)
    handed = next((name for name in behind if name and _channel(scope, scope.computation[name]) == channel), "")
    if handed or channel is None:
        return handed
    # In a loop the flags come in with its state: there the channel tells. What was started here, before, comes first.
    here = scope.computation.instructions
    earlier = list(_starts(scope, here[: here.index(fusion)], channel))
    others = (c for c in scope.module.computations if c is not scope.computation and "fusion" in c.opcodes)
    return (earlier or [name for c in others for name in _starts(scope, c.instructions, channel)] or [""])[-1]


def _starts(scope: Scope, instructions: tuple[Instruction, ...], channel: int) -> Iterator[str]:
    """Yield the names of fusions that start a collective on a channel."""
    for instruction in instructions:
        if _is_start(scope, instruction) and _channel(scope, instruction) == channel:
            yield instruction.name


def _is_start(scope: Scope, instruction: Instruction) -> bool:
    """Tell whether an instruction is a fusion that starts a collective."""
    return instruction.opcode == "fusion" and _calls(scope.module[instruction.attributes["calls"]], START)


def _channel(scope: Scope, fusion: Instruction) -> int | None:
    """Return the channel of the collective in a fusion, None if it has none."""
    found = inner_collective(scope, fusion.attributes["calls"])
    return found[1].attributes.get("channel_id") if found else None


def _start_behind(scope: Scope, name: str) -> str:
    """Return the fusion that starts a collective and made ``name``, handed on as it may be; empty if there is none."""
    value, indices = scope.computation[name], list[int]()
    while not _is_start(scope, value):
        source = _handed_from(scope, value, indices)
        if source is None:
            return ""
        value = scope.computation[source]
    return value.name


def _handed_from(scope: Scope, value: Instruction, indices: list[int]) -> str | None:
    """Return which operand a value is handed on from; ``indices`` are those of elements still to take, the last first.

    A loop hands on what comes in at the same place.
    """
    if value.opcode == "get-tuple-element":
        indices.append(value.attributes["index"])
        return value.operands[0]
    if value.opcode in VIEWS | {"while"}:
        return value.operands[0]
    if value.opcode == "tuple" and indices:
        return value.operands[indices.pop()]
    if value.opcode == "fusion":
        called = scope.module[value.attributes["calls"]]
        parts = [part for part, _ in _results(called, value)]
        part = parts[indices.pop()] if called.root.opcode == "tuple" and indices else None
        source = behind_views(called, part) if part else None
        return value.operands[int(str(source.immediate))] if source and source.opcode == "parameter" else None
    return None


def _results(called: Computation, fusion: Instruction) -> list[tuple[Instruction, Shape]]:
    """Return what a fusion writes, each with its shape outside."""
    root, shape = called.root, fusion.shape
    if root.opcode == "custom-call" and root.attributes.get("custom_call_target") == DONE:
        return []
    elements = shape.elements if isinstance(shape, TupleShape) else ()
    if root.opcode == "custom-call" and root.attributes.get("custom_call_target") == START:
        # A start returns the operands of the collective first; of the rest nothing is made here.
        return list(zip(called.operands_of(called[root.operands[0]]), elements, strict=False))
    return list(zip(called.operands_of(root), elements, strict=True)) if root.opcode == "tuple" else [(root, shape)]


def _is_handed_on(computation: Computation, value: Instruction) -> bool:
    """Tell whether a fusion returns a value that its core does not make: an operand, or a collective of operands."""
    source = behind_views(computation, value)
    collects = is_collective(source) and _takes_parameters(computation, source)
    return source.opcode == "parameter" or collects


def _takes_parameters(computation: Computation, collective: Instruction) -> bool:
    """Tell whether a collective takes nothing but parameters of its computation."""
    return all(behind_views(computation, i).opcode == "parameter" for i in computation.operands_of(collective))


def _without_collectives(computation: Computation) -> Computation:
    """Return a computation in which collectives cost nothing."""
    free = {"opcode": "custom-call", "attributes": {}}
    kept = tuple(replace(i, **free) if is_collective(i) else i for i in computation)
    return dataclasses.replace(computation, instructions=kept)


def _needed(computation: Computation, root: Instruction) -> Computation:
    """Return a computation with another root, and of the rest the parameters and what the root needs."""
    needed, todo = {root.name}, list(root.operands)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo.extend(computation[name].operands)
    kept = (i for i in computation if i.name != root.name and (i.name in needed or i.opcode == "parameter"))
    return dataclasses.replace(computation, instructions=(*kept, root), root_name=root.name, offsets=())


def _with_computation(module: Module, changed: Computation) -> Module:
    """Return a module with one computation in the place of that of its name."""
    kept = tuple(changed if computation.name == changed.name else computation for computation in module.computations)
    return dataclasses.replace(module, computations=kept)
