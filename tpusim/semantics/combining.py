"""Computations of two scalars (of reductions, scatters, all-reduces) that one opcode says it all of.

Texts write one in several ways: as an instruction on the two parameters; as a call or a fusion of that, as a function
traced by itself is called; or, where a processor lacks a type, in a wider one between conversions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tpusim.ir.module import called_in
from tpusim.ir.ops import CALLS_ONE, COMBINES, SAME_VALUE
from tpusim.semantics.infer.types import FLOAT_REACH
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape

REPLACE = "replace"
"""What stands for the opcode of a computation that returns its second parameter."""

_TWO = 2
"""Parameters."""

_NO_MATTER = frozenset({"metadata", "frontend_attributes", "origin"})


class Body(Protocol):
    """A computation of a module, of instructions, or a graph of a draft, of nodes."""

    @property
    def root(self) -> Any:
        """What it returns."""

    @property
    def parameters(self) -> Sequence[Any]:
        """The parameters in the order of their numbers."""

    def operands_of(self, made: Any, /) -> Sequence[Any]:
        """Return what makes the operands of an instruction or node."""


class _Value(NamedTuple):
    """What makes a value in a body; in one that is called, with the values that its parameters are."""

    body: Body
    made: Any
    arguments: tuple[_Value, ...] | None = None

    @property
    def operands(self) -> tuple[_Value, ...]:
        return tuple(_Value(self.body, made, self.arguments) for made in self.body.operands_of(self.made))

    @property
    def dtype(self) -> DType | None:
        """Its element type if it is a scalar."""
        shape = self.made.shape
        return shape.dtype if isinstance(shape, ArrayShape) and not shape.rank else None


def sole_opcode(bodies: Mapping[str, Body], name: str) -> str:
    """Return the opcode that a computation applies to its two parameters, if that is all that it does.

    In their order, or in either order where that is all one; ``REPLACE`` if it returns the second one. Nothing for any
    other, or where an opcode does not say it all, as that of a comparison. ``bodies`` are the computations by name.
    """
    body = bodies[name]
    if len(body.parameters) != _TWO:
        return ""
    root = _origin(bodies, _Value(body, body.root))
    narrow, wide = root.dtype, root.dtype
    if root.made.opcode == "convert":
        root = _origin(bodies, root.operands[0])
        wide = root.dtype
    if narrow is None or wide is None or not (wide == narrow or _rounds_alike(narrow, wide)):
        return ""
    if _number(bodies, root, narrow, wide) == 1:
        return REPLACE
    opcode, numbers = root.made.opcode, [_number(bodies, value, narrow, wide) for value in root.operands]
    if opcode in COMBINES:
        return str(opcode) if numbers in ([0, 1], [1, 0]) else ""
    is_all = wide == narrow and numbers == [0, 1] and root.made.attributes.keys() <= _NO_MATTER
    return str(opcode) if is_all else ""


def _number(bodies: Mapping[str, Body], value: _Value, narrow: DType, wide: DType) -> int | None:
    """Return which parameter a value is, of a narrow type but in a wide one if that is another."""
    origin = _origin(bodies, value)
    if wide != narrow:
        if origin.made.opcode != "convert" or origin.dtype != wide:
            return None
        origin = _origin(bodies, origin.operands[0])
        if origin.dtype != narrow:
            return None
    # Those of what is called are arguments, so that only the computation's own ones are left.
    return origin.body.parameters.index(origin.made) if origin.made.opcode == "parameter" else None


def _origin(bodies: Mapping[str, Body], value: _Value) -> _Value:
    """Return a value past what hands it on as it is: into calls, and from their parameters out of them again.

    Calls of calls may hand it on as often as a power of their depth; then it counts as no one's.
    """
    for _ in range(_MOST_HANDS):
        body, made, arguments = value
        if made.opcode in CALLS_ONE:
            called = bodies[called_in(made.attributes)[0]]
            value = _Value(called, called.root, value.operands)
        elif made.opcode == "parameter" and arguments is not None:
            value = arguments[body.parameters.index(made)]
        elif made.opcode in SAME_VALUE:
            value = value.operands[0]
        else:
            break
    return value


_MOST_HANDS = 1000


def _rounds_alike(narrow: DType, wide: DType) -> bool:
    """Return whether sums and products in a wider float, rounded to a narrow one, are what the narrow one gives.

    Source: S. A. Figueroa, When is double rounding innocuous?, 1995: with twice the digits and two more they are.
    """
    if narrow.name not in FLOAT_REACH or wide.name not in FLOAT_REACH:
        return False
    (reach, digits), (wide_reach, wide_digits) = FLOAT_REACH[narrow.name], FLOAT_REACH[wide.name]
    return wide_reach >= reach and wide_digits >= 2 * digits + 2
