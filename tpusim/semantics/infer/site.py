"""What an inference rule sees of its instruction, the table of rules, and the error that names a broken constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from tpusim.errors import ProgramError
from tpusim.ir.module import Computation, Instruction
from tpusim.semantics.infer.labels import LABELS
from tpusim.semantics.infer.types import is_array, plain
from tpusim.shapes.shape import ArrayShape, Shape

# A bare Shape is of no kind, so that no rule can take it for an array or a tuple.
UNKNOWN: Final = Shape()
"""The shape of an instruction whose shape is yet to be inferred."""


class Surroundings(Protocol):
    """What a rule asks of the module, which may still be in the making."""

    @property
    def by_name(self) -> Mapping[str, Computation]:
        """Computations by name, at least those that the instruction calls."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the module's first line, of which ``replica_count`` and ``num_partitions`` are read."""


class InTheMaking(msgspec.Struct, frozen=True):
    """The computations that a module has so far; its first line says nothing yet."""

    by_name: Mapping[str, Computation]
    attributes: Mapping[str, Any] = MappingProxyType({})


class Signature(NamedTuple):
    """The shapes that a computation takes and gives."""

    parameters: tuple[Shape, ...]
    result: Shape


class Site:
    """One instruction, the shapes of its operands, and the module around it."""

    # One is made per instruction, of which verified programs have hundreds of thousands.
    __slots__ = ("attributes", "instruction", "module", "opcode", "operands")

    def __init__(self, instruction: Instruction, operands: Sequence[Shape], module: Surroundings) -> None:
        self.instruction = instruction
        self.operands = operands
        self.module = module
        self.opcode = instruction.opcode
        self.attributes = instruction.attributes

    @property
    def declared(self) -> Shape | None:
        """The shape that is written on the instruction; None if there is none yet."""
        shape = self.instruction.shape
        return None if shape is UNKNOWN else shape

    def stated(self) -> Shape:
        """Return the written shape of an operation whose operands do not imply it."""
        if self.declared is None:
            raise broken("shape_c1", "none")
        return self.declared

    def stated_array(self) -> ArrayShape:
        """Return the written shape, which must be an array."""
        shape = self.stated()
        if not is_array(shape):
            raise broken("array_c2", plain(shape))
        return shape

    def array(self, position: int = 0) -> ArrayShape:
        """Return an operand's shape, which must be an array."""
        shape = self.operands[position]
        if not is_array(shape):
            raise broken("array_c1", f"operand {position} of shape {plain(shape)}")
        return shape

    def arrays(self) -> list[ArrayShape]:
        """Return the shapes of all operands, which must be arrays."""
        return [self.array(position) for position in range(len(self.operands))]

    def flag(self, name: str) -> bool:
        """Return an attribute that is false unless it is given."""
        return bool(self.attributes.get(name, False))

    def signature(self, attribute: str) -> Signature:
        """Return the signature of the computation that an attribute names."""
        return self.signature_of(self.attributes[attribute])

    def signature_of(self, name: str) -> Signature:
        """Return the signature of a computation."""
        # A builder's module is in the making: what is called may not be there yet.
        computation = self.module.by_name.get(name)
        if computation is None:
            raise broken("computation_c1", repr(str(name)))
        return Signature(tuple(parameter.shape for parameter in computation.parameters), computation.root.shape)

    def count(self, name: str) -> int:
        """Return ``replica_count`` or ``num_partitions`` of the module; 1 where it does not say."""
        return int(self.module.attributes.get(name, 1))


Rule: TypeAlias = "Callable[[Site], Shape]"
# Lets a decorated rule keep its own, narrower type of result.
_Rule = TypeVar("_Rule", bound="Rule")

RULES: Final[dict[str, Rule]] = {}
"""The inference rule of each opcode."""


def infers(*opcodes: str) -> Callable[[_Rule], _Rule]:
    """Enter a function from a site to the result's shape as the rule of these opcodes."""

    def enter(rule: _Rule) -> _Rule:
        RULES.update(dict.fromkeys(opcodes, rule))
        return rule

    return enter


def broken(label: str, found: object) -> ProgramError:
    """Return the error of a broken constraint: what ``LABELS`` says of it, what was found, and the label."""
    return ProgramError(f"expected {LABELS[label]}, found {found} [{label}]")


def require(holds: object, label: str, *found: object) -> None:
    """Raise the error of a constraint that does not hold; what was found is written in a row, shapes without layout."""
    if not holds:
        words = (plain(part) if isinstance(part, Shape) else str(part) for part in found)
        raise broken(label, " ".join(words))
