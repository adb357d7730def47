"""From when to when values live: one walk over the schedule, called computations included in their places.

The rules are those of XLA's buffer assignment (xla/hlo/analysis: HloDataflowAnalysis, HloAliasAnalysis, HloLiveRange).
The schedule is flat: what a loop, call or conditional runs stands before it. Values that must lie in one place, such as
those that a loop carries, are joined to one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpusim.ir.ops import async_parts
from tpusim.lowering.aliasing import shared_operands
from tpusim.lowering.passing import MAKE, PASSING
from tpusim.lowering.traffic import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import TupleShape, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpusim.ir.module import Computation, Instruction, Module
    from tpusim.program.work import MemorySpace
    from tpusim.shapes.shape import Shape

    Leaf = tuple[int, ...]
    Leaves = list[Leaf]


@dataclass(slots=True)
class Value:
    """One array that an instruction makes: ``last`` moves on as users are found."""

    instruction: Instruction
    shape: Shape
    n_bytes: int
    space: MemorySpace
    first: int
    last: int
    is_result: bool = False


class Liveness:
    """The values of a module with their live ranges; ``schedule`` has the name of the instruction at each position."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.schedule: list[str] = []
        self.values: list[Value] = []
        # Memory that an instruction needs while it runs, per instruction: no operand or result shows it.
        self.scratch: list[Value] = []
        self._joined: list[int] = []
        self._arguments: dict[str, Leaves] = {}
        result = self.run(module.entry, None)
        # One past the end: what is returned outlives the last instruction.
        self.keep(result, self.now)
        for number in (number for leaf in result for number in leaf):
            self.values[number].is_result = True
        self._join_aliases(result)

    @property
    def now(self) -> int:
        """The position of the instruction under way."""
        return len(self.schedule)

    def _join_aliases(self, result: Leaves) -> None:
        """Let results lie where the module says that they are written over parameters."""
        parameters = {i.immediate: i for i in self.module.entry.parameters}
        for alias in self.module.attributes.get("input_output_alias", ()):
            target = leaf_number(self.module.entry.root.shape, alias.output_index)
            parameter = parameters.get(alias.parameter)
            source = leaf_number(parameter.shape, alias.parameter_index) if parameter else None
            # An index that leads nowhere is for the verifier to report.
            if parameter and source is not None and target is not None:
                self.join(self._arguments[parameter.name][source], result[target])

    def run(self, computation: Computation, arguments: Sequence[Leaves] | None) -> Leaves:
        """Walk a computation that gets ``arguments`` and return where its result lies."""
        frame = Frame(self, computation, arguments)
        for instruction in computation.instructions:
            frame.visit(instruction)
        if arguments is None:
            self._arguments = {parameter.name: frame.values[parameter.name] for parameter in computation.parameters}
        result = frame.values[computation.root_name]
        self.keep(result, self.now - 1)
        return result

    def new(self, instruction: Instruction, shape: Shape) -> Leaves:
        """Return a fresh value for every array of ``shape``, alive from the instruction under way."""
        made: Leaves = []
        for leaf in leaves(shape):
            made.append((len(self.values),))
            self._joined.append(len(self.values))
            size = physical_bytes(leaf)
            self.values.append(Value(instruction, leaf, size, space_of(leaf), self.now, self.now))
        return made

    def keep(self, found: Iterable[Leaf], position: int) -> None:
        """Keep values alive until a position."""
        for leaf in found:
            for number in leaf:
                self.values[number].last = max(self.values[number].last, position)

    def join(self, one: Leaf, other: Leaf) -> None:
        """Let two values lie in one place."""
        # What lies in several places, or in none, has no one place to share.
        if len(one) == len(other) == 1:
            self._joined[self.buffer(*other)] = self.buffer(*one)

    def buffer(self, number: int) -> int:
        """Return the number that stands for all values that lie where this one does."""
        while self._joined[number] != number:
            # Halving the way keeps chains short however long the program is.
            self._joined[number] = self._joined[self._joined[number]]
            number = self._joined[number]
        return number

    def buffers(self) -> list[list[Value]]:
        """Return the values of every buffer, in the order of the schedule."""
        found: dict[int, list[Value]] = {}
        for number, value in enumerate(self.values):
            found.setdefault(self.buffer(number), []).append(value)
        return list(found.values())


class Frame:
    """One computation under way: where the value of each instruction lies."""

    def __init__(self, liveness: Liveness, computation: Computation, arguments: Sequence[Leaves] | None) -> None:
        self.liveness = liveness
        self.module = liveness.module
        self.computation = computation
        self.arguments = arguments
        self.values: dict[str, Leaves] = {}

    def visit(self, instruction: Instruction) -> None:
        """Note what an instruction uses, what it makes, and what it needs while it runs."""
        short = async_parts(instruction.opcode)
        make = MAKE.get(f"async-{short[1]}" if short else instruction.opcode)
        made = make(self, instruction) if make else None
        # A view is no use: only who reads through it keeps the buffer alive.
        if instruction.opcode not in PASSING:
            for name in instruction.operands:
                self.liveness.keep(self.values[name], self.liveness.now)
        self.values[instruction.name] = self.made(instruction) if made is None else made
        scoped = instruction.backend_config.scoped_vmem_bytes
        if scoped:
            now = self.liveness.now
            self.liveness.scratch.append(Value(instruction, instruction.shape, scoped, "vmem", now, now))
        self.liveness.schedule.append(instruction.name)

    def made(self, instruction: Instruction) -> Leaves:
        """Return new values, in the place of an operand where they are written over it."""
        made = self.liveness.new(instruction, instruction.shape)
        for index, (operand, leaf) in shared_operands(self.module, self.computation, instruction).items():
            source = self.values[instruction.operands[operand]]
            if leaf < len(source) and index < len(made):
                self.liveness.join(source[leaf], made[index])
        return made


def leaf_number(shape: Shape, index: Sequence[int]) -> int | None:
    """Return which array of a shape the way ``index`` through nested tuples leads to, None if to no array."""
    before = 0
    for step in index:
        if not isinstance(shape, TupleShape) or step >= len(shape.elements):
            return None
        before += sum(len(tuple(leaves(element))) for element in shape.elements[:step])
        shape = shape.elements[step]
    return None if isinstance(shape, TupleShape) else before
