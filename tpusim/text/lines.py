"""Instructions that stand on one line as XLA prints them, read at once.

Nearly every line of a program is one. A regular expression takes it apart; shapes, attributes and literals that have
been seen before come out of dicts. What is new is read by the ordinary readers and kept under its text. A line that is
unusual or wrong is left to ``instructions.py``, which knows the whole grammar.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any, NamedTuple

from tpusim.errors import ProgramError
from tpusim.ir.attributes import ComputationName, InstructionName, Raw
from tpusim.ir.module import RESERVED_WORDS, Instruction, Literal
from tpusim.ir.ops import WRITTEN_OUT, Operation, find_operation
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape_prefix
from tpusim.shapes.shape import Shape
from tpusim.text.attributes.table import COMPUTATION, Kind, attribute_kind
from tpusim.text.checks import Check, find_check
from tpusim.text.lexer import WORD, Lexer
from tpusim.text.literals import take_literal
from tpusim.text.scope import ComputationScope, ModuleScope

_FIRST_NAME = re.compile(r"\n  (?:ROOT )?(%?)[A-Za-z_]")
# XLA writes it into long lists of operands, and nothing else there has a slash.
_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")
_PARAMETER_NUMBER = re.compile(r"[0-9]{1,9}")


@cache
def _line(sigil: str) -> re.Pattern[str]:
    """Return the pattern of an ordinary line with ``sigil`` before names; it is empty where no such line begins.

    It lets more pass than is right: its groups are looked up, and what is not known goes to the ordinary readers.
    """
    refused = DTYPES if sigil else RESERVED_WORDS
    begin = rf"  (?:ROOT )?+{sigil}" if sigil else rf"  (?:ROOT )?+{WORD} = "
    return re.compile(
        # Most names have more to them than a word, which is found sooner than that they are none of the words refused.
        rf"  (ROOT )?+{sigil}(?!(?=[A-Za-z0-9_]++ )(?:{'|'.join(sorted(refused))}) |__)({WORD}) = "
        # A shape has no blank inside, or is a tuple: it ends at the first ')' before a blank.
        r"((?:[a-z][^ ]*+|\((?:[^)]++|\)(?! ))*+\)) [^(]++)\(([^)]*+)\)(.*)\n"
        # More attributes may stand on the next line, but not where an instruction begins or all end.
        rf"(?={begin}|\}})|"
    )


class _Unusual(Exception):
    """A line, or a part of it, is not what the patterns here think, or has another meaning elsewhere."""


class _Values(NamedTuple):
    """What an attribute has been on lines of one opcode; those of one kind share what is known, by its text."""

    name: str
    kind: Kind
    known: dict[str, Any]


class _Row:
    """What the lines of one opcode share, and what has been seen on them."""

    __slots__ = ("attributes", "fewest", "immediates", "is_literal", "most", "opcode", "operation", "values")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.opcode = operation.name
        self.fewest = operation.fewest_operands
        self.most = sys.maxsize if operation.most_operands is None else operation.most_operands
        # What stands in the parentheses of a parameter is a number whatever its shape.
        self.is_literal = operation.name == "constant"
        self.immediates: dict[object, int | Literal] | None = {} if operation.name in WRITTEN_OUT else None
        self.values: dict[str, _Values] = {}
        self.attributes: dict[str, tuple[dict[str, Any], Check | None]] = {}


class _SharedScope(ModuleScope):
    """The view of a module in which attributes may name computations but no instructions."""

    def __init__(self, module: ModuleScope) -> None:
        super().__init__(module.source)
        self.computations = module.computations

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation, but not a computation in braces."""
        if lexer.kind == "{":
            raise _Unusual
        return super().take_computation(lexer)

    def take_instruction_name(self, lexer: Lexer) -> InstructionName:
        """Refuse: the name means something in its own computation only."""
        raise _Unusual


class LineReader:
    """Reads ordinary lines of one module, all of which have ``%`` before names, or none."""

    def __init__(self, module: ModuleScope) -> None:
        self._module = module
        self._rows: dict[str, _Row] = {}
        self._shapes: dict[str, Shape] = {}
        self._heads: dict[str, tuple[Shape, _Row]] = {}
        self._scope = _SharedScope(module)
        # The names of computations are known before anything refers to them.
        self._known: dict[Kind, dict[str, Any]] = {COMPUTATION: module.references}
        # Compilers print % before names and front ends do not; one text does not mix them.
        first = _FIRST_NAME.search(module.source.text)
        module.sigil = first[1] if first else "%"

    def read(self, scope: ComputationScope, position: int) -> int:  # noqa: C901 - a call a line would double its time
        """Read ordinary lines from ``position`` on into ``scope``; return where the first that is not one begins."""
        if scope.has_reserved_name:
            return position
        heads, sigil = self._heads, self._module.sigil
        before, between = len(sigil), f", {sigil}"
        by_name, offsets = scope.by_name, scope.offsets
        # Nothing before the line's end changes any state, so that a line can be given up at every step. The full
        # reader will find the same fault and its place, or read what is only unusual.
        try:
            for match in _line(sigil).finditer(self._module.source.text, position):
                root, name, head, arguments, tail = match.groups()
                if name is None or name in by_name:
                    break
                shape, row = heads.get(head) or self._new_head(head, match)
                # Before the attributes: a comment here could make the rest of the line mean something else.
                operands: tuple[str, ...] = ()
                immediate = None
                if row.immediates is not None:
                    key = (head, arguments) if row.is_literal else arguments
                    immediate = row.immediates.get(key)
                    if immediate is None:
                        immediate = row.immediates[key] = self._new_immediate(row, shape, match)
                elif arguments:
                    if arguments[:before] != sigil:
                        break
                    # The names as the instructions have them: a name is one object however often it is used.
                    first, comma, rest = arguments[before:].partition(between)
                    if not comma:
                        operands = (by_name[first].name,)
                    elif "," not in rest:
                        operands = by_name[first].name, by_name[rest].name
                    else:
                        names = first, *_INDEX_COMMENT.sub("", rest).split(between)
                        operands = tuple([by_name[operand].name for operand in names])
                attributes, check = row.attributes.get(tail) or self._new_attributes(row, tail, match.start(5))
                if not row.fewest <= len(operands) <= row.most:
                    break
                instruction = Instruction(name, shape, row.opcode, operands, attributes, immediate)
                if check is not None:
                    check(instruction, tuple([by_name[operand] for operand in operands]), scope)
                if root:
                    if scope.root_name is not None:
                        break
                    scope.root_name = name
                    scope.root_shape = head.rpartition(" ")[0]
                by_name[name] = instruction
                offsets.append(position + 7 if root else position + 2)
                position = match.end()
        except (KeyError, ProgramError, _Unusual):
            pass
        return position

    def _new_head(self, text: str, match: re.Match[str]) -> tuple[Shape, _Row]:
        """Return the shape and the row of the opcode on a line, between which there must be nothing but a blank."""
        shape_text, _, opcode = text.rpartition(" ")
        row = self._rows.get(opcode) or self._new_row(opcode)
        shape = self._shapes.get(shape_text)
        if shape is None:
            shape, end = parse_shape_prefix(match.string, match.start(3), self._module.source)
            # The pattern may have cut a shape short that has blanks or comments inside.
            if end != match.start(3) + len(shape_text):
                raise _Unusual
            self._shapes[shape_text] = shape
        head = self._heads[text] = shape, row
        return head

    def _new_row(self, opcode: str) -> _Row:
        """Return the row of an opcode that no line had before."""
        operation = find_operation(opcode)
        if operation is None:
            raise _Unusual
        self._module.opcodes.add(opcode)
        row = self._rows[opcode] = _Row(operation)
        return row

    def _new_immediate(self, row: _Row, shape: Shape, match: re.Match[str]) -> int | Literal:
        """Return the number of a parameter or the literal of a constant."""
        if not row.is_literal:
            if not _PARAMETER_NUMBER.fullmatch(match[4]):
                raise _Unusual
            return int(match[4])
        lexer = Lexer(self._module.source, match.start(4))
        literal = take_literal(lexer, shape)
        if lexer.start != match.end(4):
            raise _Unusual
        return literal

    def _new_attributes(self, row: _Row, tail: str, place: int) -> tuple[dict[str, Any], Check | None]:
        """Return the attributes that a line at ``place`` ends with, and the check of an instruction that has them."""
        attributes: dict[str, Any] = {}
        count = begin = 0
        while begin < len(tail):
            end = tail.find(", ", begin + 1)
            key, _, text = (tail[begin:end] if end > 0 else tail[begin:]).partition("=")
            name, kind, known = row.values.get(key) or self._new_values(row, key)
            begin += len(key) + 1
            value = known.get(text)
            if value is None:
                # It is new, or goes on after the comma.
                text, value = self._new_value(kind, place + begin)
                known[text] = value
            attributes[name] = value
            begin += len(text)
            count += 1
        # Double and missing attributes are told by the full reader, which knows how to say so.
        if begin > len(tail) or count > len(attributes) or not row.operation.required <= attributes.keys():
            raise _Unusual
        found = row.attributes[tail] = attributes, find_check(row.opcode, attributes)
        return found

    def _new_value(self, kind: Kind, place: int) -> tuple[str, Any]:
        """Return the value of an attribute, and its text."""
        source = self._module.source
        raw = kind.raw and kind.raw.match(source.text, place)
        if raw:
            return raw[0], Raw(raw[0])
        lexer = Lexer(source, place)
        value = kind.read(lexer, self._scope)
        return source.text[place : lexer.previous_end], value

    def _new_values(self, row: _Row, key: str) -> _Values:
        """Return the values of an attribute, with a comma and a blank before it, that no line of the opcode had."""
        name = key.removeprefix(", ")
        if name == key or not row.operation.allows(name):
            raise _Unusual
        kind = attribute_kind(row.opcode, name)
        values = row.values[key] = _Values(name, kind, self._known.setdefault(kind, {}))
        return values
