"""What every family of builder methods stands on: handles, names, called computations, and the finished module.

Source: XLA, ``XlaBuilder``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import msgspec

from tpusim.errors import ProgramError, did_you_mean
from tpusim.ir.attributes import ComputationName, Symbol
from tpusim.ir.module import RESERVED_WORDS, Computation, Instruction, Module
from tpusim.semantics.infer.rules import infer_shape
from tpusim.semantics.infer.site import UNKNOWN, InTheMaking, Site
from tpusim.semantics.verify.shapes import check_precision
from tpusim.semantics.verify.view import Call
from tpusim.shapes.dtype import DType, dtype
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, leaves

if TYPE_CHECKING:
    from tpusim.build.builder import Builder

Callee: TypeAlias = Union["BuilderBase", Module, Computation, Callable[..., Any]]
"""A computation to call: another builder, something built, or a Python function that takes and returns ops."""

Sizes: TypeAlias = Sequence[int]
"""Sizes, or dimension numbers."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


def _infix(method: str) -> Callable[[Op, Op | complex], Op]:
    """Return the operator that calls a method of the builder, with a number beside an op as a constant of its type."""

    def apply(self: Op, other: Op | complex) -> Op:
        beside = other if isinstance(other, Op) else self.builder.constant(other, array_of(self).dtype)
        result: Op = getattr(self.builder, method)(self, beside)
        return result

    return apply


@dataclass(frozen=True)
class Op:
    """A value in a builder: the name of the instruction that makes it, and its shape.

    The arithmetic operators of Python are those of XLA, element by element; a number beside an op is a constant of the
    op's type.
    """

    builder: Builder
    name: str
    shape: Shape

    # No __eq__: ops are keys of dictionaries and compare as Python objects; ``eq`` compares values.
    __add__ = _infix("add")
    __sub__ = _infix("sub")
    __mul__ = _infix("mul")
    __truediv__ = _infix("div")
    __mod__ = _infix("rem")
    __lt__ = _infix("lt")
    __le__ = _infix("le")
    __gt__ = _infix("gt")
    __ge__ = _infix("ge")

    def __neg__(self) -> Op:
        return self.builder.neg(self)


class BuilderBase:
    """Collects the instructions of one computation, and the computations that they call."""

    def __init__(self, name: str) -> None:
        """Begin a computation; ``name`` becomes the module's too, if it is the one that is built."""
        self.name = _clean(name)
        self._instructions: dict[str, Instruction] = {}
        # Insertion order is text order: what is called stands before its callers.
        self._computations: dict[str, Computation] = {}
        self._serial = 0

    def parameter(self, number: int, shape: Shape | str, name: str = "") -> Op:
        """Return parameter ``number``, counted from 0; ``shape`` may be XLA's notation, e.g. ``"f32[4,16]"``."""
        if any(i.opcode == "parameter" and i.immediate == number for i in self._instructions.values()):
            raise ProgramError(f"expected each parameter number once in {self.name!r}, found {number} again")
        own_name = unused_name(_clean(name), self._instructions) if name else self._numbered("parameter")
        return self._add(Instruction(own_name, as_shape(shape), "parameter", immediate=number))

    def emit(
        self,
        opcode: str,
        operands: Sequence[Op] = (),
        attributes: Mapping[str, Any] | None = None,
        shape: Shape | str | None = None,
        element_type: DType | str | None = None,
    ) -> Op:
        """Return a new instruction of any opcode of the text format, as it stands: nothing is expanded.

        ``attributes`` hold values as ``ir.attributes`` describes them; those that are None are left out. ``shape`` may
        stay away where operands and attributes imply it, and ``element_type`` then changes its type. Raises
        ProgramError for operands that do not fit.
        """
        for operand in operands:
            self._check_is_own(operand)
        present = {name: value for name, value in (attributes or {}).items() if value is not None}
        declared = UNKNOWN if shape is None else as_shape(shape)
        names = tuple(operand.name for operand in operands)
        draft = Instruction(self._numbered(opcode), declared, opcode, names, present)
        around = InTheMaking(self._computations)
        # Inferred even where a shape is stated, since inference is also what checks the operands.
        shapes = [operand.shape for operand in operands]
        inferred = infer_shape(around, draft, shapes)
        # A stated shape may have a layout, of which inference knows nothing: it stays as it is.
        if shape is None:
            if element_type is not None:
                if not isinstance(inferred, ArrayShape):
                    raise ProgramError(f"emit: element_type: expected it for an array, found the result {inferred}")
                inferred = msgspec.structs.replace(inferred, dtype=as_dtype(element_type))
            draft = msgspec.structs.replace(draft, shape=inferred)
        # Inference lets floats of several types mix, and XLA's verifier does not.
        for finding in check_precision(
            Site(draft, shapes, around), Call(Computation(self.name, (draft,), draft.name), draft)
        ):
            raise finding.error
        return self._add(draft)

    def build(self, root: Op | None = None) -> Module:
        """Return the module whose entry returns ``root``, or the last instruction if none is given.

        Raises ProgramError if there is no instruction, or if the parameters are not numbered from 0 without a gap.
        """
        if not self._instructions:
            raise ProgramError(f"expected at least one instruction in {self.name!r}; add one before build()")
        numbers = sorted(i.immediate for i in self._instructions.values() if isinstance(i.immediate, int))
        if numbers != list(range(len(numbers))):
            raise ProgramError(f"expected the parameters of {self.name!r} to be numbered from 0 on, found {numbers}")
        if root is not None:
            self._check_is_own(root)
        root_name = root.name if root is not None else next(reversed(self._instructions))
        # Callers refer to the others by name and none to the entry, so the entry is what is renamed.
        name = unused_name(self.name, self._computations)
        entry = Computation(name, tuple(self._instructions.values()), root_name)
        return Module(self.name, (*self._computations.values(), entry), name)

    def called(self, callee: Callee, parameters: Iterable[Shape]) -> ComputationName:
        """Take a computation into this module and return the name that it has here.

        A Python function is run once on parameters of these shapes. A computation that is already here is shared.
        """
        # A computation on its own can call nothing, so it is a module already.
        if isinstance(callee, Computation):
            callee = Module(callee.name, (callee,), callee.name)
        elif isinstance(callee, BuilderBase):
            callee = callee.build()
        elif not isinstance(callee, Module):
            callee = self._traced(callee, parameters)
        # The names that computations have here by those that they had where they were built.
        names: dict[str, str] = {}
        for computation in callee.computations:
            name = computation.name
            # Two functions may both be called "add", but only if they are the same do they share a name.
            if self._computations.get(name) != _renamed(computation, name, names):
                name = unused_name(name, self._computations)
                self._computations[name] = _renamed(computation, name, names)
            names[computation.name] = name
        return ComputationName(names[callee.entry_name])

    def _traced(self, function: Callable[..., Any], parameters: Iterable[Shape]) -> Module:
        """Return what a Python function does to ops, as a module."""
        # The class of this object, for it has all families of methods, which this file does not know.
        builder = type(self)(getattr(function, "__name__", "computation").strip("<>"))
        ops = [builder.parameter(number, shape) for number, shape in enumerate(parameters)]
        result = function(*ops)
        if isinstance(result, Op):
            return builder.build(result)
        if not isinstance(result, Iterable):
            raise ProgramError(f"expected {builder.name!r} to return an op or a list of ops, found {result!r:.80}")
        return builder.build(builder.emit("tuple", list(result)))

    def _check_is_own(self, op: Op) -> None:
        """Refuse an op of another builder: it is no value of this computation."""
        if op.builder is not self:
            raise ProgramError(f"expected an op of builder {self.name!r}, found {op.name!r} of {op.builder.name!r}")

    def _numbered(self, opcode: str) -> str:
        # Parameters with names of their own may have taken the number.
        self._serial += 1
        return unused_name(f"{opcode}.{self._serial}", self._instructions)

    def _add(self, instruction: Instruction) -> Op:
        self._instructions[instruction.name] = instruction
        return Op(self, instruction.name, instruction.shape)  # type: ignore[arg-type]


def as_shape(shape: Shape | str) -> Shape:
    """Return a shape that may have been given in XLA's notation; raises ProgramError if a size is below 0."""
    found = parse_shape(shape) if isinstance(shape, str) else shape
    # One that is not known, "?", counts as -1.
    if any(size < UNBOUNDED for array in leaves(found) for size in array.dimensions):
        raise ProgramError(f"expected sizes of at least 0, found {found}")
    return found


def as_dtype(name: DType | str) -> DType:
    """Return an element type that may have been given by its name."""
    return dtype(name) if isinstance(name, str) else name


def array_of(op: Op) -> ArrayShape:
    """Return the shape of an op that must be an array; raises ProgramError if it is a tuple."""
    if not isinstance(op.shape, ArrayShape):
        raise ProgramError(f"expected {op.name!r} to be an array, found {op.shape}; take an element of it first")
    return op.shape


def array_with(op: Op, dimension: int) -> ArrayShape:
    """Return the shape of an op that must be an array with a dimension of this number; raises ProgramError if not."""
    shape = array_of(op)
    if not 0 <= dimension < shape.rank:
        raise ProgramError(f"expected a dimension of {op.name!r}, {shape}, found {dimension}")
    return shape


def listed(operands: Op | Sequence[Op]) -> list[Op]:
    """Return one op, or several, as a list."""
    return [operands] if isinstance(operands, Op) else list(operands)


def some(method: str, operands: Op | Sequence[Op]) -> list[Op]:
    """Return one op, or several, as a list; raises ProgramError if there is none."""
    if not (found := listed(operands)):
        raise ProgramError(f"{method}: expected at least one operand, found none")
    return found


def choice(word: str, words: str) -> Symbol:
    """Return the one of some words that is meant, in any case; the text format refuses any other."""
    known = words.split()
    found = [each for each in known if each.lower() == str(word).lower()]
    if not found:
        hint = did_you_mean(str(word), known)
        raise ProgramError(f"expected one of {', '.join(known)}, found {word!r}{hint}")
    return Symbol(found[0])


def scalars(ops: Iterable[Op]) -> list[Shape]:
    """Return for each op the scalar of its element type."""
    return [ArrayShape(array_of(op).dtype) for op in ops]


def unused_name(base: str, taken: Mapping[str, Any]) -> str:
    """Return ``base``, or ``base.1`` and so on, whichever is not taken yet."""
    names = (f"{base}.{number}" if number else base for number in count())
    return next(name for name in names if name not in taken)


def _clean(name: str) -> str:
    """Return a name that HLO text can hold, changed as XLA changes it."""
    clean = _NOT_IN_NAMES.sub("_", name) or "_"
    # XLA puts the underscore behind, too.
    if clean in RESERVED_WORDS or clean.startswith("__"):
        clean = clean.lstrip("_") + "_"
    return clean if clean[0].isalpha() or clean[0] == "_" else f"_{clean}"


def _renamed(computation: Computation, name: str, names: Mapping[str, str]) -> Computation:
    """Return a computation under another name that calls others by their new names."""
    instructions = tuple(
        msgspec.structs.replace(i, attributes={k: _with_new_names(v, names) for k, v in i.attributes.items()})
        for i in computation.instructions
    )
    return Computation(name, instructions, computation.root_name, computation.execution_thread)


def _with_new_names(value: Any, names: Mapping[str, str]) -> Any:
    """Return the value of an attribute with computations called by their new names."""
    if isinstance(value, ComputationName):
        return ComputationName(names[value])
    if isinstance(value, tuple) and value and isinstance(value[0], ComputationName):
        return tuple(ComputationName(names[name]) for name in value)
    return value
