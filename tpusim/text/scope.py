"""What has been read so far: the computations of a module, the instructions of a computation."""

from __future__ import annotations

import re

from tpusim.ir.attributes import ComputationName, InstructionName
from tpusim.ir.module import RESERVED_WORDS, Computation, Instruction
from tpusim.ir.ops import async_phase
from tpusim.semantics.infer.site import broken
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import Shape, compatible
from tpusim.source import SourceText
from tpusim.text.lexer import Lexer

# XLA keeps names with two underscores in front for itself.
_RESERVED_PREFIX = re.compile("__(?!xla_)")

DEEPEST = 50
"""Instructions and computations nested deeper than this inside operands and attributes are refused."""


class ModuleScope:
    """The computations that have been read, by name, and what is shared by all of them.

    ``sigil`` is what ordinary operands have before their names: ``%`` or nothing. ``references`` maps names of
    computations as attributes write them to the names themselves; ``opcodes`` are those of all instructions so far.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.computations: dict[str, Computation] = {}
        self.references: dict[str, ComputationName] = {}
        self.opcodes: set[str] = set()
        self.sigil = "%"
        self.depth = 0
        self._counts: dict[str, int] = {}

    def add(self, computation: Computation) -> None:
        """Add a computation, to which later ones may refer."""
        name = computation.name
        self.computations[name] = computation
        # %true may name a computation, but true cannot refer to it.
        if self.sigil or name not in RESERVED_WORDS:
            self.references[self.sigil + name] = ComputationName(name)

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation that came before."""
        place = lexer.start
        name = lexer.take_word("the name of a computation")
        if name not in self.computations:
            lexer.fail(f"computation {name!r} is not defined above [computation_c1]", place)
        return ComputationName(name)

    def take_instruction_name(self, lexer: Lexer) -> InstructionName:
        """Refuse: there are no instructions outside a computation."""
        return lexer.fail("no instruction can be named here")

    def fresh_name(self, base: str, taken: object) -> str:
        """Return ``base``, or ``base.1`` and so on, whichever is not ``taken``."""
        while True:
            # Counting on from the last name of this base keeps a thousand of them from being tried each time.
            count = self._counts.get(base, 0)
            self._counts[base] = count + 1
            name = f"{base}.{count}" if count else base
            if name not in taken:  # type: ignore[operator]
                return name

    def enter(self, lexer: Lexer) -> None:
        """Go one level deeper into nested instructions or computations."""
        self.depth += 1
        if self.depth > DEEPEST:
            lexer.fail(f"instructions and computations are nested more than {DEEPEST} deep here")

    def leave(self) -> None:
        """Come back from the level that ``enter`` went to."""
        self.depth -= 1


class ComputationScope:
    """The instructions of a computation that is being read.

    ``has_reserved_name`` says whether one has a name, as ``%true``, that operands cannot write without the ``%``;
    ``root_shape`` is the text of the root's shape if its line is an ordinary one.
    """

    def __init__(self, module: ModuleScope) -> None:
        self.module = module
        self.has_reserved_name = False
        self.by_name: dict[str, Instruction] = {}
        self.offsets: list[int] = []
        self.root_name: str | None = None
        self.root_shape = ""
        self.makes_parameters = False
        self._async_starts: dict[str, str] = {}

    @property
    def computations(self) -> dict[str, Computation]:
        """The computations that came before."""
        return self.module.computations

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation that came before."""
        return self.module.take_computation(lexer)

    def take_instruction_name(self, lexer: Lexer) -> InstructionName:
        """Read the name of an instruction that came before."""
        place = lexer.start
        name = lexer.take_word("the name of an instruction")
        if name not in self.by_name:
            lexer.fail(f"instruction {name!r} is not defined above [schedule_c1]", place)
        return InstructionName(name)

    def find_operand(self, lexer: Lexer, name: str, shape: Shape | None, place: int) -> str:
        """Return the name of an operand, whose shape, if it is written, must be the instruction's.

        In a text that is one instruction, operands without a definition become parameters.
        """
        instruction = self.by_name.get(name)
        # An operand without a name has an empty one, which no instruction has.
        if instruction is not None:
            defined = instruction.shape
            if shape is not None and not compatible(defined, shape):
                lexer.fail(f"operand {name!r} has the shape {defined}, not {shape}", place)
            return instruction.name
        if not self.makes_parameters:
            lexer.fail(f"instruction {name!r} is not defined above [schedule_c1]", place)
        if shape is None:
            lexer.fail("an operand of a text that is one instruction needs a shape", place)
        number = sum(1 for instruction in self.by_name.values() if instruction.opcode == "parameter")
        parameter = Instruction(name or f"_{number}", shape, "parameter", immediate=number)
        return self.add(lexer, parameter, place)

    def async_start(self, name: str) -> Instruction:
        """Return the start that an asynchronous update goes on with; any other instruction itself."""
        updates = []
        while name not in self._async_starts and async_phase(self.by_name[name].opcode) == "update":
            updates.append(name)
            name = self.by_name[name].operands[0]
        start = self._async_starts.get(name, name)
        # A chain may have thousands of updates, each of which asks.
        self._async_starts.update(dict.fromkeys(updates, start))
        return self.by_name[start]

    def add(self, lexer: Lexer, instruction: Instruction, place: int) -> str:
        """Add an instruction that begins at ``place``; return its name, which must be new."""
        name = instruction.name
        if name in DTYPES or _RESERVED_PREFIX.match(name):
            lexer.fail("this name is reserved; XLA puts '_' behind such a name", place)
        if name in self.by_name:
            line = lexer.source.span(self.offsets[list(self.by_name).index(name)]).line
            lexer.fail(f"instruction {name!r} is already defined on line {line} [instruction_c5]", place)
        self.has_reserved_name |= name in RESERVED_WORDS
        self.by_name[name] = instruction
        self.offsets.append(place)
        return name

    def finish(self, lexer: Lexer, name: str, execution_thread: str = "main") -> Computation:
        """Return the computation. Its parameters must be numbered from 0 on without a gap."""
        instructions = tuple(self.by_name.values())
        # No ROOT means the last instruction.
        root_name = self.root_name if self.root_name is not None else instructions[-1].name
        computation = Computation(name, instructions, root_name, execution_thread, tuple(self.offsets))
        # The table is here already; the property would build it anew.
        vars(computation)["by_name"] = self.by_name
        # A hole among the numbers aborts XLA's process; the message here says which there are.
        numbers = [parameter.immediate for parameter in computation.parameters]
        if numbers != list(range(len(numbers))):
            place = next(o for o, i in zip(self.offsets, instructions, strict=True) if i.opcode == "parameter")
            shown = ", ".join(map(str, numbers[:20]))
            lexer.fail(f"{name!r}: {broken('parameter_c1', shown).message}", place)
        return computation
