"""Whether buffers, which are written in place, are used by operations that know how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tpusim.ir.attributes import OperandAlias
from tpusim.ir.ops import CALLS, CARRIES_BUFFERS, UPDATES_BUFFERS, async_phase
from tpusim.semantics.infer.async_ops import find_async_state
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.infer.types import indexed_leaves, is_array, plain
from tpusim.semantics.verify.layouts import laid_out_alike
from tpusim.semantics.verify.view import Call, Finding, View, at, checks, users_of
from tpusim.shapes.shape import BufferShape, Shape, TupleShape, compatible

# Counted as writers whatever they do inside: a call may update what it is handed.
_WRITERS = UPDATES_BUFFERS | CALLS - {"async-start"}


@checks
def _check_buffers(view: View) -> Iterator[Finding]:
    """Check every use of a buffer; most modules have none."""
    if not any(_buffer_indices(call.instruction.shape) for call in view.shapes.values()):
        return
    for computation in view.module.computations:
        holders = {i.name for i in computation.instructions if _buffer_indices(i.shape)}
        callers = view.callers.get(computation.name, ())
        # The buffers of what an asynchronous start runs are the start's.
        if not holders or any(call.instruction.opcode == "async-start" for call in callers):
            continue
        for instruction in computation.instructions:
            if instruction.name in holders or not holders.isdisjoint(instruction.operands):
                yield from _check_use(view, Call(computation, instruction))


def _check_use(view: View, call: Call) -> Iterator[Finding]:
    instruction, computation = call.instruction, call.computation
    if async_phase(instruction.opcode):
        state = find_async_state(instruction.shape)
        if instruction.opcode == "custom-call-start" and state is not None:
            yield from _check_custom_call(call, state[1])
        return
    if instruction.opcode == "call" and "_xla_stream_annotation" in frontend_attributes(instruction.attributes):
        return
    is_entry = computation.name == view.module.entry_name
    if instruction.opcode not in CARRIES_BUFFERS and (instruction.opcode != "parameter" or is_entry):
        yield at(call, "buffer_c1", plain(instruction.shape))
    if instruction.opcode == "custom-call":
        yield from _check_custom_call(call, instruction.shape)
    if instruction.opcode == "dynamic-update-slice":
        yield from _check_update(call)
    if instruction.opcode in UPDATES_BUFFERS | {"parameter"}:
        for index in _buffer_indices(instruction.shape):
            if _writer_count(view, call, index) > 1:
                yield at(call, "buffer_c4", f"several of {index}")


def _check_update(call: Call) -> Iterator[Finding]:
    shapes = [operand.shape for operand in call.computation.operands_of(call.instruction)]
    if any(map(_buffer_indices, shapes[1:])):
        yield at(call, "buffer_c1", ", ".join(map(plain, shapes)))
    if not isinstance(call.instruction.shape, BufferShape):
        yield at(call, "buffer_c5", plain(call.instruction.shape))


def _check_custom_call(call: Call, result: Shape) -> Iterator[Finding]:
    """Check the calls that make and end buffers, and that others hand each buffer on."""
    instruction = call.instruction
    target = instruction.attributes["custom_call_target"]
    shapes = tuple(call.computation.by_name[name].shape for name in instruction.operands)
    aliases: tuple[OperandAlias, ...] = instruction.attributes.get("output_to_operand_aliasing", ())
    if target in ("CreateBuffer", "Pin", "Unpin"):
        if not _is_turned(target, shapes, result) or len(aliases) != (target != "CreateBuffer"):
            yield at(call, "buffer_c2", f"{target} of {plain(TupleShape(shapes))} to {plain(result)}")
        return
    given = Counter((alias.operand, alias.operand_index) for alias in aliases)
    taken = Counter(alias.output_index for alias in aliases)
    wrong: list[object] = [
        (number, index)
        for number, shape in enumerate(shapes)
        for index in _buffer_indices(shape)
        if given[number, index] != 1
    ]
    wrong += [index for index in _buffer_indices(result) if taken[index] != 1]
    if wrong:
        yield at(call, "buffer_c3", f"no alias, or several, of {wrong[0]}")


def _is_turned(target: str, shapes: tuple[Shape, ...], result: Shape) -> bool:
    """Return whether an array becomes a buffer of its shape, a buffer an array, or a buffer comes from nothing."""
    if target == "CreateBuffer":
        return not shapes and isinstance(result, BufferShape)
    if len(shapes) != 1:
        return False
    array, buffer = (shapes[0], result) if target == "Pin" else (result, shapes[0])
    if not is_array(array) or not isinstance(buffer, BufferShape) or not compatible(buffer.element, array):
        return False
    return laid_out_alike(buffer.element, array)


def _buffer_indices(shape: Shape) -> list[tuple[int, ...]]:
    return [index for index, leaf in indexed_leaves(shape) if isinstance(leaf, BufferShape)]


# Two writers would race, or need the copy that a buffer is there to avoid.
def _writer_count(view: View, call: Call, index: tuple[int, ...]) -> int:
    """Return how many users may write the buffer at an index of a value, through tuples and their elements."""
    computation, writers = call.computation, set[str]()
    # Not one call in the other: tuples and their elements may follow each other at any length. Each is gone into once:
    # tuples of one element twice have as many ways through them as powers of two.
    waiting, seen = [(call, index)], set[tuple[str, tuple[int, ...]]]()
    while waiting:
        call, index = waiting.pop()
        name = call.instruction.name
        if (name, index) in seen:
            continue
        seen.add((name, index))
        for user in users_of(call):
            if user.opcode in _WRITERS or async_phase(user.opcode) == "start":
                writers.add(user.name)
            elif user.opcode == "get-tuple-element" and index and user.attributes["index"] == index[0]:
                waiting.append((Call(computation, user), index[1:]))
            elif user.opcode == "tuple" and user.name == computation.root_name:
                # What a loop's body gives, the next iteration takes.
                callers = view.callers.get(computation.name, ())
                writers |= {user.name for caller in callers if caller.instruction.opcode == "while"}
            elif user.opcode == "tuple":
                places = [at for at, operand in enumerate(user.operands) if operand == name]
                waiting += [(Call(computation, user), (at, *index)) for at in places]
    return len(writers)
