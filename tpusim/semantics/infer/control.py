"""Shapes of tuples and of operations that run computations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tpusim.semantics.infer.site import Signature, Site, broken, infers, require
from tpusim.semantics.infer.types import PRED, dynamic_flags, plain
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, compatible

# The parser keeps the attribute as text; the few who want a value of it decode it themselves.
_FRONTEND = re.compile(r'([\w.\-]+|"(?:[^"\\]|\\.)*")\s*=\s*("(?:[^"\\]|\\.)*")')


def frontend_attributes(site_attributes: dict[str, object]) -> dict[str, str]:
    """Return the quoted values of ``frontend_attributes`` by key; those that are objects are left out."""
    text = str(site_attributes.get("frontend_attributes", ""))
    return {key.strip('"'): _unescaped(value) for key, value in _FRONTEND.findall(text)}


def _unescaped(value: str) -> str:
    """Return what a quoted string says; HLO has escapes of C that JSON lacks, and then the text stands for itself."""
    try:
        return str(json.loads(value))
    except ValueError:
        return value[1:-1]


@infers("tuple")
def _tuple(site: Site) -> TupleShape:
    """Give the operands' shapes as elements."""
    return TupleShape(tuple(site.operands))


@infers("get-tuple-element")
def _get_tuple_element(site: Site) -> Shape:
    """Give one element's shape."""
    shape, index = site.operands[0], site.attributes["index"]
    if not isinstance(shape, TupleShape):
        raise broken("get_tuple_element_c1", plain(shape))
    require(0 <= index < len(shape.elements), "get_tuple_element_c2", index, "of", len(shape.elements))
    element: Shape = shape.elements[index]
    return element


@infers("call")
def _call(site: Site) -> Shape:
    """Give what the called computation gives."""
    if site.flag("is_composite"):
        _check_composite(frontend_attributes(site.attributes))
    signature = site.signature("to_apply")
    if signature is None:
        return site.stated()
    if len(signature.parameters) != len(site.operands):
        raise broken("call_c1", f"{len(site.operands)} for {len(signature.parameters)}")
    _check_arguments("call_c2", signature, site.operands)
    return signature.result


def _check_composite(known: dict[str, str]) -> None:
    """Require a name, and attributes and a version that make sense, of a call that stands for an operation."""
    require(known.get("composite.name"), "call_c3", known)
    # An empty text is no dictionary; where there are no attributes, the entry is left out.
    require(known.get("composite.attributes") != "", "call_c4", known)
    if not known.get("composite.version", "0").isdecimal():
        raise broken("call_c5", known["composite.version"])


def _check_arguments(label: str, signature: Signature, operands: Sequence[Shape]) -> None:
    """Require operands to be what the first parameters are."""
    for number, (parameter, operand) in enumerate(zip(signature.parameters, operands, strict=False)):
        # The parser keeps one object per shape's text, so that identity answers most of the time.
        if parameter is not operand and not compatible(parameter, operand):
            raise broken(label, f"{plain(operand)} for parameter {number} of shape {plain(parameter)}")


@infers("fusion")
def _fusion(site: Site) -> Shape:
    """Give what the fused computation gives."""
    signature = site.signature("calls")
    if signature is None:
        return site.stated()
    # XLA's verifier lets more operands than parameters pass, but its layout assignment then aborts.
    if len(signature.parameters) != len(site.operands):
        raise broken("fusion_c1", f"{len(site.operands)} for {len(signature.parameters)}")
    _check_arguments("fusion_c2", signature, site.operands)
    return signature.result


@infers("while")
def _while(site: Site) -> Shape:
    """Give the state, whose shape is the same before, in and after every iteration."""
    state = site.operands[0]
    condition, body = site.signature("condition"), site.signature("body")
    if condition is None or body is None:
        return state
    if len(condition.parameters) != 1 or len(body.parameters) != 1:
        raise broken("while_c1", f"{len(condition.parameters)} and {len(body.parameters)}")
    # Layouts may differ between caller and callee, as nothing has assigned them before compilation.
    if not compatible(condition.parameters[0], state):
        raise broken("while_c2", f"{plain(condition.parameters[0])} for {plain(state)}")
    if not compatible(body.parameters[0], state):
        raise broken("while_c3", f"{plain(body.parameters[0])} for {plain(state)}")
    require(compatible(condition.result, PRED), "while_c4", condition.result)
    require(compatible(body.result, state), "while_c5", body.result, "for", state)
    return state


@infers("conditional")
def _conditional(site: Site) -> Shape:
    """Give what every branch gives."""
    selector = site.array()
    require(not selector.dimensions and selector.dtype.name in ("pred", "s32"), "conditional_c1", selector)
    names = branches(site.attributes)
    require(not selector.dtype.is_pred or len(names) == 2, "conditional_c2", len(names))
    if not names or len(site.operands) != len(names) + 1:
        raise broken("conditional_c3", f"{len(site.operands) - 1} for {len(names)} branches")
    result: Shape | None = None
    for name, operand in zip(names, site.operands[1:], strict=True):
        signature = site.signature_of(name)
        if signature is not None:
            _check_branch(name, signature, operand, result)
            result = signature.result if result is None else _loosest(result, signature.result)
    return site.stated() if result is None else result


def _loosest(one: Shape, other: Shape) -> Shape:
    """Return the shape of two compatible ones that is dynamic wherever either is."""
    if isinstance(one, TupleShape) and isinstance(other, TupleShape):
        return TupleShape(tuple(map(_loosest, one.elements, other.elements)))
    if not isinstance(one, ArrayShape) or not isinstance(other, ArrayShape) or one.dynamic == other.dynamic:
        return one
    flags = tuple(map(max, dynamic_flags(one), dynamic_flags(other)))
    return ArrayShape(one.dtype, one.dimensions, flags, one.layout)


def branches(attributes: dict[str, object]) -> tuple[str, ...]:
    """Return the names of a conditional's computations, the one for true before the one for false."""
    listed = attributes.get("branch_computations")
    if isinstance(listed, tuple):
        return listed
    # True comes first: of two listed branches, too, pred runs number 0 where it holds.
    return tuple(str(attributes[key]) for key in ("true_computation", "false_computation") if key in attributes)


def _check_branch(name: str, signature: Signature, operand: Shape, result: Shape | None) -> None:
    """Require a branch to take its operand and to give what the first one gives."""
    require(len(signature.parameters) == 1, "conditional_c4", f"{len(signature.parameters)} in {name!r}")
    if not compatible(signature.parameters[0], operand):
        raise broken("conditional_c5", f"{plain(operand)} for {plain(signature.parameters[0])} of {name!r}")
    if result is not None and not compatible(signature.result, result):
        raise broken("conditional_c6", f"{plain(signature.result)} of {name!r} and {plain(result)}")


@infers("custom-call")
def _custom_call(site: Site) -> Shape:
    """Give the stated shape: nobody but the target knows more."""
    result = site.stated()
    constraints = site.attributes.get("operand_layout_constraints")
    if constraints is not None:
        require(len(constraints) == len(site.operands), "custom_call_c1", len(constraints), "for", len(site.operands))
        for constraint, operand in zip(constraints, site.operands, strict=True):
            require(compatible(constraint, operand), "custom_call_c2", constraint, "for", operand)
    if site.attributes["custom_call_target"] == "GetRngSeed" and (
        site.operands or not compatible(result, ArrayShape(DTYPES["u64"]))
    ):
        raise broken("custom_call_c3", f"{plain(result)} of {len(site.operands)} operands")
    return result
