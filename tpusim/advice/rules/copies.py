"""Kernels that only move data: arrays turned round, sliced out of a stack, or written where they could lie already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import structs

from tpusim.advice.loops import element_of, handed_as_is, is_updated
from tpusim.advice.rules.donation import copies_to_donate
from tpusim.advice.rules.padding import Size, mended, worst_stored
from tpusim.advice.rules.small_kernels import latency_bound
from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.hardware.units import HBM
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import FREE, INDEXED, JOINS, OPERATIONS, RELAYOUTS, SLICES, Category
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Loop, Steps
from tpusim.program.work import Stream
from tpusim.semantics.aliasing import behind_views
from tpusim.shapes.shape import ArrayShape

_MOST_GROUPS = 4

_LAYS_OUT = FREE | RELAYOUTS | {"fusion"}
"""Opcodes of kernels that make of an array the same one, perhaps in another layout."""

_AS_IT_IS, _ELSEWHERE = "copy in the same layout", "copy to another memory"
_OF_STATE = "copy of what a loop updates"

_CHANGES = {
    "dynamic-update-slice": "donate the array (donate_argnums, or carry it in the loop) and write only what changes",
    "dynamic-slice": "make the axis that is sliced the first, and read slices where they are used (unroll the scan)",
    "transpose": "keep the array in one order of dimensions: swap the axes where it is made (einsum, swapaxes)",
    "copy": "keep the array in one order of dimensions: swap the axes where it is made",
    _AS_IT_IS: "let the array be written over: donate it (donate_argnums), or read it no more once it is updated",
    _OF_STATE: "read the array no more in a trip once it is updated: read what it was updated to",
    "concatenate": "write the parts into one array where they are made, instead of joining them",
}
"""By what a kernel does with its array, the first that it has."""

_OTHER = "use the array as it lies where it is read"


@advises("copies")
def copies(case: Case) -> Iterator[Trial]:
    """Propose to do without kernels that move as much as they make: what read their result reads their operand."""
    groups: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    small = latency_bound(case)
    for step in _removable(case):
        # What the compiler put in has no source: all of one kind together.
        groups[step.source, _kind(case, step)].append(step)
    for (_, kind), group in sorted(groups.items(), key=lambda item: -case.share(*item[1]))[:_MOST_GROUPS]:
        if case.share(*group) < LEAST_SHARE:
            return
        # What a loop collects bit by bit is written in any case.
        if kind == "dynamic-update-slice" and all(id(step) in small for step in group):
            continue
        moved = {step.name: found for step in group if (found := _moved(step))}
        count = f"{len(group)} kernels only move" if len(group) > 1 else "a kernel only moves"
        size = _padded(case, group)
        into = f" to where dimensions of {size.size} take the room of {size.stored}" if size else ""
        yield Trial(
            what=f"{count} data ({kind}){into}",
            change=mended(size) if size else _CHANGES.get(kind, _OTHER),
            alternative=with_steps(case.program, partial(_without, moved=moved)),
            **case.places(group),
        )


def _removable(case: Case) -> Iterator[Kernel]:
    """Yield the kernels that only lay arrays out, or move parts that could be read or written where they lie."""
    every_step = case.program.every_step
    looped = {id(step) for loop in every_step if isinstance(loop, Loop) for step in loop.body}
    results = _results(case.module) if case.module else frozenset[str]()
    # Those are found by the rule for donation.
    donated = copies_to_donate(case.module) if case.module else frozenset[str]()
    for step in every_step:
        if not isinstance(step, Kernel) or step.family != "copy" or step.name in donated or not (read := _moved(step)):
            continue
        if _is_loop_state(case, step, is_looped=id(step) in looped):
            continue
        opcodes = _opcodes(case, step)
        is_needed = step.name in results and (not opcodes & JOINS or _is_argument(case, step, read))
        # In a loop all of an array is gone through; a place that is an argument looks one part of it up.
        is_looked_up = opcodes & INDEXED and id(step) not in looped and not _is_at_constants(case, step)
        moves_parts = opcodes <= _LAYS_OUT | SLICES | JOINS and not is_needed and not is_looked_up
        if opcodes <= _LAYS_OUT or moves_parts:
            yield step


def _is_loop_state(case: Case, step: Kernel, *, is_looped: bool) -> bool:
    """Return whether a copy makes an array that a loop hands from trip to trip, which no change in the code saves.

    A trip reads all of the array while it writes the next one, or the first trip finds it in its memory.
    """
    instruction = case.instruction(step)
    if instruction is None or case.module is None or instruction.opcode != "copy":
        return False
    home = case.homes[step.name]
    kind = _kind_of_copy(home, instruction)
    users = [user for user, _ in home.users.get(step.name, ())]
    held = {holder.opcode for user in users if user.opcode == "tuple" for holder, _ in home.users.get(user.name, ())}
    if kind == _ELSEWHERE and "while" in held:
        return True
    if kind not in (_AS_IT_IS, _ELSEWHERE) or not is_looped:
        return False
    if home.root in users:
        return True
    number = element_of(home, instruction)
    return number is not None and number not in handed_as_is(home) and not is_updated(case.module, home, number)


def _results(module: Module) -> frozenset[str]:
    """Return the names of what a program returns, which has to be made."""
    root = module.entry.root
    parts = module.entry.operands_of(root) if root.opcode == "tuple" else (root,)
    return frozenset(behind_views(module.entry, part).name for part in parts)


def _opcodes(case: Case, step: Kernel) -> frozenset[str]:
    """Return what a kernel does; of a lowered program what the framework calls it, if it is a fusion."""
    instruction = case.instruction(step)
    if instruction is None or case.module is None:
        return frozenset({_said(step.op_name) if step.opcode == "fusion" else step.opcode})
    called = case.module.called_from([instruction])
    return frozenset({instruction.opcode}).union(*(case.module[name].opcodes for name in called))


def _is_at_constants(case: Case, step: Kernel) -> bool:
    """Return whether the place of what a kernel cuts out or puts in is known without a run."""
    if case.module is None or (instruction := case.instruction(step)) is None:
        return False
    operands = case.homes[step.name].operands_of(instruction)
    scalars = (one for one in operands if isinstance(one.shape, ArrayShape) and not one.shape.dimensions)
    return all(one.opcode == "constant" for one in scalars)


def _is_argument(case: Case, step: Kernel, read: Stream) -> bool:
    """Return whether what a kernel moves is an argument of the program, which is not made anywhere."""
    home = case.homes.get(step.name)
    if case.module is None or home is not case.module.entry or read.operand not in home.by_name:
        return False
    return behind_views(home, home[read.operand]).opcode == "parameter"


def _padded(case: Case, group: Sequence[Kernel]) -> Size | None:
    """Return the size for which at least half of what one of a group writes is padding."""
    shapes = [one.shape for step in group if (one := case.instruction(step)) and isinstance(one.shape, ArrayShape)]
    sizes = (size for shape in shapes if (size := worst_stored(shape)) and 2 * size.size <= size.stored)
    return next(sizes, None)


def _moved(kernel: Kernel) -> Stream | None:
    """Return what a kernel reads of the array that it moves, None where it makes more or less of it."""
    reads = [stream for stream in kernel.streams if not stream.is_output]
    written = sum(stream.total_bytes for stream in kernel.streams if stream.is_output)
    largest = max(reads, key=lambda stream: stream.total_bytes, default=None)
    return largest if largest is not None and 0.5 <= largest.total_bytes / max(1.0, written) <= 2 else None


def _without(steps: Steps, moved: Mapping[str, Stream]) -> Steps:
    """Return steps without some kernels; what read their results reads what these read, where that lies."""
    return tuple(
        structs.replace(step, streams=tuple(_read_there(stream, moved) for stream in step.streams))
        if isinstance(step, Kernel)
        else step
        for step in steps
        if step.name not in moved
    )


def _read_there(stream: Stream, moved: Mapping[str, Stream]) -> Stream:
    there = moved.get(stream.operand)
    if there is None or stream.is_output:
        return stream
    while there.operand in moved:
        there = moved[there.operand]
    # Of an array that several kernels put together the last part says nothing of the others.
    is_part = stream.total_bytes > 2 * there.total_bytes
    is_far = is_part and any(one.space == HBM for one in moved.values())
    # In runs as long as now: where it lies, it then lies in the order in which it is read.
    return structs.replace(stream, space=HBM if is_far else there.space)


def _kind(case: Case, step: Kernel) -> str:
    """Return the opcode that says best what a kernel does with its array: the framework's, else the compiler's."""
    said, instruction = _said(step.op_name), case.instruction(step)
    if said not in _CHANGES and instruction is not None and instruction.opcode == "copy":
        home = case.homes[step.name]
        kind = _kind_of_copy(home, instruction)
        # Only arguments of the program can be donated.
        is_inner = case.module is not None and home is not case.module.entry
        return _OF_STATE if is_inner and kind == _AS_IT_IS else kind
    if said in _CHANGES or instruction is None or case.module is None:
        return said if said in _CHANGES else step.opcode
    inside = [one.opcode for name in instruction.called_computations for one in case.module[name]] or [step.opcode]
    known = next((opcode for opcode in _CHANGES if opcode in inside), "")
    if known == "dynamic-update-slice" and not said:
        # Of a join the last kernel alone has the name.
        joined = _said(case.op_names[step.name])
        return joined if joined in _CHANGES else known
    return known or next((opcode for opcode in inside if OPERATIONS[opcode].category is Category.DATA), step.opcode)


def _kind_of_copy(home: Computation, copy: Instruction) -> str:
    given, made = home[copy.operands[0]].shape, copy.shape
    if not isinstance(given, ArrayShape) or not isinstance(made, ArrayShape):
        return "copy"
    old, new = given.actual_layout, made.actual_layout
    if (old.minor_to_major, old.tiles) != (new.minor_to_major, new.tiles):
        return "copy"
    return _AS_IT_IS if old.memory_space == new.memory_space else _ELSEWHERE


def _said(op_name: str) -> str:
    return op_name.rpartition("/")[2].replace("_", "-")
