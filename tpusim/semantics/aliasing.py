"""Which results lie where operands do: what the compiler states, and what updates in place and joins imply."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tpusim.ir.attributes import SliceDimension
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import IN_PLACE, VIEWS, async_parts, async_phase
from tpusim.nesting import walk_nested
from tpusim.shapes.shape import leaves

_Walk: TypeAlias = Generator[str, dict[int, int], dict[int, int]]
"""A walk of a fused computation, which yields the names of those in it, and is sent their updates."""

JOIN = "ConcatBitcast"
"""The custom call whose result is its operands' buffers, side by side."""

Bounds: TypeAlias = tuple[SliceDimension, ...]


def joins_operands(instruction: Instruction) -> bool:
    """Return whether an instruction only joins its operands: its result lies where they do, side by side."""
    return instruction.attributes.get("custom_call_target") == JOIN


def behind_views(computation: Computation, value: Instruction) -> Instruction:
    """Return the instruction whose value ``value`` is a view of."""
    while value.opcode in VIEWS:
        value = computation[value.operands[0]]
    return value


def stated_operands(computation: Computation, instruction: Instruction) -> dict[int, tuple[int, int]]:
    """Return which results (by leaf) the compiler has put over which operands, and over which leaf of them."""
    lists = instruction.backend_config.aliasing_operands
    if not lists:
        return {}
    # The compiler numbers the arrays of all operands, then those of the result.
    counts = [len(leaves(operand.shape)) for operand in computation.operands_of(instruction)]
    places = [(number, leaf) for number, count in enumerate(counts) for leaf in range(count)]
    found = {}
    for numbers in lists:
        over = next((places[number] for number in numbers if 0 <= number < len(places)), None)
        if over is not None:
            found.update({number - len(places): over for number in numbers if number >= len(places)})
    return found


def in_place_operands(module: Module, instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) must lie where an operand does: updates in place, and what the text states."""
    if instruction.opcode in IN_PLACE:
        return {0: 0}
    found = _stated(instruction)
    if instruction.opcode != "fusion":
        return found
    called = instruction.attributes["calls"]
    # Hardly any fusion has what updates in place: what its opcodes are is known before its roots are followed.
    return found | walk_nested(partial(_updates, module), called) if module[called].opcodes & _MAY_UPDATE else found


def _updates(module: Module, name: str) -> _Walk:
    """Walk a fused computation, and return which parameter each of its results (by leaf) is an update of."""
    known, called = module.updates, module[name]
    # A fusion that many hold, or that is asked for at every level around it, is walked once.
    if name not in known:
        # Only a root can be written over an operand: a value inside a fusion has no buffer.
        roots = called.operands_of(called.root) if called.root.opcode == "tuple" else (called.root,)
        found = {}
        for index, root in enumerate(roots if called.opcodes & _MAY_UPDATE else ()):
            value = behind_views(called, root)
            operand = 0 if value.opcode in IN_PLACE else None
            if value.opcode == "fusion":
                operand = (_stated(value) | (yield value.attributes["calls"])).get(0)
            target = None if operand is None else _parameter_behind(called, value.operands[operand])
            if target is not None:
                found[index] = target
        known[name] = found
    return known[name]


_MAY_UPDATE = IN_PLACE | {"fusion"}


def _stated(instruction: Instruction) -> dict[int, int]:
    """Return which results (by leaf) the text states to lie where an operand does."""
    if "output_to_operand_aliasing" not in instruction.attributes:
        return {}
    return {index: operand for index, operand in _attribute(instruction) if index is not None}


def _attribute(instruction: Instruction) -> Iterator[tuple[int | None, int]]:
    """Yield the aliases that ``output_to_operand_aliasing`` states of whole operands, by leaf of the result."""
    for alias in instruction.attributes.get("output_to_operand_aliasing", ()):
        if not alias.operand_index and alias.operand < len(instruction.operands):
            # Aliases inside nested tuples do not occur in practice.
            yield (alias.output_index or (0,))[0] if len(alias.output_index) < 2 else None, alias.operand


def _parameter_behind(computation: Computation, name: str) -> int | None:
    """Return the number of the parameter that a name is a view of, or None."""
    value = computation[name]
    # A fusion inside may be a view of its own: it is written over its operand.
    while value.opcode in VIEWS or (value.opcode == "fusion" and (0, 0) in _attribute(value)):
        value = computation[value.operands[0]]
    return value.immediate if value.opcode == "parameter" and isinstance(value.immediate, int) else None


# Arrays that come into a fast memory slice by slice, since each can begin as soon as there is room for it. Instructions
# of a module and nodes of a draft have their operands in different forms: what gets one is given how to find others.


class _Step(Protocol):
    """An instruction, or a node of a draft."""

    @property
    def opcode(self) -> str:
        """What it does."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """How it does it."""


S = TypeVar("S", bound=_Step)


class Cut(NamedTuple):
    """A slice: of what array, and which part of it."""

    source: Any
    bounds: Bounds


def begun(step: S, operands_of: Callable[[S], Sequence[S]]) -> tuple[S, list[S]]:
    """Return the start that an update or a done goes on with, and all operands, those that came with updates too."""
    late = list[S]()
    while async_phase(step.opcode) != "start":
        # What comes with an update comes behind the operands of the start.
        step, *more = operands_of(step)
        late = more + late
    return step, [*operands_of(step), *late]


def cut_at(done: S, operands_of: Callable[[S], Sequence[S]], alone_in: Callable[[str], S | None]) -> Cut | None:
    """Return of what an asynchronous slice is that ends in an instruction; None for any other.

    ``alone_in`` gives the instruction that a computation is, of nothing but its parameters, or None.
    """
    if async_phase(done.opcode) != "done":
        return None
    start, operands = begun(done, operands_of)
    short = async_parts(start.opcode)
    if short:
        return Cut(operands[0], start.attributes["slice"]) if short[0] == "slice" else None
    wrapped = alone_in(start.attributes["calls"])
    return Cut(operands[0], wrapped.attributes["slice"]) if wrapped and wrapped.opcode == "slice" else None


def side_by_side(cuts: Sequence[Cut | None]) -> list[int]:
    """Return the numbers of joined operands in the order in which they lie, from what each is a slice of.

    Slices of one array lie as they do in the array: the TPU compiler lists them in any order. Of anything else nothing
    but the list tells.
    """
    numbers = list(range(len(cuts)))
    found = [cut for cut in cuts if cut]
    if len(found) < len(cuts) or any(cut.source is not found[0].source for cut in found):
        return numbers
    return sorted(numbers, key=lambda number: [part.start for part in found[number].bounds])


def joined_in_order(module: Module, computation: Computation, join: Instruction) -> list[int]:
    """Return the numbers of what an instruction joins in the order in which the operands lie."""

    def alone_in(name: str) -> Instruction | None:
        root, parameters = module[name].root, module[name].parameters
        return root if root.operands == tuple(parameter.name for parameter in parameters) else None

    joined = computation.operands_of(join)
    return side_by_side([cut_at(done, computation.operands_of, alone_in) for done in joined])
