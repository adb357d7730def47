"""What the methods of the builder are given, checked in one place: by the annotations of their parameters.

A caller's mistake ends in one error that names method and argument, and not wherever the value is first used. Numbers
become Python's and rows of them tuples, so that arrays and iterators may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from tpusim.build.base import BuilderBase, Op
from tpusim.build.contraction import DotDimensionNumbers
from tpusim.errors import ConfigError, ProgramError
from tpusim.ir.attributes import ConvolutionLabels, ReplicaGroups
from tpusim.ir.module import Computation, Module
from tpusim.limits import check_truth
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, BufferShape, TupleShape

_BOUND = 2**63

_B = TypeVar("_B", bound=type[BuilderBase])

_Take = Callable[[Any], Any]
"""From what a caller gave to what a method expects; raises TypeError or ValueError where it is something else."""


class _Kind(NamedTuple):
    """What an annotation allows: the words of an error, and how it is taken."""

    words: str
    take: _Take


def checks_arguments(builder: _B) -> _B:
    """Return a class of builders whose public methods refuse arguments that they are not made for with ProgramError."""
    for name in dir(builder):
        if not name.startswith("_"):
            setattr(builder, name, _checked(name, getattr(builder, name)))
    return builder


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that first takes each of its arguments as its annotation says."""
    # In the order of the parameters.
    annotations = {one: text for one, text in method.__annotations__.items() if one not in ("self", "return")}
    kinds = {one: _KINDS[text.removesuffix(" | None")] for one, text in annotations.items()}
    optional = {one for one, text in annotations.items() if text.endswith(" | None")}

    def taken(one: str, value: Any) -> Any:
        if value is None and one in optional:
            return None
        try:
            return kinds[one].take(value)
        except (TypeError, ValueError, OverflowError, ConfigError) as error:
            raise ProgramError(f"{name}: {one}: expected {kinds[one].words}, found {value!r:.80}") from error

    @wraps(method)
    def checked(self: BuilderBase, *given: Any, **named: Any) -> Any:
        # What is too many, or has no such name, Python refuses.
        first = [taken(one, value) for one, value in zip(kinds, given, strict=False)]
        named = {one: taken(one, value) if one in kinds else value for one, value in named.items()}
        return method(self, *first, *given[len(first) :], **named)

    return checked


def _of(*classes: type) -> _Take:
    """Return what takes objects of some classes as they are."""

    def take(value: Any) -> Any:
        if not isinstance(value, classes):
            raise TypeError
        return value

    return take


def _each(take: _Take) -> _Take:
    """Return what takes a row of things, each of them in one way."""

    def take_each(value: Any) -> tuple[Any, ...]:
        # A text is a row of texts, which nobody means.
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError
        return tuple(map(take, value))

    return take_each


def _either(one: _Take, other: _Take) -> _Take:
    """Return what takes a thing in the one way or, where it is not made for that, in the other."""

    def take(value: Any) -> Any:
        try:
            return one(value)
        except (TypeError, ConfigError):
            return other(value)

    return take


def _rows(*lengths: int) -> _Take:
    """Return what takes rows of whole numbers, each of one of some lengths."""

    def take(value: Any) -> tuple[tuple[int, ...], ...]:
        rows: tuple[tuple[int, ...], ...] = _each(_sizes)(value)
        if not {*map(len, rows)} <= {*lengths}:
            raise ValueError
        return rows

    return take


def _whole(value: Any) -> int:
    # For Python a truth is a number.
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError
    number = int(value)
    # The text has none beyond 64 bits.
    if not -_BOUND <= number < _BOUND:
        raise ValueError
    return number


def _real(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError
    return float(value)


def _truth(value: Any) -> bool:
    # As in C++, whose callers write 0 and 1 as well.
    return bool(value) if isinstance(value, Integral) and value in (0, 1) else check_truth("", value)


def _callee(value: Any) -> Any:
    if not callable(value):
        return _of(BuilderBase, Module, Computation)(value)
    return value


def _callee_with_shapes(value: Any) -> tuple[Any, ...]:
    callee, shapes = value
    return _callee(callee), _shapes(shapes)


def _attributes(value: Any) -> dict[str, Any]:
    return {name: _attribute(name, one) for name, one in _of(Mapping)(value).items()}


def _attribute(name: str, value: Any) -> Any:
    """Take the value of an attribute: what the text has a form for; of what kind the opcode wants it is not known."""
    if isinstance(value, (list, tuple)):
        return tuple([_attribute(name, one) for one in value])
    if value is None or isinstance(value, (str, bool, Struct)):
        return value
    return _real(value) if name == "epsilon" else _whole(value)


def _dot_numbers(value: Any) -> Any:
    """Take the dimension numbers of a product; the method says which names of a mapping it knows."""
    if isinstance(value, DotDimensionNumbers):
        return DotDimensionNumbers(*map(_sizes, structs.astuple(value)))
    return {name: _sizes(sizes) for name, sizes in value.items()} if isinstance(value, Mapping) else value


_op, _text = _of(Op), _of(str)
_ops, _sizes, _callees = _each(_op), _each(_whole), _each(_callee)
_shape = _of(str, ArrayShape, TupleShape, BufferShape)
_shapes = _each(_shape)

_KINDS = {
    "Any": _Kind("anything", lambda value: value),
    "Op": _Kind("an op of a builder", _op),
    "Sequence[Op]": _Kind("a list of ops", _ops),
    "Op | Sequence[Op]": _Kind("an op or a list of ops", _either(_op, _ops)),
    "Op | Sequence[Callee]": _Kind("an op or a list of computations", _either(_op, _callees)),
    "Callee": _Kind("a computation: a builder, a module or a function of ops", _callee),
    "Callee | Sequence[Op]": _Kind("a computation or a list of ops", _either(_callee, _ops)),
    "Sequence[Callee]": _Kind("a list of computations", _callees),
    "Sequence[CalleeWithShapes]": _Kind(
        "a list of computations, each with the shapes of its parameters", _each(_callee_with_shapes)
    ),
    "int": _Kind("a whole number of 64 bits", _whole),
    "float": _Kind("a number", _real),
    "bool": _Kind("true or false", _truth),
    "Sequence[bool]": _Kind("a list of truths", _each(_truth)),
    "str": _Kind("a text", _text),
    "str | bool": _Kind("a text, or true or false", _either(_text, _truth)),
    "Sizes": _Kind("a list of whole numbers", _sizes),
    "Sequence[Sizes]": _Kind("a list of pairs of whole numbers", _rows(2)),
    "Sequence[Sequence[int]]": _Kind("whole numbers (low, high) or (low, high, interior) per dimension", _rows(2, 3)),
    "Groups": _Kind("a list of groups of device numbers", _either(_of(ReplicaGroups), _each(_sizes))),
    "Padding": _Kind("padding SAME, VALID or (low, high) per dimension", _either(_text, _rows(2))),
    "Precision": _Kind("a precision, or one for each operand", _either(_text, _each(_text))),
    "Shape | str": _Kind("a shape such as 'f32[4,16]'", _shape),
    "Iterable[Shape]": _Kind("a list of shapes", _shapes),
    "DType | str": _Kind("an element type such as 'f32'", _of(DType, str)),
    "ConvolutionLabels | str": _Kind("dimension labels such as b01f_01io->b01f", _of(ConvolutionLabels, str)),
    "DotDimensionNumbers | Mapping[str, Sizes]": _Kind("lists of dimensions by name", _dot_numbers),
    "Mapping[str, Any]": _Kind("attributes by name, as ir.attributes has them", _attributes),
}
"""What parameters may be, by their annotation; one that is not here fails when the class is made."""
