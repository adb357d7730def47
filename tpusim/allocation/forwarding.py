"""Instructions that forward buffers: tuples, views, loops, calls and asynchronous pairs. All others make new ones.

A rule returns, per part of an instruction's result, the values that hold it, or None where the result is new after all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from tpusim.ir.module import Instruction, wrapped_opcode
from tpusim.ir.ops import IN_PLACE, async_parts, async_phase
from tpusim.semantics.aliasing import joined_in_order, joins_operands
from tpusim.semantics.infer.types import parts
from tpusim.shapes.shape import Shape, TupleShape, element_begins, node_count, nodes

if TYPE_CHECKING:
    from tpusim.allocation.liveness import Frame, Node, Nodes
    from tpusim.ir.module import Computation

    Visit = tuple[Computation, Sequence[Nodes] | None]
    """A computation to walk, and where its arguments lie, None for those of the entry."""
    Walk = Generator[Visit, Nodes, Nodes]
    """A rule under way: it yields the visits that its instruction makes, and is sent where their results lie."""
    Make = Callable[[Frame, Instruction], Nodes | Walk | None]


def _tuple(frame: Frame, instruction: Instruction) -> Nodes:
    """Return a new table, then the values of all operands one after the other."""
    return [frame.liveness.value(instruction, instruction.shape), *_operands(frame, instruction)]


def _operands(frame: Frame, instruction: Instruction) -> Nodes:
    """Return the values of all operands one after the other."""
    return [part for name in instruction.operands for part in frame.values[name]]


def _element(frame: Frame, instruction: Instruction) -> Nodes | None:
    """Return one element's values of a tuple's, None if it has no such element: that is for the verifier to report."""
    source = frame.computation[instruction.operands[0]]
    index = instruction.attributes["index"]
    # Nothing but a tuple has elements.
    begins = element_begins(source.shape) if isinstance(source.shape, TupleShape) else ()
    return frame.values[source.name][begins[index] : begins[index + 1]] if index + 1 < len(begins) else None


def _parameter(frame: Frame, instruction: Instruction) -> Nodes | None:
    """Return the caller's argument; None where there is none, as in the entry."""
    number = int(str(instruction.immediate))
    return None if frame.arguments is None or number >= len(frame.arguments) else frame.arguments[number]


def _copy_start(frame: Frame, instruction: Instruction) -> Nodes:
    """Return a new table and target, the operand as source, and nothing for the flag."""
    target = frame.liveness.new(instruction, parts(instruction.shape)[0])
    return [frame.liveness.value(instruction, instruction.shape), *target, *frame.values[instruction.operands[0]], ()]


def _async_start(frame: Frame, instruction: Instruction) -> Nodes:
    """Return tables, the operands' values, then new ones for the results and the flags."""
    liveness, elements = frame.liveness, parts(instruction.shape)
    made = [liveness.value(instruction, instruction.shape)]
    if isinstance(elements[0], TupleShape):
        made.append(liveness.value(instruction, instruction.shape))
    begin = len(made)
    made += _operands(frame, instruction)
    if _writes_over_the_first(frame, instruction):
        # The result is the first operand's own buffer, with the update in it.
        return [*made, made[begin], *liveness.new(instruction, elements[-1])]
    return made + [part for element in elements[1:] for part in liveness.new(instruction, element)]


def _writes_over_the_first(frame: Frame, start: Instruction) -> bool:
    """Return whether an asynchronous start is around an operation that writes over what its first operand is."""
    if async_phase(start.opcode) != "start" or wrapped_opcode(start, frame.module.by_name) not in IN_PLACE:
        return False
    called = None if async_parts(start.opcode) else frame.module[start.attributes["calls"]]
    return called is None or called.root.operands[0] == called.parameters[0].name


def _send(frame: Frame, instruction: Instruction) -> Nodes:
    """Return a new table, the payload's own values, then new ones for the flag and the token."""
    made = [frame.liveness.value(instruction, instruction.shape), *frame.values[instruction.operands[0]]]
    for element in parts(instruction.shape)[1:]:
        made += frame.liveness.new(instruction, element)
    return made


def _recv_done(frame: Frame, instruction: Instruction) -> Nodes:
    """Return a new table, then what was received and its token; the flag between them is gone."""
    received = frame.values[instruction.operands[0]]
    return [frame.liveness.value(instruction, instruction.shape), *received[1:-2], received[-1]]


def _async_done(frame: Frame, instruction: Instruction) -> Nodes:
    """Return the results of an asynchronous start, which follow its operands."""
    start = frame.computation[instruction.operands[0]]
    # ((operands), results, flags): the first element says where the results begin.
    begin = 1 + node_count(parts(start.shape)[0])
    return frame.values[start.name][begin : begin + node_count(instruction.shape)]


def _custom_call(frame: Frame, instruction: Instruction) -> Nodes | None:
    """Return a value that lies where the operands do if a custom call only joins them, else None."""
    if not joins_operands(instruction):
        return None
    made = frame.liveness.value(instruction, instruction.shape)
    order = joined_in_order(frame.module, frame.computation, instruction)
    joined = [number for at in order for part in frame.values[instruction.operands[at]] for number in part]
    frame.liveness.values[made[0]].joins = tuple(frame.liveness.values[number] for number in joined)
    return [made]


def _call(frame: Frame, instruction: Instruction) -> Walk:
    arguments = [frame.values[name] for name in instruction.operands]
    return (yield frame.module[instruction.attributes["to_apply"]], arguments)


def _conditional(frame: Frame, instruction: Instruction) -> Walk:
    """Return new values in the places of what the branches return: one place, whichever runs."""
    arguments = [frame.values[name] for name in instruction.operands[1:]]
    branches = (frame.module[name] for name in branch_names(instruction))
    results = []
    for branch, given in zip(branches, arguments, strict=False):
        results.append((yield branch, [given]))
    made = frame.liveness.phi(instruction, instruction.shape)
    for result in results:
        for one, other in zip(made, result, strict=False):
            frame.liveness.join(one, other)
    return made


def branch_names(instruction: Instruction) -> tuple[str, ...]:
    """Return the computations of a conditional's branches, true before false."""
    attributes = instruction.attributes
    if "branch_computations" in attributes:
        return tuple(attributes["branch_computations"])
    return attributes["true_computation"], attributes["false_computation"]


def _while(frame: Frame, instruction: Instruction) -> Walk:
    """Return the state of a loop, each array in one place from trip to trip."""
    # What no trip changes is one value throughout. Anything else is a value on its way in, one per trip, and one on its
    # way out: between them the place is free for others.
    before = frame.values[instruction.operands[0]]
    state = _state(frame, instruction, before)
    yield frame.module[instruction.attributes["condition"]], [state]
    after = yield frame.module[instruction.attributes["body"]], [state]
    for one, inside, other in zip(before, state, after, strict=False):
        if inside == other:
            frame.liveness.take_over(one, inside)
    shapes = nodes(instruction.shape)
    return [_after_loop(frame, instruction, *part) for part in zip(shapes, state, after, strict=False)]


def _state(frame: Frame, instruction: Instruction, before: Nodes) -> Nodes:
    """Return the values that a loop's computations get, in the places of those ``before`` it."""
    liveness = frame.liveness
    fresh = liveness.phi(instruction, instruction.shape)
    # The first trip begins here: from now on the state is the loop's own.
    liveness.keep(before, liveness.now)
    for one, other in zip(before, fresh, strict=False):
        liveness.join(one, other)
    return [other if len(one) == 1 else one for one, other in zip(before, fresh, strict=False)]


def _after_loop(frame: Frame, instruction: Instruction, shape: Shape, inside: Node, after: Node) -> Node:
    """Return the value of one array of a loop's state after the loop."""
    if inside == after:
        return inside
    made = frame.liveness.value(instruction, shape)
    frame.liveness.values[made[0]].is_phi = True
    frame.liveness.join(inside, after)
    frame.liveness.join(inside, made)
    return made


MAKE: dict[str, Make] = {
    **dict.fromkeys(
        ("add-dependency", "all-reduce-done", "async-update", "bitcast", "domain", "opt-barrier"),
        lambda frame, instruction: frame.values[instruction.operands[0]],
    ),
    **dict.fromkeys(("all-gather-start", "async-start", "collective-permute-start"), _async_start),
    **dict.fromkeys(("all-gather-done", "async-done", "collective-permute-done"), _async_done),
    "call": _call,
    "conditional": _conditional,
    # The target, the first that the start of the copy made behind the table.
    "copy-done": lambda frame, instruction: frame.values[instruction.operands[0]][1:2],
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "get-tuple-element": _element,
    "parameter": _parameter,
    "recv-done": _recv_done,
    "send": _send,
    "tuple": _tuple,
    "while": _while,
}
"""Opcodes that forward buffers; all others make new ones."""
