"""Shapes that the text may leave out, because the operands imply them.

XLA infers more (of a dot or a reduction, say); what is not here must be written, as every compiler's text does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.ir.ops import OPERATIONS
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tpusim.ir.module import Computation

# while is among them: its state has one shape before, inside and after the loop.
_SAME_AS_FIRST = (
    "abs acos acosh add add-dependency and asin asinh atan2 atanh cbrt ceil copy cosh cosine count-leading-zeros"
    " divide domain erf exponential exponential-minus-one floor log log-plus-one logistic maximum minimum mulhi"
    " multiply negate not opt-barrier or popcnt power remainder reverse round-nearest-afz round-nearest-even rsqrt"
    " shift-left shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan tanh while xor"
).split()
_COMPONENT = {"c64": "f32", "c128": "f64"}
_COMPLEX = {"f32": "c64", "f64": "c128"}


def infer_shape(
    opcode: str, operands: list[Shape], attributes: Mapping[str, Any], computations: Mapping[str, Computation]
) -> Shape | None:
    """Return the shape that operands and attributes imply; None if it must be written."""
    if opcode in _CALLING:
        return computations[_called(attributes)].root.shape
    rule = _RULES.get(opcode)
    return rule(operands, attributes) if rule else None


def can_infer(opcode: str) -> bool:
    """Whether a shape may be left out for this opcode."""
    return opcode in _RULES or opcode in _CALLING


def _called(attributes: Mapping[str, Any]) -> str:
    """Return the computation whose result is that of a call or a conditional."""
    branches = attributes.get("branch_computations") or (attributes.get("true_computation"),)
    return str(attributes.get("to_apply") or branches[0])


def _same_as(position: int) -> Callable[[list[Shape], Mapping[str, Any]], Shape | None]:
    """Make the rule of results shaped as one operand."""
    return lambda operands, attributes: operands[position]


def _with_dtype(name: str) -> Callable[[list[Shape], Mapping[str, Any]], Shape | None]:
    """Make the rule of results of another type than the first operand's."""
    return lambda operands, attributes: _retyped(operands[0], name)


def _retyped(shape: Shape, name: str) -> Shape | None:
    """Return an array of the same dimensions and layout and another type."""
    if not isinstance(shape, ArrayShape):
        return None
    # With the layout, as XLA's ShapeUtil::ChangeElementType has it.
    return ArrayShape(DTYPES[name], shape.dimensions, shape.dynamic, shape.layout)


def _component(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``abs``, ``real`` and ``imag``: a complex number gives its component's type."""
    shape = operands[0]
    if not isinstance(shape, ArrayShape):
        return None
    return _retyped(shape, _COMPONENT.get(shape.dtype.name, shape.dtype.name))


def _complex(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``complex`` from its real part."""
    shape = operands[0]
    name = _COMPLEX.get(shape.dtype.name) if isinstance(shape, ArrayShape) else None
    return _retyped(shape, name) if name else None


def _tuple(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``tuple``."""
    return TupleShape(tuple(operands))


def _element(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``get-tuple-element``."""
    shape, index = operands[0], attributes["index"]
    if not isinstance(shape, TupleShape) or not 0 <= index < len(shape.elements):
        return None
    element: Shape = shape.elements[index]
    return element


def _dot(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``dot``: batch dimensions, then what is free on the left, then on the right."""
    lhs, rhs = operands
    # The type of a mixed product has to be written.
    if not isinstance(lhs, ArrayShape) or not isinstance(rhs, ArrayShape) or lhs.dtype != rhs.dtype:
        return None
    # Sizes of paired dimensions are the verifier's business.
    batch = attributes.get("lhs_batch_dims", ())
    lhs_used = (*attributes.get("lhs_contracting_dims", ()), *batch)
    rhs_used = (*attributes.get("rhs_contracting_dims", ()), *attributes.get("rhs_batch_dims", ()))
    if not {*lhs_used} <= {*range(lhs.rank)} or not {*rhs_used} <= {*range(rhs.rank)}:
        return None
    free = [size for i, size in enumerate(lhs.dimensions) if i not in lhs_used]
    free += [size for i, size in enumerate(rhs.dimensions) if i not in rhs_used]
    return ArrayShape(lhs.dtype, (*(lhs.dimensions[i] for i in batch), *free))


def _transpose(operands: list[Shape], attributes: Mapping[str, Any]) -> Shape | None:
    """Infer ``transpose``, with no layout said."""
    shape, order = operands[0], attributes["dimensions"]
    if not isinstance(shape, ArrayShape) or sorted(order) != list(range(shape.rank)):
        return None
    dynamic = tuple(shape.dynamic[i] for i in order) if shape.dynamic else ()
    return ArrayShape(shape.dtype, tuple(shape.dimensions[i] for i in order), dynamic)


def _scalar(name: str) -> Callable[[list[Shape], Mapping[str, Any]], Shape | None]:
    """Make the rule of results that are always the same scalar, or a token."""
    return lambda operands, attributes: ArrayShape(DTYPES[name])


# What they call stands above them in the text, so that the shape of its root is known by now.
_CALLING = ("call", "conditional")
_RULES: dict[str, Callable[[list[Shape], Mapping[str, Any]], Shape | None]] = {
    **dict.fromkeys(_SAME_AS_FIRST, _same_as(0)),
    "abs": _component,
    "after-all": _scalar("token"),
    "clamp": _same_as(1),
    "compare": _with_dtype("pred"),
    "complex": _complex,
    "dot": _dot,
    "get-dimension-size": _scalar("s32"),
    "get-tuple-element": _element,
    "imag": _component,
    "is-finite": _with_dtype("pred"),
    "partition-id": _scalar("u32"),
    "real": _component,
    "replica-id": _scalar("u32"),
    "select": _same_as(1),
    "transpose": _transpose,
    "tuple": _tuple,
}
assert _RULES.keys() <= OPERATIONS.keys()
