"""Where a numeric rule computes: the module, the settings, the device that it is on, and how to run a computation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tpusim.errors import ProgramError, SimulationError
from tpusim.ir.module import Computation, Instruction, Literal, Module
from tpusim.limits import LOOPED_INSTRUCTIONS
from tpusim.shapes.shape import Shape


@dataclass(frozen=True)
class Settings:
    """How values are computed.

    ``precision`` is ``tpu`` (operands of products rounded to bf16, f32 sums over blocks of ``array_depth``) or
    ``exact`` (IEEE). ``read_literal`` decodes a constant's text. ``max_iterations`` are the trips after
    which a loop is stopped; where it is not given, ``Work`` stops them all.
    """

    # Handed in: decoding text is the parser's business, which numerics does not know.
    read_literal: Callable[[Literal, Shape], Any]
    precision: str = "tpu"
    array_depth: int = 128
    max_iterations: int | None = None
    seed: int = 0


COMPILED = 500
"""Instructions on scalars that compiled code may compute in place of one that a rule computes: it takes some 200 times
less for each, and all that it may compute is to end within the seconds that users wait."""

PATIENCE = 1000
"""Trips, or calls, that the rules take less time for than compiled code takes to load."""


@dataclass
class Work:
    """What trips of loops may still come to, in instructions: a loop that never ends takes all of it.

    ``counts`` are the instructions of each computation, with those that it calls. The devices of a run share one.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    left: float = inf

    def of(self, *computations: str) -> int:
        """Return what one run of some computations comes to."""
        return sum(self.counts.get(name, 1) for name in computations)

    def spend(self, amount: float, loop: str) -> None:
        """Count what a trip computes, or all trips if it is known how many; raise SimulationError if it is too much."""
        self.expect(amount, loop)
        self.left -= amount

    def apply(self, name: str, times: float) -> None:
        """Count a computation that is applied to so many elements, one after the other."""
        self.spend(self.of(name) * times, f"{name!r}, element by element,")

    def expect(self, amount: float, loop: str) -> None:
        """Raise SimulationError if what trips are about to compute is too much."""
        if amount > self.left:
            most = f"{LOOPED_INSTRUCTIONS:,} instructions in loops"
            raise SimulationError(f"{loop} takes more than {most}; --max-iterations N gives each N trips instead")


@dataclass
class Device:
    """One device of a run: its numbers, what the host feeds it, and what it fed back."""

    replica: int = 0
    partition: int = 0
    infeed: Iterator[Any] | None = None
    outfeed: list[Any] = field(default_factory=list)
    mailbox: dict[int, deque[Any]] = field(default_factory=dict)
    # What random operations keep from one call to the next.
    random: dict[str, Any] = field(default_factory=dict)
    work: Work = field(default_factory=Work)


@dataclass(frozen=True)
class Site:
    """What a rule sees of where its instruction stands."""

    module: Module
    computation: Computation
    settings: Settings
    device: Device
    # Those of the computation, for the one rule that wants more than its operands.
    arguments: tuple[Any, ...] = ()

    @property
    def device_number(self) -> int:
        """The device's place in the list of a run."""
        return self.device.replica * self.module.partition_count + self.device.partition

    def operand(self, instruction: Instruction, position: int) -> Instruction:
        """Return the instruction that makes operand ``position``."""
        return self.computation[instruction.operands[position]]

    def existing(self, instruction: Instruction, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of devices that an instruction names; raise ProgramError for some that the run has not."""
        count = self.module.device_count
        absent = [number for number in numbers if not 0 <= number < count]
        if absent:
            raise ProgramError(
                f"{instruction.name}: expected devices among the {count} of this run, found {absent}; run it on as many"
                " replicas as it names"
            )
        return tuple(numbers)

    def place(self, instruction: Instruction) -> str:
        """Return what devices must have in common to meet at an instruction; errors show it."""
        return f"{instruction.opcode} {instruction.name!r} of {self.computation.name!r}"


@dataclass(frozen=True)
class Run:
    """A rule's wish: run the computation of that name on these values and send back what it returns."""

    computation: str
    arguments: list[Any]


@dataclass(frozen=True)
class Meet:
    """A rule's wish: wait until all ``members`` (device numbers) have come to ``key``, then get all their values.

    What comes back maps device numbers to the values that they brought.
    """

    key: str
    members: tuple[int, ...]
    value: Any
