"""Fusions: one kernel of what they hold, and beside it what has steps of its own: collectives, code written by hand."""

from __future__ import annotations

import msgspec
from msgspec import structs

from tpusim.cost.models.operations import Table, operations_of
from tpusim.hardware.units import VMEM
from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import MOVES_ONLY, PRODUCTS, VIEWS
from tpusim.lowering.collectives import MAY_HOLD, collective_part, inner_collective, is_fed, other_part
from tpusim.lowering.custom_calls import written_elsewhere
from tpusim.lowering.kernels.kernel import kernel_or_scalar, make_kernel
from tpusim.lowering.pallas.operands import Fed, array_of, as_given
from tpusim.lowering.scope import Scope, rule
from tpusim.program.steps import AnyStep, Kernel
from tpusim.semantics.demand.inlining import Inner
from tpusim.shapes.shape import leaves


@rule("fusion")
def lower_fusion(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a fusion: one kernel that does all that stands in it; a collective in it is a step of its own."""
    # Views of views: there is nothing to run, and a fixed cost would be charged for it.
    if scope.module[instruction.attributes["calls"]].opcodes <= _NAMES:
        return ()
    # Networks repeat their layers: only one of those that are alike is looked into.
    key = scope.known.key(scope.computation, instruction)
    known = scope.known.kernels.get(key)
    if known is not None:
        return (_alike(scope, instruction, *known),)
    if scope.body_of(instruction).opcodes & MAY_HOLD and inner_collective(scope, instruction.attributes["calls"]):
        return _with_collective(scope, instruction)
    if written := hand_written(scope, instruction):
        return written_elsewhere(scope, instruction, written.call, written.operands)
    before = scope.notes.count
    made = kernel_or_scalar(scope, instruction, _fusion_category(scope, instruction))
    # A model of a user's own may look at names, and what has no rule is told of each by its own.
    if scope.notes.count == before and type(operations_of(scope.chip)) is Table:
        scope.known.kernels[key] = instruction, made
    return (made,)


_NAMES = VIEWS | {"parameter"}


def _alike(scope: Scope, fusion: Instruction, other: Instruction, kernel: Kernel) -> Kernel:
    """Return the kernel of a fusion that is alike another one, whose kernel is given."""
    names = dict(zip((other.name, *other.operands), (fusion.name, *fusion.operands), strict=True))
    streams = tuple([structs.replace(each, operand=names[each.operand]) for each in kernel.streams])
    return structs.replace(kernel, **scope.label(fusion, kernel.category), streams=streams)


def _with_collective(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a fusion with a collective: what it does with that, and a kernel of the rest if that computes anything."""
    collectives = collective_part(scope, instruction)
    inside, rest = other_part(scope, instruction)
    if not any(_computes_array(item) for item in inside.body_of(rest).values):
        return collectives
    kernel = kernel_or_scalar(inside, rest, _fusion_category(inside, rest))
    return (kernel, *collectives) if is_fed(scope, instruction) else (*collectives, kernel)


def _computes_array(item: Inner) -> bool:
    """Return whether an instruction inside a fusion computes with more than single elements."""
    # Moving the data of a collective about is part of it, and so is where: a number from the device's own.
    if item.instruction.opcode in MOVES_ONLY:
        return False
    values = (item.instruction, *item.computation.operands_of(item.instruction))
    return any(leaf.element_count > 1 for value in values for leaf in leaves(value.shape))


def _fusion_category(scope: Scope, instruction: Instruction) -> str:
    # The names that the XLA profiler shows, so that its tables can be laid beside ours.
    if scope.body_of(instruction).opcodes & PRODUCTS:
        return "convolution fusion"
    kind = instruction.attributes.get("kind", "kLoop")
    return {"kLoop": "loop fusion", "kInput": "input fusion", "kOutput": "output fusion"}.get(kind, "custom fusion")


class Written(msgspec.Struct, frozen=True):
    """A kernel written by hand, and what it is given."""

    call: Instruction
    operands: list[Fed]


def hand_written(scope: Scope, instruction: Instruction) -> Written | None:
    """Return the hand-written kernel that an instruction is, or that is in it as a fusion, if there is just one."""
    if instruction.opcode != "fusion":
        is_one = instruction.opcode == "custom-call" and instruction.backend_config.kernel_body
        given = scope.computation.operands_of(instruction)
        return Written(instruction, [as_given(item) for item in given]) if is_one else None
    called = scope.module[instruction.attributes["calls"]]
    if "custom-call" not in called.opcodes:
        return None
    calls = [item for item in called.instructions if item.opcode == "custom-call" and item.backend_config.kernel_body]
    return Written(calls[0], _operands(scope, instruction, calls[0])) if len(calls) == 1 else None


def _operands(scope: Scope, fusion: Instruction, call: Instruction) -> list[Fed]:
    """Return what a hand-written kernel in a fusion is given: operands of the fusion, or what it makes of them."""
    called = scope.module[fusion.attributes["calls"]]
    outside = dict(zip((item.name for item in called.parameters), scope.computation.operands_of(fusion), strict=True))
    found = []
    for operand in called.operands_of(call):
        made = _behind_views(called, operand)
        if made.name in outside or made.opcode == "constant":
            found.append(as_given(outside.get(made.name, made))._replace(shape=array_of(operand)))
        else:
            kernel = make_kernel(scope.inside(called.name), made, "")
            found.append(Fed(made, array_of(operand), VMEM, _of_operands(kernel, outside)))
    return found


def _behind_views(called: Computation, value: Instruction) -> Instruction:
    while value.opcode in VIEWS:
        value = called[value.operands[0]]
    return value


def _of_operands(kernel: Kernel, outside: dict[str, Instruction]) -> Kernel:
    """Return a kernel inside a fusion with the fusion's operands, and where they lie, for what it names them."""
    given = {name: as_given(item) for name, item in outside.items()}
    streams = (
        structs.replace(s, operand=given[s.operand].source.name, space=given[s.operand].space)
        for s in kernel.streams
        if s.operand in given
    )
    return structs.replace(kernel, streams=tuple(streams))
