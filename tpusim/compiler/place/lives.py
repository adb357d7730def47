"""Which values of a draft must lie in one place, when they live, and what kernels move of them.

Joined are the values that a loop carries from trip to trip, an update in place and its target, the results of branches.
The schedule is flat, as for ``tpusim.allocation``: what a loop runs stands before it, and what lives across it lives
during all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from tpusim.allocation.liveness import Frame, Liveness, Nodes, Value
from tpusim.compiler.buffers import is_unwritten
from tpusim.compiler.kernels.scoped import buffers_of, scoped_bytes
from tpusim.compiler.place.estimate import compute_seconds
from tpusim.compiler.place.room import Stretch
from tpusim.compiler.target import Target
from tpusim.draft import Draft
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CONTROL_FLOW, FREE, GATHERS_BESIDE, ON_RINGS, USES_FAST_MEMORY, VIEWS
from tpusim.semantics.contexts import BodyContext, CallContext, Context, EntryContext, Ways
from tpusim.semantics.demand.inlining import Body, inline
from tpusim.semantics.demand.needs import accesses, demand_of
from tpusim.semantics.infer.control import branches
from tpusim.semantics.trip_counts import count_trips
from tpusim.shapes.shape import ArrayShape, nodes

UNKNOWN_TRIPS = 16
"""How often a loop is taken to run of which the program does not say it."""

_MAKES = (USES_FAST_MEMORY | ON_RINGS | GATHERS_BESIDE | CONTROL_FLOW) - VIEWS
_USES = USES_FAST_MEMORY | ON_RINGS | GATHERS_BESIDE | CONTROL_FLOW | FREE


class Home:
    """One place in memory: the values that lie there, when it takes room, and what kernels move to and from it."""

    __slots__ = ("is_fixed", "moved_bytes", "n_bytes", "name", "number", "stretches")

    def __init__(self, number: int, values: list[Value]) -> None:
        self.number = number
        self.name = values[0].instruction.name
        self.n_bytes = max(value.n_bytes for value in values)
        self.stretches = list(_stretches(values))
        # The host hands arguments over in HBM and takes results from there; constants lie there too.
        self.is_fixed = any(value.is_result or not _may_move(value) for value in values)
        # In one run of the program, the wait for the first of them counted as bytes.
        self.moved_bytes = 0.0


def _may_move(value: Value) -> bool:
    shape = value.shape
    if not isinstance(shape, ArrayShape) or shape.layout is None or not value.n_bytes:
        return False
    # Single numbers belong to the scalar core.
    return shape.element_count > 1 and not shape.memory_space and value.instruction.opcode in _MAKES


def _is_not_shared(instruction: Instruction) -> bool:
    """Return whether an instruction cannot put arrays where each of several cores has them.

    In programs compiled ahead of time for v5p no result of a kernel that is one instruction lies in VMEM (275 of 275),
    and none of a fusion around a product (198 of 198); of 509 results of other fusions 389 do. None of a collective
    does, while all of 128 KiB to 16 MiB do on v5e and v6e, and on v4 in CMEM.
    """
    is_kernel = instruction.opcode in (USES_FAST_MEMORY | ON_RINGS | GATHERS_BESIDE) - FREE
    return is_kernel and str(instruction.attributes.get("kind")) != "kLoop"


def _stretches(values: list[Value]) -> Iterator[Stretch]:
    """Yield when values take room: where one hands over to the next, once for both."""
    ends: set[int] = set()
    for value in sorted(values, key=lambda value: (value.first, value.last)):
        first = value.first + (value.first in ends)
        ends.add(value.last)
        if first <= value.last:
            yield first, value.last, value.n_bytes


class Move(NamedTuple):
    """What a kernel reads of an operand, or writes, and where that lies."""

    name: str
    home: Home
    n_bytes: float
    is_output: bool


class Kernel(NamedTuple):
    """What a kernel moves, and the least that it computes for.

    ``reads`` has by the names of operands what it reads of them, but for those in whose place it writes as well.
    """

    moves: list[Move]
    reads: dict[str, Move]
    compute_seconds: float


class Lives:
    """The homes of all arrays in the computations of a draft that run as parts of the program.

    Of each instruction in these, by its name: ``parts`` are its values, ``times`` how often it runs, ``positions``
    where it stands in the schedule, ``kernels`` what it does if it is a kernel. ``visits`` counts how often the
    schedule goes through each computation. ``by_dma`` names copies that are no kernels. ``held`` is what kernels that
    are allowed more blocks and scratch than others take of the memory for whole arrays.
    """

    def __init__(self, draft: Draft, target: Target, by_dma: Container[str] = ()) -> None:
        self.module = draft.write()
        self._target = target
        self._liveness = Liveness(self.module, 1)
        self.parts: dict[str, Nodes] = {}
        for frame in self._liveness.frames:
            self._enter(frame)
        self.visits = Counter(frame.computation.name for frame in self._liveness.frames)
        self.length = len(self._liveness.schedule) + 1
        self.positions = {name: position for position, name in enumerate(self._liveness.schedule)}
        self._homes = self._find_homes()
        self.times: dict[str, int] = {}
        self.kernels: dict[str, Kernel] = {}
        self.held: list[Stretch] = []
        for name, times in _runs(self.module).items():
            for instruction in self.module[name].instructions:
                self.times[instruction.name] = times
                if instruction.backend_config.kernel_body:
                    self._hold(self.module[name], instruction)
                if instruction.name in by_dma:
                    continue
                self._fix(instruction)
                # Memory that nobody has written takes no time.
                if is_unwritten(instruction):
                    continue
                if instruction.opcode in USES_FAST_MEMORY - FREE:
                    body = inline(self.module, self.module[name], instruction)
                    self.kernels[instruction.name] = self._kernel(instruction, body)
                elif instruction.opcode in ON_RINGS:
                    self._count_whole((*instruction.operands, instruction.name), times)
                elif instruction.opcode == "all-gather-start":
                    # Its result is a tuple of what is gathered and what becomes of it.
                    self._count_whole((instruction.name,), times)

    @property
    def homes(self) -> list[Home]:
        """All homes, in the order of the schedule."""
        return list(self._homes.values())

    def home(self, part: tuple[int, ...]) -> Home | None:
        """Return where a part of a value lies; flags lie nowhere."""
        return self._homes[self._liveness.buffer(part[0])] if part else None

    def _enter(self, frame: Frame) -> None:
        """Note the values of a visit; of a computation that is visited again they lie where they did before."""
        for name, parts in frame.values.items():
            for one, other in zip(self.parts.setdefault(name, parts), parts, strict=True):
                if one != other:
                    self._liveness.join(one, other)

    def _find_homes(self) -> dict[int, Home]:
        members: dict[int, list[Value]] = {}
        for number, value in enumerate(self._liveness.values):
            members.setdefault(self._liveness.buffer(number), []).append(value)
        return {number: Home(number, values) for number, values in members.items()}

    def _fix(self, instruction: Instruction) -> None:
        """Leave in HBM what an operation takes from there, or can only put there."""
        names = () if instruction.opcode in _USES else instruction.operands
        if self._target.cores > 1 and not self._target.chip.cmem.capacity_bytes and _is_not_shared(instruction):
            names = (*names, instruction.name)
        for part in (part for name in names for part in self.parts[name]):
            home = self.home(part)
            if home is not None:
                home.is_fixed = True

    def _hold(self, computation: Computation, instruction: Instruction) -> None:
        """Note what of the memory for whole arrays a hand-written kernel takes."""
        operands = [operand.shape for operand in computation.operands_of(instruction)]
        found = buffers_of(instruction.attributes, operands, instruction.shape, self._target.chip)
        over = scoped_bytes(found) - self._target.scoped_bytes
        if over > 0:
            position = self.positions[instruction.name]
            self.held.append((position, position, over))

    def _count_whole(self, names: Iterable[str], times: int) -> None:
        """Count that whole values are moved."""
        for home in (self.home(part) for name in names for part in self.parts[name]):
            if home is not None:
                home.moved_bytes += home.n_bytes * times

    def _kernel(self, instruction: Instruction, body: Body) -> Kernel:
        """Return what a kernel does, and count its traffic with the homes that it goes to and comes from."""
        pairs = zip(nodes(instruction.shape), self.parts[instruction.name], strict=True)
        results = (part for shape, part in pairs if isinstance(shape, ArrayShape))
        found = []
        for access in accesses(body, demand_of(body), instruction):
            # What is no array, a buffer that has no value, has no home.
            home = self.home(next(results, ()) if access.is_output else self.parts[access.name][0])
            if home is not None:
                found.append(Move(access.name, home, access.n_bytes, access.is_output))
        outputs = sum(move.is_output for move in found)
        for move in found:
            # What a kernel reads at its start, and writes at its end, it waits for together.
            together = outputs if move.is_output else len(found) - outputs
            n_bytes = move.n_bytes + self._target.latency_bytes / together
            move.home.moved_bytes += n_bytes * self.times[instruction.name]
        written = {move.home for move in found if move.is_output}
        # The first of an operand counts, as it comes last here.
        reads = {move.name: move for move in reversed(found) if not move.is_output}
        apart = {name: move for name, move in reads.items() if move.home not in written}
        return Kernel(found, apart, compute_seconds(body, self._target.chip))


def _runs(module: Module) -> dict[str, int]:
    """Return how often one run of the module runs each computation that it runs instruction by instruction."""
    found: dict[str, int] = {}
    ways: Ways[None] = Ways()
    ways.enter(EntryContext(module), 1, None)
    # What calls a computation stands behind it.
    for computation in reversed(module.computations):
        for context, _, times in ways.into(computation):
            found[computation.name] = found.get(computation.name, 0) + times
            for instruction in computation.instructions:
                for inner, count in _entered(module, context, instruction, times):
                    ways.enter(inner, count, None)
    return found


def _entered(module: Module, context: Context, instruction: Instruction, times: int) -> Iterator[tuple[Context, int]]:
    """Yield the computations that an instruction runs, and how often."""
    if instruction.opcode == "while":
        counted = count_trips(module, instruction, context.known_of(instruction.operands), context.budget)
        trips = counted.trips if counted else UNKNOWN_TRIPS
        yield BodyContext(context, instruction, trips), times * trips
        yield Context(module, module[instruction.attributes["condition"]], {}, context.budget), times * trips
    elif instruction.opcode == "conditional":
        for name, operand in zip(branches(instruction.attributes), instruction.operands[1:], strict=True):
            yield CallContext(context, name, (operand,)), times
