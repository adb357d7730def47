"""What the checks of a module look things up in, the table of checks, and what a check finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tpusim.errors import ProgramError
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.semantics.infer.site import broken


class Finding(msgspec.Struct, frozen=True):
    """A broken constraint and where: an instruction, a computation, or (None twice) the module as a whole.

    ``attribute`` is the one of the module's first line that is wrong, if it is one.
    """

    error: ProgramError
    computation: Computation | None = None
    instruction: Instruction | None = None
    attribute: str = ""


class Call(NamedTuple):
    """One instruction that calls a computation."""

    computation: Computation
    instruction: Instruction


class View:
    """A module with its users and calls; ``mixed_precision`` lets floats of several precisions meet.

    ``computations`` are those to look into: of those that are alike only the first, unless ``each`` is wanted.
    """

    def __init__(self, module: Module, mixed_precision: bool = False, *, each: bool = True) -> None:
        self.module = module
        self.mixed_precision = mixed_precision
        self.computations = module.computations if each else self._unlike()

    def _unlike(self) -> tuple[Computation, ...]:
        """Return one of the computations that are alike; a fused one lies in no memory, and is not alike others."""
        numbers, fused = self.module.likeness.numbers, self.fused
        first: dict[tuple[object, bool], Computation] = {}
        for computation in self.module.computations:
            name = computation.name
            first.setdefault((numbers.get(name, name), name in fused), computation)
        return tuple(first.values())

    # Tables are made when first asked for: most checks find nothing to look at in most programs.
    @cached_property
    def shapes(self) -> dict[int, Call]:
        """An instruction for every shape object; the parser keeps one per text, so that these are few."""
        found: dict[int, Call] = {}
        for computation in self.computations:
            for instruction in computation.instructions:
                if id(instruction.shape) not in found:
                    found[id(instruction.shape)] = Call(computation, instruction)
        return found

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of all attributes of all instructions."""
        return frozenset().union(*[i.attributes for c in self.computations for i in c.instructions])

    @cached_property
    def callers(self) -> dict[str, list[Call]]:
        """The calls of each computation by its name; computations without any are missing."""
        found: dict[str, list[Call]] = {}
        for computation in self.module.computations:
            for instruction, names in computation.calls:
                for name in dict.fromkeys(names):
                    found.setdefault(name, []).append(Call(computation, instruction))
        return found

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names of the computations that several instructions call."""
        calls = chain.from_iterable([computation.calls for computation in self.module.computations])
        counts = Counter(chain.from_iterable([dict.fromkeys(names) for _, names in calls]))
        return frozenset([name for name, count in counts.items() if count > 1])

    @cached_property
    def fused(self) -> frozenset[str]:
        """Names of the computations that fusions call."""
        holding = [computation for computation in self.module.computations if "fusion" in computation.opcodes]
        calls = chain.from_iterable([computation.calls for computation in holding])
        return frozenset([name for instruction, names in calls if instruction.opcode == "fusion" for name in names])

    @cached_property
    def calling(self) -> list[Call]:
        """Every instruction that may call computations."""
        return [Call(computation, i) for computation in self.computations for i, _ in computation.calls]

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of all instructions."""
        return frozenset().union(*[computation.opcodes for computation in self.computations])

    def all_of(self, opcodes: frozenset[str]) -> Iterator[Call]:
        """Yield every instruction of these opcodes with its computation."""
        # Most programs have none of them, and most computations of a program.
        for computation in () if opcodes.isdisjoint(self.opcodes) else self.module.computations:
            if not opcodes.isdisjoint(computation.opcodes):
                yield from (Call(computation, i) for i in computation.instructions if i.opcode in opcodes)


def users_of(call: Call) -> list[Instruction]:
    """Return the instructions that use a value, each once: x*x is one user of x."""
    return list({user.name: user for user, _ in call.computation.users.get(call.instruction.name, ())}.values())


Check: TypeAlias = "Callable[[View], Iterator[Finding]]"

CHECKS: Final[list[Check]] = []
"""Every check of a module that is well formed."""


def checks(check: Check) -> Check:
    """Enter a function from a view of a module to what it finds wrong."""
    CHECKS.append(check)
    return check


def at(call: Call, label: str, found: object) -> Finding:
    """Return the finding that an instruction breaks a constraint."""
    return named(broken(label, found), call)


def named(error: ProgramError, call: Call) -> Finding:
    """Return the finding of an error in an instruction, whose opcode and name come first in the message."""
    error.message = f"{call.instruction.opcode!r} {call.instruction.name!r}: {error.message}"
    return Finding(error, *call)
