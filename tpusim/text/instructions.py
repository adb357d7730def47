"""Instructions token by token: everything that the grammar allows, with the exact place of what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from tpusim.errors import ProgramError, did_you_mean
from tpusim.ir.attributes import ComputationName
from tpusim.ir.module import Instruction, Literal
from tpusim.ir.ops import OPERATIONS, SHAPE_IMPLIED, Operation, find_operation
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import UNKNOWN, InTheMaking, Site, broken
from tpusim.shapes.shape import Shape, TupleShape
from tpusim.text.attributes.table import take_attributes
from tpusim.text.checks import find_check
from tpusim.text.lexer import Lexer
from tpusim.text.literals import take_literal
from tpusim.text.scope import ComputationScope

# More digits than this are a slip; the check that numbers are dense would refuse them later.
_MOST_PARAMETERS = 1 << 31


class NestingScope(ComputationScope):
    """A computation whose attributes may hold whole computations in braces."""

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation, or read one in braces and name it as XLA does."""
        if lexer.kind != "{":
            return super().take_computation(lexer)
        self.module.enter(lexer)
        scope = NestingScope(self.module)
        take_body(lexer, scope)
        # The name is taken after the body, so that computations inside it count first, as in XLA.
        name = self.module.fresh_name("_", self.module.computations)
        self.module.add(scope.finish(lexer, name))
        self.module.leave()
        return ComputationName(name)


def take_body(lexer: Lexer, scope: ComputationScope) -> None:
    """Read ``{ instruction... }``, at least one."""
    lexer.take("{", "'{' before the instructions")
    take_instruction(lexer, scope)
    while lexer.kind != "}":
        take_instruction(lexer, scope)
    lexer.advance()


def take_instruction(lexer: Lexer, scope: ComputationScope) -> None:
    """Read ``[ROOT] name = [shape] opcode(operands), attributes`` into ``scope``.

    Raises:
        ProgramError: The text is no instruction, or one that cannot stand here.
    """
    root_place = lexer.start
    is_root = lexer.kind == "keyword" and lexer.value == "ROOT"
    if is_root:
        lexer.advance()
    place = lexer.start
    name = lexer.take_word("the name of an instruction")
    lexer.take("=", f"'=' after the name {name!r}")
    if is_root and scope.root_name is not None:
        lexer.fail("a computation has only one ROOT", root_place)
    take_right_side(lexer, scope, name, place)
    if is_root:
        scope.root_name = name


def take_right_side(lexer: Lexer, scope: ComputationScope, name: str, place: int, nested: bool = False) -> str:
    """Read what follows ``name =`` and add the instruction; return its name.

    A nested instruction has neither name nor attributes, since the comma after it belongs to the one around it.
    """
    # A shape may be left out where operands imply it; old texts do so.
    shape = lexer.take_shape() if shape_follows(lexer) else None
    opcode_place = lexer.start
    operation = _take_opcode(lexer, scope)
    if shape is None and operation.name not in SHAPE_IMPLIED:
        lexer.fail(f"{operation.name!r}: {broken('shape_c1', 'none').message}", opcode_place)
    operands, immediate = _take_arguments(lexer, scope, operation, shape)
    attributes: dict[str, Any] = {}
    if not nested:
        attributes = take_attributes(lexer, operation, scope)
    elif operation.required:
        lexer.fail(f"{operation.name!r} needs attributes, so it cannot be nested", opcode_place)
    # After the operands, whose own nested instructions take their names first.
    name = name or scope.module.fresh_name(f"{operation.name}.anon", scope.by_name)
    instruction = Instruction(name, shape or UNKNOWN, operation.name, operands, attributes, immediate)
    return scope.add(lexer, _checked(lexer, scope, instruction, opcode_place), place)


def shape_follows(lexer: Lexer) -> bool:
    """Return whether a shape begins at the token at hand."""
    if lexer.kind in ("type", "("):
        return True
    # b(shape) is a buffer; b alone may be an instruction.
    return lexer.kind == "identifier" and lexer.value == "b" and lexer.peek() == "("


def _take_opcode(lexer: Lexer, scope: ComputationScope) -> Operation:
    """Read an opcode, the short form of an asynchronous one included."""
    place = lexer.start
    opcode = lexer.take("identifier", "a shape or an opcode")
    operation = find_operation(opcode)
    if operation is None:
        lexer.fail(f"unknown opcode {opcode!r}{did_you_mean(opcode, OPERATIONS)} [instruction_c1]", place)
    scope.module.opcodes.add(operation.name)
    return operation


def _take_arguments(
    lexer: Lexer, scope: ComputationScope, operation: Operation, shape: Shape | None
) -> tuple[tuple[str, ...], int | Literal | None]:
    """Read what stands in parentheses: operands, the number of a parameter or the literal of a constant."""
    place = lexer.start
    lexer.take("(", f"'(' after {operation.name!r}")
    if operation.name == "parameter":
        return (), _take_parameter_number(lexer)
    if operation.name == "constant":
        assert shape is not None
        literal = take_literal(lexer, shape)
        lexer.take(")", "')' after the literal")
        return (), literal
    operands: list[str] = []
    while lexer.kind != ")":
        operands.append(_take_operand(lexer, scope))
        # XLA lets a comma stand after the last.
        if not lexer.accept(","):
            break
    lexer.take(")", "',' or ')' in the list of operands")
    if not operation.accepts_count(len(operands)):
        fewest = operation.fewest_operands
        count = f"{fewest} operand{'s' if fewest != 1 else ''}"
        if operation.most_operands is None:
            count = f"at least {fewest} operands"
        lexer.fail(f"{operation.name!r} takes {count}, found {len(operands)} [instruction_c2]", place)
    return tuple(operands), None


def _take_parameter_number(lexer: Lexer) -> int:
    place = lexer.start
    number = lexer.take_integer("the number of a parameter")
    if not 0 <= number < _MOST_PARAMETERS:
        lexer.fail("the number of a parameter is not negative and fits 31 bits", place)
    lexer.take(")", "')' after the number of a parameter")
    return number


def _take_operand(lexer: Lexer, scope: ComputationScope) -> str:
    """Read ``[shape] name``, or an instruction in its place."""
    place = lexer.start
    shape = lexer.take_shape() if shape_follows(lexer) else None
    # add(f32[2], f32[2]): only a text that is one instruction has operands without names.
    if shape is not None and scope.makes_parameters and lexer.kind in (",", ")"):
        return scope.find_operand(lexer, "", shape, place)
    if lexer.kind == "identifier" and lexer.peek() == "(":
        # The shape, if there was one, is read again as that of the nested instruction.
        lexer.jump(place)
        scope.module.enter(lexer)
        name = take_right_side(lexer, scope, "", place, nested=True)
        scope.module.leave()
        return name
    name_place = lexer.start
    name = lexer.take_word("an operand")
    if lexer.kind != "#":
        return scope.find_operand(lexer, name, shape, name_place)
    return _take_elements(lexer, scope, scope.find_operand(lexer, name, None, name_place), name_place)


def _take_elements(lexer: Lexer, scope: ComputationScope, name: str, place: int) -> str:
    """Read ``#0#1`` after an operand: elements of the tuple, taken out by instructions made for it."""
    while lexer.accept("#"):
        shape = scope.by_name[name].shape
        index = lexer.take_integer("the number of a tuple's element")
        if not isinstance(shape, TupleShape) or not 0 <= index < len(shape.elements):
            lexer.fail(f"{name!r} of shape {shape} has no element {index}", place)
        element = f"{name}_{index}"
        # Taken out once, however often it is written.
        if element not in scope.by_name:
            taken = Instruction(element, shape.elements[index], "get-tuple-element", (name,), {"index": index})
            scope.add(lexer, taken, place)
        name = element
    return name


def _checked(lexer: Lexer, scope: ComputationScope, instruction: Instruction, place: int) -> Instruction:
    """Return an instruction that passes the check of its opcode, with its shape inferred if the text left it out."""
    operands = tuple(scope.by_name[name] for name in instruction.operands)
    check = find_check(instruction.opcode, instruction.attributes)
    try:
        if instruction.shape is UNKNOWN:
            # XLA's parser, too, asks its shape inference. What the first line says matters to none of these shapes.
            around = InTheMaking(scope.computations)
            shape = find_rule(instruction.opcode)(Site(instruction, [operand.shape for operand in operands], around))
            instruction = msgspec.structs.replace(instruction, shape=shape)
        if check is not None:
            check(instruction, operands, scope)
    except ProgramError as error:
        lexer.fail(f"{instruction.opcode!r} {instruction.name!r}: {error.message}", place)
    return instruction
