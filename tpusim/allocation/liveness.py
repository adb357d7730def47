"""From when to when values live: one walk over the schedule, called computations included in their places.

The rules are those of XLA's buffer assignment (xla/hlo/analysis: HloDataflowAnalysis, HloAliasAnalysis, HloLiveRange).
The schedule is flat: what a loop, call or conditional runs stands before it. Values that must lie in one place, such as
those that a loop carries, are joined to one buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tpusim.allocation.forwarding import MAKE
from tpusim.allocation.heap import aligned
from tpusim.allocation.temporary import Visited, temporary_bytes
from tpusim.hardware.units import VMEM, MemorySpace
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COPIES, FORWARDS_BUFFERS, async_parts, long_form
from tpusim.nesting import walk_nested
from tpusim.semantics.aliasing import in_place_operands, stated_operands
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, node_number, nodes

if TYPE_CHECKING:
    from tpusim.allocation.forwarding import Make, Visit, Walk

Node = tuple[int, ...]
"""The value that holds one part of a shape: none for a flag."""
Nodes = list[Node]
"""The same for all parts of a shape: each tuple, of which a table of addresses is kept, before its elements."""

# As in the output sizes of programs compiled ahead of time.
TABLE_ENTRY_BYTES = 4


class Value(msgspec.Struct, eq=False):
    """One array that an instruction makes, or a tuple's table: ``last`` moves on as users are found."""

    instruction: Instruction
    shape: Shape
    n_bytes: int
    space: MemorySpace
    first: int
    last: int
    # The instruction that made its contents, not the copy that moved them.
    origin: Instruction
    is_result: bool = False
    # A loop's or conditional's value stands for several that instructions make.
    is_phi: bool = False
    # Written over an operand, as it must be: an update in place.
    is_update: bool = False
    # The value whose memory it takes over by the compiler's choice: no rule makes the two share.
    takes_over: Value | None = None
    # The values, side by side, that it joins: it lies where they do.
    joins: tuple[Value, ...] = ()


def table_size(shape: TupleShape, granule_bytes: int) -> int:
    """Return the bytes of the table of addresses that a tuple is, those of tuples in it left out."""
    return aligned(TABLE_ENTRY_BYTES * len(shape.elements), granule_bytes)


# Shapes repeat thousands of times, and know their hash.
@lru_cache(maxsize=1 << 14)
def _room_of(shape: Shape, granule_bytes: int) -> tuple[int, MemorySpace]:
    """Return the bytes of an array, or of a tuple's table, and the memory that it lies in."""
    size = table_size(shape, granule_bytes) if isinstance(shape, TupleShape) else physical_bytes(shape)
    return size, space_of(shape)


class _Kind(NamedTuple):
    """What an opcode means for where values lie: ``make`` is what forwards its buffers, if it does."""

    make: Make | None
    # A view is no use: only a read through it keeps the buffer alive.
    is_use: bool
    is_copy: bool


@cache
def _kind_of(opcode: str) -> _Kind:
    is_copy = opcode in COPIES or async_parts(opcode) is not None
    return _Kind(MAKE.get(long_form(opcode)), opcode not in FORWARDS_BUFFERS, is_copy)


def _repeated(arguments: Sequence[Nodes]) -> tuple[int, ...]:
    """Return for each part of some arguments the number of the first that is the same value.

    Where one value is given twice, what a result lies in does not tell which of the two it is.
    """
    seen: dict[Node, int] = {}
    parts = (part for nodes_ in arguments for part in nodes_)
    return tuple(seen.setdefault(part, number) for number, part in enumerate(parts))


class Liveness:
    """The values of a module with their live ranges; ``schedule`` has the name of the instruction at each position.

    ``vmem_bytes`` are what kernels take of VMEM while they run, by name: what the text states of one comes first.
    """

    def __init__(self, module: Module, granule_bytes: int, vmem_bytes: Mapping[str, int] | None = None) -> None:
        self.module = module
        self.granule_bytes = granule_bytes
        self.vmem_bytes = vmem_bytes or {}
        self.schedule: list[str] = []
        # The position of the instruction under way.
        self.now = 0
        self.values: list[Value] = []
        # Every visit to a computation, in the order in which they begin.
        self.frames: list[Frame] = []
        # Memory that an instruction needs while it runs, per instruction: no operand or result shows it.
        self.scratch: list[Value] = []
        # By the number of a value that lies where another does: that one's, or one on the way to it.
        self._joined: dict[int, int] = {}
        self._arguments: dict[str, Nodes] = {}
        self._donated = {alias.parameter for alias in module.attributes.get("input_output_alias", ())}
        self._visits: dict[tuple[str, tuple[int, ...]], Visited] = {}
        # Of the visits under way those inside them so far, of the innermost last.
        self._inside: list[list[Visited]] = [[]]
        entry: Visit = module.entry, None
        result = walk_nested(self._run, entry)
        # One past the end: what is returned outlives the last instruction.
        self.keep(result, self.now)
        for number in (number for part in result for number in part):
            self.values[number].is_result = True
        self._end_what_is_joined()
        self._join_aliases(result)

    def _end_what_is_joined(self) -> None:
        """Let values that are joined end where the joined one begins: from there on their memory is its."""
        # Backwards, since what is joined may be joined again.
        for value in reversed(self.values):
            for piece in value.joins:
                value.last = max(value.last, piece.last)
                piece.last = min(piece.last, max(value.first - 1, piece.first))

    def _join_aliases(self, result: Nodes) -> None:
        """Let results lie where the module says that they are written over parameters."""
        parameters = {i.immediate: i for i in self.module.entry.parameters}
        for alias in self.module.attributes.get("input_output_alias", ()):
            target = node_number(self.module.entry.root.shape, alias.output_index)
            parameter = parameters.get(alias.parameter)
            source = node_number(parameter.shape, alias.parameter_index) if parameter else None
            # An index that leads nowhere is for the verifier to report.
            if parameter and source is not None and target is not None and target < len(result):
                self.join(self._arguments[parameter.name][source], result[target])

    def _run(self, visit: Visit) -> Walk:
        """Walk a computation that gets arguments and return where its result lies."""
        computation, arguments = visit
        kind = computation.name, _repeated(arguments or ())
        known = self._visits.get(kind)
        if known is not None:
            return self._run_again(computation.root, known, arguments or ())
        frame, begin, scratch_begin = Frame(self, computation, arguments), len(self.values), len(self.scratch)
        self.frames.append(frame)
        self._inside.append([])
        for instruction in computation.instructions:
            before = len(self.values)
            make, is_use, is_copy = _kind_of(instruction.opcode)
            made = make(frame, instruction) if make else None
            if made is not None and not isinstance(made, list):
                made = yield from made
            if is_use:
                frame.use(instruction.operands)
            frame.values[instruction.name] = frame.made(instruction) if made is None else made
            if is_copy and len(self.values) > before and "metadata" not in instruction.attributes:
                frame.name_origin(instruction, self.values[before:])
            frame.note_scratch(instruction)
            self.end(instruction)
        if arguments is None:
            self._arguments = {parameter.name: frame.values[parameter.name] for parameter in computation.parameters}
        result = frame.values[computation.root_name]
        # One past its end, where the caller takes the result over.
        self.keep(result, self.now)
        own, scratch = range(begin, len(self.values)), range(scratch_begin, len(self.scratch))
        visited = self._visits[kind] = Visited(arguments or (), result, own, scratch, self._inside.pop())
        self._inside[-1].append(visited)
        return result

    def _run_again(self, root: Instruction, visited: Visited, arguments: Sequence[Nodes]) -> Nodes:
        """Return where the result of a computation lies that was walked before.

        All of it is at one position, and what it makes for itself one value in each memory: else a program in which
        computations call others twice would be as long as there are ways through it.
        """
        given = [part for nodes_ in arguments for part in nodes_]
        self.keep(given, self.now)
        for space, n_bytes in temporary_bytes(visited, self.values, self.scratch).items():
            scratch = ArrayShape(DTYPES["u8"], (n_bytes,))
            self.values.append(Value(root, scratch, n_bytes, space, self.now, self.now, root))
        handed_on = dict(zip((part for nodes_ in visited.arguments for part in nodes_), given, strict=False))
        # What the first visit wrote over an argument, this one writes over its own.
        argument_at = {self.buffer(*one): other for one, other in handed_on.items() if len(one) == 1}
        result = list(visited.result)
        for number, shape in enumerate(nodes(root.shape)):
            part = result[number]
            result[number] = handed_on.get(part, part)
            if part and part not in handed_on:
                result[number] = self.value(root, shape)
                self.join(argument_at.get(self.buffer(*part), ()), result[number])
        self.end(root)
        self.keep(result, self.now)
        return result

    def end(self, instruction: Instruction) -> None:
        """End the instruction under way."""
        self.schedule.append(instruction.name)
        self.now += 1

    def new(self, instruction: Instruction, shape: Shape) -> Nodes:
        """Return a fresh value for every part of ``shape``, alive from the instruction under way."""
        # Nearly all shapes are arrays.
        if isinstance(shape, ArrayShape):
            return [self.value(instruction, shape)]
        return [self.value(instruction, part) for part in nodes(shape)]

    def value(self, instruction: Instruction, shape: Shape) -> Node:
        """Return one fresh value."""
        n_bytes, space = _room_of(shape, self.granule_bytes)
        self.values.append(Value(instruction, shape, n_bytes, space, self.now, self.now, instruction))
        return (len(self.values) - 1,)

    def phi(self, instruction: Instruction, shape: Shape) -> Nodes:
        """Return fresh values that stand for others, for every part of ``shape``."""
        made = self.new(instruction, shape)
        for number in (number for part in made for number in part):
            self.values[number].is_phi = True
        return made

    def keep(self, found: Iterable[Node], position: int) -> None:
        """Keep values alive until a position."""
        for part in found:
            for number in part:
                value = self.values[number]
                if value.last < position:
                    value.last = position

    def join(self, one: Node, other: Node) -> None:
        """Let two values lie in one place."""
        # A flag has no place to share.
        if len(one) == len(other) == 1:
            place, joining = self.buffer(*one), self.buffer(*other)
            if place != joining:
                self._joined[joining] = place

    def is_lent(self, part: Node) -> bool:
        """Return whether a value lies in an argument that the caller keeps, and has to find whole in the end."""
        made = self.values[self.buffer(*part)].instruction if len(part) == 1 else None
        # A parameter of a called computation is its caller's value, so that one here is the program's.
        return made is not None and made.opcode == "parameter" and made.immediate not in self._donated

    def take_over(self, one: Node, other: Node) -> None:
        """Note that a value takes over the memory of another, which the program no longer uses."""
        if len(one) == len(other) == 1:
            self.values[other[0]].takes_over = self.values[one[0]]

    def buffer(self, number: int) -> int:
        """Return the number that stands for all values that lie where this one does."""
        joined = self._joined
        while number in joined:
            # Halving the way keeps chains short however long the program is.
            joined[number] = joined.get(joined[number], joined[number])
            number = joined[number]
        return number

    def memory_ends(self) -> dict[int, int]:
        """Return, by the ``id`` of each value that others take over, where the last use of its memory is."""
        ends: dict[int, int] = {}
        # Backwards, since a value that takes over comes later.
        taken = [(value, value.takes_over) for value in reversed(self.values) if value.takes_over is not None]
        for value, before in taken:
            ends[id(before)] = max(ends.get(id(before), before.last), ends.get(id(value), value.last))
        return ends

    def buffers(self) -> list[list[Value]]:
        """Return the values of every buffer, in the order of the schedule."""
        found: dict[int, list[Value]] = {}
        for number, value in enumerate(self.values):
            home = self.buffer(number) if number in self._joined else number
            if home in found:
                found[home].append(value)
            else:
                found[home] = [value]
        return list(found.values())


class Frame:
    """One computation under way: where the value of each instruction lies."""

    def __init__(self, liveness: Liveness, computation: Computation, arguments: Sequence[Nodes] | None) -> None:
        self.liveness = liveness
        self.module = liveness.module
        self.computation = computation
        self.arguments = arguments
        self.values: dict[str, Nodes] = {}

    def use(self, names: Iterable[str]) -> None:
        """Keep what an instruction reads."""
        values, now = self.liveness.values, self.liveness.now
        for name in names:
            for part in self.values[name]:
                for number in part:
                    values[number].last = now

    def name_origin(self, instruction: Instruction, made: Iterable[Value]) -> None:
        """Give the values that a copy without an origin of its own made that of what it copies."""
        copied = [part[0] for name in instruction.operands[:1] for part in self.values[name] if part]
        for value in made if copied else ():
            value.origin = self.liveness.values[copied[0]].origin

    def note_scratch(self, instruction: Instruction) -> None:
        """Note the memory that an instruction needs while it runs."""
        n_bytes, now = self.liveness.vmem_bytes.get(instruction.name, 0), self.liveness.now
        if "backend_config" in instruction.attributes:
            n_bytes = instruction.backend_config.scoped_vmem_bytes or n_bytes
        if n_bytes:
            scratch = Value(instruction, instruction.shape, n_bytes, VMEM, now, now, instruction)
            self.liveness.scratch.append(scratch)

    def made(self, instruction: Instruction) -> Nodes:
        """Return new values, in the place of an operand where they are written over it."""
        made = self.liveness.new(instruction, instruction.shape)
        if not instruction.operands:
            return made
        updated = in_place_operands(self.module, instruction)
        stated = stated_operands(self.computation, instruction)
        if not updated and not stated:
            return made
        results = _arrays(made, instruction.shape)
        for index, (operand, leaf) in (stated | {index: (operand, 0) for index, operand in updated.items()}).items():
            name = instruction.operands[operand]
            sources = _arrays(self.values[name], self.computation[name].shape)
            if leaf >= len(sources) or index >= len(results):
                continue
            # It updates the operand in place, or the compiler lets it be written there.
            if index in updated:
                self.liveness.join(sources[leaf], results[index])
                self.liveness.values[results[index][0]].is_update = True
            elif not self.liveness.is_lent(sources[leaf]):
                self.liveness.join(sources[leaf], results[index])
                self.liveness.take_over(sources[leaf], results[index])
        return made


def _arrays(found: Nodes, shape: Shape) -> Nodes:
    return [part for part, piece in zip(found, nodes(shape), strict=False) if not isinstance(piece, TupleShape)]
