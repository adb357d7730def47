"""What the checks of a module look things up in, the table of checks, and what a check finds."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tpusim.ir.ops import OPERATIONS
from tpusim.semantics.infer.site import broken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpusim.errors import ProgramError
    from tpusim.ir.module import Computation, Instruction, Module

# By name, as a row says which attributes an opcode has, but not what kind they are of.
_CALLING_ATTRIBUTES = frozenset(
    "body branch_computations called_computations calls condition false_computation scatter select to_apply"
    " true_computation".split()
)
CALLERS: Final = frozenset(
    name for name, operation in OPERATIONS.items() if _CALLING_ATTRIBUTES & (operation.required | operation.optional)
)
"""Opcodes that may call computations; the short forms of asynchronous operations may too."""


class Finding(NamedTuple):
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
    """A module with who uses and calls whom; ``mixed_precision`` lets floats of several precisions meet."""

    def __init__(self, module: Module, mixed_precision: bool = False) -> None:
        self.module = module
        self.mixed_precision = mixed_precision
        # Tables are made when first asked for: most checks find nothing to look at in most programs.
        self._users: dict[str, dict[str, list[Instruction]]] = {}

    def users(self, computation: Computation) -> dict[str, list[Instruction]]:
        """Return the users of each instruction by its name, one entry per instruction that uses it."""
        found = self._users.get(computation.name)
        if found is None:
            found = {instruction.name: [] for instruction in computation.instructions}
            for instruction in computation.instructions:
                operands = instruction.operands
                # x*x is one user of x.
                for name in operands if len(operands) < 2 else dict.fromkeys(operands):
                    found[name].append(instruction)
            self._users[computation.name] = found
        return found

    @cached_property
    def callers(self) -> dict[str, list[Call]]:
        """Who calls each computation, by its name; computations that nobody calls are missing."""
        found: dict[str, list[Call]] = {}
        for computation, instruction in self.calling():
            for name in dict.fromkeys(instruction.called_computations):
                found.setdefault(name, []).append(Call(computation, instruction))
        return found

    @cached_property
    def fused(self) -> frozenset[str]:
        """Names of the computations that fusions call."""
        calls = (call for calls in self.callers.values() for call in calls)
        return frozenset(str(call.instruction.attributes["calls"]) for call in calls if _is_fusion(call))

    def calling(self) -> Iterator[Call]:
        """Yield every instruction that may call computations."""
        for computation in self.module.computations:
            yield from calling_in(computation)

    def all_of(self, opcodes: frozenset[str]) -> Iterator[Call]:
        """Yield every instruction of these opcodes with its computation."""
        for computation in self.module.computations:
            for instruction in computation.instructions:
                if instruction.opcode in opcodes:
                    yield Call(computation, instruction)


def calling_in(computation: Computation) -> Iterator[Call]:
    """Yield the instructions of one computation that may call others."""
    for instruction in computation.instructions:
        # Short forms (call-start) are in no table, but call as what they wrap does.
        if instruction.opcode in CALLERS or instruction.opcode not in OPERATIONS:
            yield Call(computation, instruction)


def _is_fusion(call: Call) -> bool:
    """Whether a call is that of a fusion."""
    return call.instruction.opcode == "fusion"


Check: TypeAlias = "Callable[[View], Iterator[Finding]]"

CHECKS: Final[list[Check]] = []
"""Every check of a module that is well formed."""


def checks(check: Check) -> Check:
    """Enter a function from a view of a module to what it finds wrong."""
    CHECKS.append(check)
    return check


def at(call: Call, label: str, found: object) -> Finding:
    """Return the finding that an instruction breaks a constraint."""
    instruction = call.instruction
    error = broken(label, found)
    error.message = f"{instruction.opcode!r} {instruction.name!r}: {error.message}"
    return Finding(error, *call)
