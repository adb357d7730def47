"""What a lowering rule sees: the computation it works in, the chip, and where to note what no rule covered."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from tpusim.hardware.chip import Chip
from tpusim.ir.frames import SourceFrames
from tpusim.ir.likeness import Likeness
from tpusim.ir.module import Instruction
from tpusim.lowering.alone import Alone
from tpusim.lowering.kernels.known import Known
from tpusim.program.module import Estimate
from tpusim.program.steps import Steps
from tpusim.semantics.contexts import Context
from tpusim.semantics.demand.inlining import Body, inline

Nested = Generator["Scope", Steps, Steps]
"""A rule under way: it yields the scopes of computations that its instruction calls, and is sent their steps."""

Rule = Callable[["Scope", Instruction], Steps | Nested]


class Notes:
    """What lowering has to tell its user: instructions estimated without a rule, and warnings, each once."""

    def __init__(self) -> None:
        # Dictionaries as sets that keep their order: a report tells of things as the program comes to them.
        self.estimates: dict[str, Estimate] = {}
        self.warnings: dict[str, None] = {}

    @property
    def count(self) -> int:
        """How many things have been noted."""
        return len(self.estimates) + len(self.warnings)

    def estimated(self, instruction: Instruction, how: str) -> None:
        """Note that ``instruction`` has no rule, and what was done instead."""
        self.estimates.setdefault(instruction.name, Estimate(instruction.name, instruction.opcode, how))

    def warn(self, text: str) -> None:
        """Note a warning for the report; the same text counts once, however many instructions give rise to it."""
        self.warnings.setdefault(text)


class Scope:
    """One computation under lowering, with what is known of the scalars that come into it."""

    __slots__ = (
        "_latest",
        "_places",
        "alone",
        "chip",
        "computation",
        "context",
        "default_trips",
        "frames",
        "known",
        "module",
        "notes",
    )

    def __init__(
        self,
        context: Context,
        chip: Chip,
        notes: Notes,
        default_trips: int,
        frames: SourceFrames,
        known: Known,
        *,
        alone: Alone | None = None,
    ) -> None:
        self.context = context
        self.module = context.module
        self.computation = context.computation
        self.chip = chip
        self.notes = notes
        self.default_trips = default_trips
        self.frames = frames
        self.known = known
        self.alone = alone or Alone(chip, lambda _: 0)
        self._latest: tuple[str, Body | None] = ("", None)
        # Sources and lines of the instructions: most computations that are looked into become no steps.
        self._places: tuple[Mapping[str, str], Mapping[str, int]] | None = None

    def body_of(self, instruction: Instruction) -> Body:
        """Return what a kernel runs: the instructions of a fusion, fusions in it included, else the one itself."""
        # Several questions are asked of one instruction after another; it is opened for the first.
        name, body = self._latest
        if body is None or name != instruction.name:
            body = inline(self.module, self.computation, instruction)
            self._latest = (instruction.name, body)
        return body

    def inside(self, called: Context | str) -> Scope:
        """Return the scope of a computation that this one calls; of one given by name nothing is known that enters."""
        if isinstance(called, str):
            called = Context(self.module, self.module[called], {}, self.context.budget)
        known = self.known if called.module is self.module else Known(Likeness())
        return Scope(called, self.chip, self.notes, self.default_trips, self.frames, known, alone=self.alone)

    def operand(self, instruction: Instruction, position: int) -> Instruction:
        """Return the instruction that makes operand ``position``."""
        return self.computation[instruction.operands[position]]

    def label(self, instruction: Instruction, category: str) -> dict[str, Any]:
        """Return the fields that every step has, from the instruction it is made of."""
        metadata = instruction.metadata
        if self._places is None:
            self._places = self.frames.sources(self.computation), self.frames.lines(self.computation)
        sources, lines = self._places
        return {
            "name": instruction.name,
            "opcode": instruction.opcode,
            "category": category,
            "op_name": metadata.op_name,
            "source": sources[instruction.name],
            "line": lines.get(instruction.name, 0),
        }


F = TypeVar("F")


def entering(table: dict[str, F]) -> Callable[..., Callable[[F], F]]:
    """Return the decorator that enters a function into ``table`` under the opcodes that it is given."""

    def under(*opcodes: str) -> Callable[[F], F]:
        def enter(function: F) -> F:
            table.update(dict.fromkeys(opcodes, function))
            return function

        return enter

    return under


RULES: dict[str, Rule] = {}
"""The rule of every opcode: from a scheduled instruction to the steps it becomes."""

rule = entering(RULES)
"""Enters a function as the lowering of some opcodes."""
