"""Kernels that only move data: arrays turned round, sliced out of a stack, or written where they could lie already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.ir.ops import OPERATIONS, Category
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import Stream

_MOST_GROUPS = 4

_CHANGES = {
    "dynamic-update-slice": "donate the array (donate_argnums, or carry it in the loop) and write only what changes",
    "dynamic-slice": "make the axis that is sliced the first, and read slices where they are used (unroll the scan)",
    "transpose": "keep the array in one order of dimensions: swap the axes where it is made (einsum, swapaxes)",
    "copy": "keep the array in one order of dimensions: swap the axes where it is made",
    "concatenate": "write the parts into one array where they are made, instead of joining them",
}
"""By what a kernel does with its array, the first that it has."""

_OTHER = "use the array as it lies where it is read"


@advises("copies")
def copies(case: Case) -> Iterator[Trial]:
    """Propose to do without kernels that move as much as they make: what read their result reads their operand."""
    groups: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for step in case.program.every_step:
        if isinstance(step, Kernel) and step.family == "copy" and _moved(step):
            # What the compiler put in has no source: all of one kind together.
            groups[step.source, _kind(case, step)].append(step)
    for (_, kind), group in sorted(groups.items(), key=lambda item: -case.share(*item[1]))[:_MOST_GROUPS]:
        if case.share(*group) < LEAST_SHARE:
            return
        moved = {step.name: found for step in group if (found := _moved(step))}
        count = f"{len(group)} kernels only move" if len(group) > 1 else "a kernel only moves"
        yield Trial(
            what=f"{count} data ({kind})",
            change=_CHANGES.get(kind, _OTHER),
            alternative=with_steps(case.program, partial(_without, moved=moved)),
            **case.places(group),
        )


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
    # In runs as long as now: where it lies, it then lies in the order in which it is read.
    return structs.replace(stream, space=there.space)


def _kind(case: Case, step: Kernel) -> str:
    """Return the opcode that says best what a kernel does with its array."""
    instruction = case.instruction(step)
    if instruction is None or case.module is None:
        return step.opcode
    inside = [one.opcode for name in instruction.called_computations for one in case.module[name]] or [step.opcode]
    known = next((opcode for opcode in _CHANGES if opcode in inside), "")
    return known or next((opcode for opcode in inside if OPERATIONS[opcode].category is Category.DATA), step.opcode)
