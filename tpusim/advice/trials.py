"""What rules look at, what they propose, and how a proposal is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from tpusim.analysis.answers.findings import Basis, Finding
from tpusim.analysis.roofline import roofline
from tpusim.errors import TpusimError
from tpusim.hardware.pod import Topology
from tpusim.hardware.units import HOST_IN, HOST_OUT
from tpusim.ir.frames import handed_on
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.nesting import depth_first
from tpusim.pipeline.result import Result
from tpusim.pipeline.schedules import front_end_form
from tpusim.pipeline.stages import run_program, simulate
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep
from tpusim.semantics.products import PRODUCT_ROLES
from tpusim.timeline.records import CORE


class Trial(NamedTuple):
    """A change that may help: ``alternative`` is the changed program, or the changed module before any compiler.

    One that ``is_bound`` is no program that can be made: with the same operations a change saves less than it.
    """

    what: str
    change: str
    ops: tuple[str, ...]
    source: str
    alternative: Program | Module | None
    saved_bytes: int = 0
    is_bound: bool = False


LEAST_SHARE = 0.01
"""What takes less of the run is not looked at; what saves less of it, or of the HBM, is no finding."""

SHOWN = 4
"""Ops that a finding names, the longest."""

_MEMORY: Basis = "memory"
_AT_ONCE = 1024

Rule = Callable[["Case"], Iterator[Trial]]
_R = TypeVar("_R", bound=Rule)

RULES: dict[str, Rule] = {}
"""By name what looks for one kind of waste."""


def advises(name: str) -> Callable[[_R], _R]:
    """Enter a function as the rule of a name."""

    def enter(rule: _R) -> _R:
        RULES[name] = rule
        return rule

    return enter


def are_made_of(computation: Computation, asked: Sequence[tuple[Collection[str], Collection[str]]]) -> tuple[bool, ...]:
    """Return for pairs of names whether one of the first is made of one of the second, directly or through others."""
    found: list[bool] = []
    for begin in range(0, len(asked), _AT_ONCE):
        some = asked[begin : begin + _AT_ONCE]
        # A bit for each pair: a walk for each would be as many as the program has arrays.
        sources: dict[str, int] = defaultdict(int)
        for number, (_, names) in enumerate(some):
            for name in names:
                sources[name] |= 1 << number
        made = dict[str, int]()
        for one in computation:
            bits = 0
            for operand in one.operands:
                bits |= made.get(operand, 0) | sources.get(operand, 0)
            if bits:
                made[one.name] = bits
        found += (any(made.get(name, 0) >> number & 1 for name in names) for number, (names, _) in enumerate(some))
    return tuple(found)


def products_of(module: Module, home: Computation, of: Instruction) -> Iterator[tuple[Computation, Instruction]]:
    """Yield the products that an instruction is or calls, each once."""

    def called(found: tuple[Computation, Instruction]) -> dict[str, Iterable[tuple[Computation, Instruction]]]:
        return {name: zip(repeat(module[name]), module[name]) for name in found[1].called_computations}

    return (found for found in depth_first([(home, of)], called) if found[1].opcode in PRODUCT_ROLES)


class Case:
    """A run that is looked at: its program, its module if there is one, and what each step of it took.

    ``given`` is the module that was to run, by default the one that ran: another one if tpusim has compiled it.
    """

    def __init__(
        self, result: Result, topology: Topology | None, trips: int = DEFAULT_TRIPS, given: Module | None = None
    ) -> None:
        self.result = result
        self.program = result.program
        self.module = result.module
        self.given = given or result.module
        self.chip = result.chip
        self.topology = topology
        self.trips = trips
        self.total_ps = result.timeline.total_ps

    @cached_property
    def times_ps(self) -> dict[int, int]:
        """What each step took of the core, by the identity of the step."""
        times: dict[int, int] = defaultdict(int)
        steps = self.program.every_step
        for record in self.result.timeline.records:
            if record.row == CORE and record.step >= 0:
                times[id(steps[record.step])] += record.total_ps
        return times

    def share(self, *steps: AnyStep) -> float:
        """Return which share of the run some steps took of the core."""
        return sum(self.times_ps.get(id(step), 0) for step in steps) / max(1, self.total_ps)

    @property
    def peak_hbm_bytes(self) -> int:
        """The most that the program needs of the HBM."""
        return self.result.summary.memory.peak_hbm_bytes

    @property
    def room_bytes(self) -> int:
        """What the program leaves of the HBM that it may have; below 0 it does not fit."""
        return self.chip.hbm.available_bytes - self.peak_hbm_bytes

    @property
    def homes(self) -> dict[str, Computation]:
        """The computation that has the instruction of a name."""
        return self.module.homes if self.module else {}

    def places(self, steps: Iterable[AnyStep]) -> dict[str, Any]:
        """Return the names of the longest of some steps, and the first line of source, as a trial has them."""
        longest = sorted(steps, key=lambda step: -self.share(step))
        return {
            "ops": tuple(step.name for step in longest[:SHOWN]),
            "source": next((step.source for step in longest if step.source), ""),
        }

    def instruction(self, step: AnyStep) -> Instruction | None:
        """Return the instruction of a step, None of a lowered program."""
        return self.homes[step.name][step.name] if step.name in self.homes else None

    @cached_property
    def op_names(self) -> dict[str, str]:
        """What the framework calls each instruction by name; what the compiler put in has the name of its use."""
        found = dict[str, str]()
        for home in self.module.computations if self.module else ():
            found |= handed_on(home, {one.name: one.metadata.op_name for one in home})
        return found

    @cached_property
    def front_end(self) -> Module | None:
        """The module before any compiler, None where that cannot be had."""
        # Of the module that ran what was given, if tpusim compiled it: what it did to types would stay.
        try:
            return None if self.given is None else front_end_form(self.given)
        except TpusimError:
            return None

    def run_ps(self, alternative: Program | Module) -> int:
        """Return what an alternative takes: as it is lowered, or compiled by tpusim."""
        if isinstance(alternative, Program):
            return run_program(alternative, self.chip, self.topology).total_ps
        found = simulate(
            alternative,
            self.chip,
            topology=self.topology,
            default_trip_count=self.trips,
            schedule="compiled",
            allow_overflow=True,
        )
        return found.timeline.total_ps

    @cached_property
    def compiled_ps(self) -> int:
        """What the program takes when tpusim compiles it, for alternatives that it has to compile."""
        if self.result.schedule == "compiled":
            return self.total_ps
        assert self.front_end is not None
        return self.run_ps(self.front_end)

    @cached_property
    def host_ps(self) -> int:
        """The least that bytes to and from the host take, in whatever form the program runs."""
        roofs_ps = roofline(self.result.timeline, self.chip).roofs_ps
        return max(roofs_ps.get(link, 0) for link in (HOST_IN, HOST_OUT))

    def try_out(self, rule: str, trial: Trial) -> Finding | None:
        """Return what a trial came to, None where it cannot be run, or not with what comes from the host."""
        alternative, basis, compiled_ps = trial.alternative, _MEMORY, 0
        before_ps = after_ps = self.total_ps
        try:
            if isinstance(alternative, Program):
                after_ps, basis = self.run_ps(alternative), "bound" if trial.is_bound else "steps"
            elif alternative is not None:
                compiled_ps, made_ps, basis = self.compiled_ps, self.run_ps(alternative), "compiled"
                # Another compiler's program takes another time than ours of it: it would save the same share.
                after_ps = before_ps * made_ps // max(1, compiled_ps)
                # What arrays in the host's memory were compiled to says nothing of a program that fetches them.
                if min(made_ps, after_ps) < self.host_ps:
                    return None
        except TpusimError:
            return None
        return Finding(
            rule=rule,
            what=trial.what,
            change=trial.change,
            ops=trial.ops,
            source=trial.source,
            basis=basis,
            before_ps=before_ps,
            after_ps=after_ps,
            compiled_ps=compiled_ps,
            saved_bytes=trial.saved_bytes,
        )
