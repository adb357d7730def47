"""An HLO module as frozen data: instructions in computations in a module.

Operands and called computations are names, so that a module prints, compares and travels between processes without
following references; ``Computation`` and ``Module`` look names up.
"""

from __future__ import annotations

import json
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import structs

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.files import write_whole
from tpusim.ir.attributes import BackendConfig, ComputationName, InstructionName, Metadata
from tpusim.ir.likeness import Likeness
from tpusim.ir.ops import async_parts, long_form, may_call
from tpusim.shapes.dtype import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpusim.shapes.shape import Shape
    from tpusim.source import SourceText, Span

_P = TypeVar("_P", bound="Callable[[Module], str]")


KEYWORDS: Final = frozenset(
    "true false HloModule ENTRY ROOT FileLocations FileNames FunctionNames StackFrames maximal replicated manual"
    " last_tile_dim_replicate shard_as shard_like unknown unreduced".split()
)
"""Words that the text format keeps to itself."""

RESERVED_WORDS: Final = KEYWORDS | DTYPES.keys() | {"nan", "inf"}
"""All words that cannot name an instruction or a computation without ``%``."""


class Literal(msgspec.Struct, frozen=True):
    """The value of a ``constant`` as canonical HLO text; ``elided`` marks ``{...}``, whose value is not known."""

    text: str
    elided: bool = False


class Instruction(msgspec.Struct, frozen=True, gc=False):
    """One instruction: ``name = shape opcode(operands), attributes``.

    ``operands`` are names in the same computation. ``immediate`` is what stands in the parentheses instead of operands:
    the number of a ``parameter``, the ``Literal`` of a ``constant``. ``attributes`` maps each attribute's name, in the
    order of the text, to its value: see ``ir.attributes``. Instructions that state the same share one dict, so nothing
    changes it in place.
    """

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...] = ()
    attributes: dict[str, Any] = {}
    immediate: int | Literal | None = None

    @property
    def backend_config(self) -> BackendConfig:
        """The decoded ``backend_config`` (empty if there is none)."""
        return BackendConfig.decode(self.attributes.get("backend_config", ""))

    @property
    def metadata(self) -> Metadata:
        """The decoded ``metadata`` (empty if there is none)."""
        return Metadata.decode(self.attributes.get("metadata", ""))

    @property
    def kernel_name(self) -> str:
        """What a hand-written kernel calls itself: the instruction's name, without the number that XLA adds."""
        return self.name.partition(".")[0] if self.backend_config.kernel_body else ""

    @property
    def called_computations(self) -> tuple[str, ...]:
        """Names of the computations that this instruction calls, in the order of its attributes."""
        return called_in(self.attributes)


def called_in(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the computations that an instruction with these attributes calls, in their order."""
    names: list[str] = []
    for value in attributes.values():
        if isinstance(value, ComputationName):
            names.append(value)
        elif isinstance(value, tuple):
            names.extend(item for item in value if isinstance(item, ComputationName))
    return tuple(names)


def wrapped_opcode(start: Instruction, computations: Mapping[str, Computation]) -> str:
    """Return the opcode of what an asynchronous start is around: of its short form, or of the root of what it calls."""
    short = async_parts(start.opcode)
    # The short forms are spellings: what they stand for is the long one.
    return short[0] if short else long_form(computations[start.attributes["calls"]].root.opcode)


def with_window(instruction: Instruction, bounds: Mapping[str, tuple[int, ...]]) -> Instruction:
    """Return an instruction whose ``window_config`` states these bounds (keys of ``WindowConfig``) and nothing else."""
    fields = instruction.backend_config.fields
    # Numbers are text there, as the compiler writes them.
    window = {key: [str(bound) for bound in values] for key, values in bounds.items()}
    config = json.dumps(fields | {"window_config": window})
    return structs.replace(instruction, attributes=instruction.attributes | {"backend_config": config})


_PLACES = ("offsets", "source")


class _Compared(msgspec.Struct, frozen=True, dict=True, weakref=True, eq=False):
    """What is equal to another with the same fields but those that say where a text has it.

    Where that is, is not part of what it is: two readings of one program compare equal. A ``cached_property`` writes
    past the frozen class, so that a table is built where it is first needed; copies go without.
    """

    def __eq__(self, other: object) -> bool:
        return self._stated() == other._stated() if isinstance(other, _Compared) else NotImplemented

    # What msgspec has for structs would compare identities.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def _stated(self) -> tuple[object, ...]:
        return type(self), *[getattr(self, name) for name in self.__struct_fields__ if name not in _PLACES]


class Computation(_Compared, frozen=True):
    """Instructions in text order, which in a scheduled module is the order of execution.

    ``offsets[i]`` is where instruction ``i`` begins in the source text (empty if there is none).
    """

    name: str
    instructions: tuple[Instruction, ...]
    root_name: str
    execution_thread: str = "main"
    offsets: tuple[int, ...] = ()

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of its instructions."""
        return frozenset([instruction.opcode for instruction in self.instructions])

    @cached_property
    def calls(self) -> tuple[tuple[Instruction, tuple[str, ...]], ...]:
        """Its instructions that may call computations, in their order, each with the names of those that it does."""
        callers = frozenset(filter(may_call, self.opcodes))
        found = [i for i in self.instructions if i.opcode in callers] if callers else ()
        return tuple([(instruction, instruction.called_computations) for instruction in found])

    @cached_property
    def used(self) -> frozenset[str]:
        """The names of the instructions that others of it use."""
        return frozenset().union(*[instruction.operands for instruction in self.instructions])

    @cached_property
    def users(self) -> dict[str, list[tuple[Instruction, int]]]:
        """By the name of an instruction, those that use it and as which operand, in their order."""
        found: dict[str, list[tuple[Instruction, int]]] = {}
        for instruction in self.instructions:
            for position, name in enumerate(instruction.operands):
                found.setdefault(name, []).append((instruction, position))
        return found

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of its instructions by their names."""
        return {instruction.name: instruction.shape for instruction in self.instructions}

    def __getitem__(self, name: str) -> Instruction:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    @property
    def root(self) -> Instruction:
        """The instruction whose value the computation returns."""
        return self.by_name[self.root_name]

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters in the order of their numbers."""
        # The text may give parameters in any order; callers pass operands by number.
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=attrgetter("immediate")))

    def operands_of(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the instructions that ``instruction`` takes its operands from."""
        by_name = self.by_name
        return tuple([by_name[name] for name in instruction.operands])


_PRINTERS: list[Callable[[Module], str]] = []


def prints_modules(printer: _P) -> _P:
    """Enter the function that ``Module.text`` asks: HLO text is the room ``text``'s, which this one does not know."""
    _PRINTERS[:] = [printer]
    return printer


class Module(_Compared, frozen=True):
    """An HLO module.

    ``attributes`` are those of its first line (``is_scheduled``, ``entry_computation_layout``, ...); ``tables`` are the
    raw lines of ``FileNames``, ``FunctionNames``, ``FileLocations`` and ``StackFrames`` by title.
    """

    name: str
    computations: tuple[Computation, ...]
    entry_name: str
    attributes: dict[str, Any] = {}
    tables: dict[str, tuple[str, ...]] = {}
    source: SourceText | None = None

    def __repr__(self) -> str:
        """Name the module and its size: all fields would be megabytes; ``text`` has them."""
        return f"<Module {self.name}: {self.instruction_count} instructions, {len(self.computations)} computations>"

    @property
    def text(self) -> str:
        """The module as HLO text, as XLA prints it."""
        if not _PRINTERS:
            raise UnsupportedError(f"{self.name}: nothing here prints modules: import tpusim.text")
        return _PRINTERS[0](self)

    def save(self, path: str | Path) -> None:
        """Write the HLO text to a file, gzip-compressed if its name ends in ``.gz``."""
        # Most programs are only read.
        import gzip

        content = self.text.encode()
        # Without the time of writing: the same program is the same file.
        write_whole(path, gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)

    @cached_property
    def by_name(self) -> dict[str, Computation]:
        """Computations by name."""
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def homes(self) -> dict[str, Computation]:
        """By the name of an instruction the computation that has it: of several the entry, or else the first."""
        return {one.name: home for home in (*reversed(self.computations), self.entry) for one in home}

    @cached_property
    def likeness(self) -> Likeness:
        """Which of its computations are alike; nothing calls the entry, of which there is one."""
        return Likeness(one for one in self.computations if one.name != self.entry_name)

    @cached_property
    def unlike(self) -> tuple[Computation, ...]:
        """Of the computations that are alike one each: together they say all that the module does but for names."""
        numbers = self.likeness.numbers
        return tuple({numbers.get(one.name, one.name): one for one in reversed(self.computations)}.values())[::-1]

    @cached_property
    def updates(self) -> dict[str, dict[int, int]]:
        """By fused computation which result updates which parameter: what ``semantics.aliasing`` found so far."""
        return {}

    def __getitem__(self, name: str) -> Computation:
        return self.by_name[name]

    @property
    def entry(self) -> Computation:
        """The computation that a run begins with."""
        return self.by_name[self.entry_name]

    @property
    def is_scheduled(self) -> bool:
        """Whether text order is execution order."""
        return self.attributes.get("is_scheduled") is True

    @property
    def replica_count(self) -> int:
        """How many replicas run the module; 1 where its first line does not say."""
        return int(self.attributes.get("replica_count", 1))

    @property
    def partition_count(self) -> int:
        """How many partitions each replica has; 1 where the first line does not say."""
        return int(self.attributes.get("num_partitions", 1))

    @property
    def device_count(self) -> int:
        """How many devices the module was compiled for: replicas times partitions."""
        return self.replica_count * self.partition_count

    @property
    def instruction_count(self) -> int:
        """Instructions in all computations."""
        return sum(len(computation.instructions) for computation in self.computations)

    def called_from(self, instructions: Iterable[Instruction]) -> set[str]:
        """Return the names of the computations that some instructions call, and of those that these call."""
        found: set[str] = set()
        waiting = [name for instruction in instructions for name in instruction.called_computations]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [inner for one in self[name] for inner in one.called_computations]
        return found

    def where(self, computation: Computation, instruction: Instruction) -> Span | None:
        """Return the place of an instruction in the source text, if the module was read from one."""
        if self.source is None or not computation.offsets:
            return None
        # A search and no table: only messages to people ask for places.
        offset = computation.offsets[computation.instructions.index(instruction)]
        return self.source.span(offset, offset + len(instruction.name))

    def where_attribute(self, name: str) -> Span | None:
        """Return the place of an attribute of the module's first line, if the module was read from one that has it."""
        offset = -1 if self.source is None else self.source.text.find(f"{name}=")
        return None if self.source is None or offset < 0 else self.source.span(offset, offset + len(name))


def with_devices(module: Module, replicas: int = 1, partitions: int = 1) -> Module:
    """Return the module for so many devices; a count that its first line states already must be the same.

    Raises ProgramError if it states another one.
    """
    wanted = {"replica_count": replicas, "num_partitions": partitions}
    for name, count in wanted.items():
        stated = module.attributes.get(name, count)
        if stated != count:
            raise ProgramError(f"expected {name}={stated}, as {module.name!r} says, found {count}; run it on as many")
    # A count of 1 is what no count means; writing it out would change the module's text.
    counts = {name: count for name, count in wanted.items() if count != 1}
    return structs.replace(module, attributes=module.attributes | counts)


def with_own_names(module: Module) -> Module:
    """Return the module with a name of its own for each instruction.

    In a text names are unique in their computation only. The entry's stay; of others with one name all but the first
    get that of their computation as well.
    """
    taken: set[str] = set().union(*[computation.by_name for computation in module.computations])
    if len(taken) == module.instruction_count:
        return module
    seen: set[str] = set()
    made = {}
    for computation in sorted(module.computations, key=lambda one: one.name != module.entry_name):
        names = {}
        for instruction in computation.instructions:
            name = instruction.name
            if name in seen:
                while name in taken:
                    name += f".{computation.name}"
                names[instruction.name] = name
            seen.add(name)
            taken.add(name)
        made[computation.name] = _renamed(computation, names) if names else computation
    return structs.replace(module, computations=tuple(made[computation.name] for computation in module.computations))


def _renamed(computation: Computation, names: Mapping[str, str]) -> Computation:
    """Return a computation whose instructions have other names."""

    def other(instruction: Instruction) -> Instruction:
        attributes, before = instruction.attributes, "control-predecessors"
        if before in attributes:
            attributes = attributes | {before: tuple(InstructionName(names.get(n, n)) for n in attributes[before])}
        return structs.replace(
            instruction,
            name=names.get(instruction.name, instruction.name),
            operands=tuple(names.get(name, name) for name in instruction.operands),
            attributes=attributes,
        )

    root_name = names.get(computation.root_name, computation.root_name)
    return structs.replace(computation, instructions=tuple(map(other, computation.instructions)), root_name=root_name)
