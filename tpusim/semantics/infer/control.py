"""Shapes of tuples and of operations that run computations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tpusim.ir.module import Instruction
from tpusim.semantics.infer.async_ops import elements_of
from tpusim.semantics.infer.custom_calls import call_fault
from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import PRED, dynamic_flags, plain
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, compatible

# The parser keeps the attribute as text: its values are rarely needed.
# Never going back: a way back for each character takes a hundred times the memory of the text.
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_FRONTEND = re.compile(rf"([\w.\-]++|{_STRING})\s*+=\s*+({_STRING}|\{{)")
_UP_TO_BRACE = re.compile(rf'(?:[^"{{}}]++|{_STRING})*+([{{}}])')


def frontend_attributes(site_attributes: dict[str, object]) -> dict[str, str]:
    """Return the values of ``frontend_attributes`` by key, without the quotes; those in braces as they stand.

    XLA prints what begins and ends as an object does without quotes, whatever is in it.
    """
    text, found = str(site_attributes.get("frontend_attributes", "")), {}
    match = _FRONTEND.search(text)
    while match:
        key, value, end = match[1].strip('"'), match[2], match.end()
        if value == "{":
            end = _end_of_braces(text, end)
            found[key] = text[match.start(2) : end]
        else:
            found[key] = _unquoted(value)
        match = _FRONTEND.search(text, end)
    return found


def _end_of_braces(text: str, position: int) -> int:
    """Return where the brace is closed that was opened before a place; those inside strings do not count."""
    depth = 1
    while depth and (match := _UP_TO_BRACE.match(text, position)):
        depth += 1 if match[1] == "{" else -1
        position = match.end()
    return position


def _unquoted(value: str) -> str:
    try:
        return str(json.loads(value))
    except ValueError:
        # HLO has escapes of C that JSON lacks: the text then stands for itself.
        return value[1:-1]


@infers("get-tuple-element")
def _get_tuple_element(site: Site) -> Shape:
    elements, index = elements_of(site.operands[0], 0, "get_tuple_element_c1"), site.attributes["index"]
    require(0 <= index < len(elements), "get_tuple_element_c2", index, "of", len(elements))
    element: Shape = elements[index]
    return element


@infers("call")
def _call(site: Site) -> Shape:
    if site.flag("is_composite"):
        known = frontend_attributes(site.attributes)
        require(known.get("composite.name"), "call_c3", known)
        # An empty text is no dictionary; where there are no attributes, the entry is left out.
        require(known.get("composite.attributes") != "", "call_c4", known)
        version = known.get("composite.version", "0")
        require(version.isdecimal(), "call_c5", version)
    return _called(site, "to_apply", "call_c1", "call_c2")


# XLA's verifier lets more operands than parameters pass, but its layout assignment then aborts.
infers("fusion")(lambda site: _called(site, "calls", "fusion_c1", "fusion_c2"))


def _called(site: Site, attribute: str, count_label: str, shape_label: str) -> Shape:
    """Return what a computation gives, whose parameters must be what the operands are."""
    parameters, result = site.signature(attribute)
    require(len(parameters) == len(site.operands), count_label, len(site.operands), "for", len(parameters))
    for number, (parameter, operand) in enumerate(zip(parameters, site.operands, strict=True)):
        # The parser keeps one object per shape's text, so that identity answers most of the time.
        if parameter is not operand and not compatible(parameter, operand):
            raise broken(shape_label, f"{plain(operand)} for parameter {number} of shape {plain(parameter)}")
    return result


@infers("while")
def _while(site: Site) -> Shape:
    state = site.operands[0]
    condition, body = site.signature("condition"), site.signature("body")
    if len(condition.parameters) != 1 or len(body.parameters) != 1:
        raise broken("while_c1", f"{len(condition.parameters)} and {len(body.parameters)}")
    # Layouts may differ between caller and callee, as nothing has assigned them before compilation.
    require(compatible(condition.parameters[0], state), "while_c2", condition.parameters[0], "for", state)
    require(compatible(body.parameters[0], state), "while_c3", body.parameters[0], "for", state)
    require(compatible(condition.result, PRED), "while_c4", condition.result)
    require(compatible(body.result, state), "while_c5", body.result, "for", state)
    return state


@infers("conditional")
def _conditional(site: Site) -> Shape:
    selector = site.array()
    require(not selector.dimensions and selector.dtype.name in ("pred", "s32"), "conditional_c1", selector)
    names = branches(site.attributes)
    require(not selector.dtype.is_pred or len(names) == 2, "conditional_c2", len(names))
    if not names or len(site.operands) != len(names) + 1:
        raise broken("conditional_c3", f"{len(site.operands) - 1} for {len(names)} branches")
    result = site.signature_of(names[0]).result
    for name, operand in zip(names, site.operands[1:], strict=True):
        taken, given = site.signature_of(name)
        require(len(taken) == 1, "conditional_c4", len(taken), "in", repr(name))
        require(compatible(taken[0], operand), "conditional_c5", operand, "for", taken[0], "of", repr(name))
        require(compatible(given, result), "conditional_c6", given, "of", repr(name), "and", result)
        result = _loosest(result, given)
    return result


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


@infers("custom-call")
def _custom_call(site: Site) -> Shape:
    result = site.stated()
    check_operand_layouts(site.instruction, site.operands)
    if site.attributes["custom_call_target"] == "GetRngSeed" and (
        site.operands or not compatible(result, ArrayShape(DTYPES["u64"]))
    ):
        raise broken("custom_call_c3", f"{plain(result)} of {len(site.operands)} operands")
    if wanted := call_fault(site.instruction, site.operands, result):
        raise broken("custom_call_c4", f"{plain(result)} of {plain(TupleShape(tuple(site.operands)))}, not {wanted}")
    return result


def check_operand_layouts(instruction: Instruction, operands: Sequence[Shape]) -> None:
    """Require layout constraints, where there are any, to be as many as the operands and to fit them."""
    constraints = instruction.attributes.get("operand_layout_constraints")
    if constraints is not None:
        require(len(constraints) == len(operands), "custom_call_c1", len(constraints), "for", len(operands))
        for constraint, name, operand in zip(constraints, instruction.operands, operands, strict=True):
            require(compatible(constraint, operand), "custom_call_c2", constraint, "for", repr(name), "of", operand)


infers("tuple")(lambda site: TupleShape(tuple(site.operands)))
