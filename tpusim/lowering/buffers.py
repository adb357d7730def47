"""Buffers and their lifetimes, from the schedule: who makes a value, who only views it, who uses it last.

A value is, per array in it, the set of buffers that hold it. Tuples, views, loops and updates in place pass buffers on;
everything else makes new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpusim.ir.ops import async_parts
from tpusim.lowering.traffic import IN_PLACE, VIEWS, space_of
from tpusim.program.buffers import Buffer, BufferKind, peak_bytes
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import TupleShape, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.ir.module import Computation, Instruction, Module
    from tpusim.program.work import MemorySpace
    from tpusim.shapes.shape import Shape

    Leaves = list[frozenset[int]]


@dataclass
class Allocation:
    """A buffer in the making: ``last`` moves on as users are found."""

    name: str
    n_bytes: int
    space: MemorySpace
    kind: BufferKind
    first: int
    last: int

    def finished(self, is_result: bool) -> Buffer:
        """Return the buffer; what the computation returns is output, if it was made here."""
        kind = "output" if self.kind == "temporary" and is_result else self.kind
        return Buffer(
            name=self.name, n_bytes=self.n_bytes, space=self.space, kind=kind, first=self.first, last=self.last
        )


class Lifetimes:
    """Walks one computation and gathers its allocations; values hold their numbers."""

    def __init__(self, module: Module, computation: Computation) -> None:
        self.module = module
        self.computation = computation
        self.position = 0
        self.values: dict[str, Leaves] = {}
        self.allocations: list[Allocation] = []
        self.inner: list[Buffer] = []
        for self.position, instruction in enumerate(computation.instructions):
            self._visit(instruction)
        # One past the end: what is returned outlives the last instruction.
        self.position = len(computation.instructions)
        self._keep(computation.root_name)

    def result(self) -> list[Buffer]:
        """Return the buffers of the computation, those of the computations that it calls included."""
        returned = frozenset[int]().union(*self.values[self.computation.root_name])
        return [*(a.finished(i in returned) for i, a in enumerate(self.allocations)), *self.inner]

    def new(self, name: str, shape: Shape, kind: BufferKind = "temporary") -> Leaves:
        """Return fresh buffers for every array of ``shape``, alive from the instruction under way."""
        made: Leaves = []
        for leaf in leaves(shape):
            made.append(frozenset({len(self.allocations)}))
            allocation = Allocation(name, physical_bytes(leaf), space_of(leaf), kind, self.position, self.position)
            self.allocations.append(allocation)
        return made

    def _visit(self, instruction: Instruction) -> None:
        """Note what an instruction uses, what it makes, and what it needs while it runs."""
        # A view is no use: only who reads through it keeps the buffer alive.
        for name in instruction.operands if instruction.opcode not in _PASSING else ():
            self._keep(name)
        short = async_parts(instruction.opcode)
        make = _MAKE.get(f"async-{short[1]}" if short else instruction.opcode)
        made = make(self, instruction) if make else None
        self.values[instruction.name] = self._made(instruction) if made is None else made
        self._note_inner(instruction)

    def _made(self, instruction: Instruction) -> Leaves:
        """Return new buffers, but for the results that are written over an operand."""
        kind = _KINDS.get(instruction.opcode, "temporary")
        over = in_place_operands(self.module, instruction)
        made: Leaves = []
        for index, leaf in enumerate(leaves(instruction.shape)):
            # The compiler has put a copy where the old contents are still wanted, so none is kept here.
            if index in over:
                made += self.values[instruction.operands[over[index]]][:1]
            else:
                made += self.new(instruction.name, leaf, kind)
        return made

    def _keep(self, name: str) -> None:
        """Keep all buffers of a value alive until the instruction under way."""
        for leaf in self.values[name]:
            for number in leaf:
                self.allocations[number].last = self.position

    def _note_inner(self, instruction: Instruction) -> None:
        """Note the memory that an instruction needs while it runs, per memory space."""
        # Blocks and spills of one kernel: no operand or result shows them.
        scoped = instruction.backend_config.scoped_vmem_bytes if instruction.opcode == "fusion" else 0
        if scoped:
            self._note(instruction.name, scoped, "vmem")
        if instruction.opcode in ("while", "call", "conditional"):
            called = [inner_temporaries(self.module, name) for name in instruction.called_computations]
            spaces: set[MemorySpace] = {buffer.space for buffers in called for buffer in buffers}
            for space in sorted(spaces):
                # Of the computations that an instruction calls one runs at a time.
                most = max(peak_bytes(b for b in buffers if b.space == space) for buffers in called)
                self._note(instruction.name, most, space)

    def _note(self, name: str, n_bytes: int, space: MemorySpace) -> None:
        """Add a buffer that lives only while the instruction under way runs."""
        at = self.position
        self.inner.append(Buffer(name=name, n_bytes=n_bytes, space=space, kind="temporary", first=at, last=at))


def computation_buffers(module: Module, computation: Computation) -> tuple[Buffer, ...]:
    """Return the buffers of a scheduled computation and of all that it calls."""
    return tuple(Lifetimes(module, computation).result())


def inner_temporaries(module: Module, name: str) -> list[Buffer]:
    """Return the buffers that a called computation needs beyond its arguments and its results."""
    found = Lifetimes(module, module[name]).result()
    # Arguments and results are in the memory of the caller, who counts them.
    return [buffer for buffer in found if buffer.kind == "temporary"]


def in_place_operands(module: Module, instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) are written over which operands: updates in place, and what the text states."""
    if instruction.opcode in IN_PLACE:
        return {0: 0}
    if instruction.opcode != "fusion":
        return {}
    called = module[instruction.attributes["calls"]]
    # Only a root can be written over an operand: a value inside a fusion has no buffer.
    roots = called.operands_of(called.root) if called.root.opcode == "tuple" else (called.root,)
    targets = ((index, _updated_parameter(module, called, root)) for index, root in enumerate(roots))
    return {index: target for index, target in targets if target is not None}


def _updated_parameter(module: Module, computation: Computation, value: Instruction) -> int | None:
    """Return the number of the parameter that ``value`` updates in place, or None."""
    if value.opcode in VIEWS:
        return _updated_parameter(module, computation, computation[value.operands[0]])
    if value.opcode == "fusion":
        inner = in_place_operands(module, value).get(0)
        return None if inner is None else _parameter_behind(computation, value.operands[inner])
    return _parameter_behind(computation, value.operands[0]) if value.opcode in IN_PLACE else None


def _parameter_behind(computation: Computation, name: str) -> int | None:
    """Return the number of the parameter that a name is a view of, or None."""
    value = computation[name]
    while value.opcode in VIEWS:
        value = computation[value.operands[0]]
    return value.immediate if value.opcode == "parameter" and isinstance(value.immediate, int) else None


def _same(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the operand's own buffers."""
    return lifetimes.values[instruction.operands[0]]


def _tuple(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the buffers of all operands one after the other."""
    return [leaf for name in instruction.operands for leaf in lifetimes.values[name]]


def _element(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return one element's buffers of a tuple's."""
    source = lifetimes.computation[instruction.operands[0]]
    assert isinstance(source.shape, TupleShape)
    index = instruction.attributes["index"]
    begin = sum(len(tuple(leaves(element))) for element in source.shape.elements[:index])
    return lifetimes.values[source.name][begin : begin + len(tuple(leaves(instruction.shape)))]


def _copy_start(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return a new target, the operand as source, and nothing for the flag."""
    assert isinstance(instruction.shape, TupleShape)
    target = lifetimes.new(instruction.name, instruction.shape.elements[0])
    return [*target, *lifetimes.values[instruction.operands[0]], frozenset()]


def _copy_done(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the target of the copy."""
    return lifetimes.values[instruction.operands[0]][:1]


def _async_start(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the operands' buffers, then new ones for the results and flags."""
    # With the operands among its values, the start keeps them alive until its end is waited for.
    assert isinstance(instruction.shape, TupleShape)
    made = _tuple(lifetimes, instruction)
    short = async_parts(instruction.opcode)
    if short and short[0] in IN_PLACE:
        # The result is the first operand's own buffer, with the update in it.
        return [*made, made[0], *lifetimes.new(instruction.name, instruction.shape.elements[-1])]
    for element in instruction.shape.elements[1:]:
        made = [*made, *lifetimes.new(instruction.name, element)]
    return made


def _send(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the payload's own buffers, then new ones for the flag and the token."""
    assert isinstance(instruction.shape, TupleShape)
    made = list(lifetimes.values[instruction.operands[0]])
    for element in instruction.shape.elements[1:]:
        made = [*made, *lifetimes.new(instruction.name, element)]
    return made


def _recv_done(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return what was received and its token; the flag between them is gone."""
    received = lifetimes.values[instruction.operands[0]]
    return [*received[:-2], received[-1]]


def _async_done(lifetimes: Lifetimes, instruction: Instruction) -> Leaves:
    """Return the results of an asynchronous start, which follow its operands."""
    start = lifetimes.computation[instruction.operands[0]]
    assert isinstance(start.shape, TupleShape)
    # ((operands), results, flags): the first element says where the results begin.
    begin = len(tuple(leaves(start.shape.elements[0])))
    return lifetimes.values[start.name][begin : begin + len(tuple(leaves(instruction.shape)))]


def _custom_call(lifetimes: Lifetimes, instruction: Instruction) -> Leaves | None:
    """Return the operands' buffers where a custom call only joins them, else None."""
    # Its operands were allocated side by side, so that joining them moves nothing.
    if instruction.attributes.get("custom_call_target") != "ConcatBitcast":
        return None
    return [frozenset().union(*_tuple(lifetimes, instruction))]


_KINDS: dict[str, BufferKind] = {"parameter": "argument", "constant": "constant"}

_PASSING = frozenset(("add-dependency", "bitcast", "domain", "get-tuple-element", "opt-barrier", "tuple"))

_MAKE: dict[str, Callable[[Lifetimes, Instruction], Leaves | None]] = {
    "add-dependency": _same,
    "all-gather-start": _async_start,
    "async-done": _async_done,
    "async-start": _async_start,
    "async-update": _same,
    "bitcast": _same,
    "collective-permute-start": _async_start,
    "copy-done": _copy_done,
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "domain": _same,
    "get-tuple-element": _element,
    "all-gather-done": _async_done,
    "all-reduce-done": _same,
    "recv-done": _recv_done,
    "send": _send,
    "collective-permute-done": _async_done,
    "opt-barrier": _same,
    "tuple": _tuple,
    # A loop keeps its state in one place: the result of a trip lies where its parameter lay.
    "while": _same,
}
"""Opcodes that pass buffers on; what is not here makes new ones."""
